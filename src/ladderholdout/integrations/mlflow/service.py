"""MLflow as a service: where it is, names of what is stored there, its faults, and checks.

MLflow's own words name what is wrong there: they are quoted, without passwords, but for requests
that hold raw scores, whose faults are named alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ladderholdout import thirdparty
from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, TrackingError, printable
from ladderholdout.guard.health import Check
from ladderholdout.guard.open_ladder import Facts, OpenLadder
from ladderholdout.ledger.place import shown

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


PREFIX = "ladderholdout."
IDENTITY = f"{PREFIX}identity"
KIND = f"{PREFIX}kind"
HOLDOUT = f"{PREFIX}holdout"
LADDER = f"{PREFIX}ladder"
RAW = f"{PREFIX}raw"
TOKEN = f"{PREFIX}token"
ENTRIES = f"{PREFIX}entries"
HEAD = f"{PREFIX}head"
PARAMETERS = f"{PREFIX}parameters_of"
"""The submissions whose parameters a run has, the first one's under their own names."""

SOURCE = "ladderholdout"
"""The type of the source of a data set that is a holdout."""

ANALYST = "analyst"
AUDIT = "audit"

RELEASED_KEY = "ladder_released"
RAW_KEY = "ladder_raw"
IMPROVED_KEY = "ladder_improved"
RESERVE_KEY = "ladder_reserve"
ESTIMATE_KEY = "ladder_estimate"

_LONGEST = 500


def identity(facts: Facts) -> str:
    """Return what one ladder of one ledger is known by: 32 hexadecimal digits.

    A replaced ledger has another: names alone would let its series run into the old one's.
    """
    described = facts.fingerprint, facts.account, facts.ladder, facts.created.isoformat()
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32]


def tags(holdout: OpenLadder, kind: str) -> dict[str, str]:
    """Return the tags that tie a run to the ledger; nothing in them depends on labels."""
    facts = holdout.facts
    return {
        IDENTITY: identity(facts),
        KIND: kind,
        HOLDOUT: facts.name,
        LADDER: f"{facts.account}/{facts.ladder}",
        f"{PREFIX}fingerprint": facts.fingerprint,
        f"{PREFIX}mechanism": repr(facts.rules.mechanism)[:_LONGEST],
        f"{PREFIX}metric": holdout.metric.name,
        f"{PREFIX}ledger": shown(holdout.ledger),
        f"{PREFIX}versions": versions(),
    }


def versions() -> str:
    """Return the versions of what the scores rest on."""
    import mlflow  # whose package may be called mlflow or mlflow-skinny

    known = [f"{name} {version(name)}" for name in ("ladderholdout", "numpy", "scikit-learn")]
    return ", ".join([*known, f"mlflow {mlflow.__version__}"])


# -- where it is ------------------------------------------------------------------------------

_ALLOWED = "a tracking URI, such as http://127.0.0.1:5000 or sqlite:///mlflow.db"
_WEB = ("http", "https")
_DATABASES = ("postgresql", "mysql", "sqlite", "mssql")
_SQLITE = "sqlite:///"
_USER = re.compile(r"//[^/\s]*@")


def printable_uri(uri: str) -> str:
    """Return a tracking URI, or a text with one, as it may be printed: without a password.

    Examples
    --------
    >>> printable_uri("https://ada:secret@tracking.example/team")
    'https://...@tracking.example/team'
    >>> printable_uri("sqlite:///mlflow.db")
    'sqlite:///mlflow.db'
    """
    return _USER.sub("//...@", uri)


def sqlite_file(uri: str) -> str | None:
    """Return the file of a SQLite store; None for one in memory, and for any other store.

    Examples
    --------
    >>> sqlite_file("sqlite:///mlflow.db"), sqlite_file("http://127.0.0.1:5000")
    ('mlflow.db', None)
    """
    file = uri.removeprefix(_SQLITE).partition("?")[0]
    return file if uri.startswith(_SQLITE) and file not in ("", ":memory:") else None


def _whole(uri: str) -> str:
    """Return a tracking URI whose SQLite file has its whole path; any other as it is."""
    file = sqlite_file(uri)
    if file is None:
        return uri
    return _SQLITE + os.path.abspath(file) + uri.removeprefix(_SQLITE + file)


def is_own(uri: str) -> bool:
    """Return whether a tracking URI is that of MLflow's own settings."""
    import mlflow

    return _whole(str(mlflow.get_tracking_uri())) == uri


@dataclass(frozen=True, slots=True)
class Places:
    """The tracking servers of the analyst's run and of the audit experiment.

    Attributes
    ----------
    analyst, audit : str
        Tracking URIs.
    options : tuple of str
        The options of the command line that name the ones that were stated.
    """

    analyst: str
    audit: str
    options: tuple[str, ...] = ()


def places(
    tracking_uri: str | os.PathLike[str] | None = None,
    audit_tracking_uri: str | os.PathLike[str] | None = None,
) -> Places:
    """Return the servers to use: MLflow's own choice where nothing is stated.

    A SQLite file is named by its whole path: a working folder may change.

    Raises
    ------
    InvalidArgument
        What is stated is no tracking URI, or MLflow has no store for it.
    """
    stated = {"tracking_uri": tracking_uri, "audit_tracking_uri": audit_tracking_uri}
    checked = {name: _checked(name, uri) for name, uri in stated.items() if uri is not None}
    analyst = checked.get("tracking_uri") or _checked("tracking_uri", None)
    options = tuple(
        f"--{name.replace('_', '-')} {printable_uri(uri)}" for name, uri in checked.items()
    )
    return Places(analyst, checked.get("audit_tracking_uri", analyst), options)


def _checked(argument: str, stated: object) -> str:
    """Return a tracking URI that MLflow has a store for; None is MLflow's own setting."""
    import mlflow

    given = mlflow.get_tracking_uri() if stated is None else stated
    uri = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(uri, str) or not uri.strip():
        raise InvalidArgument(argument, _ALLOWED, "empty" if uri == "" else as_given(uri))
    uri = uri.strip()
    refusal = _refusal(uri)
    if refusal is not None:
        came = printable_uri(uri)
        if stated is None:
            came += ", MLflow's own setting (MLFLOW_TRACKING_URI, mlflow.set_tracking_uri)"
        raise InvalidArgument(argument, _ALLOWED, came, refusal)
    return _whole(uri)


def _refusal(uri: str) -> str | None:
    """Return why MLflow has no store for a tracking URI; None where it has one, there or not."""
    from mlflow import MlflowClient

    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme in _DATABASES:
        # MLflow's store for databases is loaded here, rather than in a thread of ours: it uses what
        # SQLAlchemy 2.1 has deprecated, and where warnings are errors it would stay half loaded
        # permanently. A thread must not touch the filters of warnings, which are everybody's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            thirdparty.load_sql_store()
        # Else a database is there or not, which is not found out before a search begins.
        slashes = scheme != "sqlite" or uri.partition(":")[2].startswith("///")
        return None if slashes else "A file of SQLite comes after three slashes."
    try:
        MlflowClient(tracking_uri=uri)
    except Exception as error:  # an unknown scheme, a folder, a plugin of somebody's
        return _words(error)
    return None


# -- calls ------------------------------------------------------------------------------------

_PROBE_SECONDS = 3.0
_BATCH, _PAGE, _SAID = 50, 1000, 1000

# MLflow tries for minutes before it gives a request up, and urllib3 complains each time;
# SQLAlchemy shows the rows it writes as soon as somebody turns on debug logging for all.
_TALKERS = ("urllib3.connectionpool", "sqlalchemy.engine.Engine")
_hushed: set[int] = set()


def reachable(uri: str) -> bool:
    """Return within seconds whether a tracking server answers at all; a database always does."""
    if urlsplit(uri).scheme not in _WEB:
        return True
    try:
        thirdparty.try_server(uri, _PROBE_SECONDS)
    except Exception:  # whatever is wrong with it, it does not answer
        return False
    return True


def require(uri: str) -> None:
    """Raise a `TrackingError` where nothing answers, at once: MLflow would try for minutes."""
    if not reachable(uri):
        raise TrackingError(
            f"The tracking server {printable_uri(uri)} does not answer. Start it, or name another "
            "with MLFLOW_TRACKING_URI or --tracking-uri."
        )


def connect(uri: str, registry_uri: str | None = None) -> MlflowClient:
    """Return a client of a server that answers."""
    from mlflow import MlflowClient

    require(uri)
    with faults_named(uri):
        return MlflowClient(uri, registry_uri)


@contextmanager
def faults_named(uri: str, *, quoted: bool = True) -> Iterator[None]:
    """Raise MLflow's faults as a `TrackingError` in MLflow's words.

    Parameters
    ----------
    uri : str
    quoted : bool, default=True
        False for requests on runs that hold raw scores: what refuses them may quote these.
    """
    try:
        yield
    except LadderHoldoutError:
        raise
    except Exception as error:  # of MLflow, of requests, of SQLAlchemy, of a driver
        kind = getattr(error, "error_code", type(error).__name__)
        said = f": {_words(error)}" if quoted else "."
        raise TrackingError(
            f"MLflow at {printable_uri(uri)} refused a request ({kind}){said} Check it with "
            f"ladder-holdout verify --installation --tracking-uri {printable_uri(uri)}."
        ) from None


def _words(error: Exception) -> str:
    """Return the text of an error, without a password and without the statement that failed."""
    said = printable_uri(" ".join(str(error).partition("[SQL: ")[0].split()))
    return f"{printable(said, longest=_SAID).rstrip('.')}."


@contextmanager
def hushed() -> Iterator[None]:
    """Keep what this thread's requests log out of everybody's logs, but for errors."""
    for name in _TALKERS:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_audible)
    _hushed.add(threading.get_ident())
    try:
        yield
    finally:
        _hushed.discard(threading.get_ident())


def _audible(record: logging.LogRecord) -> bool:
    return record.thread not in _hushed or record.levelno >= logging.ERROR


def experiment_id(client: MlflowClient, name: str) -> str:
    """Return the experiment of a name, made if there is none."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=_beside(client)))
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:  # else somebody else was faster
                raise
    return living_experiment(client, found)


def living_experiment(client: MlflowClient, experiment: Experiment) -> str:
    """Return the number of an experiment; a deleted one is refused, with what restores it."""
    number = str(experiment.experiment_id)
    _refuse_deleted(client, "experiment", experiment.lifecycle_stage, experiment.name, number)
    return number


def living_run(client: MlflowClient, run_id: str) -> Run:
    """Return a run; one that is deleted is refused, with its experiment perhaps."""
    run = client.get_run(run_id)
    if run.info.lifecycle_stage != "active":
        living_experiment(client, client.get_experiment(run.info.experiment_id))
    _refuse_deleted(client, "run", run.info.lifecycle_stage, run_id, run_id)
    return run


def _refuse_deleted(client: MlflowClient, kind: str, stage: str, name: str, number: str) -> None:
    if stage != "active":
        uri = printable_uri(client.tracking_uri)
        raise TrackingError(
            f"The MLflow {kind} {name!r} is deleted. Restore it with "
            f"mlflow.MlflowClient({uri!r}).restore_{kind}({number!r})."
        )


def _beside(client: MlflowClient) -> str | None:
    """Return the folder for artifacts of a store in a file: `mlruns` beside it.

    By default MLflow takes that of the working folder, whatever that happens to be.
    """
    file = sqlite_file(client.tracking_uri)
    return None if file is None else Path(file).absolute().with_name("mlruns").as_uri()


def find(client: MlflowClient, tags: dict[str, str], places: list[str] | None = None) -> list[Run]:
    """Return the runs with these tags in these experiments, or in all, oldest first."""
    if places is None:
        known = _paged(client.search_experiments, max_results=_PAGE)
        places = [str(experiment.experiment_id) for experiment in known]
    condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    runs: list[Run] = []
    for start in range(0, len(places), _BATCH):
        some = places[start : start + _BATCH]
        runs += _paged(client.search_runs, experiment_ids=some, filter_string=condition)
    return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))


def _paged(call: Callable[..., Any], **given: Any) -> Iterator[Any]:
    token = None
    while True:
        page = call(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return


# -- checks -----------------------------------------------------------------------------------


def mlflow_findings(
    tracking_uri: str | None = None, audit_tracking_uri: str | None = None
) -> Iterator[Check]:
    """Check MLflow and the tracking servers.

    Parameters
    ----------
    tracking_uri, audit_tracking_uri : str, optional
        As for `LadderHoldout.track`.

    Yields
    ------
    Check
    """
    try:
        import mlflow
    except Exception as error:  # a broken installation may raise anything
        described = f"cannot be imported ({type(error).__name__})."
        again = "python -m pip install --force-reinstall ladderholdout"
        yield Check("mlflow", False, described, f"Install the package again: {again}.")
        return
    yield Check("mlflow", True, f"version {mlflow.__version__}")
    try:
        where = places(tracking_uri, audit_tracking_uri)
    except InvalidArgument as error:
        yield Check("tracking server", False, str(error))
        return
    yield server_finding("tracking server", where.analyst)
    if where.audit != where.analyst:
        yield server_finding("tracking server of the audit", where.audit)


def server_finding(what: str, uri: str) -> Check:
    """Check that a tracking server, or a database in its place, answers a request."""
    file, named = sqlite_file(uri), printable_uri(uri)
    if file is not None and not Path(file).exists():
        return Check(what, True, f"{named}: none yet; MLflow makes it at its first use")
    try:
        with hushed(), faults_named(uri):
            connect(places(uri).analyst).search_experiments(max_results=1)
    except LadderHoldoutError as error:
        return Check(what, False, str(error))
    return Check(what, True, f"{named} answers")
