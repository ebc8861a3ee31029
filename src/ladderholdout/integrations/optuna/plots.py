"""A picture of a guarded study, from releases and inner scores alone."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ladderholdout import pictures
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.integrations.optuna.trials import INNER_SCORES, a_study, in_direction
from ladderholdout.integrations.optuna.winners import submission_of

if TYPE_CHECKING:
    from ladderholdout.pictures import Axes


def plot_ladder(holdout: HasLadder, study: Study, *, ax: Axes | None = None) -> Axes:
    """Draw the released score against the study's inner scores, trial by trial.

    Parameters
    ----------
    holdout : LadderHoldout
    study : optuna.Study
        With one objective.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidArgument
        The study has several objectives.
    MissingExtra
        Matplotlib is not installed.

    Examples
    --------
    >>> import optuna
    >>> from matplotlib.figure import Figure
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
    >>> plot_ladder(holdout, study, ax=Figure().subplots()).get_xlabel()
    'trial'
    """
    if len(a_study(study).directions) > 1:
        came = f"one with {len(study.directions)}"
        raise InvalidArgument("study", "one with a single objective", came)
    ladder, ax = ladder_of(holdout), pictures.axes_or_new(ax)
    certificate = ladder.execute(commands.Status()).certificate
    every = study.get_trials(deepcopy=False)
    if certificate.low is not None and certificate.high is not None:
        ends = -0.5, len(every) - 0.5
        pictures.banded(ax, ends, certificate.low, certificate.high)
    done = (trial for trial in every if trial.state is TrialState.COMPLETE)
    inner = {trial.number: _inner_score(study, trial) for trial in done}
    ax.plot(
        [number for number, score in inner.items() if score is not None],
        [score for score in inner.values() if score is not None],
        "o", color=pictures.GREY, alpha=0.5, label="inner score",
    )  # fmt: skip
    history = ladder.execute(commands.History(limit=commands.ALL)).submissions
    trials = {submission_of(study, trial, ladder): trial.number for trial in every}
    for improved, marker, label in ((False, "o", "released score"), (True, "*", "improved")):
        shown = [
            (trials[entry.number], entry.score)
            for entry in history
            if entry.number in trials and entry.improved is improved and entry.score is not None
        ]
        if shown:
            x, y = zip(*shown, strict=True)
            ax.plot(x, y, marker, color=pictures.BLUE, ls="", label=label)
    pictures.count_along(ax)
    ax.set(title=f"Holdout {ladder.facts.name}", xlabel="trial", ylabel=ladder.metric.name)
    ax.legend(fontsize="small")
    return ax


def _inner_score(study: Study, trial: FrozenTrial) -> float | None:
    """Return the score from the training rows: of the noted folds, else what the study has."""
    noted = trial.user_attrs.get(INNER_SCORES)
    if noted:
        return fmean(noted)
    return None if trial.value is None else in_direction(study, trial.value)
