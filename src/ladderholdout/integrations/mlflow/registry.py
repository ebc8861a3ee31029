"""Certificates on versions of registered models: a JSON file and tags."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ladderholdout.arguments import text
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.batches import held_by
from ladderholdout.guard.certificate import ScoreCertificate, interval
from ladderholdout.guard.open_ladder import HasLadder, OpenLadder, Origin, ladder_of
from ladderholdout.guard.printing import number
from ladderholdout.guard.views import Status, incumbent_named
from ladderholdout.integrations.mlflow import service as names

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

SCHEMA_VERSION = 1
"""Of the JSON file; it changes when a field changes its meaning or goes."""

JSON = "certificate.json"
_NOT_SHOWN = "not asked for"


@dataclass(frozen=True, slots=True)
class CertifiedVersion:
    """A certificate that was attached to a version of a registered model.

    Attributes
    ----------
    name, version : str
        Of the model in the registry.
    run_id : str
        The run whose artifact the file is.
    folder : str
        Of the file among the run's artifacts.
    certificate : dict
        What the JSON file holds.

    Examples
    --------
    >>> found = CertifiedVersion("churn", "3", "0af1", "ladder_certificate", {"confidence": 0.95})
    >>> found.version, found.certificate["confidence"]
    ('3', 0.95)
    """

    name: str
    version: str
    run_id: str
    folder: str
    certificate: dict[str, Any]


def certify_version(
    holdout: HasLadder,
    name: str,
    version: str | int,
    *,
    model: Any = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
) -> CertifiedVersion:
    """Attach the certificate of the incumbent to the version of a registered model that it is.

    What the model predicts on the holdout is submitted. Where that repeats the incumbent's
    predictions, it steps nothing, and the certificate is the version's; else nothing is attached,
    and the submission is an ordinary query. An artifact of the version's run is written,
    ``certificates/NAME-vVERSION/certificate.json``, and then tags of the version, all under
    ``ladderholdout.``. None of them holds a raw score.

    Parameters
    ----------
    holdout : LadderHoldout
    name : str
        Of the registered model.
    version : str or int
        Its version, which was registered from a run.
    model : estimator, optional
        The version's model. By default MLflow loads it, ``models:/NAME/VERSION``, which may run
        code from it, and needs all of MLflow.
    tracking_uri, registry_uri : str, optional
        Where the run and the registry are; by default where MLflow has them.

    Returns
    -------
    CertifiedVersion

    Raises
    ------
    InvalidArgument
        The version has no run to hold the file, or its model is in another registry than
        MLflow's own setting.
    HoldoutConflict
        The model is not the incumbent, or there is no certificate; nothing was attached.
    TrackingError
        MLflow does not answer or refuses.

    Examples
    --------
    >>> import tempfile
    >>> import mlflow
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.integrations.mlflow import export
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[200:], y[200:])
    >>> released = holdout.submit(tree).score
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> run_id = export(holdout, tracking_uri=uri)[0].run_id
    >>> client = mlflow.MlflowClient(uri, uri)
    >>> _ = client.create_registered_model("tree")
    >>> _ = client.create_model_version("tree", f"{folder.name}/tree", run_id)
    >>> done = certify_version(holdout, "tree", 1, model=tree, tracking_uri=uri, registry_uri=uri)
    >>> done.certificate["released_score"] == released
    True
    >>> [one.path for one in client.list_artifacts(done.run_id, done.folder)]
    ['certificates/tree-v1/certificate.json']
    >>> folder.cleanup()
    """
    ladder, name = ladder_of(holdout), text("name", name)
    uri = names.places(tracking_uri, None).analyst
    with names.hushed():
        client = names.connect(uri, registry_uri)
        with names.faults_named(uri):
            found = client.get_model_version(name, str(version))
        run_id = found.run_id
        if not run_id:
            raise InvalidArgument(
                "version",
                "registered from a run, whose artifact the certificate becomes",
                f"{name} {version}, which has none",
                "Register it again with run_id=, or from mlflow.log_model in a run.",
            )
        if model is None:
            model = _loaded(uri, registry_uri, found)
        incumbent = _check_incumbent(ladder, model, found)
        certificate = ladder.execute(commands.Certify())
        status = ladder.execute(commands.Status())
        if incumbent != certificate.submission or incumbent != status.incumbent:
            raise HoldoutConflict(
                "Another submission became the incumbent meanwhile, so nothing was attached."
            )
        if certificate.missing is not None:
            raise HoldoutConflict(
                f"There is no certificate, so none was attached: {certificate.missing}."
            )
        described = document(ladder, status, certificate, found)
        with names.faults_named(uri):
            return _attached(client, run_id, described)


def _loaded(uri: str, registry_uri: str | None, version: ModelVersion) -> Any:
    """Let MLflow load the model of a version, from where it has its models."""
    import mlflow

    if not names.is_own(uri) or registry_uri not in (None, mlflow.get_registry_uri()):
        raise InvalidArgument(
            "model",
            "given where the registry is not MLflow's own setting",
            None,
            "Or set it: mlflow.set_tracking_uri, mlflow.set_registry_uri.",
        )
    with names.faults_named(uri):
        found = mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}")
        try:
            return found.get_raw_model()
        except NotImplementedError:  # of a kind that has no other model behind MLflow's
            return found


def _check_incumbent(ladder: OpenLadder, model: Any, version: ModelVersion) -> int | None:
    """Submit what the version's model predicts; refuse where that is not the incumbent's."""
    context = {"registered_model": version.name, "version": str(version.version)}
    release = ladder.submit(ladder.predict(model), Origin(context=context))
    incumbent, (held,) = held_by(ladder, [release])
    if not held:
        raise HoldoutConflict(
            f"Version {version.version} of {version.name!r} is not the incumbent, so no "
            f"certificate holds for it: {incumbent_named(incumbent)}. Its predictions are "
            f"submission {release.submission}."
        )
    return incumbent


def document(
    ladder: OpenLadder, status: Status, certificate: ScoreCertificate, version: ModelVersion
) -> dict[str, Any]:
    """Return what the JSON file holds: facts for a reviewer, from what was released alone."""
    head = ladder.unsent(after=status.submissions, raw=False, limit=1).head
    queries = sum(count for _, _, count in status.ladders)
    return {
        "schema": "ladderholdout.certificate",
        "schema_version": SCHEMA_VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {
            "name": version.name,
            "version": str(version.version),
            "run_id": version.run_id,
        },
        "holdout": {"name": status.name, "fingerprint": status.fingerprint, "n": status.n},
        "metric": status.metric,
        "greater_is_better": ladder.metric.to_score(0.0) > ladder.metric.to_score(1.0),
        "n": status.n_ladder if certificate.reserve_query is None else status.reserve,
        "released_score": certificate.score,
        "interval": {"low": certificate.low, "high": certificate.high},
        "clipped": certificate.clipping or None,
        "confidence": certificate.confidence,
        "bound": certificate.bound,
        "incumbent": certificate.submission,
        "ladder": {"account": status.account, "name": status.ladder, "mechanism": status.mechanism},
        "queries": queries,
        "queries_of_overlapping_holdouts": sum(count for _, _, count in status.sharing),
        "ledger_head": None if head is None else {"length": head.length, "hash": head.hash},
        "assumptions": list(certificate.assumptions),
        "doubts": list(certificate.doubts),
        "beside": [one for one in certificate.beside if one != certificate.clipping],
        "software": names.versions(),
    }


def _attached(client: MlflowClient, run_id: str, described: dict[str, Any]) -> CertifiedVersion:
    """Write the file, and then the tags that name it."""
    name, version = described["model"]["name"], described["model"]["version"]
    folder = f"certificates/{_plain(name)}-v{version}"
    written = json.dumps(described, indent=2, ensure_ascii=False)
    client.log_text(run_id, written, f"{folder}/{JSON}")
    for key, value in _tags(described, folder).items():
        client.set_model_version_tag(name, version, names.PREFIX + key, value)
    return CertifiedVersion(name, version, run_id, folder, described)


def _plain(name: str) -> str:
    """Return a name as that of a folder."""
    return "".join(one if one.isalnum() or one in "-_." else "_" for one in name).lstrip(".")


def _tags(described: dict[str, Any], folder: str) -> dict[str, str]:
    head = described["ledger_head"]
    return {
        "holdout": described["holdout"]["name"],
        "fingerprint": described["holdout"]["fingerprint"],
        "metric": described["metric"],
        "released_score": number(described["released_score"], _NOT_SHOWN),
        "interval": _interval(described),
        "confidence": f"{described['confidence']:g}",
        "queries": str(described["queries"]),
        **({} if head is None else {"head": f"{head['length']} {head['hash']}"}),
        "certified": described["date"],
        "certificate": f"{folder}/{JSON}",
    }


def _interval(described: dict[str, Any]) -> str:
    low, high = described["interval"]["low"], described["interval"]["high"]
    ends = interval(-math.inf if low is None else low, math.inf if high is None else high)
    return ", ".join([ends, *described["beside"]])
