"""Attacks tables of probabilities: names of columns, and numbers of less than double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss, roc_auc_score

from ladderholdout import LadderHoldout
from ladderholdout.cli.files import predictions_from
from ladderholdout.errors import InvalidSubmission
from ladderholdout.mechanisms import FullDisclosure
from ladderholdout.metrics import get_metric
from ladderholdout.remote.tables import Form
from tests.support.beyond_plain import needs_pandas, pd

N = 80
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
CODES = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
P = 1 / (1 + np.exp(-2 * X[:, 0]))
TABLE = np.column_stack([1 - P, P])
TRUE = {"neg_log_loss": -log_loss(CODES, P), "roc_auc": roc_auc_score(CODES, P)}

CLASSES: dict[str, list[Any]] = {
    "numbers": [0, 1],
    "floats": [1.0, 2.0],
    "bools": [False, True],
    "digits": ["007", "8"],
    "names": ["no", "yes"],
}
SPELLED: dict[str, list[list[Any]]] = {
    "numbers": [["0", "1"], [0.0, 1.0], [False, True], ["False", "TRUE"], [" 0", "1.0"]],
    "floats": [[1, 2], ["1", "2"], ["1.0", "2.00"]],
    "bools": [["False", "True"], [0, 1], ["0", "1"]],
    "digits": [["007", "8"], ["7", "8.0"], [7, 8]],
    "names": [["no", "yes"], [np.str_("no"), " yes"]],
}


def opened(kind: str, scoring: Any, **given: Any) -> LadderHoldout:
    y = np.array(CLASSES[kind])[CODES]
    stated = {"ledger": "memory", "mechanism": FullDisclosure()} | given
    return LadderHoldout(X, y, scoring=scoring, **stated)


def scored(metric: str, kind: str, predictions: Any) -> float:
    """Score without a ledger, as every door brings predictions to a metric."""
    own, classes = get_metric(metric), np.array(CLASSES[kind])
    canonical = own.canonical(predictions, N, classes)
    risk = own.evaluate(CODES, canonical).risk
    again = own.canonical(own.as_submitted(canonical, classes), N, classes)
    assert again.tobytes() == canonical.tobytes()
    return own.to_score(risk)


# -- names ---------------------------------------------------------------------------------------


@needs_pandas
@pytest.mark.parametrize("metric", TRUE)
@pytest.mark.parametrize("kind", CLASSES)
def test_columns_are_matched_by_what_their_names_mean(kind: str, metric: str) -> None:
    for names in SPELLED[kind]:
        turned = pd.DataFrame(TABLE[:, ::-1], columns=names[::-1])
        assert scored(metric, kind, turned) == pytest.approx(TRUE[metric], abs=1e-12)
    counted = pd.DataFrame(TABLE)
    assert scored(metric, kind, counted) == pytest.approx(TRUE[metric], abs=1e-12)


@needs_pandas
@pytest.mark.parametrize("metric", TRUE)
def test_other_names_are_refused(metric: str) -> None:
    for kind, names in (("numbers", ["p1", "p0"]), ("names", ["no", "No"]), ("digits", ["7", 7.0])):
        with pytest.raises(InvalidSubmission, match="named after one of"):
            scored(metric, kind, pd.DataFrame(TABLE, columns=names))
    # Two classes that are one number have to be named as they are written.
    own, classes = get_metric(metric), np.array(["007", "7"])
    with pytest.raises(InvalidSubmission, match="named after one of"):
        own.canonical(pd.DataFrame(TABLE, columns=["7", "7.0"]), N, classes)


@needs_pandas
@pytest.mark.parametrize("metric", TRUE)
def test_one_column_of_the_first_class_is_turned_round(metric: str) -> None:
    first, second = pd.DataFrame({"no": 1 - P}), pd.DataFrame({"yes": P})
    for given in (first, first["no"], second, second["yes"], pd.DataFrame({"score": P})):
        assert scored(metric, "names", given) == pytest.approx(TRUE[metric], abs=1e-9)
    for given in (pd.DataFrame({"0": 1 - P}), pd.DataFrame(TABLE)[0], pd.DataFrame(P)):
        with pytest.raises(InvalidSubmission, match="named 0"):
            scored(metric, "numbers", given)


@needs_pandas
def test_every_door_reads_the_names(tmp_path: Path) -> None:
    turned = pd.DataFrame(TABLE[:, ::-1], columns=["yes", "no"])
    several = opened("names", list(TRUE))
    by_metric = several.submit(turned).by_metric
    assert {name: by_metric[name].score for name in TRUE} == pytest.approx(TRUE, abs=1e-12)
    holdout = opened("names", "neg_log_loss", ids=range(N))
    with holdout.batch() as batch:
        batch.submit(turned)
    shuffled = turned.assign(id=range(N)).sample(frac=1, random_state=0)
    shown = [batch.releases[0].score, holdout.submit(shuffled, ids="id").score]
    again = opened("names", "neg_log_loss").finalists([turned[["no"]], 1 - P])
    shown.append(again[0].release.score)
    assert shown == pytest.approx([TRUE["neg_log_loss"]] * 3, abs=1e-9)
    for metric in TRUE:
        form = Form(get_metric(metric), N, np.array(["no", "yes"]))
        for number, frame in enumerate((turned, turned[["no"]], turned[["yes"]])):
            for kind in ("csv", "parquet"):
                path = tmp_path / f"{number}.{kind}"
                frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
                read = predictions_from(path, form)
                read = getattr(read, "values", read)
                assert scored(metric, "names", read) == pytest.approx(TRUE[metric], abs=1e-9)


class Wrapped:
    """A model whose probabilities are a table that is named after its classes, or is not."""

    def __init__(self, names: list[Any], *, classes: bool) -> None:
        self.names = names
        if classes:
            self.classes_ = np.array([0, 1])

    def predict_proba(self, X: Any) -> Any:
        return pd.DataFrame(
            TABLE[:, ::-1] if self.names[0] in ("1", 1) else TABLE, columns=self.names
        )


@needs_pandas
@pytest.mark.parametrize("metric", TRUE)
def test_tables_of_models_are_matched_too(metric: str) -> None:
    own, classes = get_metric(metric), np.array([0, 1])
    for model in (
        Wrapped(["1", "0"], classes=False),
        Wrapped([1, 0], classes=True),
        Wrapped(["p0", "p1"], classes=True),  # in the order of its classes_
    ):
        answer = own.respond(model, X, classes)
        assert scored(metric, "numbers", answer) == pytest.approx(TRUE[metric], abs=1e-12)
    with pytest.raises(InvalidSubmission, match="named after one of"):
        own.respond(Wrapped(["p0", "p1"], classes=False), X, classes)


# -- precision -----------------------------------------------------------------------------------


def probabilities(kind: Any, classes: int) -> Any:
    """Probabilities as networks and boosters give them: some are 0 and 1 by rounding."""
    margins = 12 * np.random.default_rng(1).normal(size=(N, classes))
    return softmax(margins, axis=1).astype(kind)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("kind", "close"), [("f2", 2e-3), ("f4", 1e-6), ("f8", 1e-12)])
def test_log_loss_clips_by_the_precision_of_what_came(
    kind: str, close: float, classes: int, weighted: bool
) -> None:
    """As scikit-learn, which also adds up in that precision, and so is as far off as it rounds."""
    y = np.random.default_rng(2).integers(0, classes, N)
    weights = np.random.default_rng(3).uniform(1, 2, N) if weighted else None
    table = probabilities(kind, classes)
    if (kind, classes) == ("f8", 2):
        table[:, 0] = 1 - table[:, 1]  # of double precision the second decides
    holdout = LadderHoldout(
        *(X, y), scoring="neg_log_loss", ledger="memory", mechanism=FullDisclosure(),
        sample_weight=weights,
    )  # fmt: skip
    eps = float(np.finfo(kind).eps)
    exact = np.clip(table.astype(float), eps, 1 - eps)[np.arange(N), y]
    true = float(np.average(np.log(exact), weights=weights))
    assert true == pytest.approx(-log_loss(y, table, sample_weight=weights), rel=close)
    with holdout.batch() as batch:
        batch.submit(table)
    assert batch.releases[0].score == pytest.approx(true, rel=1e-9)
    assert holdout.submit(table).repeat_of == 1
    if classes == 2:
        vector, clipped = table[:, 1], np.clip(table[:, 1].astype(float), eps, 1 - eps)
        true = float(np.average(np.log(np.where(y == 1, clipped, 1 - clipped)), weights=weights))
        assert holdout.submit(vector).score == pytest.approx(true, rel=1e-9)


@needs_pandas
def test_files_keep_the_precision(tmp_path: Path) -> None:
    table = probabilities("f4", 2)
    frame = pd.DataFrame(table, columns=["no", "yes"])
    frame.to_parquet(tmp_path / "p.parquet")
    np.save(tmp_path / "p.npy", table)
    true = scored("neg_log_loss", "names", table)
    assert true > scored("neg_log_loss", "names", table.astype(float)) + 1
    for path in (tmp_path / "p.parquet", tmp_path / "p.npy"):
        read = predictions_from(path, Form(get_metric("neg_log_loss"), N, np.array(["no", "yes"])))
        read = getattr(read, "values", read)
        assert scored("neg_log_loss", "names", read) == true
