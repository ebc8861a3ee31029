"""Calls of a tracking server, with its faults named and nothing of them quoted.

What MLflow says of a refused request may quote the request, and with it raw scores.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ladderholdout.errors import InvalidArgument, LadderHoldoutError, TrackingError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

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


def places(tracking_uri: str | None = None, audit_tracking_uri: str | None = None) -> Places:
    """Return the servers to use: MLflow's own choice where nothing is stated.

    Raises
    ------
    InvalidArgument
        What is stated is no text.
    """
    import mlflow
    from mlflow.store.db.db_types import DATABASE_ENGINES

    stated = {"tracking_uri": tracking_uri, "audit_tracking_uri": audit_tracking_uri}
    for name, uri in stated.items():
        if uri is not None and (not isinstance(uri, str) or not uri.strip()):
            allowed = "a tracking URI, such as http://127.0.0.1:5000 or sqlite:///mlflow.db"
            raise InvalidArgument(name, allowed, "empty" if uri == "" else type(uri).__name__)
    analyst = tracking_uri or mlflow.get_tracking_uri()
    options = tuple(
        f"--{name.replace('_', '-')} {shown(uri)}" for name, uri in stated.items() if uri
    )
    audit = audit_tracking_uri or analyst
    if any(urlsplit(uri).scheme.partition("+")[0] in DATABASE_ENGINES for uri in (analyst, audit)):
        _load_store()
    return Places(analyst, audit, options)


def _load_store() -> None:
    """Load MLflow's store for databases, here rather than in a thread of ours.

    It uses what SQLAlchemy 2.1 has deprecated: where warnings are errors it would stay half
    loaded for good. A thread must not touch the filters of warnings, which are everybody's.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def shown(uri: str) -> str:
    """Return a tracking URI as it may be printed: without a password.

    Examples
    --------
    >>> shown("https://ada:secret@tracking.example/team")
    'https://...@tracking.example/team'
    >>> shown("sqlite:///mlflow.db")
    'sqlite:///mlflow.db'
    """
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    return uri.replace(user + at, "...@", 1) if at else uri


def reachable(uri: str) -> bool:
    """Tell within seconds whether a tracking server answers at all; a database always does."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if urlsplit(uri).scheme not in _WEB:
        return True
    try:
        http_request(  # type: ignore[no-untyped-call]
            get_default_host_creds(uri),  # type: ignore[no-untyped-call]
            "/health",
            "GET",
            max_retries=0,
            timeout=_PROBE_SECONDS,
            raise_on_status=False,
        )
    except Exception:  # whatever is wrong with it, it does not answer
        return False
    return True


def require(uri: str) -> None:
    """Raise a `TrackingError` where nothing answers, at once: MLflow would try for minutes."""
    if not reachable(uri):
        raise TrackingError(
            f"The tracking server {shown(uri)} does not answer. Start it, or name another with "
            "MLFLOW_TRACKING_URI or --tracking-uri."
        )


def connect(uri: str) -> MlflowClient:
    """Return a client of a server that answers."""
    from mlflow import MlflowClient

    require(uri)
    with told(uri):
        return MlflowClient(tracking_uri=uri)


@contextmanager
def told(uri: str) -> Iterator[None]:
    """Name MLflow's faults without quoting them."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except LadderHoldoutError:
        raise
    except MlflowException as error:
        raise _refused(uri, error.error_code) from None
    except Exception as error:  # of requests, SQLAlchemy, a driver
        raise _refused(uri, type(error).__name__) from None


def _refused(uri: str, what: str) -> TrackingError:
    return TrackingError(
        f"MLflow at {shown(uri)} refused a request ({what}). Check it with "
        f"ladder-holdout doctor --tracking-uri {shown(uri)}."
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
            return str(client.create_experiment(name))
        except MlflowException:
            # Somebody else was faster.
            found = client.get_experiment_by_name(name)
    if found is None or found.lifecycle_stage != "active":
        raise TrackingError(
            f"The MLflow experiment {name!r} is deleted. Restore it: mlflow experiments restore."
        )
    return str(found.experiment_id)


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


def _paged(call: Callable[..., Any], **given: Any) -> Iterator[Any]:
    token = None
    while True:
        page = call(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return
