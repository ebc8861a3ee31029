"""Networks whose labels are no codes, and callbacks that would choose weights beside the ladder.

The right value is always scikit-learn's, of the network that came back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch import callbacks as of_lightning
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss
from skorch import callbacks as of_skorch

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.integrations import keras as by_keras
from ladderholdout.integrations import lightning as by_lightning
from ladderholdout.integrations import skorch as by_skorch
from ladderholdout.integrations import torch as by_torch
from tests.deep import test_stopping_keras as keras_tests
from tests.deep import test_stopping_lightning as lightning_tests
from tests.deep import test_stopping_skorch as skorch_tests
from tests.deep import test_stopping_torch as torch_tests
from tests.deep.support_deep import assert_kept, problem
from tests.support.stopping import Parts

pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

EPOCHS = 12


def _in_keras(by: Any, data: Parts, *others: Any) -> NDArray[Any]:
    model = keras_tests.network("binary")
    keras_tests.train(model, data, *_around(by, others), most=EPOCHS, validation_split=0.3)
    return model.predict(data.X_holdout, verbose=0)[:, 0]


def _in_lightning(by: Any, data: Parts, *others: Any) -> NDArray[Any]:
    model = lightning_tests.Validated("binary")
    settings = {"max_epochs": EPOCHS, "callbacks": _around(by, others)}
    trainer = lightning.Trainer(**{**lightning_tests.QUIET, **settings})
    rows = lightning_tests.loader(data)
    trainer.fit(model, rows, lightning_tests.loader(data, shuffle=False))
    model.eval()
    with torch.no_grad():
        return expit(model(torch.tensor(data.X_holdout)).numpy()[:, 0])


def _in_skorch(by: Any, data: Parts, *others: Any) -> NDArray[Any]:
    net = skorch_tests.network("binary", *_around(by, others), max_epochs=EPOCHS)
    skorch_tests.fit(net, data)
    return net.predict_proba(data.X_holdout)[:, 1]


def _in_torch(by: Any, data: Parts) -> NDArray[Any]:
    model = torch_tests.network("binary")
    torch_tests.train(model, data, by.start(), most=EPOCHS)
    model.eval()
    with torch.no_grad():
        return expit(model(torch.tensor(data.X_holdout)).numpy()[:, 0])


def _around(by: Any, others: tuple[Any, ...]) -> list[Any]:
    """The ladder's callback before all others, or behind them where the last one is None."""
    *listed, place = others or (0,)
    return [*listed, by] if place is None else [by, *listed]


TOOLS: dict[str, tuple[Any, Callable[..., NDArray[Any]], dict[str, Any]]] = {
    "keras": (by_keras, _in_keras, {}),
    "lightning": (by_lightning, _in_lightning, {"link": expit}),
    "skorch": (by_skorch, _in_skorch, {}),
    "torch": (by_torch, _in_torch, {"link": expit}),
}
LABELS = {
    "text": ["no", "yes"],
    "text, the second coded 0": ["yes", "no"],
    "1 and 2": [1, 2],
    "-1 and 1": [-1, 1],
}


@pytest.fixture
def data() -> Parts:
    return problem("binary")


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("tool", TOOLS)
def test_outputs_are_no_classes_unless_that_is_stated(data: Parts, tool: str, labels: str) -> None:
    names = np.array(LABELS[labels])
    y = names[data.y_holdout]
    module, fit, settings = TOOLS[tool]
    for scoring in ("accuracy", "neg_log_loss"):
        holdout = LadderHoldout(data.X_holdout, y, scoring=scoring, ledger="memory")
        with pytest.raises(InvalidArgument, match=r"^classes must be"):
            fit(module.ladder_stopping(holdout, 3, **settings), data)
        assert holdout.status().submissions == 0
        by = module.ladder_stopping(holdout, 3, classes=names, **settings)
        share = fit(by, data)
        right = {
            "accuracy": accuracy_score(y, names[(share > 0.5).astype(int)]),
            "neg_log_loss": -log_loss(y == names[1], share),
        }[scoring]
        released = holdout.status().score
        assert by.stopping.improved and released is not None
        assert abs(released - right) < 0.013


# -- others that choose weights ------------------------------------------------------------


OTHERS: dict[str, dict[str, Callable[[], Any]]] = {
    "keras": {
        "EarlyStopping": lambda: keras.callbacks.EarlyStopping("val_loss", patience=2),
        "SwapEMAWeights": lambda: keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
    },
    "lightning": {
        "EarlyStopping": lambda: of_lightning.EarlyStopping("val_loss", patience=2, mode="max"),
        "WeightAveraging": of_lightning.EMAWeightAveraging,
        "StochasticWeightAveraging": lambda: of_lightning.StochasticWeightAveraging(0.01),
    },
    "skorch": {
        "EarlyStopping": lambda: of_skorch.EarlyStopping("train_loss", patience=2),
        "Checkpoint": lambda: of_skorch.Checkpoint("train_loss_best", load_best=True),
    },
}


@pytest.mark.parametrize("place", [0, None])
@pytest.mark.parametrize(
    ("tool", "other"), [(tool, one) for tool in OTHERS for one in OTHERS[tool]]
)
def test_what_chooses_weights_is_refused_with_the_line_to_delete(
    data: Parts, tool: str, other: str, place: int | None
) -> None:
    module, fit, settings = TOOLS[tool]
    holdout = data.holdout("neg_log_loss")
    by = module.ladder_stopping(holdout, 3, **settings)
    with pytest.raises(InvalidArgument, match=r"^early stopping must be by the ladder") as refused:
        fit(by, data, OTHERS[tool][other](), place)
    assert f"Delete {other}(...):" in str(refused.value)
    assert holdout.status().submissions == by.stopping.rounds == 0


def test_an_average_that_keras_ends_with_is_no_epoch_of_the_ladder(data: Parts) -> None:
    holdout = data.holdout("neg_log_loss")
    by = by_keras.ladder_stopping(holdout, 99)
    model = keras_tests.network("binary")
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "binary_crossentropy")
    keras_tests.train(model, data, by, most=EPOCHS)
    share = model.predict(data.X_holdout, verbose=0)[:, 0]
    assert_kept(holdout, by.stopping, share)


def test_one_callback_serves_a_second_fit(data: Parts) -> None:
    for tool in ("keras", "lightning", "skorch"):
        module, fit, settings = TOOLS[tool]
        holdout = data.holdout("neg_log_loss", ledger="memory")
        by = module.ladder_stopping(holdout, 3, **settings)
        shares = [fit(by, data) for _ in range(2)]
        assert np.array_equal(*shares)
