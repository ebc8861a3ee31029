"""What Optuna Dashboard shows of a guarded study: a note and a figure, from releases alone."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ladderholdout.arguments import whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import OpenLadder, ladder_of
from ladderholdout.integrations.optuna.trials import INNER_SCORES, a_study, in_direction
from ladderholdout.integrations.optuna.winners import submission_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FEW = 10
FIGURE = "ladder-holdout"
"""The id of the figure on the study: a later one replaces it."""


def note_of(holdout: Any, study: Study) -> str:
    """Return a note on a study: its queries, the released score and the certificate.

    Parameters
    ----------
    holdout : LadderHoldout
    study : optuna.Study

    Returns
    -------
    str
        In Markdown.

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
    >>> print(note_of(holdout, study).splitlines()[0])
    ## Holdout holdout-c22819b1
    """
    ladder = ladder_of(holdout)
    status, asked = ladder.execute(commands.Status()), _asked(ladder, a_study(study))
    rows = [(what, value) for what, value in status.lines() if what != "ledger"]
    winner = next((number for number, at in asked.items() if at == status.incumbent), None)
    rows.insert(0, ("trials that queried it", str(len(asked))))
    rows.insert(1, ("incumbent trial", "none of this study" if winner is None else str(winner)))
    table = "\n".join(f"| {what} | {value.replace('|', '/')} |" for what, value in rows)
    return f"## Holdout {status.name}\n\n| | |\n| --- | --- |\n{table}\n"


def plot_ladder(holdout: Any, study: Study) -> go.Figure:
    """Draw the released score against the study's inner scores, trial by trial.

    Parameters
    ----------
    holdout : LadderHoldout
    study : optuna.Study
        With one objective.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    InvalidArgument
        The study has several objectives.
    MissingExtra
        Plotly is not installed.

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
    >>> plot_ladder(holdout, study).layout.xaxis.title.text
    'trial'
    """
    if len(a_study(study).directions) > 1:
        came = f"one with {len(study.directions)}"
        raise InvalidArgument("study", "one with a single objective", came)
    with needed("A figure for Optuna Dashboard"):
        import plotly.graph_objects as go
    ladder = ladder_of(holdout)
    asked = _asked(ladder, study)
    page = ladder.execute(commands.History(limit=commands.ALL))
    history = {one.number: one for one in page.submissions}
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    inner = [(one.number, _inner_score(study, one)) for one in done]
    figure = go.Figure()
    figure.add_scatter(
        x=[number for number, score in inner if score is not None],
        y=[score for _, score in inner if score is not None],
        mode="markers",
        name="inner score",
        opacity=0.5,
    )
    # In the order of the queries, which of finalists is not that of the trials.
    ordered = sorted(asked.items(), key=lambda it: it[1])
    figure.add_scatter(
        x=[number for number, _ in ordered],
        y=[history[at].score for _, at in ordered],
        mode="markers",
        marker={"symbol": ["star" if history[at].improved else "circle" for _, at in ordered]},
        text=[f"submission {at}" for _, at in ordered],
        name="released score after it (star: improved)",
    )
    certificate = ladder.execute(commands.Status()).certificate
    if certificate.low is not None and certificate.high is not None:
        figure.add_hrect(
            y0=certificate.low, y1=certificate.high, opacity=0.15, line_width=0, fillcolor="green"
        )
    title = f"Holdout {ladder.facts.name}: {certificate.line()}"
    figure.update_layout(title=title, xaxis_title="trial", yaxis_title=ladder.metric.name)
    if len(study.trials) <= _FEW:
        figure.update_xaxes(dtick=1)  # whole numbers; of more it shows no halves
    return figure


def show(holdout: Any, study: Study) -> None:
    """Put the note and the figure on a study, where Optuna Dashboard shows them.

    Parameters
    ----------
    holdout : LadderHoldout
    study : optuna.Study

    Raises
    ------
    MissingExtra
        Optuna Dashboard or Plotly is not installed.

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
    >>> show(holdout, study)
    """
    with needed("A note for Optuna Dashboard"):
        from optuna_dashboard import save_note, save_plotly_graph_object
    save_note(study, note_of(holdout, study))
    save_plotly_graph_object(study, plot_ladder(holdout, study), graph_object_id=FIGURE)


class Dashboard:
    """A study callback that keeps the note and the figure on the study up to date.

    Parameters
    ----------
    holdout : LadderHoldout
    every : int, default=10
        After so many finished trials.

    Notes
    -----
    What it shows may steer whoever reads it: a study whose trials are one batch, since its
    feedback is their inner scores, is a batch no longer once this showed a release. `show` after
    the study costs nothing.

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
    >>> study.optimize(objective, n_trials=3, callbacks=[Dashboard(holdout)])
    """

    def __init__(self, holdout: Any, *, every: int = 10) -> None:
        ladder_of(holdout)
        self._holdout, self._every = holdout, whole("every", every)

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Write both, if it is time."""
        if (trial.number + 1) % self._every == 0:
            show(self._holdout, study)


def _asked(ladder: OpenLadder, study: Study) -> dict[int, int]:
    """Return the submission of each trial that queried the holdout."""
    page = ladder.execute(commands.History(limit=commands.ALL))
    known = {one.number for one in page.submissions}
    trials = study.get_trials(deepcopy=False)
    found = {trial.number: submission_of(study, trial, ladder) for trial in trials}
    return {number: at for number, at in found.items() if at in known}


def _inner_score(study: Study, trial: FrozenTrial) -> float | None:
    """Return the score from the training rows: of the noted folds, else what the study has."""
    noted = trial.user_attrs.get(INNER_SCORES)
    if noted:
        return fmean(noted)
    return None if trial.value is None else in_direction(study, trial.value)
