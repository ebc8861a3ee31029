"""What early stopping by the ladder has to keep in every library, as classes of tests.

Each library's test file derives from `StoppingContract`, or from the class for its kind, and says
how a model is trained there.
"""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import optuna
import pytest
from joblib import parallel_config
from scipy.special import expit
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ladderholdout import InvalidArgument, LadderHoldout, Release
from ladderholdout.holdout import LadderStopping
from tests.support.holdouts import assert_replays, repeats
from tests.support.ledgers import entries_of
from tests.support.processes import elsewhere
from tests.support.server import serving, token_of
from tests.support.stopping import (
    Parts,
    assert_kept,
    assert_one_batch,
    assert_stopped_early,
    autologged,
    one_class,
    parts,
    raw_scores_in,
    rounds_of,
    sequence,
)


class Case(NamedTuple):
    """A kind of data, the metric, and how a model is trained on it."""

    kind: str
    scoring: str
    settings: dict[str, Any]


def _id(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={it!r}" for name, it in value.items())
    return str(value)


class StoppingContract:
    """What every library's early stopping has to keep. Derive a class ``Test...`` from it.

    Attributes
    ----------
    ladder_stopping : callable
        That of the library's module, as a staticmethod.
    cases : mapping of str to Case
        What is trained where the best round has to be found.
    variants : sequence of mapping
        Settings under which the library trains in different ways, for data of two classes.
    rounds, patience : int
    refused : sequence of mapping
        Settings of `ladder_stopping` that are refused, each for its first name.
    stops : bool
        Whether the rule stops the first fit of each case, at a best round before the last.
    """

    ladder_stopping: ClassVar[Any]
    cases: ClassVar[dict[str, Case]]
    variants: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    rounds = 60
    patience = 8
    refused: ClassVar[tuple[dict[str, Any], ...]] = ()
    stops = False
    longest = 3000

    # -- what a library says --------------------------------------------------------------

    def data(self, kind: str) -> Parts:
        return parts(kind)

    def stopping_for(
        self, holdout: LadderHoldout, patience: int, kind: str = "binary", **settings: Any
    ) -> Any:
        """What the library's `ladder_stopping` returns, for models of this kind of data."""
        return type(self).ladder_stopping(holdout, patience, **settings)

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> Any:
        """Train a model for at most so many rounds, stopped by `by`; return it."""
        raise NotImplementedError

    def submit(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        """Submit what a model predicts for the holdout's rows."""
        return holdout.submit(model)

    def submit_once(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        """Submit that where the ledger is not at hand."""
        return self.submit(holdout, by, model, data)

    def assert_cut(self, model: Any, stopping: LadderStopping) -> None:
        """The library itself says that the model has the rounds up to the best."""

    def trace(self, model: Any) -> Any:
        """What has to be the same of a second fit, beside what was submitted."""

    def state(self, model: Any) -> Any:
        """What has to be the same of the model that a second fit keeps."""

    # -- what has to hold -----------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: Any) -> None:
        for name in metafunc.fixturenames:
            if name == "case":
                metafunc.parametrize(name, self.cases.values(), ids=list(self.cases))
            if name in ("variant", "watched", "objective", "how"):
                metafunc.parametrize(name, getattr(self, f"{name}s"), ids=_id)
            if name == "worker":
                metafunc.parametrize(name, self.workers, ids=lambda it: "-".join(map(str, it)))

    @property
    def refusals(self) -> tuple[dict[str, Any], ...]:
        shared = ({"patience": 0}, {"patience": 1.5}, {"min_rounds": 0}, {"context": {"x": ...}})
        return (*shared, *self.refused)

    def assert_kept(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> None:
        """The model is the one of the best round, and to submit it again steps nothing."""
        self.assert_cut(model, by.stopping)
        before = holdout.status()
        assert_kept(holdout, by.stopping, self.submit(holdout, by, model, data))
        after = holdout.status()
        assert (after.score, after.incumbent) == (before.score, before.incumbent)

    def trained(
        self, by: Any, holdout: LadderHoldout, data: Parts, rounds: int | None = None, **how: Any
    ) -> Any:
        """Train a model and check that it is the one of the best round."""
        model = self.fit(by, data, rounds or self.rounds, **how)
        self.assert_kept(holdout, by, model, data)
        return model

    def test_the_best_round_is_kept_and_a_second_fit_is_the_first(self, case: Case) -> None:
        data = self.data(case.kind)
        holdout = data.holdout(case.scoring)
        by = self.stopping_for(holdout, self.patience, case.kind)
        found = []
        for number in range(2):
            model = self.fit(by, data, self.rounds, **case.settings)
            if not number:
                assert_one_batch(holdout, by.stopping.rounds)
            if not number and self.stops:
                assert_stopped_early(by.stopping, self.patience, self.rounds)
            self.assert_kept(holdout, by, model, data)
            found.append((sequence(by.stopping), self.trace(model), self.state(model)))
        assert found[0] == found[1]
        again = {(one.improved, one.score) for one in by.stopping.releases}
        assert again == {(False, holdout.status().score)}
        assert repeats(holdout) > by.stopping.rounds
        assert_replays(holdout)

    @pytest.mark.parametrize("rounds", [1, 2])
    def test_few_rounds(self, variant: dict[str, Any], rounds: int) -> None:
        data = self.data("binary")
        holdout = data.holdout()
        by = self.stopping_for(holdout, self.patience)
        self.trained(by, holdout, data, rounds, **variant)
        assert by.stopping.rounds == rounds
        assert rounds > 1 or by.stopping.best_round == 1

    def test_a_fit_below_the_incumbent_keeps_the_rounds_it_had(
        self, variant: dict[str, Any]
    ) -> None:
        data = self.data("binary")
        holdout = data.holdout()
        holdout.submit(data.y_holdout.astype(float))
        by = self.stopping_for(holdout, self.patience)
        self.trained(by, holdout, data, **variant)
        assert (by.stopping.rounds, by.stopping.best_round) == (self.patience, self.patience)
        assert not by.stopping.improved

    def test_a_fit_has_the_least_number_of_rounds_and_its_context(self) -> None:
        data = self.data("binary")
        holdout = data.holdout()
        holdout.submit(data.y_holdout.astype(float))
        by = self.stopping_for(holdout, 1, min_rounds=6, context={"idea": "small"})
        self.fit(by, data, self.rounds)
        assert by.stopping.rounds == 6
        assert {one.context["idea"] for one in holdout.history(after=1)} == {"small"}

    def test_settings_are_refused(self) -> None:
        holdout, taken = self.data("binary").holdout(), []
        for settings in self.refusals:
            try:
                type(self).ladder_stopping(holdout, **settings)
            except InvalidArgument as refused:
                if str(refused).startswith(f"{next(iter(settings))} must be"):
                    continue
            taken.append(settings)
        assert taken == []

    def test_a_copy_begins_without_a_fit_and_holds_nothing_of_the_holdout(self) -> None:
        data = self.data("binary")
        by = self.stopping_for(data.holdout(), self.patience)
        self.fit(by, data, 3)
        assert by.stopping.rounds == 3
        for twin in (copy.deepcopy(by), pickle.loads(pickle.dumps(by))):
            assert twin.stopping.rounds == 0
            assert len(pickle.dumps(twin)) < self.longest
        assert len(pickle.dumps(by)) < self.longest


class ServerContract(StoppingContract):
    """What a library keeps behind a server as well.

    Libraries take the holdout's rows and give predictions in the same way wherever the ladder is:
    of those whose rounds are trees, one has this test.
    """

    @pytest.mark.processes
    def test_behind_a_server_it_is_the_same(self, tmp_path: Path) -> None:
        """The labels and the ladder in another process: the same rounds, releases and model."""
        data, ledger, found = self.data("binary"), tmp_path / "ledger.db", []
        data.holdout(name="far", ledger=ledger)
        token = token_of(ledger, "ada", holdout="far")
        with serving(ledger, tmp_path, "--share-rows", "far") as server:
            remote = LadderHoldout.connect(f"{server.url}/holdouts/far", token)
            for holdout in (data.holdout(), remote):
                by = self.stopping_for(holdout, self.patience)
                model = self.fit(by, data, self.rounds)
                release, rule = self.submit_once(holdout, by, model, data), by.stopping
                assert rule.rounds == len(rule.releases) == release.submission - 1
                answered = sequence(rule), rule.releases, release
                found.append((*answered, self.trace(model), self.state(model)))
        assert found[0] == found[1]
        assert token[20:].encode() not in pickle.dumps(by)


class TreesContract(StoppingContract):
    """For libraries whose rounds are trees.

    Attributes
    ----------
    slow_learner : mapping
        Settings with which ten thousand rounds are worth something.
    varied : str
        The parameter that a study draws from 2 to 6.
    trials : int
    module, program : str
        The adapter's module, and a program for `autologged`: test_stopping_autologged.py runs all.
    killed : callable
        A staticmethod: ``killed(holdout, how)`` trains, and in or after round 7 ends by ``how``.
    hows : sequence of {"kill", "interrupt"}
    survived : int
        How many rounds the ledger holds then.
    settled : int
        How many once this process is shown what was released.
    """

    slow_learner: ClassVar[dict[str, Any]]
    varied: str
    trials = 6
    module: str
    program: str
    killed: ClassVar[Callable[[LadderHoldout, str], None]]
    hows: tuple[str, ...] = ("kill", "interrupt")
    survived = settled = 7

    def fit_estimator(self, by: Any, data: Parts, **settings: Any) -> Any:
        """Train an estimator of scikit-learn's kind."""
        return self.fit(by, data, self.rounds, **settings)

    @pytest.mark.nightly
    def test_ten_thousand_rounds(self) -> None:
        data = self.data("binary")
        holdout = data.holdout()
        by = self.stopping_for(holdout, 10_000)
        self.trained(by, holdout, data, 10_000, **self.slow_learner)
        assert by.stopping.rounds == 10_000
        assert_replays(holdout)

    @pytest.mark.filterwarnings("ignore:All rows of this holdout have the same class")
    def test_a_holdout_with_one_class(self) -> None:
        data = self.data("binary")
        holdout = one_class(data)
        by = self.stopping_for(holdout, self.patience)
        model = self.fit_estimator(by, data)
        assert_kept(holdout, by.stopping, holdout.submit(model))

    def test_in_a_study_all_trials_share_the_ladder(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        data = self.data("binary")
        holdout = data.holdout()

        def build(trial: optuna.Trial) -> Any:
            by = self.stopping_for(holdout, self.patience, context={"trial": trial.number})
            return self.fit_estimator(by, data, **{self.varied: trial.suggest_int("size", 2, 6)})

        study = optuna.create_study(direction="maximize")
        study.optimize(holdout.optuna.objective(build), n_trials=self.trials, n_jobs=2)
        fits = [{one.context["trial"] for one in fit} for fit in rounds_of(holdout).values()]
        assert all(len(trials) == 1 for trials in fits)
        assert sorted(set().union(*fits)) == list(range(self.trials))
        models = [one for one in entries_of(holdout) if "fit" not in one.context]
        assert len(models) == self.trials and all(one.repeat_of for one in models)
        assert_replays(holdout)

    @pytest.mark.processes
    def test_interrupted_training_leaves_a_ledger_that_replays(self, how: str) -> None:
        holdout = self.data("binary").holdout()
        killed = type(self).killed
        if how == "kill":
            with pytest.raises(Exception, match="terminated abruptly"):
                elsewhere(killed, holdout, how)
        else:
            with pytest.raises(KeyboardInterrupt):
                killed(holdout, how)
        [rounds] = rounds_of(holdout).values()
        assert len(rounds) == self.survived
        assert_replays(holdout)
        if how == "interrupt":
            assert holdout.status().submissions == self.settled
            assert_replays(holdout)


def end(how: str) -> None:
    """End training: at once and for good, or as Ctrl-C does."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise KeyboardInterrupt


class CallbackContract(TreesContract):
    """For libraries that stop an estimator of theirs in mid-training, inside others as well.

    Attributes
    ----------
    grid : mapping
        Three candidates of a search.
    workers : sequence of (str, int)
        Backends of joblib and numbers of workers for that search.
    """

    grid: ClassVar[dict[str, Any]]
    workers: ClassVar[tuple[tuple[str, int], ...]] = (("loky", 2), ("threading", 2))

    def estimator(self, by: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """An estimator, and what its `fit` takes to be stopped by `by`."""
        raise NotImplementedError

    def fit_estimator(self, by: Any, data: Parts, **settings: Any) -> Any:
        model, taken = self.estimator(by, **settings)
        return model.fit(data.X, data.y, **taken)

    def test_inside_a_pipeline(self) -> None:
        data = self.data("binary")
        holdout = data.holdout()
        by = self.stopping_for(holdout, self.patience)
        model, taken = self.estimator(by)
        step = type(model).__name__.lower()
        whole = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
        whole.fit(data.X + 5, data.y, **{f"{step}__{name}": it for name, it in taken.items()})
        assert_kept(holdout, by.stopping, holdout.submit(whole))

    @pytest.mark.processes
    def test_in_a_grid_search_all_fits_share_the_ladder(self, worker: tuple[str, int]) -> None:
        backend, n_jobs = worker
        data = self.data("binary")
        holdout = data.holdout()
        by = self.stopping_for(holdout, self.patience, context={"run": 7})
        model, taken = self.estimator(by)
        search = GridSearchCV(
            model, self.grid, scoring=holdout, cv=holdout.split(), refit=holdout.select,
            n_jobs=n_jobs,
        )  # fmt: skip
        with parallel_config(backend):  # threads share the callback itself
            search.fit(data.X, data.y, **taken)
        history = entries_of(holdout)
        rounds = [one for one in history if "fit" in one.context]
        models = [one for one in history if "fit" not in one.context]
        assert len(rounds_of(holdout)) == 4 and len(models) == 3
        assert all(one.context["run"] == 7 for one in rounds)
        assert all(one.repeat_of for one in models)  # each is a round of its own fit
        assert all(one.batch is None for one in models)
        best = search.best_estimator_
        release = holdout.submit(best)
        assert release.is_incumbent and release.improvements == holdout.status().releases
        self.assert_cut(best, self.stopping_of(best, by))
        assert_replays(holdout)

    def stopping_of(self, model: Any, by: Any) -> LadderStopping:
        """The rule that stopped the last fit of this estimator."""
        found: LadderStopping = by.stopping
        return found


class BoostingContract(TreesContract):
    """For the libraries of boosting, which have objectives of ranking and of one's own.

    Attributes
    ----------
    objectives : sequence of str
        Of ranking.
    ranking_metric : str
        A metric that the holdout of a ranking has.
    given_away : str
        What a program adds that makes the library evaluate on the holdout itself.
    yields_margins : bool
        Whether the library makes no probabilities of the margins of an objective of one's own.
    """

    objectives: ClassVar[tuple[str, ...]]
    ranking_metric = "roc_auc"
    given_away: str
    yields_margins = True

    def fit_ranking(self, by: Any, data: Parts, objective: str) -> None:
        raise NotImplementedError

    def fit_own_objective(self, by: Any, data: Parts, **settings: Any) -> Any:
        """Train with a log loss of one's own; return the model's margins on the holdout."""
        raise NotImplementedError

    def test_ranking_is_out_of_scope(self, objective: str) -> None:
        data = self.data("binary")
        holdout = data.holdout(self.ranking_metric)
        with pytest.raises(InvalidArgument, match="a ranking within groups"):
            self.fit_ranking(type(self).ladder_stopping(holdout), data, objective)
        assert holdout.status().submissions == 0

    @pytest.mark.filterwarnings("ignore:Failed to import numba:UserWarning")
    def test_margins_of_an_objective_of_ones_own_are_never_taken_for_probabilities(
        self, variant: dict[str, Any]
    ) -> None:
        data = self.data("binary")
        for scoring in ("neg_log_loss", "accuracy"):
            holdout = data.holdout(scoring, ledger="memory")
            by = self.stopping_for(holdout, self.patience)
            if self.yields_margins:
                with pytest.raises(InvalidArgument, match=r"^objective must be one whose prob"):
                    self.fit_own_objective(by, data, **variant)
                assert holdout.status().submissions == 0
            else:
                shares = expit(self.fit_own_objective(by, data, **variant))
                answer = shares if scoring == "neg_log_loss" else (shares > 0.5).astype(int)
                assert_kept(holdout, by.stopping, holdout.submit(answer))
        holdout = data.holdout("roc_auc", ledger="memory")
        by = self.stopping_for(holdout, self.patience)
        margins = self.fit_own_objective(by, data, **variant)
        ranks = margins if self.yields_margins else expit(margins)
        assert_kept(holdout, by.stopping, holdout.submit(ranks))

    @pytest.mark.nightly
    def test_the_search_for_raw_scores_finds_those_of_a_holdout_given_away(
        self, tmp_path: Path
    ) -> None:
        holdout, seen = autologged(self.module, self.program + self.given_away, tmp_path)
        assert len(raw_scores_in(holdout, seen)) > 5
