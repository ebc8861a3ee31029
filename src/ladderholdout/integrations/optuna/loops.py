"""The two loops of Optuna: an objective for `optimize`, and ask-and-tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial
from sklearn.base import clone

from ladderholdout.arguments import as_given, function, whole
from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning, warn
from ladderholdout.feedback import feedback_of
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import HasLadder, OpenLadder, ladder_of
from ladderholdout.guard.recognition import is_of_groups, look_for_groups
from ladderholdout.guard.settings import count_rows
from ladderholdout.guard.views import Release
from ladderholdout.identity.copies import copy_of
from ladderholdout.integrations.optuna import trials
from ladderholdout.integrations.optuna.folds import scores_of_folds
from ladderholdout.integrations.ranges import Folds, predicted_on_folds, proposed_range
from ladderholdout.integrations.sklearn import asks, checked_folds
from ladderholdout.integrations.training_rows import look_for_overlap, need_rows
from ladderholdout.metrics.responses import predicts
from ladderholdout.thirdparty import caller, frozen, is_same_study


def _parts(train: Any) -> tuple[Any, Any, Any]:
    """Validate training rows with their targets, and groups if there are some, of one number."""
    if isinstance(train, tuple | list) and len(train) in (2, 3):
        with suppress(InvalidArgument):
            if count_rows(train[0]) > 0 and len({count_rows(one) for one in train}) == 1:
                return train[0], train[1], train[2] if len(train) == 3 else None
    came = as_given(train)
    raise InvalidArgument(
        "train", "a pair (X_train, y_train) of as many rows, or (X_train, y_train, groups)", came
    )


def _check_groups(inner: Any, train: Any) -> None:
    """Refuse a splitter of groups without groups, before a study begins."""
    if is_of_groups(inner) and train[2] is None:
        raise InvalidArgument(
            "train",
            f"(X_train, y_train, groups) for {type(inner).__name__}",
            "without groups",
            "Give the group of each training row as the third.",
        )


class Objective:
    """An objective whose value is ladder feedback; made by `holdout.optuna.objective`.

    Parameters
    ----------
    holdout : LadderHoldout
    build : callable
        From a trial to a fitted estimator or predictions, alone or as (model, inner_score), or a
        `Candidate`.
    inner : int, splitter or None
        Folds of `train` by which the library computes the inner score.
    train : tuple of (X, y) or (X, y, groups), or None
        The training rows, where `build` returns an unfitted estimator.
    feedback : str
        What the study receives; see `ladderholdout.feedback`.
    guarded : int
        Which objective of a multi-objective study is the guarded one.

    Examples
    --------
    >>> import optuna
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> X, y = load_iris(return_X_y=True)
    >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
    >>> def build(trial):
    ...     depth = trial.suggest_int("depth", 1, 3)
    ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
    ...
    >>> sampler = optuna.samplers.RandomSampler(seed=0)
    >>> study = optuna.create_study(direction="maximize", sampler=sampler)
    >>> objective = holdout.optuna.objective(build, inner=3, train=(X[1::3], y[1::3]))
    >>> study.optimize(objective, n_trials=3)
    >>> holdout.status().submissions
    3
    """

    def __init__(
        self,
        holdout: HasLadder,
        build: Callable[[Any], Any],
        *,
        inner: Any = None,
        train: tuple[Any, ...] | None = None,
        feedback: str = "auto",
        guarded: int = 0,
    ) -> None:
        ladder = ladder_of(holdout, several=True)
        self._feedback = trials.policy_of(ladder, feedback)
        self._build = function("build", build, "a function of a trial")
        if inner is not None and train is None:
            raise InvalidArgument(
                "train",
                "the training rows, (X_train, y_train), for inner folds",
                "missing",
                "Or leave inner out and return (estimator, inner_score) from build.",
            )
        if train is not None:
            train = _parts(train)
        if inner is not None:
            inner = checked_folds(inner)
            _check_groups(inner, train)
        if train is not None:
            if inner is not None:
                need_rows(ladder)
            look_for_overlap(ladder, train[0])
            look_for_groups(ladder, inner, {"groups": train[2]})
        self._holdout, self._inner, self._train = ladder, inner, train
        self._guarded = whole("guarded", guarded, least=0)
        self._call: trials.Call | None = None

    def __call__(self, trial: Trial) -> float | tuple[float, ...]:
        """Build, submit, and return what the sampler may know.

        Where that is the guide, the trials of one ``study.optimize`` are one batch
        (`batches`), and no release is noted on them.
        """
        self._running(trial)
        call = self._call = trials.call_of(caller(), self, trial, self._call)
        key = trials.key_of(self._holdout, trial)
        with trials.stopping(trial):  # a build whose training asks the guard may find it gone
            candidate = self.candidate(trial)
        trials.check_feedback(self._holdout, trial.study, candidate, self._feedback, self._guarded)
        inner_alone = trials.receives_inner_score(self._feedback, candidate)
        quiet = inner_alone and not asks(candidate.model)
        if call is not None:
            spot = call.spot_of(trial, quiet=quiet)
        else:
            spot = trials.Spot(apart=_BY_HAND if inner_alone else None)
        release = trials.submit(self._holdout, trial, candidate, key, spot, silent=inner_alone)
        _look_at_pruner(self._holdout, trial, release)
        values = trials.values_of(
            self._holdout, trial.study, candidate, release, self._feedback, self._guarded
        )
        if call is not None:
            call.close()
        return values

    def inner_score(self, trial: Trial) -> float | tuple[float, ...]:
        """Return the inner score of a trial alone: an objective that never asks the holdout.

        Give it to ``study.optimize`` in place of the objective itself, and show the holdout
        the best few at the end (`LadderHoldout.finalists`).

        Parameters
        ----------
        trial : Trial

        Returns
        -------
        float, or tuple of float
            In the sign of the study's direction; of several metrics those of all.

        Raises
        ------
        InvalidArgument
            There is no inner score: give inner= and train=, or return one from build.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective.inner_score, n_trials=3)
        >>> holdout.status().submissions  # the study used inner scores alone
        0
        """
        self._running(trial)
        with trials.stopping(trial):
            candidate = self._built(trial)
        trials.check_objectives(self._holdout, trial.study, candidate, self._guarded)
        self._check_predictions(candidate)
        if self._inner is not None:
            candidate = replace(candidate, inner_score=self._score(candidate, trial))
        inner_scores = trials.inner_scores_of(self._holdout, candidate)
        if None in inner_scores.values():
            raise InvalidArgument(
                "build",
                "a function that returns an inner score with the model, (model, score), where "
                "the study goes by inner scores alone",
                "one that returns none",
                "Or have it computed: holdout.optuna.objective(build, inner=5, "
                "train=(X_train, y_train)), with an estimator that is not fitted yet.",
            )
        values = [feedback_of("inner", 0.0, False, 1.0, one) for one in inner_scores.values()]
        return trials.among_others(trial.study, values, candidate, self._guarded)

    def candidate(self, trial: Trial | FrozenTrial, *, score: bool = True) -> trials.Candidate:
        """Build the model of a trial: fitted, and with its inner score.

        For a finished trial `build` receives a copy of it: nothing that is noted there reaches
        the study's storage, what is reported goes nowhere, and there is no study to ask.

        Parameters
        ----------
        trial : Trial or FrozenTrial
        score : bool, default=True
            Whether the inner folds are run; without them an inner score of the library's own is
            left out.

        Returns
        -------
        Candidate

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective.inner_score, n_trials=1)
        >>> objective.candidate(study.best_trial).inner_score > 0.8
        True
        """
        candidate = self._built(trial)
        if self._train is None:
            return candidate
        inner = score and self._inner is not None
        inner_score = self._score(candidate, trial) if inner else candidate.inner_score
        # Copies for each trial: what one writes into its rows, the next must not be fitted on.
        X, y = map(copy_of, self._train[:2])
        return replace(candidate, model=candidate.model.fit(X, y), inner_score=inner_score)

    def _running(self, trial: Trial) -> None:
        """Refuse a trial that does not run."""
        if not isinstance(trial, Trial):
            raise InvalidArgument(
                "trial",
                "a running one, as study.optimize hands it in",
                type(trial).__name__,
                "The model of a finished trial: objective.candidate(trial).model.",
            )

    def _built(self, trial: Trial | FrozenTrial) -> trials.Candidate:
        if isinstance(trial, FrozenTrial):
            built = trials.built_again(self._build, trial)
        else:
            built = self._build(trial)
        return trials.candidate_of(
            built, fits=self._train is not None, clones=self._inner is not None
        )

    def _check_predictions(self, candidate: trials.Candidate) -> None:
        """Refuse predictions that the holdout would not take, before the study is searched."""
        ladder = self._holdout
        if self._train is None and not ladder.by_metric and not predicts(candidate.model):
            facts = ladder.facts
            ladder.metric.canonical(candidate.model, facts.n, facts.classes)

    def _score(
        self, candidate: trials.Candidate, trial: Trial | FrozenTrial
    ) -> float | dict[str, float]:
        """Return the mean score of the inner folds, and note each of them on a running trial."""
        assert self._train is not None
        scores = scores_of_folds(self._holdout, candidate.model, *self._train, inner=self._inner)
        several = bool(self._holdout.by_metric)
        if isinstance(trial, Trial):
            trial.set_user_attr(trials.INNER_SCORES, scores if several else scores["score"])
        means = {name: fmean(own) for name, own in scores.items()}
        return means if several else means["score"]


def propose_range(objective: Objective, best: FrozenTrial) -> None:
    """Warn with a range of the loss where that is missing or far wider than inner errors.

    Nothing is proposed without inner folds of the library's own.
    """
    if objective._inner is None or objective._train is None:
        return
    X, y, groups = objective._train

    def on_folds() -> Folds:
        model = objective._built(best).model
        return predicted_on_folds(clone(model), X, y, objective._inner, groups)

    proposed_range(objective._holdout, y, on_folds)


class AskTell:
    """The ask-and-tell loop of a study, with the guard in between.

    Parameters
    ----------
    holdout : LadderHoldout
    study : optuna.Study
    feedback : str
    guarded : int

    Examples
    --------
    >>> import optuna
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> X, y = load_iris(return_X_y=True)
    >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
    >>> def build(trial):
    ...     depth = trial.suggest_int("depth", 1, 3)
    ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
    ...
    >>> sampler = optuna.samplers.RandomSampler(seed=0)
    >>> study = optuna.create_study(direction="maximize", sampler=sampler)
    >>> objective = holdout.optuna.objective(build, inner=3, train=(X[1::3], y[1::3]))
    >>> loop = holdout.optuna.ask_tell(study)
    >>> trial = loop.ask()
    >>> loop.tell(trial, build(trial).fit(X[1::3], y[1::3]), inner_score=0.9).improved
    True
    """

    def __init__(
        self, holdout: HasLadder, study: Study, *, feedback: str = "auto", guarded: int = 0
    ) -> None:
        self._holdout = ladder_of(holdout, several=True)
        self._feedback = trials.policy_of(self._holdout, feedback)
        self._study, self._guarded = trials.a_study(study), whole("guarded", guarded, least=0)

    def ask(self, fixed_distributions: Mapping[str, Any] | None = None) -> Trial:
        """Return the study's next trial."""
        return self._study.ask(dict(fixed_distributions) if fixed_distributions else None)

    def tell(
        self,
        trial: Trial,
        model: Any,
        *,
        inner_score: float | Mapping[str, float] | None = None,
        others: Sequence[float] = (),
    ) -> Release:
        """Submit a trial's model and give the study what it may know.

        Parameters
        ----------
        trial : Trial
            From `ask`.
        model : object
            A fitted estimator, or predictions for the holdout's rows.
        inner_score : float or mapping of str to float, optional
            Its score on the training side, greater is better; of several metrics by name.
        others : sequence of float
            Values of the objectives that are not guarded.

        Returns
        -------
        Release
        """
        if not isinstance(trial, Trial) or not is_same_study(trial.study, self._study):
            raise InvalidArgument("trial", "a trial that this study was asked for", "another")
        candidate = _told(trials.Candidate(model, inner_score, others))  # type: ignore[arg-type]
        trials.check_feedback(self._holdout, self._study, candidate, self._feedback, self._guarded)
        release = trials.submit(
            self._holdout, trial, candidate, trials.key_of(self._holdout, trial)
        )
        values = trials.values_of(
            self._holdout, self._study, candidate, release, self._feedback, self._guarded
        )
        self._study.tell(trial, values)
        return release


def _told(candidate: trials.Candidate) -> trials.Candidate:
    """Check what `AskTell.tell` received, which no build returned."""
    try:
        return trials.candidate_of(candidate)
    except InvalidArgument as error:
        argument, _, came, _ = error.args
        if argument != "build":
            raise
        raise InvalidArgument(
            "model",
            "a fitted estimator, or predictions for the holdout's rows",
            str(came).removeprefix("one that returns "),
            "Give its score on the training rows as inner_score=.",
        ) from None


def inner_score_steps(trial: Trial, inner_scores: Iterable[float]) -> Iterator[tuple[int, float]]:
    """Report training-side scores step by step, and prune by them.

    Parameters
    ----------
    trial : Trial
        Of a study with one objective. Of a finished trial nothing is reported.
    inner_scores : iterable of float
        One training-side score a step, greater is better in whatever direction the study
        goes: each is asked for when the one before was reported.

    Yields
    ------
    step, inner_score : int, float

    Raises
    ------
    optuna.TrialPruned
        When the study's pruner decides so.

    Examples
    --------
    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(direction="maximize")
    >>> def objective(trial):
    ...     return [score for _, score in inner_score_steps(trial, [0.5, 0.7])][-1]
    ...
    >>> study.optimize(objective, n_trials=1)
    >>> study.trials[0].intermediate_values
    {0: 0.5, 1: 0.7}
    """
    if not isinstance(trial, Trial):  # of a study that is over, or of none
        yield from enumerate(inner_scores)
        return
    for step, inner_score in enumerate(inner_scores):
        trial.report(trials.in_direction(trial.study, inner_score), step)
        if trial.should_prune():
            raise optuna.TrialPruned(f"Pruned at step {step} by its training-side score.")
        yield step, inner_score


_BY_HAND = (
    "trials of the study ran in several threads, or by a function around the objective, or by hand"
)


def _look_at_pruner(holdout: OpenLadder, trial: Trial, release: Release) -> None:
    """Warn where a pruner is fed with what the ladder released."""
    if isinstance(trial.study.pruner, optuna.pruners.NopPruner):
        return
    reported = {abs(value) for value in frozen(trial).intermediate_values.values()}
    # One score of the training side may well be equal to one that was released.
    if (
        release.score is not None
        and abs(release.score) in reported
        and reported <= _released(holdout)
    ):
        warn(
            "A pruner is fed with ladder output here. The released score is flat between "
            "releases and the same for all trials, so a pruner sees nothing in it: report "
            "training-side scores instead (inner_score_steps).",
            LadderHoldoutWarning,
        )


def _released(holdout: OpenLadder) -> set[float]:
    asked = commands.History(limit=commands.ALL)
    entries = holdout.execute(asked, shown=False).submissions
    return {abs(entry.score) for entry in entries if entry.score is not None}
