"""Certificates on versions of registered models: a JSON file, an HTML page, and tags."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from ladderholdout.arguments import text
from ladderholdout.errors import HoldoutConflict, InvalidArgument, printable
from ladderholdout.guard import commands
from ladderholdout.guard.batches import held_by
from ladderholdout.guard.certificate import ScoreCertificate, interval
from ladderholdout.guard.open_ladder import HasLadder, OpenLadder, Origin, ladder_of
from ladderholdout.guard.printing import number
from ladderholdout.guard.views import Status, incumbent_named
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.page import SIZE, drawn
from ladderholdout.integrations.mlflow.uris import is_own
from ladderholdout.pictures import Picture

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

SCHEMA_VERSION = 1
"""Of the JSON file; it changes when a field changes its meaning or goes."""

JSON, HTML = "certificate.json", "certificate.html"
_NOT_SHOWN = "not asked for"


@dataclass(frozen=True, slots=True)
class CertifiedVersion:
    """A certificate that was attached to a version of a registered model.

    Attributes
    ----------
    name, version : str
        Of the model in the registry.
    run_id : str
        The run whose artifacts the files are.
    folder : str
        Of the files among the run's artifacts.
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
    and the submission is an ordinary query. Two artifacts of the version's run are written,
    ``certificates/NAME-vVERSION/certificate.json`` and ``.html``, and then tags of the version,
    all under ``ladderholdout.``. None of them holds a raw score.

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
        The version has no run to hold the files, or its model is in another registry than
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
    ['certificates/tree-v1/certificate.html', 'certificates/tree-v1/certificate.json']
    >>> folder.cleanup()
    """
    ladder, name = ladder_of(holdout), text("name", name)
    uri = names.places(tracking_uri, None).analyst
    with names.hushed():
        client = _client(uri, registry_uri)
        with names.faults_named(uri):
            found = client.get_model_version(name, str(version))
        run_id = found.run_id
        if not run_id:
            raise InvalidArgument(
                "version",
                "registered from a run, whose artifacts the certificate's files become",
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
        picture = drawn(ladder, status, certificate)
        with names.faults_named(uri):
            return _attached(client, run_id, described, page_of(described, picture))


def _client(uri: str, registry_uri: str | None) -> MlflowClient:
    from mlflow import MlflowClient

    names.connect(uri)  # it answers, and at once
    return MlflowClient(tracking_uri=uri, registry_uri=registry_uri)


def _loaded(uri: str, registry_uri: str | None, version: ModelVersion) -> Any:
    """Let MLflow load the model of a version, from where it has its models."""
    import mlflow

    if not is_own(uri) or registry_uri not in (None, mlflow.get_registry_uri()):
        raise InvalidArgument(
            "model",
            "given where the registry is not MLflow's own setting",
            None,
            "Or set it: mlflow.set_tracking_uri, mlflow.set_registry_uri.",
        )
    with names.faults_named(uri):
        found = mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}")
    return names.raw_model(found) or found


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


def _attached(
    client: MlflowClient, run_id: str, described: dict[str, Any], page: str
) -> CertifiedVersion:
    """Write the files, and then the tags that name them."""
    name, version = described["model"]["name"], described["model"]["version"]
    folder = f"certificates/{_plain(name)}-v{version}"
    written = json.dumps(described, indent=2, ensure_ascii=False)
    client.log_text(run_id, written, f"{folder}/{JSON}")
    client.log_text(run_id, page, f"{folder}/{HTML}")
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


# -- the page --------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --paper: #f5f7f9; --sheet: #ffffff; --ink: #17212b;
  --soft: #52606d; --line: #dbe1e8; --strong: #b9c4cf; --accent: #0b6b6b; --tint: #e3f1f0; }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1419; --sheet: #171e25; --ink: #e7ecf1;
  --soft: #a2afbb; --line: #2b353f; --strong: #46535f; --accent: #62cdc4; --tint: #17302f; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem 1rem 3rem; background: var(--paper); color: var(--ink);
  overflow-wrap: anywhere; font: 1rem/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 50rem; margin-inline: auto; padding: clamp(1rem, 4vw, 2.25rem);
  background: var(--sheet); border: 1px solid var(--line); border-radius: .6rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0 0; }
.soft, dt { color: var(--soft); }
.result { margin: 1.5rem 0 0; padding: 1rem 1.2rem; background: var(--tint);
  border-left: .3rem solid var(--accent); border-radius: .3rem; }
.result strong { display: block; font-size: clamp(1.4rem, 5vw, 1.9rem); line-height: 1.25; }
dl { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .35rem 1.25rem;
  margin: .5rem 0 0; font-variant-numeric: tabular-nums; }
dd { margin: 0; }
ul { margin: .5rem 0 0; padding-left: 1.2rem; }
code { font: .9em ui-monospace, Menlo, Consolas, monospace; }
svg { display: block; width: 100%; height: auto; margin-top: .5rem;
  font: 12px system-ui, "Segoe UI", Roboto, sans-serif; }
svg .tick, svg .label { fill: var(--soft); }
svg .grid { stroke: var(--line); fill: none; }
svg .axis, svg .missed { stroke: var(--strong); fill: none; }
svg .band { fill: var(--tint); }
svg .edge { stroke: var(--accent); stroke-dasharray: 4 4; fill: none; }
svg .line { stroke: var(--accent); stroke-width: 2.5; fill: none; }
svg .dot { fill: var(--accent); stroke: var(--sheet); stroke-width: 2; }
@media (max-width: 34rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
}
@media print { body { background: none; padding: 0; } main { border: 0; } }
"""


def page_of(described: dict[str, Any], picture: Picture | None) -> str:
    """Return the certificate as one HTML file, which fetches and runs nothing.

    Parameters
    ----------
    described : dict
        What the JSON file holds.
    picture : Picture or None
        Of the ladder.
    """
    return "".join(_parts(described, picture))


def _parts(described: dict[str, Any], picture: Picture | None) -> Iterator[str]:
    show: Callable[[object], str] = lambda value: escape(printable(str(value)))  # noqa: E731
    model, holdout = described["model"], described["holdout"]
    title = f"Certificate of {model['name']}, version {model['version']}"
    share = f"{100 * described['confidence']:.4g} %"
    yield (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{show(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{show(title)}</h1>"
        f'<p class="soft">ladderholdout, {show(described["date"])}</p>'
        f'<section class="result" aria-label="Result"><strong>{show(_interval(described))}</strong>'
        f"<p>is where the true {show(described['metric'])} of this model lies with a confidence of "
        f"{share}, however the model was searched for. Released score: "
        f"{show(number(described['released_score'], _NOT_SHOWN))}.</p></section>"
        "<h2>Facts</h2><dl>"
    )
    for what, value in _facts(described):
        yield f"<dt>{show(what)}</dt><dd>{show(value)}</dd>"
    yield "</dl>"
    if picture is not None:
        yield f"<h2>The ladder</h2>{picture.svg(*SIZE, 'ladder')}"
    yield "<h2>What it rests on</h2><p>It is void unless all of this is true:</p><ul>"
    for one in described["assumptions"]:
        yield f"<li>{show(one)}</li>"
    yield (
        '</ul><p class="soft">The interval counts every query of the holdout '
        f"{show(holdout['name'])} that its ledger knows of. This page holds no raw score.</p>"
        "</main></body></html>\n"
    )


def _facts(described: dict[str, Any]) -> Iterator[tuple[str, object]]:
    model, holdout, ladder = described["model"], described["holdout"], described["ladder"]
    head = described["ledger_head"]
    better = "higher" if described["greater_is_better"] else "lower"
    yield "model", f"{model['name']}, version {model['version']} (run {model['run_id']})"
    yield "holdout", f"{holdout['name']}, {holdout['n']} rows"
    yield "fingerprint", holdout["fingerprint"]
    yield "metric", f"{described['metric']} ({better} is better), on {described['n']} rows"
    yield "released score", number(described["released_score"], _NOT_SHOWN)
    yield "interval", f"{_interval(described)} (bound: {described['bound']})"
    yield "confidence", f"{described['confidence']:g}"
    yield "queries", described["queries"]
    if described["queries_of_overlapping_holdouts"]:
        yield "of overlapping holdouts", described["queries_of_overlapping_holdouts"]
    where = f"{ladder['account']}/{ladder['name']}"
    yield "incumbent", f"submission {described['incumbent']} of {where}"
    yield "mechanism", ladder["mechanism"]
    yield (
        "end of the ledger's chain",
        "not shown by its server" if head is None else f"link {head['length']}, {head['hash']}",
    )
    yield "software", described["software"]
