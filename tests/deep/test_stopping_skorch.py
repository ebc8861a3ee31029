"""Attacks the skorch callback: what is kept and logged, alone and inside searches."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Callback, Checkpoint
from torch import nn

from ladderholdout import InvalidArgument, LadderHoldout, Release, SearchStopped
from ladderholdout.integrations.skorch import LadderStoppingCallback, ladder_stopping
from tests.deep.support_deep import (
    SOFTMAX,
    EpochContract,
    assert_kept,
    canaries,
    destroy,
    press_ctrl_c,
    problem,
)
from tests.support.canaries import folder_bytes
from tests.support.holdouts import assert_replays, is_repeat
from tests.support.ledgers import entries_of
from tests.support.stopping import Parts, assert_one_batch, assert_stopped_early

pytestmark = [
    pytest.mark.deep,
    # skorch says so of the read-only rows of these tests, once in a process.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

NETS = {
    "binary": (NeuralNetBinaryClassifier, nn.BCEWithLogitsLoss),
    "multiclass": (NeuralNetClassifier, nn.CrossEntropyLoss),
    "regression": (NeuralNetRegressor, nn.MSELoss),
}


class Module(nn.Module):
    """Dropout draws random numbers and batch normalisation has modes and buffers."""

    def __init__(self, task: str = "multiclass") -> None:
        super().__init__()
        torch.manual_seed(0)
        features, self.outputs = (10 if task == "regression" else 64), 10
        self.task = task
        self.layers = nn.Sequential(
            nn.Linear(features, 24),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(24, 10 if task == "multiclass" else 1),
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        output = self.layers(X)
        return output[:, 0] if self.task == "binary" else output


def network(task: str = "multiclass", *callbacks: Any, **settings: Any) -> Any:
    kind, criterion = NETS[task]
    chosen: dict[str, Any] = {
        "module__task": task,
        "lr": 0.1,
        "optimizer__momentum": 0.9,
        "batch_size": 100,
        "iterator_train__shuffle": True,
        "max_epochs": 40,
        "train_split": None,
        "verbose": 0,
        "callbacks": list(callbacks),
    }
    return kind(Module, criterion=criterion, **(chosen | settings))


def fit(net: Any, data: Parts) -> list[float]:
    """Train; return the losses of the epochs."""
    y = data.y
    if data.kind == "binary":
        y = y.astype(np.float32)
    if data.kind == "regression":
        y = y.reshape(-1, 1).astype(np.float32)
    net.fit(data.X, y)
    return [float(loss) for loss in net.history[:, "train_loss"]]


def asked(net: Any, holdout: LadderHoldout, data: Parts) -> Any:
    """What the net itself says for the metric of the holdout."""
    classes = None if data.kind == "regression" else np.unique(data.y_holdout)
    return holdout.metric.respond(net, data.X_holdout, classes)


@pytest.fixture(scope="module")
def digits() -> Parts:
    return problem("multiclass")


# -- what is kept --------------------------------------------------------------------------


class After(Callback):
    """Does something when some epochs are over."""

    def __init__(self, epochs: int, what: Any) -> None:
        self.epochs, self.what = epochs, what

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        if len(net.history) == self.epochs:
            self.what()


class TestSkorch(EpochContract):
    ladder_stopping = staticmethod(ladder_stopping)
    refused = ({"predict": 3},)
    watcheds = ({}, {"predict": True})
    test_logits_without_a_link_are_refused_and_nothing_is_written = None  # it knows its criterion
    test_an_interrupted_fit_leaves_a_ledger_that_replays = None  # Ctrl-C ends no fit; see below

    def stopping_for(
        self, holdout: LadderHoldout, patience: int, kind: str = "binary", **settings: Any
    ) -> Any:
        return ladder_stopping(holdout, patience, **settings)

    def fit(
        self, by: Any, data: Parts, rounds: int, after: tuple[int, Any] | None = None, **how: Any
    ) -> Any:
        callbacks = [] if by is None else [by]
        assert all(isinstance(one, Callback) for one in callbacks)
        if by is not None and how.get("predict"):
            by.set_params(predict=shares)
        others = [After(*after)] if after else []
        net = network(data.kind, *callbacks, *others, max_epochs=rounds)
        losses = fit(net, data)
        assert by is None or len(losses) == by.stopping.rounds
        return net

    def submit(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        asked_by_hand = holdout.submit(asked(model, holdout, data))
        assert is_repeat(holdout, asked_by_hand)
        return holdout.submit(model)

    def submit_once(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        return holdout.submit(model)

    def trace(self, model: Any) -> list[float]:
        return [float(loss) for loss in model.history[:, "train_loss"]]

    def weights(self, model: Any) -> list[Any]:
        return super().weights(model.module_)

    def by_hand(self, model: Any, data: Parts) -> Any:
        return model.predict_proba(data.X_holdout)


def shares(net: Any, X: Any) -> Any:
    return SOFTMAX(net.forward(X).numpy())


def test_training_that_goes_on_is_a_fit_of_its_own(digits: Parts) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=50)
    net = network("multiclass", stop, max_epochs=3)
    fit(net, digits)
    net.partial_fit(digits.X, digits.y)
    assert (stop.stopping.rounds, len(net.history)) == (3, 6)
    assert_kept(holdout, stop.stopping, asked(net, holdout, digits))


class TwoModules(NeuralNetClassifier):
    """Its second module, which is outside of module_, counts as well."""

    def initialize_module(self) -> TwoModules:
        super().initialize_module()
        torch.manual_seed(1)
        self.head_ = nn.Linear(10, 10)
        return self

    def infer(self, x: Any, **fit_params: Any) -> torch.Tensor:
        return self.head_(super().infer(x, **fit_params))


def test_every_module_of_a_net_is_kept(digits: Parts) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=3)
    net = TwoModules(
        Module,
        criterion=nn.CrossEntropyLoss,
        lr=0.5,
        max_epochs=80,
        train_split=None,
        verbose=0,
        callbacks=[stop],
    )
    fit(net, digits)
    assert_stopped_early(stop.stopping, 3, 80)
    assert_kept(holdout, stop.stopping, asked(net, holdout, digits))


# -- what training notices -----------------------------------------------------------------


def test_what_predict_returns_is_what_is_submitted(digits: Parts) -> None:
    stop = ladder_stopping(digits.holdout(), patience=50, predict=shares)
    net = network("multiclass", stop, max_epochs=6)
    fit(net, digits)
    assert_kept(stop.holdout, stop.stopping, shares(net, digits.X_holdout))


def test_labels_follow_the_threshold_of_the_net() -> None:
    data = problem("binary")
    holdout = data.holdout("accuracy")
    stop = ladder_stopping(holdout, patience=3)
    net = network("binary", stop, threshold=0.8)
    fit(net, data)
    assert (net.predict(data.X_holdout) != (net.predict_proba(data.X_holdout)[:, 1] > 0.5)).any()
    assert is_repeat(holdout, holdout.submit(net))


# -- settings ------------------------------------------------------------------------------


def test_it_is_a_callback_with_parameters(digits: Parts) -> None:
    holdout = digits.holdout("accuracy")
    holdout.submit(digits.y_holdout)
    stop = ladder_stopping(holdout, patience=7, context={"idea": "small"})
    net = network("multiclass", ("ladder", stop), callbacks__ladder__patience=2)
    losses = fit(net, digits)
    assert len(losses) == 2
    assert net.get_params()["callbacks__ladder__patience"] == 2
    cloned = clone(stop)
    assert cloned.get_params() == stop.get_params()
    assert cloned.holdout is stop.holdout
    net.set_params(callbacks__ladder__patience=0)
    with pytest.raises(InvalidArgument, match="patience"):
        fit(net, digits)


def test_a_copy_begins_without_a_fit(digits: Parts) -> None:
    stop = ladder_stopping(digits.holdout(), patience=3)
    net = network("multiclass", stop, max_epochs=5)
    fit(net, digits)
    assert stop.stopping.rounds == 5
    for copied in (copy.deepcopy(stop), pickle.loads(pickle.dumps(stop)), clone(stop)):
        assert copied.stopping.rounds == 0
        assert copied.get_params() == stop.get_params()
    assert len(pickle.dumps(stop)) < 3000


# -- searches ------------------------------------------------------------------------------


def linear(holdout: LadderHoldout, **settings: Any) -> NeuralNetClassifier:
    """A net that joblib's workers can import."""
    return NeuralNetClassifier(
        nn.Linear,
        module__in_features=64,
        module__out_features=10,
        criterion=nn.CrossEntropyLoss,
        max_epochs=25,
        train_split=None,
        verbose=0,
        callbacks=[("ladder_stopping", ladder_stopping(holdout, patience=3))],
        **settings,
    )


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_shares_the_ladder(digits: Parts, n_jobs: int) -> None:
    holdout = digits.holdout("accuracy")
    grid = {"callbacks__ladder_stopping__patience": [2, 4], "lr": [0.01, 0.1]}
    search = GridSearchCV(
        linear(holdout),
        grid,
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
        n_jobs=n_jobs,
    )
    torch.manual_seed(0)
    search.fit(digits.X, digits.y)
    entries = entries_of(holdout)
    fits = defaultdict(list)
    for one in entries:
        if "fit" in one.context:
            fits[one.context["fit"]].append(one.context["round"])
    models = [one for one in entries if "fit" not in one.context]
    assert len(fits) == 5  # four candidates and the refit
    assert all(rounds == list(range(1, len(rounds) + 1)) for rounds in fits.values())
    assert len(models) == 4
    assert all(one.repeat_of is not None for one in models)
    patiences = {
        one.context["parameters"]["callbacks__ladder_stopping__patience"] for one in models
    }
    assert patiences == {2, 4}
    stopping = dict(search.best_estimator_.callbacks_)["ladder_stopping"].stopping
    assert stopping.patience == search.best_params_["callbacks__ladder_stopping__patience"]
    assert_kept(holdout, stopping, search.best_estimator_.predict(digits.X_holdout))


def test_at_the_end_of_a_pipeline_the_rows_are_transformed(digits: Parts) -> None:
    holdout = digits.holdout()
    pipeline = make_pipeline(StandardScaler(), linear(holdout, lr=0.1))
    pipeline.fit(digits.X, digits.y)
    assert is_repeat(holdout, holdout.submit(pipeline))


@pytest.mark.parametrize("error_score", [np.nan, "raise"])
def test_a_ledger_that_fails_stops_a_search(
    digits: Parts, default_ledger: Path, error_score: Any
) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=50)
    net = network("multiclass", stop, After(2, lambda: destroy(default_ledger)))
    search = GridSearchCV(
        net, {"lr": [0.1, 0.2]}, scoring=holdout, cv=holdout.split(), error_score=error_score
    )
    with pytest.raises(SearchStopped):
        search.fit(digits.X, digits.y)
    assert not hasattr(search, "cv_results_")


def test_a_net_that_knows_other_classes_stops_a_search(digits: Parts) -> None:
    known = digits.y_holdout < 8
    holdout = LadderHoldout(
        digits.X_holdout[known], digits.y_holdout[known], scoring="accuracy", ledger="memory"
    )
    net = linear(holdout)
    search = GridSearchCV(net, {"lr": [0.1]}, scoring=holdout, cv=holdout.split())
    with pytest.raises(SearchStopped, match="classes="):
        search.fit(digits.X, digits.y)


def test_an_interrupted_fit_keeps_its_best_and_leaves_a_ledger_that_replays(
    digits: Parts,
) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=50)
    interrupt = After(35, press_ctrl_c)
    net = network("multiclass", stop, interrupt)
    fit(net, digits)  # skorch takes Ctrl-C for the end of training
    assert stop.stopping.best_round < stop.stopping.rounds == 35
    assert_one_batch(holdout, 35)
    assert_kept(holdout, stop.stopping, asked(net, holdout, digits))


# -- leaks ---------------------------------------------------------------------------------


def test_nothing_of_the_holdout_is_logged_or_printed(
    digits: Parts, tmp_path: Path, default_ledger: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    holdout, logs = digits.holdout(), tmp_path / "logs"
    stop: LadderStoppingCallback = ladder_stopping(holdout, patience=3)
    saved = Checkpoint(dirname=str(logs), monitor=None, f_pickle="net.pickle")
    net = network("multiclass", stop, saved, verbose=1, max_epochs=80)
    fit(net, digits)
    shown = capfd.readouterr()
    assert "train_loss" in shown.out
    known = {"batches", "epoch", "train_loss", "train_loss_best", "train_batch_count", "dur"}
    known |= {"event_cp"}  # the checkpoint's own
    assert {key for row in net.history.to_list() for key in row} <= known
    found = canaries(holdout, default_ledger)
    told = repr(stop), repr(stop.stopping), net.history.to_list(), pickle.dumps(net)
    assert not found.found_in(shown.out, shown.err, folder_bytes(logs), *told)
    assert_replays(holdout)
