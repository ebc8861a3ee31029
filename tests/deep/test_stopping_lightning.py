"""Attacks the Lightning callback: what training notices, what is kept, what is logged."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import mlflow
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from ladderholdout import InvalidArgument
from ladderholdout.errors import InvalidSubmission
from ladderholdout.integrations.lightning import ladder_stopping
from tests.deep.support_deep import (
    OUTPUTS,
    SOFTMAX,
    EpochContract,
    assert_kept,
    autologged,
    canaries,
    problem,
)
from tests.support.canaries import folder_bytes
from tests.support.stopping import Parts, assert_one_batch

pytestmark = pytest.mark.deep


class Network(lightning.LightningModule):
    """Dropout draws random numbers and batch normalisation has modes and buffers."""

    def __init__(self, task: str = "multiclass") -> None:
        super().__init__()
        torch.manual_seed(0)
        features = 10 if task == "regression" else 64
        self.task, self.losses = task, list[float]()
        self.layers = nn.Sequential(
            nn.Linear(features, 24),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(24, OUTPUTS[task]),
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.layers(X)

    def loss(self, batch: Any) -> torch.Tensor:
        output, y = self(batch[0]), batch[1]
        if self.task == "multiclass":
            return F.cross_entropy(output, y)
        if self.task == "binary":
            return F.binary_cross_entropy_with_logits(output[:, 0], y.float())
        return F.mse_loss(output[:, 0], y.float())

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.losses.append(loss.item())
        self.log("train_loss", loss, on_epoch=True, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Validated(Network):
    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self.loss(batch), prog_bar=True)


QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def loader(data: Parts, shuffle: bool = True) -> DataLoader[Any]:
    rows = TensorDataset(torch.tensor(data.X), torch.tensor(data.y))
    return DataLoader(rows, batch_size=100, shuffle=shuffle)


def train(
    model: Network, data: Parts, *callbacks: Any, most: int = 40, **settings: Any
) -> lightning.Trainer:
    trainer = lightning.Trainer(
        **(QUIET | {"callbacks": list(callbacks), "max_epochs": most} | settings)
    )
    trainer.fit(model, loader(data))
    return trainer


@pytest.fixture(scope="module")
def digits() -> Parts:
    return problem("multiclass")


# -- what is kept --------------------------------------------------------------------------


class After(lightning.Callback):
    """Does something when some epochs are over."""

    def __init__(self, epochs: int, what: Any) -> None:
        self.epochs, self.what = epochs, what

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch + 1 == self.epochs:
            self.what()


class TestLightning(EpochContract):
    ladder_stopping = staticmethod(ladder_stopping)
    interrupt = SystemExit
    longest = 16_000  # Lightning binds methods of its module to a callback; the rows have 30,000

    @pytest.fixture(autouse=True)
    def own_signal(self) -> Iterator[None]:
        """Lightning ignores Ctrl-C from the first one on."""
        before = signal.getsignal(signal.SIGINT)
        yield
        signal.signal(signal.SIGINT, before)

    def fit(
        self, by: Any, data: Parts, rounds: int, after: tuple[int, Any] | None = None, **how: Any
    ) -> Network:
        model = Network(data.kind)
        callbacks = [] if by is None else [by]
        assert all(isinstance(one, lightning.Callback) for one in callbacks)
        others = [After(*after)] if after else []
        trainer = train(model, data, *callbacks, *others, most=rounds, **how)
        assert by is None or trainer.current_epoch == by.stopping.rounds
        return model

    def trace(self, model: Network) -> list[float]:
        return model.losses

    def by_hand(self, model: Network, data: Parts) -> Any:
        trainer = lightning.Trainer(**QUIET)
        rows = DataLoader(torch.tensor(data.X_holdout), batch_size=len(data.X_holdout))
        (output,) = trainer.predict(model, rows)
        return SOFTMAX(output.numpy())


def test_a_checkpoint_of_the_kept_model_is_that_model(digits: Parts, tmp_path: Path) -> None:
    holdout, model = digits.holdout(), Network()
    trainer = train(model, digits, ladder_stopping(holdout, patience=3, link=SOFTMAX), most=80)
    trainer.save_checkpoint(tmp_path / "kept.ckpt")
    again = Network.load_from_checkpoint(tmp_path / "kept.ckpt")
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))


def test_min_epochs_of_the_trainer_are_kept(digits: Parts) -> None:
    holdout = digits.holdout("accuracy")
    holdout.submit(digits.y_holdout)
    stop = ladder_stopping(holdout, patience=2, link=SOFTMAX)
    trainer = train(Network(), digits, stop, min_epochs=5)
    assert trainer.current_epoch == 5
    assert stop.stopping.stopped


# -- what training notices -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Found 1 module.s. in eval mode at the start of training")
def test_training_is_the_same_where_a_loader_predicts_and_a_part_is_frozen(digits: Parts) -> None:
    plain, watched = Network(), Network()
    plain.layers[1].eval(), watched.layers[1].eval()  # a part that is frozen stays so
    torch.manual_seed(1)
    train(plain, digits, most=6)
    torch.manual_seed(1)
    rows = DataLoader(torch.tensor(digits.X_holdout), batch_size=50)
    stop = ladder_stopping(digits.holdout(), patience=50, predict=rows, link=SOFTMAX)
    train(watched, digits, stop, most=6)
    assert plain.losses == watched.losses
    assert not watched.layers[1].training
    assert watched.layers[3].training


def test_validation_costs_no_query(digits: Parts) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=50, link=SOFTMAX)
    trainer = lightning.Trainer(
        **QUIET, max_epochs=3, callbacks=[stop], num_sanity_val_steps=2, val_check_interval=0.5
    )
    model, rows = Validated(), loader(digits, shuffle=False)
    trainer.fit(model, loader(digits), rows)
    assert_one_batch(holdout, 3)
    trainer.validate(model, rows)
    assert holdout.status().submissions == 3


def test_a_fast_dev_run_costs_no_query(digits: Parts) -> None:
    holdout = digits.holdout()
    train(Network(), digits, ladder_stopping(holdout, link=SOFTMAX), fast_dev_run=True)
    assert holdout.status().submissions == 0


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions(digits: Parts, precision: str) -> None:
    holdout, model = digits.holdout(), Network()
    stop = ladder_stopping(holdout, patience=3, link=SOFTMAX)
    train(model, digits, stop, most=5, precision=precision)
    assert_kept(holdout, stop.stopping, stop.predictions(model))


def test_several_processes_are_refused(digits: Parts) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, link=SOFTMAX)
    with pytest.raises(Exception, match="devices must be one in training that a ladder stops"):
        train(Network(), digits, stop, devices=2, strategy="ddp_fork")
    assert holdout.status().submissions == 0


@pytest.mark.filterwarnings("ignore:Using `DistributedSampler` with the dataloaders")
@pytest.mark.filterwarnings("ignore:It is recommended to use `self.log")
def test_several_processes_may_validate(digits: Parts) -> None:
    stop = ladder_stopping(digits.holdout(), link=SOFTMAX)
    settings = QUIET | {"devices": 2, "strategy": "ddp_fork", "callbacks": [stop]}
    (found,) = lightning.Trainer(**settings).validate(
        Validated(), loader(digits, shuffle=False), verbose=False
    )
    assert found["val_loss"] > 0


# -- loaders, outputs and settings -----------------------------------------------------------


class Masked(Network):
    """Its batches are two tensors, and its outputs a pair."""

    def forward(self, batch: Any) -> Any:
        X, mask = batch if isinstance(batch, list | tuple) else (batch, torch.ones(len(batch), 1))
        return super().forward(X * mask), mask

    def loss(self, batch: Any) -> torch.Tensor:
        return F.cross_entropy(self(batch[0])[0], batch[1])

    def predict_step(self, batch: Any, _: int) -> torch.Tensor:
        return self(batch)[0]


def test_a_loader_goes_through_predict_step(digits: Parts) -> None:
    rows = TensorDataset(torch.tensor(digits.X_holdout), torch.ones(len(digits.X_holdout), 1))
    holdout, model = digits.holdout(), Masked()
    stop = ladder_stopping(
        holdout, patience=3, predict=DataLoader(rows, batch_size=50), link=SOFTMAX
    )
    train(model, digits, stop, most=20)
    assert_kept(holdout, stop.stopping, stop.predictions(model))
    with torch.no_grad():
        output = model.eval()(torch.tensor(digits.X_holdout))[0]
    told = holdout.submit(SOFTMAX(output.numpy()))
    assert told.score == holdout.status().score  # one batch or three: up to the last bit
    with pytest.raises(InvalidSubmission, match="predict="):
        ladder_stopping(holdout, link=SOFTMAX).predictions(model)


def test_a_callable_picks_the_output(digits: Parts) -> None:
    def predict(model: Masked, X: Any) -> torch.Tensor:
        return model(torch.tensor(X))[0].softmax(1)

    holdout, model = digits.holdout("accuracy"), Masked()
    stop = ladder_stopping(holdout, patience=3, predict=predict)
    train(model, digits, stop, most=20)
    assert_kept(holdout, stop.stopping, stop.predictions(model))


def test_a_shuffled_loader_is_refused(digits: Parts) -> None:
    rows = TensorDataset(torch.tensor(digits.X_holdout))
    with pytest.raises(InvalidArgument, match="shuffle=False"):
        ladder_stopping(digits.holdout(), predict=DataLoader(rows, shuffle=True))


def test_a_loader_that_drops_rows_is_refused(digits: Parts) -> None:
    rows = DataLoader(torch.tensor(digits.X_holdout), batch_size=50, drop_last=True)
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, predict=rows, link=SOFTMAX)
    with pytest.raises(InvalidSubmission):
        train(Network(), digits, stop)
    assert holdout.status().submissions == 0


# -- leaks ---------------------------------------------------------------------------------


def test_nothing_of_the_holdout_is_logged_or_printed(
    digits: Parts,
    tmp_path: Path,
    default_ledger: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    holdout, logs = digits.holdout(), tmp_path / "logs"
    stop = ladder_stopping(holdout, patience=3, link=SOFTMAX)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=80,
        logger=CSVLogger(logs),
        log_every_n_steps=1,
        callbacks=[stop, ModelCheckpoint(logs / "models", save_top_k=-1)],
    )
    trainer.fit(Validated(), loader(digits), loader(digits, shuffle=False))
    shown = capfd.readouterr()
    assert "val_loss" in shown.out
    known = {"train_loss", "train_loss_step", "train_loss_epoch", "val_loss"}
    assert set(trainer.logged_metrics) | set(trainer.callback_metrics) <= known
    assert list(logs.rglob("metrics.csv")) and list(logs.rglob("*.ckpt"))
    checkpoint = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    assert list(checkpoint["callbacks"]) == [trainer.checkpoint_callback.state_key]
    found = canaries(holdout, default_ledger)
    told = repr(stop), repr(stop.stopping), trainer.logged_metrics, caplog.text
    assert not found.found_in(shown.out, shown.err, folder_bytes(logs), *told)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_autologging_logs_nothing_of_the_holdout(
    digits: Parts, tmp_path: Path, default_ledger: Path
) -> None:
    holdout = digits.holdout()
    stop = ladder_stopping(holdout, patience=3, link=SOFTMAX)
    with autologged(mlflow.pytorch, tmp_path) as store:
        train(Network(), digits, stop, most=30)
        (run,) = mlflow.search_runs(output_format="list")
    assert set(run.data.metrics) <= {"train_loss", "train_loss_step", "train_loss_epoch"}
    assert "train_loss_epoch" in run.data.metrics
    assert not canaries(holdout, default_ledger).found_in(folder_bytes(store))


# -- resumed -------------------------------------------------------------------------------


def test_training_that_is_resumed_is_a_fit_of_its_own(digits: Parts, tmp_path: Path) -> None:
    holdout, model = digits.holdout(), Network()
    stop = ladder_stopping(holdout, patience=50, link=SOFTMAX)
    trainer = train(model, digits, stop, most=3)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = lightning.Trainer(**QUIET, max_epochs=5, callbacks=[stop])
    resumed.fit(model, loader(digits), ckpt_path=tmp_path / "half.ckpt")
    assert stop.stopping.rounds == 2
    assert np.unique([one.context["fit"] for one in holdout.history()]).size == 2
    assert_kept(holdout, stop.stopping, stop.predictions(model))
