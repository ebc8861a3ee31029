"""MLflow as a service: names of what is stored there, calls with their faults named, and checks."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, TrackingError
from ladderholdout.guard.health import Check
from ladderholdout.guard.open_ladder import Facts, OpenLadder
from ladderholdout.integrations.mlflow.uris import (
    DATABASES,
    checked_uri,
    printable_uri,
    sqlite_file,
)
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

_PACKAGES = ("ladderholdout", "numpy", "scikit-learn", "mlflow")
_LONGEST = 500


def audit_experiment(holdout: str) -> str:
    """Return the name of the experiment that auditors open.

    Examples
    --------
    >>> audit_experiment("churn-2026")
    'churn-2026 (audit)'
    """
    return f"{holdout} (audit)"


def identity(facts: Facts) -> str:
    """Return what one ladder of one ledger is known by: 32 hexadecimal digits.

    A replaced ledger has another: names alone would let its series run into the old one's.
    """
    described = (
        facts.fingerprint,
        facts.account,
        facts.ladder,
        facts.created.isoformat(),
    )
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
    return ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # mlflow-skinny is a package of another name
        return "of another package"


_PROBE_SECONDS = 3.0
_WEB = ("http", "https")
_BATCH = 50
_PAGE = 1000

# MLflow tries for minutes before it gives a request up, and urllib3 complains each time;
# SQLAlchemy shows the rows it writes as soon as somebody turns on debug logging for all.
_TALKERS = ("urllib3.connectionpool", "sqlalchemy.engine.Engine")
_hushed: set[int] = set()


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
    checked = {name: checked_uri(name, uri) for name, uri in stated.items() if uri is not None}
    analyst = checked.get("tracking_uri") or checked_uri("tracking_uri", None)
    options = tuple(
        f"--{name.replace('_', '-')} {printable_uri(uri)}" for name, uri in checked.items()
    )
    audit = checked.get("audit_tracking_uri", analyst)
    _load_store_of(analyst, audit)
    return Places(analyst, audit, options)


def _load_store_of(*uris: str) -> None:
    """Load MLflow's store for databases, if one is needed, here rather than in a thread of ours.

    It uses what SQLAlchemy 2.1 has deprecated: where warnings are errors it would stay half
    loaded permanently. A thread must not touch the filters of warnings, which are everybody's.
    """
    if not any(urlsplit(uri).scheme.partition("+")[0] in DATABASES for uri in uris):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thirdparty.load_sql_store()


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


def connect(uri: str) -> MlflowClient:
    """Return a client of a server that answers."""
    from mlflow import MlflowClient

    require(uri)
    with faults_named(uri):
        return MlflowClient(tracking_uri=uri)


@contextmanager
def faults_named(uri: str) -> Iterator[None]:
    """Name MLflow's faults without quoting them."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except LadderHoldoutError:
        raise
    except MlflowException as error:
        raise _refused(uri, error.error_code) from None
    except ImportError as error:  # the driver of a database
        raise _without_driver(uri, error.name) from None
    except Exception as error:  # of requests, SQLAlchemy, a driver
        raise _refused(uri, type(error).__name__) from None


def _refused(uri: str, what: str) -> TrackingError:
    return TrackingError(
        f"MLflow at {printable_uri(uri)} refused a request ({what}). Check it with "
        f"ladder-holdout doctor --tracking-uri {printable_uri(uri)}."
    )


# The packages whose modules have other names.
_DRIVERS = {"MySQLdb": "mysqlclient", "psycopg2": "psycopg2-binary", "psycopg": "psycopg[binary]"}


def _without_driver(uri: str, module: str | None) -> TrackingError:
    package = _DRIVERS.get(module or "", module or "its driver")
    return TrackingError(
        f"MLflow at {printable_uri(uri)} needs the package {package}, which is not installed: "
        f"pip install '{package}'."
    )


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
            # Somebody else was faster.
            found = client.get_experiment_by_name(name)
    if found is None:
        raise TrackingError(f"MLflow has no experiment {name!r}, and makes none.")
    refuse_deleted(client, found)
    return str(found.experiment_id)


def known_experiment(client: MlflowClient, number: str) -> str:
    """Return an experiment that MLflow's own settings name, if it is there."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_experiment(number)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        found = None
    if found is None:
        raise TrackingError(
            f"There is no experiment {number!r} at {printable_uri(client.tracking_uri)}, which "
            "MLFLOW_EXPERIMENT_ID or mlflow.set_experiment names. Name one that is there, with "
            "mlflow.set_experiment(name) after mlflow.set_tracking_uri, or state experiment=."
        )
    refuse_deleted(client, found)
    return str(found.experiment_id)


def refuse_deleted(client: MlflowClient, experiment: Experiment) -> None:
    """Refuse an experiment that was deleted, and say how it is restored."""
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"The MLflow experiment {experiment.name!r} is deleted. Restore it with "
            f"{_client(client)}.restore_experiment({experiment.experiment_id!r})."
        )


def living_run(client: MlflowClient, run_id: str) -> Run:
    """Return a run that can be written to.

    Raises
    ------
    TrackingError
        There is no such run, or it is deleted, with its experiment perhaps.
    """
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        raise TrackingError(
            f"There is no MLflow run {run_id} at {printable_uri(client.tracking_uri)}. Name one "
            "that is there, or none for a new one: leave run_id= out, and unset MLFLOW_RUN_ID."
        ) from None
    if run.info.lifecycle_stage != "active":
        refuse_deleted(client, client.get_experiment(run.info.experiment_id))
        raise TrackingError(
            f"The MLflow run {run_id} is deleted. Restore it with "
            f"{_client(client)}.restore_run({run_id!r}), or name none for a new one."
        )
    return run


def _client(client: MlflowClient) -> str:
    return f"mlflow.MlflowClient({printable_uri(client.tracking_uri)!r})"


def _beside(client: MlflowClient) -> str | None:
    """Return the folder for artifacts of a store in a file: `mlruns` beside it.

    By default MLflow takes that of the working folder, whatever that happens to be.
    """
    file = sqlite_file(client.tracking_uri)
    if file is None:
        return None
    return Path(file).absolute().with_name("mlruns").as_uri()


def experiments(client: MlflowClient) -> list[Experiment]:
    """Return all experiments that are not deleted."""
    return list(_paged(client.search_experiments, max_results=_PAGE))


def find(client: MlflowClient, places: list[str], tags: dict[str, str]) -> list[Run]:
    """Return the runs with these tags in these experiments, oldest first."""
    condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    runs: list[Run] = []
    for start in range(0, len(places), _BATCH):
        some = places[start : start + _BATCH]
        runs += _paged(client.search_runs, experiment_ids=some, filter_string=condition)
    return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))


def raw_model(model: Any) -> Any:
    """Return the model of its own library behind one of MLflow's; None where it hands out none."""
    get = getattr(model, "get_raw_model", None)
    if get is None:
        return None
    try:
        return get()
    except NotImplementedError:
        return None


def _paged(call: Callable[..., Any], **given: Any) -> Iterator[Any]:
    token = None
    while True:
        page = call(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return


_REINSTALL = "Install the package again: python -m pip install --force-reinstall ladderholdout."


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
    package = package_finding()
    yield package
    if not package.ok:
        return
    try:
        where = places(tracking_uri, audit_tracking_uri)
    except InvalidArgument as error:
        yield Check("tracking server", False, str(error))
        return
    yield server_finding("tracking server", where.analyst)
    if where.audit != where.analyst:
        yield server_finding("tracking server of the audit", where.audit)


def package_finding() -> Check:
    """Check that MLflow can be imported."""
    try:
        import mlflow
    except Exception as error:  # a broken installation may raise anything
        described = f"cannot be imported ({type(error).__name__})."
        return Check("mlflow", False, described, _REINSTALL)
    return Check("mlflow", True, f"version {mlflow.__version__}")


def server_finding(what: str, uri: str) -> Check:
    """Check that a tracking server, or a database in its place, answers a request."""
    file = sqlite_file(uri)
    if file is not None and not Path(file).exists():
        return Check(
            what, True, f"{printable_uri(uri)}: none yet; MLflow makes it at its first use"
        )
    _load_store_of(uri)
    try:
        with hushed(), faults_named(uri):
            connect(uri).search_experiments(max_results=1)
    except LadderHoldoutError as error:
        return Check(what, False, str(error))
    return Check(what, True, f"{printable_uri(uri)} answers")
