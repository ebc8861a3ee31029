"""Winners: the trial that is the incumbent, finalists, gates and terminators."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count as numbers
from itertools import takewhile
from typing import Any
from uuid import uuid4

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ladderholdout.arguments import as_given, function, whole, whole_or_auto
from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning, NotIncumbentWarning, warn
from ladderholdout.guard import commands
from ladderholdout.guard.batches import Batch, Finalist, held_by, ranked
from ladderholdout.guard.open_ladder import HasLadder, OpenLadder, ladder_of
from ladderholdout.guard.record_views import smallest_step
from ladderholdout.guard.seen import note_shown
from ladderholdout.guard.settings import parted
from ladderholdout.guard.views import Release, Submission, incumbent_named, overtaken
from ladderholdout.integrations.all_rows import fitted_on_all, given_to
from ladderholdout.integrations.optuna import trials
from ladderholdout.integrations.optuna.loops import Objective, propose_range
from ladderholdout.integrations.refit import check_choices
from ladderholdout.mechanisms import State
from ladderholdout.thirdparty import is_feasible


class ErrorEvaluator:
    """An error evaluator for Optuna's terminators, as they ask for one: by its one method.

    Parameters
    ----------
    holdout : LadderHoldout
    """

    def __init__(self, holdout: HasLadder) -> None:
        self._holdout = ladder_of(holdout)

    def evaluate(self, trials: Sequence[Any], study_direction: Any) -> float:
        """Return the smallest improvement of the score that the ladder can still release.

        Parameters
        ----------
        trials : list of FrozenTrial
            Not read: the ledger knows what the holdout was shown.
        study_direction : StudyDirection
            Not read: an improvement is positive in both.

        Returns
        -------
        float
            In the units of the score; 0.0 while there is no incumbent, and where neither the
            released score nor the range of the losses is known.
        """
        note_shown()
        facts, state = self._holdout.facts, self._holdout.execute(commands.State())
        if state.incumbent is None:
            return 0.0
        rules, metric = facts.rules, self._holdout.metric
        if state.released is not None:
            risk = metric.to_risk(state.released)
        elif rules.unit is not None:
            # Not released. In the middle of the range the variance is largest, whatever it is.
            risk = rules.unit / 2
        else:
            return 0.0
        after = State(facts.n_ladder, risk, releases=state.releases)
        return smallest_step(rules, metric, after)


Build = Callable[[FrozenTrial], Any]


class Gate:
    """A study callback that consults the holdout when the study's own best improves.

    For people who optimise a cross-validation score: the holdout is asked about few models,
    and reports when progress on the training side is no longer confirmed.

    Parameters
    ----------
    holdout : LadderHoldout
    build : callable
        From a finished trial (``FrozenTrial`` has the ``suggest_`` methods too) to a fitted
        estimator or predictions; or an `Objective`, which knows how.
    patience : int
        After so many improvements in a row that the holdout did not confirm, warn.
    stop : bool
        And stop the study.

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
    >>> gate = holdout.optuna.gate(objective.candidate)
    >>> study.optimize(objective.inner_score, n_trials=4, callbacks=[gate])
    >>> 0 < holdout.status().submissions <= 4
    True
    """

    def __init__(
        self,
        holdout: HasLadder,
        build: Build | Objective,
        *,
        patience: int = 3,
        stop: bool = False,
    ) -> None:
        self._holdout = ladder_of(holdout, several=True)
        self._build = function("build", build, "a function of a trial")
        self._patience, self._stop = whole("patience", patience), stop
        self.releases: list[Release] = []

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Ask the holdout if this trial is the study's best so far."""
        _check_single(study)
        if trial.state is not TrialState.COMPLETE or _best_number(study) != trial.number:
            return
        candidate = _built(self._build, trial)
        origin = trials.origin_of(candidate, trials.context_of(study, trial), _key_of(study, trial))
        release = self._holdout.submit(trials.predictions_of(self._holdout, candidate), origin)
        _keep_number(study, trial, self._holdout, release)
        self.releases.append(release)
        unconfirmed, confirmed = 0, 0
        for earlier in self.releases:
            # A study that is run again is confirmed by what it confirmed the first time.
            new = earlier.has_held and earlier.improvements > confirmed
            unconfirmed = 0 if new else unconfirmed + 1
            confirmed = earlier.improvements if new else confirmed
        if unconfirmed >= self._patience:
            warn(
                f"The study's own score improved {unconfirmed} times in a row and the holdout "
                "confirmed none of it: further progress on the training side is probably noise.",
                LadderHoldoutWarning,
            )
            if self._stop:
                study.stop()


def _check_single(study: Study) -> None:
    """Refuse a study of several objectives, none of whose trials is the best."""
    if len(study.directions) > 1:
        raise InvalidArgument(
            "study",
            "one with a single objective, which names the best",
            f"one with {len(study.directions)}",
            "Submit the models of its Pareto front, without a gate: "
            "holdout.finalists([objective.candidate(trial).model for trial in study.best_trials]).",
        )


def finalists(
    holdout: HasLadder, study: Study, build: Build | Objective | None, k: int | str = "auto"
) -> tuple[Finalist, ...]:
    """Show the holdout the best few of a finished study; see `LadderHoldout.finalists`."""
    ladder, k = ladder_of(holdout, several=True), whole_or_auto("k", k)
    build = function("build", build, "a function of a trial")
    trials.a_study(study)
    _check_single(study)
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    feasible = [trial for trial in done if is_feasible(trial)]
    for trial in feasible:
        check_choices("study", trial.distributions)
    if not feasible:
        raise InvalidArgument("study", "one with a feasible finished trial", "one without")
    scores = [trials.in_direction(study, trial.value or 0.0) for trial in feasible]
    order, count = ranked(scores, _folds(feasible), k)
    chosen = [feasible[at] for at in order[:count]]
    if isinstance(build, Objective):
        propose_range(build, chosen[0])
    with Batch(ladder) as batch:
        # All are built before the first is shown, so that none can depend on an answer.
        for trial in chosen:
            candidate, context = _built(build, trial), trials.context_of(study, trial)
            origin = trials.origin_of(candidate, context, _key_of(study, trial))
            batch.add(trials.predictions_of(ladder, candidate), origin)
    for trial, release in zip(chosen, batch.releases, strict=True):
        _keep_number(study, trial, ladder, release)
    _, held = held_by(ladder, batch.releases)
    inner = (scores[at] for at in order)
    return tuple(map(Finalist, chosen, inner, batch.releases, held))


def _folds(feasible: Sequence[FrozenTrial]) -> list[list[float]] | None:
    """Return the inner scores of each fold, where all trials have them noted.

    An `Objective` notes them, and so does an OptunaSearchCV.
    """
    found = []
    for trial in feasible:
        noted = trial.user_attrs.get(trials.INNER_SCORES)
        if noted is None:
            names = (f"split{fold}_test_score" for fold in numbers())
            known = takewhile(trial.user_attrs.__contains__, names)
            noted = [trial.user_attrs[name] for name in known]
        found.append(list(noted))
    return found if len({len(one) for one in found}) == 1 and found[0] else None


def best_trial(holdout: HasLadder, study: Study) -> FrozenTrial:
    """Return the trial that is the incumbent; see `holdout.optuna.best_trial`."""
    trials.a_study(study)
    ladder = ladder_of(holdout, several=True)

    # The state first: whoever submits meanwhile only adds to the history.
    page = ladder.execute(commands.History(limit=commands.ALL))
    incumbent, known = page.incumbent, {entry.number: entry for entry in page.submissions}
    if incumbent is not None:
        _look_for_lost(study, known[incumbent])
    found = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        entry = known.get(submission_of(study, trial, ladder))
        if entry is not None and entry.has_held and is_feasible(trial):
            found.append((entry.first, -trial.number, trial))
    if not found:
        raise InvalidArgument(
            "study",
            "one with a feasible trial that became the incumbent",
            "one without",
            f"It is from elsewhere: {incumbent_named(incumbent)}.",
        )
    number, _, best = max(found, key=lambda it: it[:2])
    if number != incumbent:
        warn(
            f"Trial {best.number} is the last of this study that became the incumbent "
            f"(submission {number}). {overtaken(incumbent)}",
            NotIncumbentWarning,
        )
    return best


def best_model(holdout: HasLadder, study: Study, build: Build | Objective) -> Any:
    """Return the fitted model of the incumbent; see `holdout.optuna.best_model`."""
    return _built(build, best_trial(holdout, study)).model


def refit_all(
    holdout: HasLadder, study: Study, objective: Objective, fit_params: Mapping[str, Any] | None
) -> Any:
    """Fit the winner on all rows; see `holdout.optuna.refit_all`."""
    if not isinstance(objective, Objective) or objective._inner is None:
        raise InvalidArgument(
            "objective",
            "a holdout.optuna.objective with inner= and train=, which fits the models itself",
            as_given(objective),
            "Fit the model by hand: clone(holdout.optuna.best_model(study, build)).fit(X, y).",
        )
    assert objective._train is not None
    X, y, _ = objective._train
    model = best_model(holdout, study, objective)
    given = given_to(X, y, {})
    ladder = ladder_of(holdout, several=True)
    return fitted_on_all(ladder, model, given, X, y, stated=fit_params)


def _look_for_lost(study: Study, incumbent: Submission) -> None:
    """Warn where the incumbent is the model of a trial that was neither finished nor retried."""
    known = study.get_trials(deepcopy=False)
    # The trial that retries another has its key.
    finished = {one.user_attrs.get(trials.KEY) for one in known if one.state is TrialState.COMPLETE}
    for trial in known:
        key = trial.user_attrs.get(trials.KEY)
        if not isinstance(key, str) or key in finished:
            continue
        described = trials.context_of(study, trial)
        if described.items() <= {name: incumbent.context.get(name) for name in described}.items():
            warn(
                f"Trial {trial.number} of this study holds the ladder and did not finish. Retry "
                "it (Optuna's heartbeat does, or enqueue its parameters) before you pick.",
                LadderHoldoutWarning,
            )


def _built(build: Build | Objective, trial: FrozenTrial) -> trials.Candidate:
    owner = getattr(build, "__self__", None)
    if isinstance(owner, Objective) and getattr(build, "__name__", "") == "candidate":
        build = owner
    if isinstance(build, Objective):
        return build.candidate(trial, score=False)
    return trials.candidate_of(trials.built_again(build, trial))


def _key_of(study: Study, trial: FrozenTrial) -> str:
    """Return the key of a finished trial, which takes no attributes any more: the study keeps it.

    A copy of the study has the same key and goes on with other trials under the same numbers;
    they differ in when they began.
    """
    key = study.user_attrs.get(trials.KEY)
    if not isinstance(key, str):
        key = uuid4().hex
        study.set_user_attr(trials.KEY, key)
    known = f"{key}:{trial.number}:{trial.datetime_start}:{sorted(trial.params.items())}"
    return hashlib.sha256(known.encode()).hexdigest()


def submission_of(study: Study, trial: FrozenTrial, holdout: OpenLadder) -> int:
    """Return the number under which a trial queried a ladder; 0 for none.

    What queried an earlier block of its holdout is numbered there.
    """
    own, note = trial.user_attrs.get(trials.SUBMISSION), _note(trial)
    if own is None:
        noted, block = study.user_attrs.get(note, 0), study.user_attrs.get(f"{note}:block", 1)
    else:
        noted, block = own, trial.user_attrs.get(trials.BLOCK, 1)
    if block != holdout.facts.block:
        return 0
    if isinstance(noted, Mapping):  # of several metrics, by name
        noted = noted.get(parted(holdout.facts.ladder)[1], 0)
    return int(noted)


def _keep_number(study: Study, trial: FrozenTrial, holdout: OpenLadder, release: Release) -> None:
    """Note on the study under which number a finished trial queried a ladder, and which block."""
    study.set_user_attr(_note(trial), trials.numbered(release))
    if holdout.facts.block > 1:
        study.set_user_attr(f"{_note(trial)}:block", holdout.facts.block)


def _note(trial: FrozenTrial) -> str:
    return f"{trials.SUBMISSION}:{trial.number}"


def _best_number(study: Study) -> int | None:
    try:
        return study.best_trial.number
    except ValueError:
        return None
