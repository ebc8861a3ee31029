"""`GuardedSearch`: search on the training rows, confirm the finalists on the holdout."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from joblib.parallel import get_active_backend
from rich.progress import Progress
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from ladderholdout.arguments import whole_or_auto
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, printable
from ladderholdout.guard import commands
from ladderholdout.guard.batches import Batch, Finalist, held_by, winner_of
from ladderholdout.guard.certificate import ScoreCertificate, together
from ladderholdout.guard.context import describe_estimator, describe_parameters
from ladderholdout.guard.open_ladder import OpenLadder, Origin, ladder_of
from ladderholdout.guard.recognition import look_for_groups
from ladderholdout.guard.views import Release, incumbent_named
from ladderholdout.identity.copies import copy_of
from ladderholdout.integrations.all_rows import fitted_on_all, given_to
from ladderholdout.integrations.candidates import (
    Candidates,
    fixed_candidates,
    read_candidates,
    search_at,
    unfitted,
)
from ladderholdout.integrations.ranges import Folds, predicted_on_folds, proposed_range
from ladderholdout.integrations.refit import IS_INCUMBENT
from ladderholdout.integrations.rounds import mark_consulted
from ladderholdout.integrations.sklearn import score
from ladderholdout.integrations.training_rows import check_fit, look_for_overlap

FINALIST, RELEASED, IMPROVED, SUBMISSION = "finalist", "released_score", "improved", "submission"


def _of_the_winner(name: str, says: str) -> Any:
    """Return a method that is there where the winner, or the search before it, has it."""

    def check(self: GuardedSearch) -> bool:
        # The one that lacks it raises its own AttributeError.
        getattr(vars(self).get("best_estimator_", self.search), name)
        return True

    def method(self: GuardedSearch, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X)

    method.__name__, method.__doc__ = name, says
    method.__qualname__ = f"GuardedSearch.{name}"
    return available_if(check)(method)


class GuardedSearch(MetaEstimatorMixin, BaseEstimator):
    """A search that goes by the training rows alone and shows only its finalists to a holdout.

    `LadderHoldout.guard` makes it. `fit` runs the search as it is, without its refit; takes the
    candidates with the best inner scores, drops those whose predictions equal a better one's,
    fits each on all training rows, and submits them to the holdout as one batch. The incumbent is
    the winner, and this object predicts like it. Of several metrics, the one that the search's
    `refit` names decides, if the holdout has it; else the one named first. With "all" there is no
    search on the training rows: every candidate is a finalist.

    Parameters
    ----------
    search : estimator
        An unfitted search with ``cv_results_`` once it is fitted (those of scikit-learn,
        BayesSearchCV, ...), an OptunaSearchCV, or a pipeline that ends in one.
    holdout : LadderHoldout
    finalists : int, "auto" or "all", default="auto"
        How many candidates query the holdout. "auto": all whose mean inner score is within two
        pooled standard errors of the best, at most three. "all": every candidate of a GridSearchCV
        or a RandomizedSearchCV, without inner folds; their models are held until the holdout has
        answered.
    verbose : int, default=0
        Above 0: a progress bar while the finalists are fitted.

    Attributes
    ----------
    best_estimator_ : estimator
        The winner, fitted on all training rows.
    best_params_ : dict
    best_index_ : int
        The winner's place in `cv_results_`.
    best_score_ : float or None
        The released score of the holdout; None where the winner is not the incumbent, or the
        ladder releases no values.
    is_incumbent_ : bool
        Whether the winner is the incumbent. If not, a warning names what is.
    finalists_ : tuple of Finalist
        In the order in which they queried the holdout: the best inner score first; with "all" in
        the order of the search.
    certificate_ : ScoreCertificate
        An interval for the winner's true score.
    proposed_loss_range_ : ProposedRange or None
        For a metric of errors (MAE, MSE, RMSE, R2, ...) with no stated range, or with one that
        allows more than eight root mean squared errors of the best candidate on the folds of the
        search: ranges of four such errors, and as text the call that opens a ladder with them. It
        takes one cross-validation, before the holdout is asked. None if nothing would be gained,
        with "all", or if the best candidate cannot be measured on folds, which a warning names.
    cv_results_ : dict
        As the search has it (with "all": ``params``), and ``finalist`` (place among the finalists,
        0 for none), ``submission`` (0 for none), ``released_score`` (the released score after it,
        nan for none), ``improved`` and ``is_incumbent``.
    search_ : estimator
        The inner search, fitted; not there with "all".
    is_fitted_on_all_ : bool
        Whether `refit_all` fitted the winner anew, on the holdout's rows too.
    n_features_in_, feature_names_in_, classes_
        Those of the winner.

    Notes
    -----
    The scores of the search were used to choose the finalists and reveal nothing of the holdout's
    labels; so the holdout is asked few questions, and its certificate is narrow.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> grid = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3, 4, 5]})
    >>> search = holdout.guard(grid, finalists=2).fit(X, y)
    >>> len(search.finalists_), search.best_score_ == holdout.status().score
    (2, True)
    """

    def __init__(
        self, search: Any, holdout: Any, *, finalists: int | str = "auto", verbose: int = 0
    ) -> None:
        self.search = search
        self.holdout = holdout
        self.finalists = finalists
        self.verbose = verbose

    # -- fitting ----------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search on these rows, and confirm the finalists on the holdout.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            The training rows.
        y : array-like, shape (n_rows,), optional
        **params
            For the ``fit`` of the search, such as ``groups`` and ``sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        InvalidArgument
            `search` is none or asks the holdout itself, or the rows or labels do not fit those of
            the holdout, found out before the search. Or all of its candidates failed.
        HoldoutConflict
            The holdout is retired; found out before the search.
        OverlapError
            Half of the holdout or more is among the training rows, or in a parameter of the fit.
        LedgerError, VaultError
            The guard cannot answer; what was released before is in the ledger, and ``search_``
            is fitted.
        """
        ladder = ladder_of(self.holdout, several=True)
        count = whole_or_auto("finalists", self.finalists, "all")
        search, path, marked = unfitted(self.search)
        commands.check_open(ladder)
        look_for_overlap(ladder, X, {**search.get_params(deep=True), **params})
        look_for_groups(ladder, search, params)
        check_fit(ladder, search, X, y)
        # Scorers of the search score its own folds, and the holdout is asked when that is over.
        mark_consulted(ladder.facts.place)
        given = params
        if get_config()["enable_metadata_routing"]:
            given = process_routing(self, "fit", **params).search.fit
        if count == "all":
            candidates = fixed_candidates(search_at(search, path))
        else:
            self.search_ = search.fit(X, y, **given)
            inner, stated = search_at(search, path), search_at(self.search, path)
            candidates = read_candidates(inner, stated, marked)
        order = candidates.order(count)

        def on_folds() -> Folds:
            best = _model(self.search, path, candidates.parameters[order[0][0]])
            kept, groups = _kept(best, params, path), params.get("__".join((*path, "groups")))
            cv = search_at(self.search, path).cv
            return predicted_on_folds(best, X, y, cv, groups, kept, candidates.n_jobs)

        # Before the holdout is asked, so that no label of it plays a part.
        proposed = None if count == "all" else proposed_range(ladder, y, on_folds)
        self.proposed_loss_range_ = proposed
        chosen = self._fitted(ladder, candidates, order, path, X, y, params)
        refit = getattr(search_at(self.search, path), "refit", None)
        self._decides = refit if isinstance(refit, str) and refit in ladder.by_metric else None
        self._confirm(ladder, candidates, chosen)
        self._given = given_to(X, y, _kept(self.best_estimator_, params, path))
        return self

    def _fitted(
        self,
        ladder: OpenLadder,
        candidates: Candidates,
        order: tuple[Sequence[int], int],
        path: tuple[str, ...],
        X: Any,
        y: Any,
        params: Mapping[str, Any],
    ) -> list[_Fitted]:
        """Fit candidates in their order until so many of them predict distinctly."""
        waiting, count = list(order[0]), order[1]
        # A text means these and no others; a number is filled up with the next ones.
        most = count if isinstance(self.finalists, str) else len(waiting)
        waiting = waiting[:most]
        chosen: list[_Fitted] = []
        fault: Exception | None = None
        backend, _ = get_active_backend()
        # One by one as they come, where joblib's backend can; Ray's cannot.
        returned = "generator" if backend.supports_return_generator else "list"
        with Progress(disable=not self.verbose) as bar:
            task = bar.add_task("Fitting the finalists", total=count)
            while waiting and len(chosen) < count:
                free = count - len(chosen)
                taken, waiting = waiting[:free], waiting[free:]
                fits = []
                for index in taken:
                    model = _model(self.search, path, candidates.parameters[index])
                    fits.append(delayed(_fit)(model, X, y, _kept(model, params, path)))
                fitted = Parallel(n_jobs=candidates.n_jobs, return_as=returned)(fits)
                for index, (model, error) in zip(taken, fitted, strict=True):
                    bar.advance(task)
                    error = error or _take(ladder, index, model, chosen)
                    if error is not None:
                        fault = fault or error
                        _warn_of(candidates.parameters[index], error)
                bar.update(task, completed=len(chosen))
            bar.update(task, total=len(chosen), completed=len(chosen))
        if not chosen:
            assert fault is not None
            if isinstance(fault, LadderHoldoutError) and not isinstance(fault, InvalidArgument):
                raise fault  # the guard's own, whatever the models are
            raise _all_failed(fault, searched=self.finalists != "all") from fault
        return chosen

    def _confirm(self, ladder: OpenLadder, candidates: Candidates, chosen: list[_Fitted]) -> None:
        """Query the holdout with the finalists, and take the winner, by the search's own metric."""
        rows, scores = candidates.rows, candidates.scores
        with Batch(ladder) as batch:
            for fitted in chosen:
                described = describe_estimator(fitted.model) | {
                    "search": type(self.search).__name__,
                    "candidate": rows[fitted.index],
                }
                batch.add(fitted.predictions, Origin(context=described))
        deciding, judged = ladder, batch.releases
        if self._decides is not None:
            judged = tuple(release[self._decides] for release in batch.releases)
            deciding = ladder.by_metric[self._decides]
        incumbent, held = held_by(deciding, judged)
        self.finalists_ = tuple(
            Finalist(rows[fitted.index], scores[fitted.index], release, is_incumbent)
            for fitted, release, is_incumbent in zip(chosen, batch.releases, held, strict=True)
        )
        by_judged = zip(self.finalists_, judged, strict=True)
        finalists = [replace(finalist, release=release) for finalist, release in by_judged]
        winner = winner_of(tuple(finalists), incumbent)
        best, self.is_incumbent_ = chosen[winner], held[winner]
        release = batch.releases[winner]
        self.best_estimator_, self.is_fitted_on_all_ = best.model, False
        self.best_params_ = dict(candidates.parameters[best.index])
        self.best_index_ = rows[best.index]
        self.best_score_ = judged[winner].score if self.is_incumbent_ else None
        self.certificate_ = _certificate(ladder, self.is_incumbent_, release)
        self.cv_results_ = _with_columns(candidates.results, self.finalists_, judged, ladder)

    # -- the winner -------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score the winner on rows of your own by the holdout's metric.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            New rows. The holdout's own rows query the holdout.
        y : array-like, shape (n_rows,)
        sample_weight : array-like, shape (n_rows,), optional

        Returns
        -------
        float
            In the metric's own sign; of several metrics, by the one that the search's `refit`
            names, else by the one named first.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> tree = DecisionTreeClassifier(random_state=0)
        >>> search = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, cv=3)
        >>> guarded = holdout.guard(search, finalists=2).fit(X[1::3], y[1::3])
        >>> guarded.score(X[2::3], y[2::3]) > 0.9
        True
        """
        check_is_fitted(self)
        several = ladder_of(self.holdout, several=True)
        name = self._decides or next(iter(several.by_metric), "")
        ladder = several.by_metric.get(name, several)
        mark_consulted(ladder.facts.place)  # the holdout was asked: there is nothing to remind of
        return cast(float, score(ladder, self.best_estimator_, X, y, sample_weight))

    def refit_all(
        self,
        X_train: Any,
        y_train: Any,
        *,
        sample_weight: Any = None,
        fit_params: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fit the winner anew on training and holdout rows, then retire the holdout, permanently.

        The fit is given what `fit` was given. Rows to stop by (``eval_set``) are left out, and the
        winner trains as many rounds as it did when they stopped it. Nothing is left to measure the
        new model with. `certificate_` and `best_score_` stay those of the winner as it was fitted
        on the training rows, which a printed search states.

        Parameters
        ----------
        X_train : array-like, shape (n_rows, n_features)
            The training rows that the search was fitted on.
        y_train : array-like, shape (n_rows,)
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the training rows, in place of those that `fit` was given. The holdout's
            rows then have the weights that they were registered with, or 1.
        fit_params : mapping of str to object, optional
            Parameters in place of those that `fit` was given; None leaves one out. Those with one
            value for each row have the training rows' first, then the holdout's. Weights and
            groups that the holdout was registered with need not be stated.

        Returns
        -------
        self
            With the new model as `best_estimator_`, and `is_fitted_on_all_` True.

        Raises
        ------
        HoldoutConflict
            The labels are on a server; nothing was retired.
        InvalidArgument
            The training rows and those of the holdout do not go together, or a parameter of the
            fit is not known for the holdout's rows; nothing was retired.
        OverlapError
            Half of the holdout or more is among the training rows; nothing was retired.

        Notes
        -----
        An error of the last fit is raised as it is, and the holdout is not retired then.

        Examples
        --------
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> grid = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3]})
        >>> search = holdout.guard(grid, finalists=2).fit(X, y).refit_all(X, y)
        >>> search.is_fitted_on_all_, holdout.status().retired is None
        (True, False)
        """
        check_is_fitted(self)
        ladder = ladder_of(self.holdout, several=True)
        self.best_estimator_ = fitted_on_all(
            ladder, self.best_estimator_, self._given, X_train, y_train, sample_weight, fit_params
        )
        self.is_fitted_on_all_ = True
        return self

    predict = _of_the_winner("predict", "Predict with the winner.")
    predict_proba = _of_the_winner("predict_proba", "Predict probabilities with the winner.")
    predict_log_proba = _of_the_winner("predict_log_proba", "Return their logarithms.")
    decision_function = _of_the_winner("decision_function", "Return its decision function.")
    score_samples = _of_the_winner("score_samples", "Return its scores of the samples.")
    transform = _of_the_winner("transform", "Transform with the winner.")
    inverse_transform = _of_the_winner("inverse_transform", "Transform back with the winner.")

    def _winners(self, name: str) -> Any:
        if "best_estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name} before it is fitted.")
        return getattr(self.best_estimator_, name)

    @property
    def classes_(self) -> Any:
        """The winner's classes."""
        return self._winners("classes_")

    @property
    def n_features_in_(self) -> int:
        """The number of features that the winner was fitted on."""
        return int(self._winners("n_features_in_"))

    @property
    def feature_names_in_(self) -> Any:
        """The names of the features that the winner was fitted on."""
        return self._winners("feature_names_in_")

    # -- conventions of scikit-learn --------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what is handed on to the search."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(search=self.search, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.search)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "transformer_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)

    def __str__(self) -> str:
        # The interval comes first: it is what may be believed, however the winner was chosen.
        if not self.__sklearn_is_fitted__():
            return repr(self)
        tried = len(self.cv_results_["params"])
        score = self.best_score_
        released = f"{score:.4g}" if isinstance(score, float) else str(score or "none")
        lines = {
            "certificate": self.certificate_.line(),
            "winner": str(self.best_params_),
            "released score": released,
            "finalists": f"{len(self.finalists_)} of {tried} candidates queried the holdout",
        }
        if self.is_fitted_on_all_:
            lines["fitted on"] = (
                "training and holdout rows, after the lines above: they are of the model before"
            )
        return printable("\n".join(f"{what:<16}{value}" for what, value in lines.items()))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A candidate that was fitted on all training rows, and what it predicts on the holdout's."""

    index: int
    model: Any
    predictions: Any


def _model(search: Any, path: tuple[str, ...], parameters: Mapping[str, Any]) -> Any:
    """Return the unfitted model of a candidate, with the pipeline around the search."""
    model = clone(search_at(search, path).estimator).set_params(**clone(parameters, safe=False))
    if not path:
        return model
    return clone(search).set_params(**{"__".join(path): model})


def _kept(model: Any, params: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return which parameters of `fit` are the model's, and not the splitter's or the scorer's."""
    if get_config()["enable_metadata_routing"]:
        consumed = get_routing_for_object(model).consumes("fit", params.keys())
        return {name: params[name] for name in consumed}
    return {name: value for name, value in params.items() if name != "__".join((*path, "groups"))}


def _fit(model: Any, X: Any, y: Any, params: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    try:
        # A copy for each: what one writes into its rows, the next must not be fitted on.
        X, y = copy_of(X), copy_of(y)
        return (model.fit(X, **params) if y is None else model.fit(X, y, **params)), None
    except Exception as error:  # whatever it is, the other finalists are worth their hours
        return None, error


def _take(ladder: OpenLadder, index: int, model: Any, chosen: list[_Fitted]) -> Exception | None:
    """Add a fitted candidate unless another one predicts the same; return why it cannot be."""
    try:
        predictions = ladder.predict(model)
    except Exception as refused:  # by the guard, or by the model on these rows
        return refused
    if not any(predictions.equals(fitted.predictions) for fitted in chosen):
        chosen.append(_Fitted(index, model, predictions))
    return None


def _warn_of(parameters: Mapping[str, Any], error: Exception) -> None:
    described = describe_parameters(parameters).items()
    shown = ", ".join(f"{name}={value!r}" for name, value in described)
    warnings.warn(
        f"The finalist with {shown or 'no parameters'} failed and is left out: {error}",
        FitFailedWarning,
        stacklevel=2,
    )


def _all_failed(fault: Exception, *, searched: bool) -> InvalidArgument:
    """Return the error for finalists of which none can be submitted, after the whole search."""
    reason = str(fault)
    if not isinstance(fault, LadderHoldoutError):
        reason = f"{type(fault).__name__}: {fault}"
    return InvalidArgument(
        "search",
        "one of whose finalists at least one can be fitted and predicts the holdout's rows",
        f"one of which none can. The first: {reason.rstrip('.')}",
        "Nothing was submitted."
        + " The search itself is kept, fitted, as search_ of this object, with its cv_results_: "
        "refit what you need of it, and show it by holdout.submit(model) or "
        "holdout.submit(predictions)." * searched,
    )


def _certificate(ladder: OpenLadder, is_incumbent: bool, release: Release) -> ScoreCertificate:
    """Certify the winner, by each of several metrics of which it is the incumbent."""
    if release.by_metric:
        each = {}
        for name, of_metric in ladder.by_metric.items():
            _, (held,) = held_by(of_metric, [release[name]])
            each[name] = _certificate(of_metric, held, release[name])
        return together(each)
    certificate = ladder.execute(commands.Certify())
    if is_incumbent:
        return certificate
    number, confidence = release.submission, certificate.confidence
    missing = (
        f"submission {number}, which this search picked, is not the incumbent "
        f"({incumbent_named(certificate.submission)})"
    )
    return ScoreCertificate(None, None, None, confidence, number, missing=missing)


def _with_columns(
    results: dict[str, Any],
    finalists: tuple[Finalist, ...],
    judged: Sequence[Release],
    ladder: OpenLadder,
) -> dict[str, Any]:
    """Return the results with what the holdout released beside each candidate.

    Where there are several metrics, the columns are those of the one that decides, and each metric
    has columns with its name besides.
    """
    held = [finalist.is_incumbent for finalist in finalists]
    columns = results | _columns(results, finalists, judged, held)
    for name, of_metric in ladder.by_metric.items():
        releases = [finalist.release[name] for finalist in finalists]
        added = _columns(results, finalists, releases, held_by(of_metric, releases)[1])
        columns |= {f"{key}_{name}": added[key] for key in (RELEASED, IMPROVED, IS_INCUMBENT)}
    return columns


def _columns(
    results: dict[str, Any],
    finalists: Sequence[Finalist],
    releases: Sequence[Release],
    held: Sequence[bool],
) -> dict[str, Any]:
    size = len(results["params"])
    columns: dict[str, Any] = {
        FINALIST: np.zeros(size, dtype=np.intp),
        SUBMISSION: np.zeros(size, dtype=np.intp),
        RELEASED: np.full(size, np.nan),
        IMPROVED: np.zeros(size, dtype=np.bool_),
        IS_INCUMBENT: np.zeros(size, dtype=np.bool_),
    }
    for place, (finalist, release) in enumerate(zip(finalists, releases, strict=True)):
        row = finalist.candidate
        columns[FINALIST][row], columns[SUBMISSION][row] = place + 1, release.submission
        columns[IMPROVED][row], columns[IS_INCUMBENT][row] = release.improved, held[place]
        if release.score is not None:
            columns[RELEASED][row] = release.score
    return columns
