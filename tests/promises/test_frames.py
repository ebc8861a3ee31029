"""Attack the frames of what leaves the guard: interrupts at every line, a full memory."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ladderholdout
from ladderholdout import LadderHoldout, LadderHoldoutError, Metric
from ladderholdout.guard import submit as guard_room
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import (
    BayesBootLadder,
    BayesBootLadderBoot,
    Mechanism,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
)
from tests.support.interrupts import Place, aside, interrupted, lines_of
from tests.support.ledgers import secret_of

PACKAGE = str(Path(ladderholdout.__file__).parent)
CANARY, N = "canary-7731", 40
CASES: dict[str, Mechanism] = {
    "accuracy": PricedLadder(),
    "neg_brier_score": BayesBootLadder(3),
    "f1_macro": BayesBootLadderBoot(3, n_posterior=30, n_bootstrap=5),
    "roc_auc_ovr": ShakyLadder(step=0.05, noise=0.02),
    "neg_mean_absolute_error": ParameterFreeLadder(),
    "concordance": BayesBootLadder(3, n_posterior=30),
}


class Case:
    """A holdout whose labels and raw risks are found again wherever they are shown."""

    def __init__(self, scoring: str, folder: Path) -> None:
        self.rng = np.random.default_rng(0)
        classes = np.array([f"{CANARY}-{name}" for name in ("no", "rare", "yes")])
        metric = ladderholdout.metrics.get_metric(scoring)
        if metric.is_classification:
            self.y: NDArray[Any] = classes[np.arange(N) % 3]
        else:
            self.y = 7731.125 + np.arange(N) * 7.0
        X, weights = np.arange(N)[:, None] * 1.0, self.rng.uniform(0.5, 1.5, N)
        self.risks: list[float] = []
        self.response, self.ledger = metric.response, f"sqlite:///{folder / 'l.db'}"
        self.holdout = LadderHoldout(
            X, self.y, scoring=scoring, mechanism=CASES[scoring], ledger=self.ledger, name="h",
            sample_weight=weights,
        )  # fmt: skip

    def predictions(self) -> NDArray[Any]:
        """Fresh ones, without the rare class and without a target; their risk is noted."""
        guard, found = self.holdout.__ladder__.guard(), self._drawn()
        aligned = guard.metric.canonical(found, N, guard.holdout.classes)[guard.order]
        self.risks.append(guard.part.evaluate(guard.metric, aligned).risk)
        return found

    def _drawn(self) -> NDArray[Any]:
        if self.response == "labels":
            return self.y[np.where(self.rng.random(N) < 0.5, 0, 2)]
        if self.response == "probabilities":
            # Of two digits, as the values below: none of the analyst's own numbers is a needle.
            some = self.rng.dirichlet(np.ones(3), N)[:, :2].round(2)
            return np.column_stack([some, (1 - some.sum(axis=1)).round(2)])
        return self.rng.normal(size=N).round(2) + 100.0

    def needles(self) -> set[str]:
        secret = secret_of(self.ledger)
        found = {f"{CANARY}-rare", "7731.125", "7738.125", repr(secret)}
        for risk in self.risks:
            found |= {f"{risk:.9f}"[:8], f"{1 - risk:.9f}"[:8]}
        return found


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        yield from chain(error.__cause__)
        error = error.__context__


def shown(error: BaseException) -> str:
    """Return what verbose tracebacks show, but for the frames of this file, and all callers'."""
    texts = []
    for one in chain(error):
        texts.append(f"{one} {one.args!r} {getattr(one, '__notes__', '')}")
        trace = one.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename != __file__:
                texts += map(printed, trace.tb_frame.f_locals.values())
            frame = trace.tb_frame.f_back
            while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
                texts += map(printed, frame.f_locals.values())
                frame = frame.f_back
            trace = trace.tb_next
    return "\n".join(texts)


def printed(value: Any) -> str:
    """Of an object whose making was interrupted, what it has so far."""
    try:
        return repr(value)
    except AttributeError:
        slots = getattr(type(value), "__slots__", ())
        return repr([getattr(value, name, None) for name in slots])


def anywhere(name: str) -> bool:
    return name != __file__


def in_package(name: str) -> bool:
    return name.startswith(PACKAGE)


def lines_of_two(case: Case, among: Callable[[str], bool]) -> list[Place]:
    """The first may make what the second one finds."""

    def submit_two() -> None:
        for _ in range(2):
            case.holdout.submit(case.predictions())

    return lines_of(submit_two, among)


def attack(case: Case, places: list[Place]) -> tuple[int, list[str]]:
    """Interrupt at each place; return how often it was, and what was found."""
    hits, texts, before = 0, [], case.holdout.status().submissions
    for place in places:
        predictions = case.predictions()
        error = interrupted(partial(case.holdout.submit, predictions), place, anywhere)
        after = case.holdout.status().submissions
        assert after - before in ((0, 1) if error is not None else (1,))
        before = after
        if error is not None:
            hits += 1
            texts.append(shown(error))
    everything = "\n".join(texts)
    assert not verify_holdout(case.ledger, "h").findings
    assert case.holdout.submit(case.predictions()).submission == before + 1
    return hits, sorted(needle for needle in case.needles() if needle in everything)


@pytest.mark.long
@pytest.mark.parametrize("scoring", CASES)
@aside
def test_an_interrupt_at_any_line_of_the_library_shows_nothing_raw(
    scoring: str, tmp_path: Path
) -> None:
    case = Case(scoring, tmp_path)
    case.holdout.submit(case.predictions())
    places = lines_of_two(case, in_package)
    hits, found = attack(case, places[::16])
    assert hits > 12 and not found


@pytest.mark.nightly
@pytest.mark.parametrize("scoring", CASES)
@aside
def test_an_interrupt_at_any_line_whatever_shows_nothing_raw(scoring: str, tmp_path: Path) -> None:
    case = Case(scoring, tmp_path)
    case.holdout.submit(case.predictions())
    hits, found = attack(case, lines_of_two(case, anywhere))
    assert hits > 600 and not found


@pytest.mark.long
@aside
def test_the_search_finds_what_frames_that_are_left_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladderholdout.guard.containment.strip", lambda error: None)
    case = Case("neg_mean_absolute_error", tmp_path)
    case.holdout.submit(case.predictions())
    hits, found = attack(case, lines_of_two(case, in_package)[::8])
    assert hits > 25 and {"7731.125"} < set(found) and len(found) > 5


def test_whatever_fails_in_the_guard_leaves_without_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("neg_mean_absolute_error", tmp_path)
    case.holdout.submit(case.predictions())
    kinds = (MemoryError, OSError, RecursionError, AssertionError, SystemExit)

    def fail(*args: Any) -> None:
        raw, labels = case.needles(), case.y
        try:
            raise ValueError(f"{raw} {labels}")
        except ValueError:
            raise kind("full")  # noqa: B904  # what it hangs on is the point

    monkeypatch.setattr(guard_room, "state_to", fail)
    for kind in kinds:
        predictions = case.predictions()
        with pytest.raises(kind) as caught:
            case.holdout.submit(predictions)
        assert not [needle for needle in case.needles() if needle in shown(caught.value)], kind
        assert caught.value.__context__ is None
        notes = "".join(getattr(caught.value, "__notes__", []))
        # Where it was: without it nobody could report a defect.
        assert ("submit.Guard.judge" in notes) == issubclass(kind, Exception)
    assert case.holdout.status().submissions == 1


class Failing:
    """An estimator whose own frames its author needs to see."""

    classes_ = np.array([f"{CANARY}-no", f"{CANARY}-yes"])

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def predict(self, X: Any) -> Any:
        mine = "what the author looks for"
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise self.error from cause
        return mine


@pytest.mark.parametrize(
    ("kind", "scoring"),
    [(RuntimeError, "accuracy"), (KeyboardInterrupt, "concordance"), (MemoryError, "accuracy")],
)
def test_an_estimators_own_frames_stay(
    kind: type[BaseException], scoring: str, tmp_path: Path
) -> None:
    case = Case(scoring, tmp_path)
    with pytest.raises(kind) as caught:
        case.holdout.submit(Failing(kind("mine")))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "predict"
    assert not [frame for frame in frames if frame.name in ("respond", "_evaluate", "answer_of")]
    text = str(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        .stack[-1]
        .locals
    )
    assert "what the author looks for" in text
    assert isinstance(caught.value.__cause__, KeyError)
    assert f"{CANARY}-rare" not in shown(caught.value)


def test_a_users_metric_shows_no_targets_when_it_is_interrupted(tmp_path: Path) -> None:
    def score(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
        if sample_weight is not None and armed:
            raise KeyboardInterrupt
        return float(-np.abs(targets - predictions).mean())

    armed, y = False, 7731.125 + np.arange(20) * 7.0
    metric = Metric("mine", "values", score=score, loss_range=(0, 1e5))
    holdout = LadderHoldout(
        np.arange(20)[:, None], y, scoring=metric, mechanism=BayesBootLadder(1), ledger="memory"
    )
    holdout.submit(np.zeros(20))
    armed = True
    with pytest.raises(KeyboardInterrupt) as caught:
        holdout.submit(np.ones(20))
    assert "7731" not in shown(caught.value).replace(CANARY, "")


@pytest.mark.long
@aside
def test_a_handle_that_reads_its_rows_shows_none_of_them(tmp_path: Path) -> None:
    """In another process, as it were: the labels come from the vault."""
    case = Case("neg_mean_absolute_error", tmp_path)
    found = []

    def opened() -> None:
        from ladderholdout.guard import ladder as ladders

        ladders._guards.clear()
        LadderHoldout.open("h", ledger=case.ledger).__ladder__.guard()

    for place in lines_of(opened, in_package)[::2]:
        error = interrupted(opened, place, in_package)
        if isinstance(error, KeyboardInterrupt):
            found.append(shown(error))
    text = "\n".join(found)
    assert len(found) > 20 and not [needle for needle in case.needles() if needle in text]


def test_an_error_of_the_library_hangs_on_nothing(tmp_path: Path) -> None:
    case = Case("accuracy", tmp_path)
    with pytest.raises(LadderHoldoutError) as caught:
        case.holdout.submit(case.y[:7])
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert threading.current_thread() is threading.main_thread()
    assert all(
        not frame.filename.startswith(PACKAGE) or frame.name in ("submit", "_submit")
        for frame in traceback.extract_tb(caught.value.__traceback__)
    )
