"""What a holdout does for studies of Optuna: `Studies`, as ``holdout.optuna``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial

from ladderholdout.guard.batches import Finalist
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations.optuna import winners
from ladderholdout.integrations.optuna.loops import AskTell, Objective


class Studies:
    """The methods of a holdout for studies of Optuna, as ``holdout.optuna``.

    Parameters
    ----------
    holdout : LadderHoldout

    Examples
    --------
    >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
    >>> study.optimize(objective, n_trials=3)
    >>> holdout.optuna.best_trial(study).number in range(3)
    True
    """

    def __init__(self, holdout: HasLadder) -> None:
        self._holdout = holdout

    def objective(
        self,
        build: Callable[[Any], Any],
        *,
        inner: Any = None,
        train: tuple[Any, ...] | None = None,
        feedback: str = "auto",
        guarded: int = 0,
    ) -> Objective:
        """Return an objective for ``study.optimize`` that sees only ladder feedback.

        Parameters
        ----------
        build : callable
            From a trial to a fitted estimator or to predictions for the holdout's rows,
            alone or with an inner score from the training side (greater is better):
            ``(model, inner_score)``. `ladderholdout.integrations.optuna.Candidate` spells it out.
        inner : int or splitter, optional
            Compute the inner score here: by cross-validation of the unfitted estimator that
            `build` returns on `train`, on all of which it is then fitted.
        train : tuple of (X, y) or (X, y, groups), optional
            The training rows, for unfitted estimators; with groups where the inner folds keep
            those together.
        feedback : {"auto", "inner", "capped", "penalised", "incumbent"}
            The feedback to the study (see `ladderholdout.feedback`).
        guarded : int, default=0
            In a multi-objective study, which objective is the guarded one.

        Returns
        -------
        Objective
            A study that minimises receives the score with its sign turned. The trials of one
            ``study.optimize`` whose feedback is their inner score, run one after another,
            are one batch: certificates pay for none of their answers.

        Raises
        ------
        InvalidArgument
            An argument is refused.
        OverlapError
            Half of the holdout or more is among the training rows.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> holdout.status().submissions
        3
        """
        return Objective(
            self._holdout, build, inner=inner, train=train, feedback=feedback, guarded=guarded
        )

    def ask_tell(self, study: Study, *, feedback: str = "auto", guarded: int = 0) -> AskTell:
        """Return the ask-and-tell loop of a study, with the guard in between.

        Parameters
        ----------
        study : optuna.Study
        feedback, guarded
            As for `objective`.

        Returns
        -------
        AskTell
            ``trial = loop.ask()``, then ``release = loop.tell(trial, model, inner_score=...)``.

        Examples
        --------
        >>> loop = holdout.optuna.ask_tell(study)
        >>> release = loop.tell(loop.ask(), model, inner_score=0.9)
        >>> study.best_value
        0.9
        """
        return AskTell(self._holdout, study, feedback=feedback, guarded=guarded)

    def gate(
        self, build: Callable[[Any], Any], *, patience: int = 3, stop: bool = False
    ) -> winners.Gate:
        """Return a study callback that asks the holdout only when the study's best improves.

        Parameters
        ----------
        build : callable
            From a finished trial to a fitted estimator or to predictions; or the
            `objective` whose inner score the study optimises.
        patience : int, default=3
            Improvements in a row that the holdout may leave unconfirmed before it warns.
        stop : bool, default=False
            And stop the study then.

        Returns
        -------
        Gate
            For ``study.optimize(cv_objective, callbacks=[holdout.optuna.gate(build)])``; its
            ``releases`` are the answers of the holdout.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> gate = holdout.optuna.gate(objective.candidate)
        >>> study.optimize(objective.inner_score, n_trials=4, callbacks=[gate])
        >>> 0 < holdout.status().submissions <= 4
        True
        """
        return winners.Gate(self._holdout, build, patience=patience, stop=stop)

    def finalists(
        self, study: Study, build: Callable[[Any], Any], *, k: int | str = "auto"
    ) -> tuple[Finalist, ...]:
        """Query the holdout with the few best trials of a study that went by inner scores.

        They are chosen and built before any of them is submitted: one batch, and so few
        queries that little can be picked up by chance. The winner is `best_trial`.

        Parameters
        ----------
        study : optuna.Study
            With one objective, on the training rows: a cross-validation score, or
            ``objective.inner_score``.
        build : callable
            From a finished trial to a fitted estimator or to predictions; or the `objective`
            whose inner score the study optimised.
        k : int or "auto", default="auto"
            How many feasible trials query the holdout, the best first. "auto": those whose
            inner score is within two pooled standard errors of the best, at most three, and
            the best three where no scores of inner folds are noted on the trials. An `objective`
            with ``inner=`` notes them, and so does an OptunaSearchCV.

        Returns
        -------
        tuple of Finalist
            In the order in which they queried the holdout. ``is_incumbent`` names the winner.
            Where `build` is an `objective` with ``inner=``, and the metric is one of errors without
            a range or with one that is far wider than those on the inner folds, a `RangeWarning`
            proposes one.

        Raises
        ------
        InvalidArgument
            The study has several objectives, or no feasible finished trial.
        LedgerError, VaultError
            The guard cannot answer; what was released before is in the ledger.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective.inner_score, n_trials=4)
        >>> final = holdout.optuna.finalists(study, objective, k=2)
        >>> len(final), holdout.status().submissions
        (2, 2)
        """
        return winners.finalists(self._holdout, study, build, k)

    def error_evaluator(self) -> winners.ErrorEvaluator:
        """Return an error evaluator for Optuna's terminators.

        Returns
        -------
        ErrorEvaluator
            Its ``evaluate(trials, study_direction)`` is the smallest improvement that the
            ladder can still release: a study whose expected improvement falls below it
            has nothing more to gain from this holdout.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> evaluator = holdout.optuna.error_evaluator()
        >>> evaluator.evaluate(study.trials, study.direction) > 0
        True
        """
        return winners.ErrorEvaluator(self._holdout)

    def best_trial(self, study: Study) -> FrozenTrial:
        """Return the study's trial that is the incumbent, by the ledger.

        Parameters
        ----------
        study : optuna.Study

        Returns
        -------
        FrozenTrial
            The feasible trial that became the incumbent last, with a `NotIncumbentWarning`
            where another submission is the incumbent by now.

        Raises
        ------
        InvalidArgument
            No feasible trial of this study did.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> holdout.optuna.best_trial(study).number in range(3)
        True
        """
        return winners.best_trial(self._holdout, study)

    def best_params(self, study: Study) -> dict[str, Any]:
        """Return the parameters of `best_trial`.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> sorted(holdout.optuna.best_params(study))
        ['depth']
        """
        return dict(self.best_trial(study).params)

    def best_model(self, study: Study, build: Callable[[Any], Any]) -> Any:
        """Return the model of `best_trial`, built and fitted as for its submission.

        Parameters
        ----------
        study : optuna.Study
        build : callable
            From a finished trial to a fitted estimator; or the `objective` of the study.

        Returns
        -------
        object
            The fitted estimator, or what else `build` returns as its model.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> holdout.optuna.best_model(study, objective).predict(X).shape == y.shape
        True
        """
        return winners.best_model(self._holdout, study, build)

    def refit_all(
        self, study: Study, objective: Objective, *, fit_params: Mapping[str, Any] | None = None
    ) -> Any:
        """Fit the winner on training and holdout rows, then retire the holdout, permanently.

        Parameters
        ----------
        study : optuna.Study
        objective : Objective
            With ``inner=`` and ``train=``.
        fit_params : mapping of str to object, optional
            For the fit. Those with one value for each row have the training rows' first.

        Returns
        -------
        estimator
            The model of `best_trial`, fitted on all rows. What is refused or fails leaves the
            holdout as it was. See `LadderHoldout.guard` for a search's ``refit_all``.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> model = holdout.optuna.refit_all(study, objective)
        >>> holdout.status().retired is None
        False
        """
        return winners.refit_all(self._holdout, study, objective, fit_params)
