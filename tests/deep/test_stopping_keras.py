"""Attacks the Keras callback: what training notices, what is kept, what is logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import keras
import mlflow
import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidSubmission
from ladderholdout.integrations.keras import ladder_stopping
from tests.deep.support_deep import (
    EpochContract,
    assert_kept,
    autologged,
    canaries,
    problem,
)
from tests.support.canaries import folder_bytes
from tests.support.stopping import Parts

pytestmark = pytest.mark.deep

HEADS = {"binary": (1, "sigmoid"), "multiclass": (10, "softmax"), "regression": (1, None)}
LOSSES = {
    "binary": "binary_crossentropy",
    "multiclass": "sparse_categorical_crossentropy",
    "regression": "mean_squared_error",
}


def network(task: str = "multiclass", logits: bool = False, **compiled: Any) -> keras.Model:
    """Dropout draws random numbers and batch normalisation keeps averages."""
    keras.utils.set_random_seed(0)
    units, activation = HEADS[task]
    model = keras.Sequential(
        [
            keras.Input((10 if task == "regression" else 64,)),
            keras.layers.Dense(24, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(units, None if logits else activation),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), LOSSES[task], **compiled)
    return model


def train(
    model: keras.Model, data: Parts, *callbacks: Any, most: int = 40, **settings: Any
) -> list[float]:
    """Train in shuffled batches; return the losses of the epochs."""
    settings = {"verbose": 0, "batch_size": 100} | settings
    history = model.fit(data.X, data.y, epochs=most, callbacks=list(callbacks), **settings)
    return list(history.history["loss"])


@pytest.fixture(scope="module")
def digits() -> Parts:
    return problem("multiclass")


# -- what is kept --------------------------------------------------------------------------


class After(keras.callbacks.Callback):
    """Does something when some epochs are over."""

    def __init__(self, epochs: int, what: Any) -> None:
        super().__init__()
        self.epochs, self.what = epochs, what

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch + 1 == self.epochs:
            self.what()


class TestKeras(EpochContract):
    ladder_stopping = staticmethod(ladder_stopping)
    watcheds = ({}, {"validation_split": 0.2})
    logits: ClassVar[Any] = {"logits": True}
    test_a_copy_begins_without_a_fit_and_holds_nothing_of_the_holdout = None  # it has its model

    def stopping_for(
        self, holdout: LadderHoldout, patience: int, kind: str = "binary", **settings: Any
    ) -> Any:
        return ladder_stopping(holdout, patience, **{"batch_size": 7, **settings})

    def fit(
        self,
        by: Any,
        data: Parts,
        rounds: int,
        after: tuple[int, Any] | None = None,
        logits: bool = False,
        **how: Any,
    ) -> keras.Model:
        model = network(data.kind, logits=logits)
        if logits:
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        callbacks = [] if by is None else [by]
        assert all(isinstance(one, keras.callbacks.Callback) for one in callbacks)
        train(model, data, *callbacks, *([After(*after)] if after else []), most=rounds, **how)
        assert by is None or len(self.trace(model)) == by.stopping.rounds
        return model

    def trace(self, model: keras.Model) -> list[float]:
        return list(model.history.history["loss"])

    def weights(self, model: keras.Model) -> list[Any]:
        return list(model.get_weights())

    def by_hand(self, model: keras.Model, data: Parts) -> Any:
        return model.predict(data.X_holdout, batch_size=7, verbose=0)


def test_a_checkpoint_that_was_written_meanwhile_can_be_read(digits: Parts, tmp_path: Path) -> None:
    holdout, model = digits.holdout(), network()
    stop = ladder_stopping(holdout, patience=3)
    path = tmp_path / "epoch-{epoch}.weights.h5"
    saved = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    train(model, digits, stop, saved, most=80)
    kept = model.get_weights()
    model.load_weights(str(path).format(epoch=stop.stopping.best_round))
    assert all(map(np.array_equal, model.get_weights(), kept))
    assert_kept(holdout, stop.stopping, stop.predictions(model))


# -- what training notices -----------------------------------------------------------------


def test_a_wrapped_module_is_asked_in_evaluation_mode(digits: Parts) -> None:
    import torch

    keras.utils.set_random_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Dropout(0.5))
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.TorchModuleWrapper(inner), keras.layers.Softmax()]
    )
    model.compile("sgd", LOSSES["multiclass"])
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=3)
    train(model, digits, stop, most=3)
    assert_kept(holdout, stop.stopping, stop.predictions(model))


# -- outputs and settings ------------------------------------------------------------------


def test_a_model_with_two_inputs_and_outputs_needs_predict(digits: Parts) -> None:
    keras.utils.set_random_seed(0)
    left, right = keras.Input((32,)), keras.Input((32,))
    hidden = keras.layers.Concatenate()([left, right])
    outputs = [keras.layers.Dense(10, "softmax")(hidden), keras.layers.Dense(1)(hidden)]
    model = keras.Model([left, right], outputs)
    model.compile("adam", [LOSSES["multiclass"], LOSSES["regression"]])

    def halves(X: Any) -> list[Any]:
        return [X[:, :32], X[:, 32:]]

    def predict(model: keras.Model, X: Any) -> Any:
        return model.predict(halves(X), verbose=0)[0]

    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=3, predict=predict)
    y = digits.y
    model.fit(halves(digits.X), [y, y / 9], epochs=4, verbose=0, callbacks=[stop])
    assert_kept(holdout, stop.stopping, stop.predictions(model))

    shared = keras.Input((64,))
    model = keras.Model(shared, [keras.layers.Dense(10)(shared), keras.layers.Dense(1)(shared)])
    with pytest.raises(InvalidSubmission, match="predict="):
        ladder_stopping(holdout).predictions(model)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float64"])
def test_other_precisions(digits: Parts, policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = network()
    finally:
        keras.config.set_dtype_policy(before)
    holdout = digits.holdout("accuracy")
    stop = ladder_stopping(holdout, patience=3)
    train(model, digits, stop, most=5)
    assert_kept(holdout, stop.stopping, stop.predictions(model))


def test_predict_may_return_a_tensor_with_gradients(digits: Parts) -> None:
    holdout, model = digits.holdout(), network()
    stop = ladder_stopping(holdout, patience=3, predict=lambda model, X: model(X, training=False))
    train(model, digits, stop, most=3)
    assert_kept(holdout, stop.stopping, stop.predictions(model))


# -- leaks ---------------------------------------------------------------------------------


def test_nothing_of_the_holdout_is_logged_or_printed(
    digits: Parts, tmp_path: Path, default_ledger: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    holdout, logs = digits.holdout(), tmp_path / "logs"
    logs.mkdir()
    stop = ladder_stopping(holdout, patience=3)
    others = [
        keras.callbacks.CSVLogger(logs / "log.csv"),
        keras.callbacks.ModelCheckpoint(logs / "model.keras"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs))),
    ]
    seen: list[dict[str, float]] = []
    model = network(metrics=["accuracy"])
    history = model.fit(
        digits.X,
        digits.y,
        epochs=80,
        validation_split=0.2,
        callbacks=[stop, *others],
    )
    shown = capfd.readouterr()
    assert "loss:" in shown.out
    assert set(seen[0]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert (logs / "log.csv").read_text().startswith("epoch,accuracy,loss,val_accuracy,val_loss")
    found = canaries(holdout, default_ledger)
    told = repr(stop), repr(stop.stopping), history.history, history.params, seen
    assert not found.found_in(shown.out, shown.err, folder_bytes(logs), *told)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_autologging_logs_nothing_of_the_holdout(
    digits: Parts, tmp_path: Path, default_ledger: Path
) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=3)
    with autologged(mlflow.keras, tmp_path, log_every_epoch=True) as store:
        train(network(metrics=["accuracy"]), digits, stop, most=80)
        (run,) = mlflow.search_runs(output_format="list")
    assert set(run.data.metrics) == {"loss", "accuracy"}
    assert not canaries(holdout, default_ledger).found_in(folder_bytes(store))


def test_sequences_of_rows_keep_their_shape() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 6, 3)).astype(np.float32), rng.integers(0, 2, 40)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((6, 3)), keras.layers.GRU(4), keras.layers.Dense(1, "sigmoid")]
    )
    model.compile("adam", LOSSES["binary"])
    stop = ladder_stopping(holdout, patience=2)
    model.fit(rng.random((40, 6, 3)), rng.integers(0, 2, 40), verbose=0, callbacks=[stop])
    assert_kept(holdout, stop.stopping, stop.predictions(model))
