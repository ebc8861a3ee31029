"""The plugin behind ``mlflow.models.evaluate(..., evaluators="ladderholdout")``.

MLflow loads it by its entry point, and nothing else may import it first (see `dataset`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlflow
import numpy as np
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, TrackingError
from ladderholdout.guard import (
    HasLadder,
    HoldoutSettings,
    OpenLadder,
    Origin,
    Predictions,
    Release,
    describe_estimator,
    ladder_of,
    reopen_ladder,
)
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.page import input_of
from ladderholdout.integrations.mlflow.service import faults_named, raw_model
from ladderholdout.metrics.arrays import by_index, refuse_masked

MODEL_TYPE = "ladderholdout"
"""The type of model for which no evaluator of MLflow's own computes anything."""

# Types for which MLflow's own evaluators measure predictions against the targets.
_MEASURED = ("classifier", "regressor", None)
_NAMED = ("ledger", "account", "ladder")
_METHODS = {"probabilities": ("predict_proba",), "scores": ("decision_function", "predict_proba")}


class LadderEvaluator(ModelEvaluator):
    """Makes one guarded submission of what a model predicts, and logs the release.

    MLflow finds it by its entry point, under the name ``ladderholdout``::

        mlflow.models.evaluate(
            model, X_holdout, model_type="ladderholdout",
            evaluators="ladderholdout", evaluator_config={"holdout": holdout},
        )

    The configuration has ``holdout``: a `LadderHoldout`, or the name of a registered one, which
    may come with ``ledger``, ``account`` and ``ladder``. ``context`` is noted with the submission.

    The data are the holdout's own rows, all of them, in any order, without targets: the labels are
    the guard's. The run gets ``ladder_released`` (unless the ladder releases no values) and
    ``ladder_improved`` at the step of the submission, tags that name it, and the holdout as an
    input. Nothing raw is logged.

    Examples
    --------
    >>> LadderEvaluator.can_evaluate(model_type="classifier", evaluator_config={})
    False
    """

    @classmethod
    def can_evaluate(
        cls, *, model_type: str | None, evaluator_config: Mapping[str, Any], **_: Any
    ) -> bool:
        """Return whether a holdout was configured.

        Raises
        ------
        InvalidArgument
            It was, with a type of model whose raw scores MLflow's own evaluators would log.
        """
        if not evaluator_config or "holdout" not in evaluator_config:
            return False
        if model_type in _MEASURED:
            raise InvalidArgument(
                "model_type",
                f"{MODEL_TYPE!r} where the holdout is queried",
                model_type,
                "MLflow's own evaluators measure classifiers and regressors against their "
                "targets, and log raw scores. Leave targets= out as well.",
            )
        return True

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any],
        model: Any = None,
        extra_metrics: Any = None,
        custom_artifacts: Any = None,
        predictions: str | None = None,
        **_: Any,
    ) -> EvaluationResult:
        """Submit what the model predicts on the rows, and log what was released.

        Raises
        ------
        InvalidArgument
            The configuration or the data are refused; nothing was submitted.
        InvalidSubmission
            The predictions are.
        TrackingError
            MLflow refuses a request; the ledger holds the submission.
        """
        for name, given in (("extra_metrics", extra_metrics), ("artifacts", custom_artifacts)):
            if given:
                raise InvalidArgument(
                    name, "left out: they would be given labels or raw scores", "given"
                )
        if dataset.has_targets:
            raise InvalidArgument(
                "targets",
                "left out: the guard has the labels",
                "given",
                "MLflow logs a digest of the data that it is given, so targets do not belong "
                "there; evaluators of its own would log raw scores.",
            )
        holdout = _holdout_of(evaluator_config)
        hashes = _hashes(dataset.features_data)
        places = _places(holdout, hashes)
        answers, described = _answers(holdout, model, dataset, predictions)
        if len(answers) != len(places):
            raise InvalidArgument(
                "predictions", f"{len(places)}, one for each row", f"{len(answers)}"
            )
        ordered = _ordered(answers, places, hashes)
        context = {"mlflow_run": run_id, **described, **(evaluator_config.get("context") or {})}
        release = holdout.submit(Predictions(ordered, True), Origin(context=context))
        return _logged(holdout, release, run_id)


def _holdout_of(config: Mapping[str, Any]) -> OpenLadder:
    """Return the ladder that the configuration names."""
    unknown = set(config) - {"holdout", "context", *_NAMED}
    if unknown:
        raise InvalidArgument(
            "evaluator_config",
            f"made of holdout, context, {', '.join(_NAMED)}",
            f"with {', '.join(sorted(map(str, unknown)))}",
        )
    holdout, more = config["holdout"], {key: config[key] for key in _NAMED if key in config}
    if not isinstance(holdout, str):
        if more or not isinstance(holdout, HasLadder):
            raise InvalidArgument(
                "evaluator_config",
                "with a LadderHoldout as holdout, or with the name of one and where it is",
                f"{as_given(holdout)}{' and ' if more else ''}{', '.join(more)}",
            )
        return ladder_of(holdout)
    return reopen_ladder(HoldoutSettings(name=holdout, overlap="ignore", **more))


def _hashes(X: Any) -> NDArray[np.uint64]:
    return fp.row_hashes(X, "data")


def _places(holdout: OpenLadder, given: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return where in the data each row of the holdout is; refuse other rows."""
    own = fp.row_hashes(holdout.rows(checked=True).X)
    if not np.array_equal(np.sort(given), np.sort(own)):
        raise InvalidArgument(
            "data",
            f"the {len(own)} rows of the holdout, with its features alone, in any order",
            f"{len(given)} rows, {fp.overlap(given, own)} of which are the holdout's",
            "Other rows are measured by mlflow.models.evaluate without this evaluator.",
        )
    places = np.empty(len(own), dtype=np.intp)
    places[np.argsort(own, kind="stable")] = np.argsort(given, kind="stable")
    return places


def _ordered(
    answers: NDArray[Any], places: NDArray[np.intp], hashes: NDArray[np.uint64]
) -> NDArray[Any]:
    """Bring predictions into the order of the holdout's rows; equal rows have no order."""
    _, first, same = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) < len(hashes) and not np.array_equal(answers, answers[first[same]]):
        in_place = np.array_equal(places, np.arange(len(places)))
        if not in_place:
            raise InvalidArgument(
                "predictions",
                "equal for rows that are equal, or in the order of the holdout's rows",
                "different ones",
                "Submit them in the holdout's order: holdout.submit(predictions).",
            )
    return answers[places]


def _answers(
    holdout: OpenLadder, model: Any, dataset: Any, column: str | None
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return the predictions for the data's rows in their order, and what made them."""
    if model is None:
        if not dataset.has_predictions:
            raise InvalidArgument(
                "model", "a model, or None with predictions= of a column of the data", None
            )
        return _array(dataset.predictions_data), {}
    if column is not None:
        raise InvalidArgument("predictions", "left out where a model predicts", as_given(column))
    X, metric = dataset.features_data, holdout.metric
    raw = raw_model(model)
    methods = _METHODS.get(metric.response, ())
    if raw is not None and any(callable(getattr(raw, one, None)) for one in methods):
        answers = metric.respond(raw, X, holdout.facts.classes)
    else:
        # A copy, as the model may write into it, and by its index, if it has one.
        answers = _array(by_index(model.predict(fp.copy_of(X)), X))
        if methods and answers.dtype.kind != "f":
            raise InvalidArgument(
                "model",
                f"one that predicts {metric.response}, as {metric.name} asks",
                "one whose predict returns labels",
                'Log it with pyfunc_predict_fn="predict_proba".',
            )
        # A table with one column of labels or values, as models that return DataFrames have.
        if answers.ndim == 2 and answers.shape[1] == 1:
            answers = answers[:, 0]
    described = {} if raw is None else describe_estimator(raw)
    return np.asarray(answers), described


def _array(predictions: Any) -> NDArray[Any]:
    """Return predictions as an array; refuse what is masked."""
    refuse_masked("predictions", predictions)
    return np.asarray(predictions)


def _logged(holdout: OpenLadder, release: Release, run_id: str) -> EvaluationResult:
    """Log a release into a run, at the ledger's own time and step."""
    from mlflow.entities import Metric, RunTag

    found = {names.IMPROVED_KEY: float(release.improved)}
    if release.score is not None:
        found[names.RELEASED_KEY] = release.score
    number = release.submission
    (point,) = holdout.unsent(after=number - 1, raw=False, limit=1).points
    moment = round(point.time.timestamp() * 1000)
    tags = {
        f"{names.PREFIX}evaluated": f"{names.guarded(holdout.facts)}, submission {number}",
        f"{names.PREFIX}metric": holdout.metric.name,
    }
    uri = mlflow.get_tracking_uri()
    try:
        with faults_named(uri):
            client = mlflow.MlflowClient(tracking_uri=uri)
            client.log_batch(
                run_id,
                metrics=[Metric(key, value, moment, number) for key, value in found.items()],
                tags=[RunTag(*tag) for tag in tags.items()],
            )
            client.log_inputs(run_id, [input_of(holdout)])
    except TrackingError as fault:
        raise TrackingError(f"Submission {number} is in the ledger. {fault}") from None
    made: type[Any] = EvaluationResult  # without annotations
    result: EvaluationResult = made(metrics=found, artifacts={}, run_id=run_id)
    return result
