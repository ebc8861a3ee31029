"""Attacks early stopping's rule: what counts as a round, whose it is, and what leaks."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.errors import BudgetWarning, InvalidSubmission, KnownHoldoutWarning, LedgerError
from ladderholdout.holdout import LadderStopping
from ladderholdout.mechanisms import FullDisclosure, Ladder, ParameterFreeLadder
from tests.support.holdouts import SHAKY, assert_replays, coins, guesses, is_repeat, repeats
from tests.support.ledgers import entries_of
from tests.support.processes import at_once, elsewhere
from tests.support.stopping import parts, rounds_of, sequence

# Workers of loky cannot import this file: what it defines travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORKERS = [("loky", 2), ("threading", 2)]
MECHANISMS = [ParameterFreeLadder(), Ladder(step=0.02), SHAKY, FullDisclosure()]


class Rounds(ClassifierMixin, BaseEstimator):
    """A model that learns for as many rounds as the ladder lets it: noise around a truth."""

    def __init__(self, stopping: LadderStopping | None = None, seed: int = 0) -> None:
        self.stopping, self.seed = stopping, seed

    def fit(self, X: Any, y: Any, stopping: LadderStopping | None = None) -> Rounds:
        self.classes_ = np.array([0, 1])
        asked = stopping or self.stopping
        if asked is not None:
            asked.start(seed=self.seed)
            for number in range(1, 31):
                if asked.update(self._after(number, len(asked.X))):
                    break
            self.rounds_ = asked.best_round
        else:
            self.rounds_ = 30
        return self

    def predict(self, X: Any) -> Any:
        return self._after(self.rounds_, len(X))

    def _after(self, number: int, n: int) -> Any:
        return guesses((self.seed, number), 1, n)[0]


def stopping_on(holdout: LadderHoldout, **settings: Any) -> LadderStopping:
    return LadderStopping(holdout, **settings)


def coin_holdout(**settings: Any) -> LadderHoldout:
    return LadderHoldout(*coins(), **{"scoring": "accuracy", **settings})


# -- the rule ------------------------------------------------------------------------------


@pytest.mark.long
@given(
    mechanism=st.sampled_from(MECHANISMS),
    models=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    patience=st.integers(1, 6),
    min_rounds=st.integers(1, 12),
)
@settings(max_examples=24)
def test_a_fit_stops_by_its_releases_alone(
    mechanism: Any, models: list[int], patience: int, min_rounds: int
) -> None:
    """Models come again: rounds that repeat one of their own fit are no improvement."""
    answers = guesses(7, 13)
    holdout = coin_holdout(mechanism=mechanism, ledger="memory")
    stopping = LadderStopping(holdout, patience, min_rounds=min_rounds).start()
    best, level, rounds = 0, 0, 0
    for rounds, model in enumerate(models, start=1):
        stop = stopping.update(answers[model])
        release = stopping.releases[-1]
        if release.has_held and release.improvements > level:
            best, level = rounds, release.improvements
        assert stop is stopping.stopped
        assert stop is (rounds >= min_rounds and rounds - best >= patience)
        if stop:
            break
    assert (stopping.rounds, stopping.best_round) == (rounds, best or rounds)
    assert stopping.improved is (best > 0)


@pytest.mark.long
@given(
    mechanism=st.sampled_from(MECHANISMS),
    models=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    between=st.booleans(),
)
@settings(max_examples=24)
def test_a_second_fit_of_the_same_rounds_is_the_first_and_steps_nothing(
    mechanism: Any, models: list[int], between: bool
) -> None:
    answers = guesses(8, 14)
    holdout = coin_holdout(mechanism=mechanism, ledger="memory")
    stopping = LadderStopping(holdout, patience=4)

    def fit() -> tuple[Any, ...]:
        stopping.start()
        for model in models:
            if stopping.update(answers[model]):
                break
        return sequence(stopping)

    first = fit()
    if between:  # another analyst's model stands higher by now
        holdout.submit(coins()[1])
    before, known = holdout.status(), repeats(holdout)
    assert fit() == first
    after = holdout.status()
    assert after.releases == before.releases
    assert after.submissions - repeats(holdout) == before.submissions - known
    assert_replays(holdout)


def test_a_model_that_no_longer_changes_is_stopped() -> None:
    stopping = LadderStopping(coin_holdout(), patience=3).start()
    told = [stopping.update(np.ones(60, int)) for _ in range(4)]
    assert told == [False, False, False, True]
    assert (stopping.best_round, stopping.rounds) == (1, 4)


def test_a_fit_that_never_beats_the_incumbent_is_stopped_after_its_patience() -> None:
    holdout = coin_holdout()
    holdout.submit(coins()[1])  # nothing can beat the truth
    for min_rounds, expected in ((1, 5), (9, 9)):
        stopping = LadderStopping(holdout, patience=5, min_rounds=min_rounds).start()
        while not stopping.update(guesses(stopping.rounds, 1)[0]):
            pass
        assert (stopping.rounds, stopping.best_round) == (expected, expected)
        assert not stopping.improved


def test_a_ladder_of_its_own_is_not_held_down_by_the_incumbent_of_another() -> None:
    coin_holdout().submit(coins()[1])
    with pytest.warns(KnownHoldoutWarning, match="count"):
        own = coin_holdout(ladder="fit")
    stopping = LadderStopping(own, patience=1).start()
    assert not stopping.update(guesses(1, 1)[0])
    assert stopping.improved


def test_before_the_first_round_nothing_is_known() -> None:
    stopping = LadderStopping(coin_holdout())
    assert (stopping.rounds, stopping.best_round, stopping.releases) == (0, 0, ())
    assert not stopping.improved and not stopping.stopped


def test_a_fit_that_nobody_began_begins_with_its_first_round() -> None:
    stopping = LadderStopping(coin_holdout())
    stopping.update(guesses(1, 1)[0])
    assert stopping.rounds == 1


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"patience": 0}, "patience"),
        ({"patience": -1}, "patience"),
        ({"patience": 2.5}, "patience"),
        ({"min_rounds": 0}, "min_rounds"),
        ({"context": {"round": {1, 2}}}, "context"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: Any, argument: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        LadderStopping(coin_holdout(), **settings)


def test_something_else_than_a_holdout_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^holdout must be a LadderHoldout"):
        LadderStopping("churn-2026")  # type: ignore[arg-type]


def test_predictions_of_another_form_are_refused_and_count_nothing() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout).start()
    for wrong in (np.ones(59, int), np.full(60, 0.3), np.full(60, np.nan)):
        with pytest.raises(InvalidSubmission):
            stopping.update(wrong)
    assert (stopping.rounds, holdout.status().submissions) == (0, 0)


# -- what the ledger holds of it -----------------------------------------------------------


def test_rounds_say_what_they_are() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, context={"who": "ada", "round": "mine"})
    for seed in (1, 2):
        stopping.start(seed=seed)
        for answer in guesses(seed, 3):
            stopping.update(answer)
    holdout.submit(guesses(9, 1)[0])
    fits = list(rounds_of(holdout).values())
    assert [len(rounds) for rounds in fits] == [3, 3]
    for seed, rounds in zip((1, 2), fits, strict=True):
        said = [dict(one.context) for one in rounds]
        fit = said[0]["fit"]
        assert said == [
            {"who": "ada", "seed": seed, "stopping": [10, 1], "fit": fit, "round": number}
            for number in (1, 2, 3)
        ]
        assert len(fit) == 8 and int(fit, 16) >= 0


def test_the_rounds_of_a_fit_are_one_batch_and_of_no_other() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout)
    for seed in (1, 1, 2):
        stopping.start()
        for answer in guesses(seed, 3):
            stopping.update(answer)
    batches = [{one.batch for one in rounds} for rounds in rounds_of(holdout).values()]
    assert [len(batch) for batch in batches] == [1, 1, 1]
    assert len(set().union(*batches) - {None}) == 3
    holdout.submit(guesses(9, 1)[0])
    assert holdout.history()[-1].batch is None


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "n_jobs"), WORKERS)
def test_in_a_search_rounds_and_models_are_one_sequence(backend: str, n_jobs: int) -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, patience=5, context={"run": 1})
    search = GridSearchCV(
        Rounds(), {"seed": [1, 2, 3, 4]}, scoring=holdout, cv=holdout.split(), n_jobs=n_jobs,
        refit=holdout.select,
    )  # fmt: skip
    with parallel_config(backend):
        search.fit(np.zeros((20, 3)), np.arange(20) % 2, stopping=stopping)
    fits = rounds_of(holdout)
    # The winner is fitted again on the same rows, by the same rounds: nothing but repeats.
    assert len(fits) == 5
    for rounds in fits.values():
        assert [one.context["round"] for one in rounds] == list(range(1, len(rounds) + 1))
        assert len({one.batch for one in rounds} - {None}) == 1
        assert len({one.context["seed"] for one in rounds}) == 1
    again = list(fits.values())[-1]
    assert again[0].context["seed"] == search.best_params_["seed"]
    assert all(one.repeat_of for one in again)
    models = [one for one in entries_of(holdout) if "fit" not in one.context]
    assert len(models) == 4
    for model in models:
        # What is scored was chosen by feedback, so the search's own batch is gone.
        assert model.batch is None
        assert model.repeat_of is not None
    incumbent = holdout.status().incumbent
    numbers = {one.number: one for one in holdout.history()}
    assert incumbent is not None
    assert numbers[incumbent].context["seed"] == search.best_params_["seed"]
    release = holdout.submit(search.best_estimator_)
    assert release.is_incumbent and release.improvements == holdout.status().releases
    assert_replays(holdout)


def test_without_early_stopping_the_same_search_is_a_batch() -> None:
    """Otherwise the test above would hold of any search."""
    holdout = coin_holdout()
    search = GridSearchCV(Rounds(), {"seed": [1, 2]}, scoring=holdout, cv=holdout.split())
    search.fit(np.zeros((20, 3)), np.arange(20) % 2)
    [batch] = {one.batch for one in holdout.history()}
    assert batch is not None


def test_as_a_parameter_it_is_cloned_with_its_estimator() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, patience=3)
    search = GridSearchCV(
        Rounds(stopping), {"seed": [1, 2]}, scoring=holdout, cv=holdout.split(), refit=False
    )
    search.fit(np.zeros((20, 3)), np.arange(20) % 2)
    assert len(rounds_of(holdout)) == 2
    assert stopping.rounds == 0


# -- passing it around ---------------------------------------------------------------------


def test_a_copy_begins_without_a_fit_and_holds_nothing_of_the_holdout() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, 7, min_rounds=2, context={"a": 1})
    stopping.update(guesses(1, 1)[0])
    pickled = pickle.dumps(stopping)
    assert len(pickled) < 2500
    for twin in (pickle.loads(pickled), copy.deepcopy(stopping), clone(stopping, safe=False)):
        assert (twin.patience, twin.min_rounds, twin.context) == (7, 2, {"a": 1})
        assert twin.rounds == 0
        twin.update(guesses(1, 1)[0])
        assert is_repeat(holdout, twin.releases[0])
        assert twin.holdout == holdout
    assert stopping.rounds == 1


def test_threads_that_share_it_have_fits_of_their_own() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, patience=50)
    turns = threading.Barrier(2, timeout=60)
    found: dict[int, tuple[int, set[Any]]] = {}

    def fit(seed: int) -> None:
        stopping.start(seed=seed)
        for answer in guesses(seed, 5):
            turns.wait()
            stopping.update(answer)
        found[seed] = stopping.rounds, {one.submission for one in stopping.releases}

    threads = [threading.Thread(target=fit, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed][0] for seed in (1, 2)] == [5, 5]
    assert found[1][1].isdisjoint(found[2][1])
    assert [len(rounds) for rounds in rounds_of(holdout).values()] == [5, 5]


def test_it_says_nothing_of_the_holdout() -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout, 4).start()
    stopping.update(guesses(1, 1)[0])
    assert repr(stopping) == f"LadderStopping({holdout!r}, patience=4, min_rounds=1)"
    shown = json.dumps([repr(value) for value in vars(stopping).values()])
    assert "array" not in shown and "0." not in shown.replace("0x", "")


def shuffled(data: tuple[Any, Any], seed: int) -> tuple[Any, Any]:
    order = np.random.default_rng(seed).permutation(len(data[1]))
    return data[0][order], data[1][order]


def own_rows(stopping: LadderStopping) -> tuple[Any, int]:
    """What another process is shown of the rows, and how a model on them is answered."""
    X = np.array(stopping.X)
    stopping.update((X[:, 0] > 0).astype(int))
    return X, stopping.releases[0].submission


def blind(stopping: LadderStopping) -> None:
    stopping.update(np.ones(60, int))


@pytest.mark.processes
def test_rows_in_another_order_lie_as_they_were_given() -> None:
    X, y = coins()
    coin_holdout().submit((X[:, 0] > 0).astype(int))
    with pytest.warns(KnownHoldoutWarning, match="another order"):
        again = LadderHoldout(*shuffled((X, y), 1), scoring="accuracy")
    stopping = LadderStopping(again)
    assert np.array_equal(stopping.X, shuffled((X, y), 1)[0])
    stopping.update((stopping.X[:, 0] > 0).astype(int))
    assert is_repeat(again, stopping.releases[0])
    # Another process reads them from the vault, in the order of the first time.
    seen, number = elsewhere(own_rows, stopping)
    assert np.array_equal(seen, X) and entries_of(again)[number - 1].repeat_of == 1
    with pytest.raises(InvalidArgument, match="made from the rows of X"):
        elsewhere(blind, stopping)


def test_rows_that_were_opened_in_yet_another_order_are_refused() -> None:
    coin_holdout()
    with pytest.warns(KnownHoldoutWarning):
        first = LadderHoldout(*shuffled(coins(), 1), scoring="accuracy")
        LadderHoldout(*shuffled(coins(), 2), scoring="accuracy")
    with pytest.raises(InvalidArgument, match="opened last"):
        LadderStopping(first).start()


# -- failures ------------------------------------------------------------------------------


def test_by_hand_a_missing_ledger_is_an_ordinary_error(tmp_path: Path) -> None:
    holdout = coin_holdout()
    stopping = LadderStopping(holdout).start()
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(LedgerError):
        stopping.update(guesses(1, 1)[0])


class Broken(Rounds):
    """In its fit something goes wrong that only the guard notices."""

    def fit(self, X: Any, y: Any, stopping: LadderStopping | None = None) -> Broken:
        assert stopping is not None
        if self.seed == 1:
            Path(os.environ["LADDERHOLDOUT_LEDGER"]).unlink()
        stopping.start().update(np.full(60, 5 if self.seed else 0))
        return self


@pytest.mark.processes
# 1: no ledger; 2: labels of no class
@pytest.mark.parametrize(("seed", "n_jobs"), [(1, 2), (2, 1)])
@pytest.mark.filterwarnings("ignore:A worker stopped:UserWarning")
def test_in_a_search_every_failure_ends_it(n_jobs: int, seed: int) -> None:
    holdout = coin_holdout()
    search = GridSearchCV(
        Broken(), {"seed": [seed]}, scoring=holdout, cv=holdout.split(), n_jobs=n_jobs
    )
    with pytest.raises(SearchStopped, match="the search stops"):
        search.fit(np.zeros((20, 3)), np.arange(20) % 2, stopping=LadderStopping(holdout))


def test_a_ladder_whose_budget_is_used_up_says_so_and_goes_on() -> None:
    holdout = coin_holdout(budget=1, mechanism=Ladder(step=0.01))
    stopping = LadderStopping(holdout, patience=3).start()
    with pytest.warns(BudgetWarning) as said:
        while not stopping.update(guesses(stopping.rounds, 1)[0]):
            pass
    assert len(said) == 1 and stopping.best_round == 1
    stopping.start()
    with pytest.warns(BudgetWarning, match="stops after 3 rounds") as said:
        while not stopping.update(guesses(stopping.rounds + 50, 1)[0]):
            pass
    assert len(said) == 1
    assert (stopping.rounds, stopping.best_round, stopping.improved) == (3, 3, False)


def interrupted(holdout: LadderHoldout, how: str) -> None:
    stopping = LadderStopping(holdout, patience=100).start()
    for number, answer in enumerate(guesses(3, 9), start=1):
        stopping.update(answer)
        if number == 7 and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 7:
            raise KeyboardInterrupt


@pytest.mark.processes
@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_interrupted_training_leaves_a_ledger_that_replays(how: str) -> None:
    holdout = coin_holdout()
    if how == "kill":
        with pytest.raises(Exception, match="terminated abruptly"):
            elsewhere(interrupted, holdout, how)
    else:
        with pytest.raises(KeyboardInterrupt):
            interrupted(holdout, how)
    assert_replays(holdout)
    [rounds] = rounds_of(holdout).values()
    assert len(rounds) == 7
    # The same training goes on from there: what was seen is not paid for again.
    at_once([(interrupted_again, holdout)])
    status = holdout.status()
    assert (status.submissions, repeats(holdout)) == (16, 7)
    assert_replays(holdout)


def interrupted_again(holdout: LadderHoldout) -> None:
    stopping = LadderStopping(holdout, patience=100).start()
    for answer in guesses(3, 9):
        stopping.update(answer)


# -- from a model's output to what the metric asks for -------------------------------------

KNOWN = {
    "as they are": lambda labels: labels,
    "text": lambda labels: np.array(["low", "mid", "top"])[labels],
    "objects": lambda labels: np.array(["low", "mid", "top"], dtype=object)[labels],
    "floats": lambda labels: labels.astype(float),
}


@pytest.mark.parametrize(
    ("scoring", "width", "labels"),
    [
        ("accuracy", 2, "as they are"),
        ("neg_log_loss", 2, "text"),
        ("roc_auc", 2, "objects"),
        ("f1_macro", 3, "floats"),
        ("neg_log_loss", 3, "text"),
        ("accuracy", 2, "objects"),
    ],
)
def test_an_output_is_what_the_estimator_itself_would_answer(
    scoring: str, width: int, labels: str
) -> None:
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((90, 3)), np.arange(90) % width
    y = KNOWN[labels](codes)
    holdout = LadderHoldout(X[:60], y[:60], scoring=scoring, classes=np.unique(y))
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[60:], y[60:])
    stopping = LadderStopping(holdout).start()
    table = model.predict_proba(X[:60])
    outputs = [table, table.tolist()] + ([table[:, 1], table[:, [1]]] if width == 2 else [])
    backward = model.classes_[::-1]
    answers = [stopping.answer(output) for output in outputs]
    answers += [stopping.answer(table[:, ::-1], classes=backward)]
    for answer in answers:
        stopping.update(answer)
    stopping.evaluate(model)
    first, *others = stopping.releases
    known = entries_of(holdout)
    assert {known[one.submission - 1].repeat_of for one in others} == {first.submission}


def test_margins_are_refused_where_probabilities_are_asked_for() -> None:
    stopping = LadderStopping(coin_holdout(scoring="neg_log_loss")).start()
    margins = np.linspace(-3, 3, 60)
    with pytest.raises(InvalidArgument, match=r"^predictions must be probabilities"):
        stopping.answer(margins)
    linked = stopping.answer(1 / (1 + np.exp(-margins)))
    assert not stopping.update(linked)


def test_a_metric_of_ranks_takes_margins() -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="roc_auc")
    stopping = LadderStopping(holdout).start()
    stopping.update(stopping.answer(X[:, 0] * 9))
    holdout.submit(X[:, 0] * 9)
    assert entries_of(holdout)[-1].repeat_of == 1


def test_a_model_of_other_classes_is_refused_unless_they_are_stated() -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="neg_log_loss", classes=[0, 1, 2])
    stopping = LadderStopping(holdout).start()
    table = np.full((60, 2), 0.5)
    with pytest.raises(InvalidArgument, match="give classes= in its order"):
        stopping.answer(table)
    assert stopping.answer(table, classes=[2, 0]).tolist()[0] == [0.5, 0, 0.5]
    with pytest.raises(InvalidArgument, match="fitted on classes of the holdout"):
        stopping.answer(table, classes=[0, 7])


@pytest.mark.filterwarnings("ignore:All rows of this holdout have the same class")
def test_a_holdout_with_one_class_is_answered_where_all_classes_are_stated() -> None:
    X, _ = coins()
    holdout = LadderHoldout(X, np.ones(60, int), scoring="accuracy", classes=[0, 1])
    stopping = LadderStopping(holdout, patience=2).start()
    for share in (0.2, 0.6, 0.9, 0.9):
        stop = stopping.update(stopping.answer(np.full(60, share)))
    assert stop and stopping.best_round == 2
    assert stopping.releases[1].score == 1.0


def test_values_pass_as_they_are() -> None:
    data = parts("values")
    holdout = data.holdout("neg_mean_squared_error")
    stopping = LadderStopping(holdout).start()
    model = LinearRegression().fit(data.X, data.y)
    stopping.update(stopping.answer(model.predict(data.X_holdout).reshape(-1, 1)))
    stopping.evaluate(model)
    assert is_repeat(holdout, stopping.releases[1])


# -- models inside others ------------------------------------------------------------------


class Asks(LogisticRegression):
    """A model that shows the ladder what it predicts when it is fitted, once."""

    def fit(self, X: Any, y: Any, stopping: LadderStopping | None = None) -> Asks:
        super().fit(X, y)
        if stopping is not None:
            stopping.start().evaluate(self)
        return self


def test_inside_pipelines_the_holdouts_rows_come_as_the_model_sees_them() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    inner = make_pipeline(FunctionTransformer(np.arctan), StandardScaler(), Asks())
    outer = make_pipeline(FunctionTransformer(lambda X: 3 * X + 1), inner)
    stopping = LadderStopping(holdout)
    outer.fit(data.X, data.y, pipeline__asks__stopping=stopping)
    assert is_repeat(holdout, holdout.submit(outer))
    assert not np.array_equal(stopping.X, data.X_holdout)
    make_pipeline(Asks()).fit(data.X, data.y, asks__stopping=stopping)
    assert np.array_equal(stopping.X, data.X_holdout)


class AsksValues(LinearRegression):
    def fit(self, X: Any, y: Any, stopping: LadderStopping | None = None) -> AsksValues:
        super().fit(X, y)
        assert stopping is not None
        stopping.start()
        return self


def test_a_model_of_a_transformed_target_is_refused() -> None:
    data = parts("positive")
    holdout = data.holdout("neg_mean_squared_error")
    model = TransformedTargetRegressor(AsksValues(), func=np.log, inverse_func=np.exp)
    with pytest.raises(InvalidArgument, match=r"TransformedTargetRegressor.*update"):
        model.fit(data.X, data.y, stopping=LadderStopping(holdout))
