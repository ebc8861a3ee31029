"""Attacks metrics of items: what a judge is given, what leaks from it, and what is a repeat."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import InvalidSubmission, MetricError
from ladderholdout.metrics import ItemMetric, metric_of_items
from tests.support.beyond_plain import needs_pandas, pd
from tests.support.holdouts import assert_replays, is_repeat
from tests.support.ledgers import entries_of

ITEMS = [f"Is {at} even?" for at in range(60)]
REFERENCES = ["yes" if at % 2 == 0 else "no" for at in range(60)]


def same(reference: str, answer: Any) -> bool:
    return bool(reference == answer)


def share(reference: str, answer: Any) -> float:
    return len(set(reference) & set(str(answer))) / len(set(reference))


EXACT, GRADED = metric_of_items("exact", same), metric_of_items("share", share, graded=True)


def opened(folder: Path, metric: ItemMetric = EXACT, **wishes: Any) -> LadderHoldout:
    settings = {"name": "even", "ledger": folder / "ledger.db", **wishes}
    return LadderHoldout(ITEMS, REFERENCES, scoring=metric, **settings)


def right(share: int, other: Any = "perhaps") -> list[Any]:
    return [found if at % share else other for at, found in enumerate(REFERENCES)]


def test_verdicts_are_the_score_and_texts_of_any_length_are_compared(tmp_path: Path) -> None:
    holdout = opened(tmp_path)
    made = [["no"] * 60, right(3), right(5, "a long answer, über und über " * 20), REFERENCES]
    scores = [holdout.submit(one).score for one in made]
    assert scores == [0.5, pytest.approx(2 / 3, abs=1e-3), 0.8, 1.0]
    assert is_repeat(holdout, holdout.submit(REFERENCES))
    assert_replays(holdout)
    assert holdout.certificate().bound == "exact binomial"
    # Somebody else opens it with the metric, and goes on with the same ladder.
    again = pickle.loads(pickle.dumps(holdout))
    assert is_repeat(again, again.submit(right(3))) and again.status().submissions == 6


def test_objects_are_judged_as_they_were_given(tmp_path: Path) -> None:
    seen: list[Any] = []

    def judge(reference: str, answer: Any) -> bool:
        seen.append(answer)
        return bool(answer["label"] == reference)

    holdout = opened(tmp_path, metric_of_items("label", judge))
    answers = [{"why": [1, None, "é\0"], "label": one} for one in REFERENCES]
    assert holdout.submit(answers).score == 1.0
    assert [one for one in seen if one["why"] != [1, None, "é\0"]] == []
    # The order of the keys is none of their meaning.
    turned = [dict(reversed(one.items())) for one in answers]
    assert is_repeat(holdout, holdout.submit(turned))
    assert holdout.submit([np.str_("x")] and answers).is_incumbent


def test_graded_verdicts_get_a_certificate_of_graded_losses(tmp_path: Path) -> None:
    holdout = opened(tmp_path, GRADED)
    assert holdout.submit(["y"] * 60).score == pytest.approx(1 / 6, abs=0.002)
    assert holdout.submit(right(4)).improved
    found = holdout.certificate()
    assert found.missing is None and found.bound != "exact binomial"
    assert found.low is not None and found.score is not None and found.low < found.score


def test_a_batch_a_reserve_and_an_estimator(tmp_path: Path) -> None:
    class Program:
        def predict(self, X: Any) -> list[str]:
            return ["yes" if int(one.split()[1]) % 2 == 0 else "no" for one in np.ravel(X)]

    holdout = opened(tmp_path, reserve=0.3)
    final = holdout.finalists([["no"] * 60, right(3), Program()])
    assert [one.is_incumbent for one in final] == [False, False, True]
    assert holdout.estimate().reason is None
    assert holdout.reserve_certificate().score == 1.0
    assert holdout.metric.score_of(Program(), ITEMS[:4], REFERENCES[:4]) == 1.0


@needs_pandas
def test_rows_may_be_a_table(tmp_path: Path) -> None:
    table = pd.DataFrame({"question": ITEMS, "level": range(60)})
    holdout = LadderHoldout(
        table, pd.Series(REFERENCES), scoring=EXACT, ledger=tmp_path / "ledger.db"
    )
    assert holdout.submit(pd.Series(REFERENCES)).score == 1.0


def test_other_predictions_are_refused(tmp_path: Path) -> None:
    holdout, failures = opened(tmp_path), []
    for name, given in {
        "few": REFERENCES[:-1],
        "many": [*REFERENCES, "no"],
        "none": [],
        "text": "yes",
        "mapping": {"a": 1},
        "objects": [object()] * 60,
        "nan": [float("nan")] * 60,
        "number": 5,
        "nothing": None,
        "sets": [{1, 2}] * 60,
    }.items():
        try:
            holdout.submit(given)
            failures.append(f"{name}: let in")
        except InvalidSubmission as refused:
            failures += [name] if "predictions must be" not in str(refused) else []
    assert failures == []
    assert holdout.status().submissions == 0


def test_nothing_of_a_judge_that_fails_is_seen(tmp_path: Path) -> None:
    def judge(reference: str, answer: Any) -> bool:
        raise RuntimeError(f"the reference is {reference}")

    holdout = opened(tmp_path, metric_of_items("failing", judge))
    with pytest.raises(MetricError, match="it raised RuntimeError") as failed:
        holdout.submit(REFERENCES)
    assert failed.value.__context__ is None and "reference is" not in str(failed.value)
    assert holdout.status().submissions == 0


@pytest.mark.parametrize(("graded", "verdict"), [(False, 0.5), (True, 1.5), (True, -0.1)])
def test_verdicts_out_of_range_are_refused(graded: bool, verdict: float, tmp_path: Path) -> None:
    metric = metric_of_items("odd", lambda *_: verdict, graded=graded)
    with pytest.raises(InvalidArgument, match="judge must be a function that returns"):
        opened(tmp_path, metric).submit(REFERENCES)


def test_verdicts_of_nan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="judge must be"):
        opened(tmp_path, metric_of_items("odd", lambda *_: float("nan"), graded=True)).submit(
            REFERENCES
        )


def test_what_is_no_judge_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="judge must be a function"):
        metric_of_items("odd", "exact")  # type: ignore[arg-type]


def test_no_reference_and_no_verdict_is_in_the_ledger_but_the_risk(tmp_path: Path) -> None:
    secret = [f"reference number {at}" for at in range(60)]
    holdout = LadderHoldout(
        ITEMS, secret, scoring=EXACT, ledger=tmp_path / "ledger.db", name="secret"
    )
    holdout.submit(["wrong"] * 60)
    holdout.submit(["wrong"] * 59 + ["reference number 59"])
    stored = (tmp_path / "ledger.db").read_bytes()
    assert b"reference number 7" not in stored
    assert len(entries_of(holdout)) == 2
