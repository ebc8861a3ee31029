"""Small problems for deep learning, and what a fit of epochs has to show in every library."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import mlflow
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import scale

from ladderholdout import InvalidArgument, LadderHoldout, Release
from ladderholdout.errors import LedgerError
from ladderholdout.holdout import LadderStopping
from tests.support import stopping as support_stopping
from tests.support.canaries import Canaries, canaries_of
from tests.support.contract_stopping import Case, ServerContract
from tests.support.holdouts import assert_replays, is_repeat
from tests.support.ledgers import destroy
from tests.support.stopping import Parts, assert_one_batch

SOFTMAX = partial(softmax, axis=1)
TASKS = ("binary", "multiclass", "regression")
# Continuous metrics: their values have many digits, and predictions agree to the last bit
# or are another submission.
METRICS = {
    "binary": ("accuracy", "neg_log_loss", "roc_auc"),
    "multiclass": ("accuracy", "neg_log_loss"),
    "regression": ("neg_mean_squared_error",),
}
TASK_METRICS = [(task, metric) for task in TASKS for metric in METRICS[task]]
LINKS: dict[str, Any] = {"binary": expit, "multiclass": SOFTMAX, "regression": None}
OUTPUTS = {"binary": 1, "multiclass": 10, "regression": 1}


def problem(task: str) -> Parts:
    """Digits, their halves, or diabetes: 300 rows to train on, 120 held out, single precision."""
    X, y = (load_diabetes if task == "regression" else load_digits)(return_X_y=True)
    X = (scale(X) if task == "regression" else X / 16).astype(np.float32)
    kinds = {"binary": lambda: (y > 4).astype(int), "regression": lambda: scale(y)}
    y = kinds.get(task, lambda: y)()
    parts = X[:300], y[:300], X[300:420], y[300:420]
    for part in parts:
        part.setflags(write=False)  # whatever writes to a holdout's rows fails
    return Parts(*parts, task)


def assert_kept(
    holdout: LadderHoldout, stopping: LadderStopping, predictions: NDArray[Any]
) -> None:
    """The model with these predictions is the ledger's best round, and a repeat steps nothing."""
    before = holdout.status()
    support_stopping.assert_kept(holdout, stopping, holdout.submit(predictions))
    after = holdout.status()
    assert (after.score, after.incumbent) == (before.score, before.incumbent)


class EpochContract(ServerContract):
    """For deep learning, whose rounds are epochs.

    Attributes
    ----------
    logits : sequence of mapping
        Settings of `fit` with which a model yields logits that nobody links.
    watched : sequence of mapping
        Settings of `fit` under which training has to be the same with and without the ladder.
    interrupt : exception class
        What Ctrl-C ends training with.
    """

    cases: ClassVar[dict[str, Case]] = {
        f"{task}-{scoring}": Case(task, scoring, {}) for task, scoring in TASK_METRICS
    }
    rounds, patience, stops = 80, 5, True
    refused: ClassVar[Any] = ({"batch_size": 0}, {"predict": 3}, {"link": "softmax"})
    logits: ClassVar[dict[str, Any]] = {}
    watcheds: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    interrupt: type[BaseException] = KeyboardInterrupt

    def data(self, kind: str) -> Parts:
        return problem(kind)

    def stopping_for(
        self, holdout: LadderHoldout, patience: int, kind: str = "binary", **settings: Any
    ) -> Any:
        return type(self).ladder_stopping(holdout, patience, **{"link": LINKS[kind], **settings})

    def submit(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        return holdout.submit(by.predictions(model))

    def fit(
        self, by: Any, data: Parts, rounds: int, after: tuple[int, Any] | None = None, **how: Any
    ) -> Any:
        """Train a new model, without a ladder where `by` is None; do something after an epoch.

        Parameters
        ----------
        after : tuple of (int, callable), optional
            After which epoch, once it is submitted, and what.
        """
        raise NotImplementedError

    def trace(self, model: Any) -> list[float]:
        """The losses of training, to the last bit."""
        raise NotImplementedError

    def weights(self, model: Any) -> list[NDArray[Any]]:
        return [value.numpy() for value in model.state_dict().values()]

    def state(self, model: Any) -> list[bytes]:
        return [value.tobytes() for value in self.weights(model)]

    def by_hand(self, model: Any, data: Parts) -> NDArray[Any]:
        """What the library itself says a model's probabilities are on the holdout."""
        raise NotImplementedError

    def test_the_kept_model_predicts_what_it_was_submitted_with(self) -> None:
        data = self.data("multiclass")
        holdout = data.holdout()
        by = self.stopping_for(holdout, 3, data.kind)
        model = self.fit(by, data, self.rounds)
        assert is_repeat(holdout, holdout.submit(self.by_hand(model, data)))

    def test_a_fit_that_improves_nothing_keeps_its_last_epoch(self) -> None:
        data = self.data("multiclass")
        holdout = data.holdout("accuracy")
        holdout.submit(data.y_holdout)  # nothing is better than this
        by = self.stopping_for(holdout, 4, data.kind)
        model, again = self.fit(by, data, 40), self.fit(None, data, 4)
        found = by.stopping
        assert (found.rounds, found.best_round, found.improved) == (4, 4, False)
        assert self.trace(again) == self.trace(model)
        pairs = zip(self.weights(model), self.weights(again), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)

    def test_training_is_the_same_with_and_without(self, watched: dict[str, Any]) -> None:
        data = self.data("multiclass")
        without = self.trace(self.fit(None, data, 6, **watched))
        by = self.stopping_for(data.holdout(), 50, data.kind)
        assert self.trace(self.fit(by, data, 6, **watched)) == without
        assert by.stopping.rounds == 6

    def test_logits_without_a_link_are_refused_and_nothing_is_written(self) -> None:
        data = self.data("multiclass")
        holdout = data.holdout("accuracy")
        with pytest.raises(InvalidArgument, match="link="):
            self.fit(type(self).ladder_stopping(holdout), data, 40, **self.logits)
        assert holdout.status().submissions == 0
        by = type(self).ladder_stopping(holdout, 3, link=SOFTMAX)
        model = self.fit(by, data, 40, **self.logits)
        self.assert_kept(holdout, by, model, data)

    def test_a_ledger_that_fails_stops_training(self, default_ledger: Path) -> None:
        data = self.data("multiclass")
        by = self.stopping_for(data.holdout(), 50, data.kind)
        with pytest.raises(LedgerError):
            self.fit(by, data, 40, after=(2, lambda: destroy(default_ledger)))
        assert by.stopping.rounds == 2

    def test_an_interrupted_fit_leaves_a_ledger_that_replays(self) -> None:
        data = self.data("multiclass")
        holdout = data.holdout()
        by = self.stopping_for(holdout, 50, data.kind)
        with pytest.raises(self.interrupt):
            self.fit(by, data, 40, after=(3, press_ctrl_c))
        assert_one_batch(holdout, 3)
        assert_replays(holdout)
        self.fit(by, data, 4)  # and the callback can be used again
        assert by.stopping.rounds == 4


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def autologged(tool: Any, folder: Path, **settings: Any) -> Iterator[Path]:
    """A real store of MLflow's in this process, with the autologging of a tool."""
    before, store = mlflow.get_tracking_uri(), folder / "tracking"
    store.mkdir()
    mlflow.set_tracking_uri(f"sqlite:///{store}/mlflow.db")
    mlflow.create_experiment("fits", artifact_location=(store / "files").as_uri())
    mlflow.set_experiment("fits")
    tool.autolog(log_models=False, **settings)
    try:
        yield store
    finally:
        tool.autolog(disable=True)
        mlflow.set_tracking_uri(before)


# -- leaks and faults ----------------------------------------------------------------------


def canaries(holdout: LadderHoldout, ledger: Path) -> Canaries:
    """Everything raw that the ledger holds, found where it lies."""
    found = canaries_of(holdout, holdout.__ladder__.guard().rows.y)
    written = b"".join(path.read_bytes() for path in ledger.parent.glob(f"{ledger.name}*"))
    assert found.found_in(written) >= {"raw risk", "secret"}
    return found
