"""Attacks studies that count as one batch: whatever lets an answer in must end it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Transcript
from ladderholdout.errors import BudgetWarning, LadderHoldoutWarning
from ladderholdout.guard import seen
from ladderholdout.integrations.optuna import Candidate, Objective
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import PairedTestLadder, SimplifiedLadder
from tests.support.ledgers import entries_of

optuna.logging.set_verbosity(optuna.logging.ERROR)

ROWS, TRIALS = 60, 8
LABELS = np.random.default_rng(5).integers(0, 2, ROWS)


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    return opened(tmp_path / "ledger.db")


def opened(ledger: Path, **settings: Any) -> LadderHoldout:
    X = np.arange(ROWS).reshape(-1, 1)
    return LadderHoldout(X, LABELS, scoring="accuracy", name="coins", ledger=ledger, **settings)


def build(trial: Any) -> Any:
    """Predictions that are others in each trial, with an inner score."""
    share = trial.suggest_float("share", 0.0, 1.0)
    rng = np.random.default_rng(trial.number)
    return np.where(rng.random(ROWS) < share, LABELS, 1 - LABELS), share


def study_of(**settings: Any) -> optuna.Study:
    sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=3)
    return optuna.create_study(direction="maximize", sampler=sampler, **settings)


def batches(holdout: LadderHoldout) -> list[str | None]:
    """The batch of each submission of a study, in order."""
    return [one.batch for one in holdout.history() if one.context]


def one_batch(found: list[str | None]) -> bool:
    return len(found) > 1 and len(set(found)) == 1 and found[0] is not None


# What is one batch


@pytest.mark.parametrize("feedback", ["auto", "inner"])
def test_a_study_that_is_told_its_inner_scores_alone_is_one_batch(
    holdout: LadderHoldout, feedback: str
) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(build, feedback=feedback), n_trials=TRIALS)
    assert one_batch(batches(holdout)) and len(batches(holdout)) == TRIALS
    found = holdout.certificate()
    assert any("batch" in said for said in found.assumptions) == (found.submission != 1)
    assert found.log_count is not None and found.log_count < 9  # place alone


def test_nothing_of_its_answers_is_in_its_storage(holdout: LadderHoldout) -> None:
    """The same study on other labels is the same study, to the last attribute but its keys."""
    stored = []
    for labels in (LABELS, 1 - LABELS):
        other = LadderHoldout(
            np.arange(ROWS).reshape(-1, 1), labels, scoring="accuracy", ledger="memory"
        )
        study = study_of()
        study.optimize(other.optuna.objective(build), n_trials=TRIALS)
        stored.append(
            [
                (one.params, one.values, one.system_attrs, one.user_attrs["ladder_submission"])
                for one in study.trials
            ]
        )
        for one in study.trials:
            assert set(one.user_attrs) == {"ladder_key", "ladder_submission"}
        told = [one.score for one in other.history()]
        assert len(set(told)) > 1
    assert stored[0] == stored[1]


def test_what_was_known_before_may_be_used(holdout: LadderHoldout) -> None:
    """Looks, trials that were told releases and waiting ones: all before, and all paid for."""
    study = study_of()
    study.optimize(holdout.optuna.objective(build, feedback="capped"), n_trials=4)
    study.enqueue_trial({"share": holdout.status().score})
    study.enqueue_trial({"share": 0.5})
    assert batches(holdout) == [None] * 4
    study.optimize(holdout.optuna.objective(build), n_trials=TRIALS)
    assert one_batch(batches(holdout)[4:]) and len(batches(holdout)) == 4 + TRIALS


def test_pruned_and_failed_trials_do_not_end_it(holdout: LadderHoldout) -> None:
    def moody(trial: Any) -> Any:
        if trial.number == 2:
            raise optuna.TrialPruned
        if trial.number == 4:
            raise ZeroDivisionError
        return build(trial)

    study_of().optimize(
        holdout.optuna.objective(moody), n_trials=TRIALS, catch=(ZeroDivisionError,)
    )
    assert one_batch(batches(holdout)) and len(batches(holdout)) == TRIALS - 2


def test_callbacks_that_ask_nothing_do_not_end_it(holdout: LadderHoldout) -> None:
    seen: list[float] = []
    study_of().optimize(
        holdout.optuna.objective(build),
        TRIALS,
        callbacks=[lambda study, _: seen.append(study.best_value)],
    )
    assert one_batch(batches(holdout)) and len(seen) == TRIALS


def test_a_study_of_several_objectives_and_a_one_bit_ladder(tmp_path: Path) -> None:
    holdout = opened(
        tmp_path / "bits.db", mechanism=PairedTestLadder(alpha=0.05), show="improvements"
    )

    def both(trial: Any) -> Candidate:
        predictions, inner_score = build(trial)
        return Candidate(predictions, inner_score, others=(float(trial.number),))

    study = optuna.create_study(directions=["maximize", "minimize"])
    study.optimize(holdout.optuna.objective(both), n_trials=TRIALS)
    assert one_batch(batches(holdout))


# What is several


def test_each_call_of_optimize_is_its_own(holdout: LadderHoldout) -> None:
    objective, study = holdout.optuna.objective(build), study_of()
    study.optimize(objective, n_trials=3)
    holdout.status()
    study.optimize(objective, n_trials=3)
    first, second = batches(holdout)[:3], batches(holdout)[3:]
    assert one_batch(first) and one_batch(second) and first[0] != second[0]


def test_a_resumed_study_is_another_batch(holdout: LadderHoldout, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    for _ in range(2):
        study = study_of(study_name="one", storage=storage, load_if_exists=True)
        study.optimize(
            LadderHoldout.open("coins", ledger=holdout.ledger).optuna.objective(build), 3
        )
    first, second = batches(holdout)[:3], batches(holdout)[3:]
    assert one_batch(first) and one_batch(second) and first[0] != second[0]


def test_two_studies_in_turn_on_one_objective_are_two(holdout: LadderHoldout) -> None:
    objective = holdout.optuna.objective(build)
    for _ in range(2):
        study_of().optimize(objective, n_trials=3)
    assert len(set(batches(holdout))) == 2


# What is none


@pytest.mark.parametrize("feedback", ["capped", "penalised", "incumbent"])
def test_a_study_that_is_told_releases_is_none(holdout: LadderHoldout, feedback: str) -> None:
    study_of().optimize(holdout.optuna.objective(build, feedback=feedback), n_trials=TRIALS)
    assert batches(holdout) == [None] * TRIALS


def test_nor_is_one_whose_trials_lack_an_inner_score(holdout: LadderHoldout) -> None:
    study_of().optimize(holdout.optuna.objective(lambda trial: build(trial)[0]), n_trials=TRIALS)
    assert batches(holdout) == [None] * TRIALS


def test_one_trial_without_an_inner_score_ends_it(holdout: LadderHoldout) -> None:
    def sometimes(trial: Any) -> Any:
        predictions, inner_score = build(trial)
        return predictions if trial.number == 3 else (predictions, inner_score)

    study_of().optimize(holdout.optuna.objective(sometimes), n_trials=TRIALS)
    assert ended_at(3, holdout)


def ended_at(trial: int, holdout: LadderHoldout) -> bool:
    """One batch up to this trial, and none from it on."""
    found = batches(holdout)
    return one_batch(found[:trial]) and found[trial:] == [None] * (TRIALS - trial)


GLANCES: dict[str, Callable[[LadderHoldout], object]] = {
    "status": lambda holdout: holdout.status(),
    "history": lambda holdout: holdout.history(limit=1),
    "certificate": lambda holdout: holdout.certificate(),
    "reveal": lambda holdout: holdout.reveal(),
    "submit": lambda holdout: holdout.submit(LABELS),
    "html": lambda holdout: holdout._repr_html_(),
    "evaluator": lambda holdout: holdout.optuna.error_evaluator().evaluate([], None),
    "elsewhere": lambda holdout: LadderHoldout.open("coins", ledger=holdout.ledger).status(),
}


@pytest.mark.parametrize("glance", GLANCES)
def test_a_build_that_looks_ends_it(holdout: LadderHoldout, glance: str) -> None:
    def curious(trial: Any) -> Any:
        if trial.number == 4:
            GLANCES[glance](holdout)
        return build(trial)

    study_of().optimize(holdout.optuna.objective(curious), n_trials=TRIALS)
    assert ended_at(4, holdout)


@pytest.mark.parametrize("glance", ["status", "submit"])
def test_a_callback_that_looks_ends_it(holdout: LadderHoldout, glance: str) -> None:
    def curious(study: optuna.Study, trial: Any) -> None:
        if trial.number == 3:
            GLANCES[glance](holdout)

    study_of().optimize(holdout.optuna.objective(build), n_trials=TRIALS, callbacks=[curious])
    assert ended_at(4, holdout)


@pytest.mark.parametrize("glance", ["standings", "certificate"])
def test_who_looks_at_a_leaderboard_ends_it(holdout: LadderHoldout, glance: str) -> None:
    rows = np.arange(ROWS).reshape(-1, 1)
    with pytest.warns(UserWarning, match="ladder"):
        board = Leaderboard(rows, LABELS, scoring="accuracy", ledger=holdout.ledger)
    board.submit("Ada", LABELS)

    def curious(study: optuna.Study, trial: Any) -> None:
        if trial.number == 3:
            getattr(board, glance)()

    study_of().optimize(holdout.optuna.objective(build), n_trials=TRIALS, callbacks=[curious])
    assert ended_at(4, holdout)


def test_a_callback_that_picks_or_shows_finalists_ends_it(holdout: LadderHoldout) -> None:
    for number, ask in enumerate(
        (
            lambda study: holdout.optuna.best_trial(study),
            lambda study: holdout.optuna.finalists(study, build, k=1),
        )
    ):
        before = len(batches(holdout))

        def curious(study: optuna.Study, trial: Any, ask: Any = ask) -> None:
            if trial.number == 3:
                ask(study)

        study = study_of(study_name=f"{number}")
        study.optimize(holdout.optuna.objective(build), n_trials=TRIALS, callbacks=[curious])
        own = [
            one.batch
            for one in holdout.history(after=before)
            if one.context["study"] == f"{number}"
        ]
        assert one_batch(own[:4]) and own[-4:] == [None] * 4


def test_a_glance_from_another_thread_ends_it(holdout: LadderHoldout) -> None:
    """A notebook looks while the study runs beside it."""

    def while_looked_at(trial: Any) -> Any:
        if trial.number == 4:
            person = threading.Thread(target=holdout.status)
            person.start()
            person.join()
        return build(trial)

    study_of().optimize(holdout.optuna.objective(while_looked_at), n_trials=TRIALS)
    assert ended_at(4, holdout)


def add(study: optuna.Study) -> None:
    distributions = {"share": optuna.distributions.FloatDistribution(0, 1)}
    told = optuna.trial.create_trial(params={"share": 0.9}, distributions=distributions, value=0.99)
    study.add_trial(told)


MEDDLERS: dict[str, Callable[[optuna.Study], object]] = {
    "enqueues": lambda study: study.enqueue_trial({"share": 0.9}),
    "adds": add,
    "runs": lambda study: study.tell(study.ask(), 0.7),
    "asks": lambda study: study.ask(),
}


@pytest.mark.parametrize("meddler", MEDDLERS)
def test_somebody_elsewhere_who_meddles_ends_it(holdout: LadderHoldout, meddler: str) -> None:
    """What such a person or worker has seen, this process can not know."""

    def while_watched(trial: Any) -> Any:
        if trial.number == 3:
            MEDDLERS[meddler](trial.study)
        return build(trial)

    study_of().optimize(holdout.optuna.objective(while_watched), n_trials=TRIALS)
    assert ended_at(3, holdout)


def test_a_trial_enqueued_between_two_trials_ends_it(holdout: LadderHoldout) -> None:
    def enqueue(study: optuna.Study, trial: Any) -> None:
        if trial.number == 3:
            study.enqueue_trial({"share": 0.9})

    study_of().optimize(holdout.optuna.objective(build), n_trials=TRIALS, callbacks=[enqueue])
    assert ended_at(4, holdout)


def test_a_waiting_trial_that_another_worker_takes_ends_it(holdout: LadderHoldout) -> None:
    study = study_of()
    for _ in range(4):
        study.enqueue_trial({"share": 0.5})

    def while_another_works(trial: Any) -> Any:
        if trial.number == 2:
            study.tell(study.ask(), 0.7)
        return build(trial)

    study.optimize(holdout.optuna.objective(while_another_works), n_trials=TRIALS)
    assert one_batch(batches(holdout)[:2]) and set(batches(holdout)[2:]) == {None}


def test_a_trial_that_was_left_running_does_not_end_it(holdout: LadderHoldout) -> None:
    """A worker that was killed leaves one behind, which tells the sampler nothing new."""
    study = study_of()
    study.ask().suggest_float("share", 0.0, 1.0)
    study.optimize(holdout.optuna.objective(build), n_trials=TRIALS)
    assert one_batch(batches(holdout)) and len(batches(holdout)) == TRIALS
    assert holdout.estimate().score is not None


TOUCHES: dict[str, Callable[[optuna.Study, optuna.Trial], object]] = {
    "tells": lambda study, trial: study.tell(trial, 0.99),
    "fails": lambda study, trial: study.tell(trial, state=optuna.trial.TrialState.FAIL),
    "reports": lambda study, trial: trial.report(0.99, step=1),
    "notes": lambda study, trial: trial.set_user_attr("seen", 1),
    "suggests": lambda study, trial: trial.suggest_float("other", 0, 1),
}


@pytest.mark.parametrize(
    ("touch", "kind"), [*((touch, "memory") for touch in TOUCHES), ("reports", "file")]
)
def test_one_that_is_not_left_alone_ends_it_and_is_named(
    holdout: LadderHoldout, tmp_path: Path, touch: str, kind: str
) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}" if kind == "file" else None
    study = study_of(storage=storage)
    left = study.ask()

    def meddle(study: optuna.Study, trial: Any) -> None:
        if trial.number == 4:
            TOUCHES[touch](study, left)

    study.optimize(holdout.optuna.objective(build), n_trials=TRIALS, callbacks=[meddle])
    assert ended_at(4, holdout)
    assert "trial 0 of the study" in str(holdout.estimate())


def test_threads_are_none(holdout: LadderHoldout) -> None:
    study_of().optimize(holdout.optuna.objective(build), n_trials=TRIALS, n_jobs=2)
    assert batches(holdout) == [None] * TRIALS


def test_an_objective_within_a_function_is_none(holdout: LadderHoldout) -> None:
    objective = holdout.optuna.objective(build)
    for around in (lambda trial: objective(trial), functools.partial(objective)):
        study_of().optimize(around, n_trials=TRIALS)
    assert set(batches(holdout)) == {None}


def test_nor_one_whose_class_was_changed(holdout: LadderHoldout) -> None:
    class Talkative(Objective):
        def __call__(self, trial: Any) -> Any:
            value = super().__call__(trial)
            return value if trial.number % 2 else 1.0

    objective = Talkative(holdout, build, feedback="inner")
    study_of().optimize(objective, n_trials=TRIALS)
    assert batches(holdout) == [None] * TRIALS


def test_ask_and_tell_is_none(holdout: LadderHoldout) -> None:
    loop = holdout.optuna.ask_tell(study_of(), feedback="inner")
    for _ in range(TRIALS):
        trial = loop.ask()
        predictions, inner_score = build(trial)
        loop.tell(trial, predictions, inner_score=inner_score)
    assert batches(holdout) == [None] * TRIALS


def test_a_gate_is_none_and_ends_the_batch_of_others(holdout: LadderHoldout) -> None:
    study = study_of()
    study.optimize(
        holdout.optuna.objective(build),
        n_trials=TRIALS,
        callbacks=[holdout.optuna.gate(lambda trial: 1 - LABELS, patience=99)],
    )
    own = [one.batch for one in entries_of(holdout) if one.repeat_of is None]
    assert own[0] is not None and own[1:] == [None] * (len(own) - 1)


def test_an_answer_that_became_an_error_ends_it(tmp_path: Path) -> None:
    """Warnings are errors here: the end of a budget fails its trial, and the study is told so."""
    holdout, study = opened(tmp_path / "short.db", budget=2), study_of()
    study.optimize(holdout.optuna.objective(build), TRIALS, catch=(BudgetWarning,))
    last = [one.number for one in holdout.history() if one.improved][-1]
    assert [one.number for one in study.trials if one.value is None] == [last - 1]
    assert ended_at(last, holdout)


def test_a_model_that_holds_the_guard_ends_it(holdout: LadderHoldout) -> None:
    X, y = np.arange(ROWS).reshape(-1, 1), LABELS

    def nested(trial: Any) -> Any:
        depth = trial.suggest_int("depth", 1, 3)
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        if trial.number < 3:
            return tree.fit(X[::2], y[::2]), 0.5
        search = GridSearchCV(tree, {"max_depth": [depth]}, cv=2, scoring=holdout)
        return search.fit(X[1:] + 0.5, y[1:]), 0.5

    with pytest.warns(LadderHoldoutWarning, match="not being consulted"):
        study_of().optimize(holdout.optuna.objective(nested), n_trials=TRIALS)
    found = batches(holdout)
    assert one_batch(found[:3]) and found[3:] == [None] * (TRIALS - 3)


def test_a_study_within_a_trial_ends_the_outer_one(holdout: LadderHoldout) -> None:
    def nested(trial: Any) -> Any:
        if trial.number == 2:
            study_of(study_name="inner").optimize(holdout.optuna.objective(build), n_trials=3)
        return build(trial)

    study_of(study_name="outer").optimize(holdout.optuna.objective(nested), n_trials=TRIALS)
    history = [one for one in holdout.history() if one.context]
    outer = [one.batch for one in history if one.context["study"] == "outer"]
    inner = [one.batch for one in history if one.context["study"] == "inner"]
    assert one_batch(outer[:2]) and outer[2:] == [None] * (TRIALS - 2)
    assert one_batch(inner) and inner[0] != outer[0]


def test_a_look_of_another_account_does_not_end_it_and_is_paid_for(tmp_path: Path) -> None:
    """From another process; what the batch had told by then may have steered nothing but Ben."""
    ledger = tmp_path / "ledger.db"
    anna = opened(ledger, account="Anna", mechanism=SimplifiedLadder(1 / ROWS))
    ben = opened_beside(ledger)
    study = study_of()

    def with_ben(trial: Any) -> Any:
        share = trial.suggest_float("share", 0.0, 1.0)
        if trial.number == 4:
            before = seen.latest()
            ben.submit(LABELS)
            seen._latest = before  # as if it had been another process
        return np.where(np.arange(ROWS) < 20 + 4 * trial.number, LABELS, 1 - LABELS), share

    study.optimize(anna.optuna.objective(with_ben), n_trials=TRIALS)
    assert one_batch(batches(anna)) and len(batches(anna)) == TRIALS
    # Of the last incumbent: five looks came before, and what they told; it is the eighth of its
    # batch.
    five = Transcript(5, TRIALS, (LadderTranscript(4, (1, 2, 3, 4), (40, 36, 32, 28), ROWS + 1),
                                  LadderTranscript(1, (1,), (0,), ROWS + 1)),
                          event=3)  # fmt: skip
    assert anna.certificate().log_count == pytest.approx(five.log_count())


def opened_beside(ledger: Path) -> LadderHoldout:
    with pytest.warns(LadderHoldoutWarning):
        return opened(ledger, account="Ben")
