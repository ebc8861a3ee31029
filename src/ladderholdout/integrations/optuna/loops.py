"""The two loops of Optuna: an objective for `optimize`, and ask-and-tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_validate

from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning, as_given, warn
from ladderholdout.feedback import feedback_of
from ladderholdout.guard.groups import is_of_groups, look_for_groups
from ladderholdout.guard.settings import count_rows
from ladderholdout.guard.views import Release
from ladderholdout.integrations.optuna.trials import (
    INNER_SCORES,
    Call,
    Candidate,
    Spot,
    a_study,
    among_others,
    call_of,
    candidate_of,
    check_feedback,
    guides_of,
    in_direction,
    key_of,
    receives_guide,
    stopping,
    submit,
    values_of,
)
from ladderholdout.integrations.sklearn import (
    asks,
    checked_folds,
    plain_score,
)
from ladderholdout.integrations.training_rows import look_for_overlap
from ladderholdout.mechanisms.arithmetic import natural
from ladderholdout.thirdparty import caller, frozen, is_same_study

if TYPE_CHECKING:
    from ladderholdout.guard.open_ladder import OpenLadder


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
    """An objective whose value is ladder feedback; made by `LadderHoldout.objective`.

    Parameters
    ----------
    holdout : LadderHoldout
    build : callable
        From a trial to a fitted estimator or predictions, alone or as (model, guide), or a
        `Candidate`.
    inner : int, splitter or None
        Folds of `train` by which the library computes the guide.
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
    >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
    >>> study.optimize(objective, n_trials=3)
    >>> holdout.status().submissions
    3
    """

    def __init__(
        self,
        holdout: OpenLadder,
        build: Callable[[Any], Any],
        *,
        inner: Any,
        train: tuple[Any, ...] | None,
        feedback: str,
        guarded: int,
    ) -> None:
        if not callable(build):
            raise InvalidArgument("build", "a function of a trial", type(build).__name__)
        if inner is not None and train is None:
            raise InvalidArgument(
                "train",
                "the training rows, (X_train, y_train), for inner folds",
                "missing",
                "Or leave inner out and return (estimator, guide) from build.",
            )
        if train is not None:
            train = _parts(train)
        if inner is not None:
            inner = checked_folds(inner)
            _check_groups(inner, train)
        if train is not None:
            look_for_overlap(holdout, train[0])
            look_for_groups(holdout, inner, {"groups": train[2]})
        self._holdout, self._build, self._inner, self._train = holdout, build, inner, train
        self._feedback, self._guarded = feedback, natural("guarded", guarded)
        self._call: Call | None = None

    def __call__(self, trial: Trial) -> float | tuple[float, ...]:
        """Build, submit, and return what the sampler may know.

        Where that is the guide, the trials of one ``study.optimize`` are one batch
        (`batches`), and no release is noted on them.
        """
        if not isinstance(trial, Trial):
            raise InvalidArgument(
                "trial",
                "a running one, as study.optimize hands it in",
                type(trial).__name__,
                "The model of a finished trial: objective.candidate(trial).model.",
            )
        call = self._call = call_of(caller(), self, trial, self._call)
        key = key_of(self._holdout, trial)
        with stopping(trial):  # a build whose training asks the guard may find it gone
            candidate = self.candidate(trial)
        check_feedback(self._holdout, trial.study, candidate, self._feedback, self._guarded)
        guided = receives_guide(self._feedback, candidate)
        quiet = guided and not asks(candidate.model)
        spot = Spot() if call is None else call.spot_of(trial, quiet=quiet)
        release = submit(self._holdout, trial, candidate, key, spot, silent=guided)
        _look_at_pruner(self._holdout, trial, release)
        values = values_of(
            self._holdout, trial.study, candidate, release, self._feedback, self._guarded
        )
        if call is not None:
            call.close()
        return values

    def guide(self, trial: Trial) -> float | tuple[float, ...]:
        """Return the guide of a trial alone: an objective that never asks the holdout.

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
            There is no guide: give inner= and train=, or return one from build.

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
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective.guide, n_trials=3)
        >>> holdout.status().submissions  # the study used inner scores alone
        0
        """
        with stopping(trial):
            candidate = candidate_of(self._build(trial))
        if self._inner is not None:
            candidate = replace(candidate, guide=self._score(candidate, trial))
        guides = guides_of(self._holdout, candidate)
        values = [feedback_of("guide", 0.0, False, 1.0, one) for one in guides.values()]
        if not self._holdout.by_metric:
            return in_direction(trial.study, values[0], self._guarded)
        return among_others(trial.study, values, candidate, self._guarded)

    def candidate(self, trial: Trial | FrozenTrial, *, score: bool = True) -> Candidate:
        """Build the model of a trial: fitted, and with its guide.

        Parameters
        ----------
        trial : Trial or FrozenTrial
        score : bool, default=True
            Whether the inner folds are run; without them a guide of the library's own is
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
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective.guide, n_trials=1)
        >>> objective.candidate(study.best_trial).guide > 0.8
        True
        """
        candidate = candidate_of(self._build(trial))
        if self._train is None:
            return candidate
        inner = score and self._inner is not None
        guide = self._score(candidate, trial) if inner else candidate.guide
        X, y, _ = self._train
        return replace(candidate, model=candidate.model.fit(X, y), guide=guide)

    def _score(self, candidate: Candidate, trial: Trial | FrozenTrial) -> float | dict[str, float]:
        """Return the mean score of the inner folds, and note each of them on a running trial."""
        assert self._train is not None
        X, y, groups = self._train
        metric = self._holdout.metric
        cv = check_cv(self._inner, y, classifier=metric.is_classification)
        # As a list, groups reach the splitter whether or not scikit-learn routes metadata.
        folds = cv if groups is None else list(cv.split(X, y, groups))
        score = partial(plain_score, self._holdout)
        found = cross_validate(
            clone(candidate.model), X, y, cv=folds, scoring=score, error_score="raise"
        )
        names = list(self._holdout.by_metric) or ["score"]
        scores = {name: found[f"test_{name}"].tolist() for name in names}
        several = bool(self._holdout.by_metric)
        if isinstance(trial, Trial):
            trial.set_user_attr(INNER_SCORES, scores if several else scores["score"])
        means = {name: fmean(own) for name, own in scores.items()}
        return means if several else means["score"]


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
    >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
    >>> loop = holdout.ask_tell(study)
    >>> trial = loop.ask()
    >>> loop.tell(trial, build(trial).fit(X[1::3], y[1::3]), guide=0.9).improved
    True
    """

    def __init__(self, holdout: OpenLadder, study: Study, feedback: str, guarded: int) -> None:
        self._holdout, self._study = holdout, a_study(study)
        self._feedback, self._guarded = feedback, natural("guarded", guarded)

    def ask(self, fixed_distributions: Mapping[str, Any] | None = None) -> Trial:
        """Return the study's next trial."""
        return self._study.ask(dict(fixed_distributions) if fixed_distributions else None)

    def tell(
        self,
        trial: Trial,
        model: Any,
        *,
        guide: float | Mapping[str, float] | None = None,
        others: Sequence[float] = (),
    ) -> Release:
        """Submit a trial's model and give the study what it may know.

        Parameters
        ----------
        trial : Trial
            From `ask`.
        model : object
            A fitted estimator, or predictions for the holdout's rows.
        guide : float or mapping of str to float, optional
            Its score on the training side, greater is better; of several metrics by name.
        others : sequence of float
            Values of the objectives that are not guarded.

        Returns
        -------
        Release
        """
        if not isinstance(trial, Trial) or not is_same_study(trial.study, self._study):
            raise InvalidArgument("trial", "a trial that this study was asked for", "another")
        candidate = candidate_of(Candidate(model, guide, tuple(others)))
        check_feedback(self._holdout, self._study, candidate, self._feedback, self._guarded)
        release = submit(self._holdout, trial, candidate, key_of(self._holdout, trial))
        values = values_of(
            self._holdout, self._study, candidate, release, self._feedback, self._guarded
        )
        self._study.tell(trial, values)
        return release


def guided_steps(trial: Trial, guides: Iterable[float]) -> Iterator[tuple[int, float]]:
    """Report training-side scores step by step, and prune by them.

    Parameters
    ----------
    trial : Trial
        Of a study with one objective.
    guides : iterable of float
        One training-side score a step, greater is better in whatever direction the study
        goes: each is asked for when the one before was reported.

    Yields
    ------
    step, guide : int, float

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
    ...     return [score for _, score in guided_steps(trial, [0.5, 0.7])][-1]
    ...
    >>> study.optimize(objective, n_trials=1)
    >>> study.trials[0].intermediate_values
    {0: 0.5, 1: 0.7}
    """
    for step, guide in enumerate(guides):
        trial.report(in_direction(trial.study, guide), step)
        if trial.should_prune():
            raise optuna.TrialPruned(f"Pruned at step {step} by its training-side score.")
        yield step, guide


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
            "training-side scores instead (guided_steps).",
            LadderHoldoutWarning,
        )


def _released(holdout: OpenLadder) -> set[float]:
    entries = holdout.read(lambda tx, ladder: tx.entries(ladder.id))
    return {abs(holdout.metric.to_score(one.risk)) for one in entries if one.risk is not None}
