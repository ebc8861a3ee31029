"""Attacks early stopping in a plain PyTorch loop: what training notices, what is kept."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.nn import functional as F

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import InvalidSubmission
from ladderholdout.integrations.torch import TorchStopping, ladder_stopping, untouched
from tests.deep.support_deep import (
    OUTPUTS,
    SOFTMAX,
    EpochContract,
    assert_kept,
    problem,
)
from tests.project.test_docs import blocks, run_python
from tests.project.test_examples import run
from tests.support.holdouts import assert_replays
from tests.support.ledgers import entries_of
from tests.support.stopping import Parts, assert_one_batch

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parents[2]


def network(task: str = "multiclass", seed: int = 0) -> nn.Sequential:
    """Dropout draws random numbers and batch normalisation has modes and buffers."""
    torch.manual_seed(seed)
    features = 10 if task == "regression" else 64
    return nn.Sequential(
        nn.Linear(features, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(24, OUTPUTS[task]),
    )


LOSSES: dict[str, Any] = {
    "binary": lambda out, y: F.binary_cross_entropy_with_logits(out[:, 0], y.float()),
    "multiclass": F.cross_entropy,
    "regression": lambda out, y: F.mse_loss(out[:, 0], y.float()),
}


def train(
    model: nn.Module,
    data: Parts,
    epochs: TorchStopping | None,
    most: int = 40,
    after: tuple[int, Any] | None = None,
) -> list[float]:
    """Train in shuffled batches; return the losses, to the last bit."""
    X, y = torch.tensor(data.X), torch.tensor(data.y)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    model.train()
    for epoch in range(1, most + 1):
        for rows in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            loss = LOSSES[data.kind](model(X[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epochs is not None and epochs.update(model):
            break
        if after is not None and after[0] == epoch:
            after[1]()
    if epochs is not None:
        epochs.restore(model)
    return losses


@pytest.fixture(scope="module")
def digits() -> Parts:
    return problem("multiclass")


# -- what is kept --------------------------------------------------------------------------


class TestTorch(EpochContract):
    ladder_stopping = staticmethod(ladder_stopping)
    longest = 2000

    def stopping_for(
        self, holdout: LadderHoldout, patience: int, kind: str = "binary", **settings: Any
    ) -> Any:
        return super().stopping_for(holdout, patience, kind, **{"batch_size": 7, **settings})

    def fit(
        self, by: Any, data: Parts, rounds: int, after: tuple[int, Any] | None = None, **how: Any
    ) -> nn.Module:
        model = network(data.kind)
        model.losses = train(model, data, by and by.start(), rounds, after=after)
        state = torch.get_rng_state()
        if by is not None:  # the ladder draws no random numbers
            again = network(data.kind)
            train(again, data, None, by.stopping.rounds)
            assert torch.equal(torch.get_rng_state(), state)
        return model

    def trace(self, model: Any) -> list[float]:
        return model.losses

    def by_hand(self, model: nn.Module, data: Parts) -> Any:
        with untouched(model):
            return SOFTMAX(torch.cat([model(rows) for rows in
                                      torch.tensor(data.X_holdout).split(7)]).numpy())  # fmt: skip


def test_another_model_may_follow_with_the_same_object(digits: Parts) -> None:
    holdout = digits.holdout()
    epochs = ladder_stopping(holdout, patience=3, link=SOFTMAX)
    small, large = network(), nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    for model in (small, large):
        train(model, digits, epochs.start(), most=60)
        assert_kept(holdout, epochs.stopping, epochs.predictions(model))


# -- what training notices -----------------------------------------------------------------


def test_a_loader_in_predict_leaves_the_random_numbers_alone(digits: Parts) -> None:
    loader = torch.utils.data.DataLoader(torch.tensor(digits.X_holdout), batch_size=50)

    def by_loader(model: nn.Module, _: Any) -> torch.Tensor:
        return torch.cat([model(batch) for batch in loader])

    before = torch.get_rng_state()
    list(loader)
    assert not torch.equal(torch.get_rng_state(), before)  # it does draw one
    epochs = ladder_stopping(digits.holdout(), patience=50, predict=by_loader, link=SOFTMAX).start()
    assert train(network(), digits, epochs, most=4) == train(network(), digits, None, most=4)


def test_modes_and_gradients_stay_as_they_are(digits: Parts) -> None:
    model = network()
    model[1].eval()  # frozen: it has to stay so while the rest trains
    F.cross_entropy(
        model(torch.tensor(digits.X_holdout)), torch.tensor(digits.y_holdout)
    ).backward()
    before = [copy.deepcopy(p.grad) for p in model.parameters()]
    buffers = copy.deepcopy(dict(model.named_buffers()))
    epochs = ladder_stopping(digits.holdout(), link=SOFTMAX).start()
    epochs.update(model)
    assert [part.training for part in model.modules()] == [True, True, False, True, True, True]
    assert all(torch.equal(p.grad, old) for p, old in zip(model.parameters(), before, strict=True))
    assert all(torch.equal(new, buffers[name]) for name, new in model.named_buffers())
    assert torch.is_grad_enabled()


def test_modes_come_back_when_the_model_fails(digits: Parts) -> None:
    def fails(model: nn.Module, _: Any) -> torch.Tensor:
        raise RuntimeError("no such rows")

    model = network().train()
    epochs = ladder_stopping(digits.holdout(), predict=fails).start()
    with pytest.raises(RuntimeError, match="no such rows"):
        epochs.update(model)
    assert all(part.training for part in model.modules())


def test_what_the_model_caches_can_be_trained_with(digits: Parts) -> None:
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 10)
            self.scale: torch.Tensor | None = None

        def forward(self, X: torch.Tensor) -> torch.Tensor:
            if self.scale is None:
                self.scale = torch.ones(10) * 2
            return self.linear(X) * self.scale

    torch.manual_seed(0)
    model, epochs = Caching(), ladder_stopping(digits.holdout(), link=SOFTMAX).start()
    epochs.update(model)  # the first to call it
    assert train(model, digits, epochs, most=2)


# -- rows, outputs and settings ------------------------------------------------------------


@pytest.mark.parametrize("form", ["double", "frame", "sparse", "list", "batches"])
def test_rows_in_any_form_give_the_same_predictions(digits: Parts, form: str) -> None:
    forms: dict[str, Any] = {
        "double": lambda X: X.astype(np.float64),
        "frame": pd.DataFrame,
        "sparse": csr_array,
        "list": lambda X: X.tolist(),
        "batches": lambda X: X,
    }
    rows = forms[form](digits.X_holdout)
    holdout = LadderHoldout(rows, digits.y_holdout, scoring="accuracy", ledger="memory")
    size = 13 if form == "batches" else 1024
    epochs = ladder_stopping(holdout, link=SOFTMAX, batch_size=size)
    model = network()
    with untouched(model):
        expected = model(torch.tensor(digits.X_holdout)).argmax(1).numpy()
    assert np.array_equal(epochs.predictions(model), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_modules_of_another_precision(digits: Parts, dtype: torch.dtype) -> None:
    model = network().to(dtype)
    epochs = ladder_stopping(digits.holdout("accuracy"), link=SOFTMAX).start()
    epochs.update(model)
    assert epochs.stopping.rounds == 1


def test_whole_numbers_stay_whole(digits: Parts) -> None:
    X = (digits.X_holdout[:, :5] * 16).astype(np.int64)
    holdout = LadderHoldout(X, digits.y_holdout, scoring="accuracy", ledger="memory")
    model = nn.Sequential(nn.Embedding(17, 4), nn.Flatten(), nn.Linear(20, 10))
    assert ladder_stopping(holdout, link=SOFTMAX).predictions(model).shape == digits.y_holdout.shape


class Counting(nn.Module):
    """It has whole numbers alone, and changes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor([1]))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return X.mul_(2)[:, :10].add_(self.shift).softmax(1)


def test_a_module_without_real_numbers_of_its_own_that_works_in_place(digits: Parts) -> None:
    rows = digits.X_holdout.copy()
    holdout = LadderHoldout(rows, digits.y_holdout, scoring="neg_log_loss", ledger="memory")
    epochs = ladder_stopping(holdout)
    expected = (torch.tensor(digits.X_holdout)[:, :10] * 2 + 1).softmax(1).numpy()
    assert np.array_equal(epochs.predictions(Counting()), expected)
    assert np.array_equal(rows, digits.X_holdout)


def test_classes_in_an_order_of_the_model(digits: Parts) -> None:
    names = np.array([f"digit {digit}" for digit in range(10)])
    holdout = LadderHoldout(
        digits.X_holdout, names[digits.y_holdout], scoring="accuracy", ledger="memory"
    )
    model, turned = network(), names[::-1]
    epochs = ladder_stopping(holdout, classes=turned, link=SOFTMAX)
    with untouched(model):
        codes = model(torch.tensor(digits.X_holdout)).argmax(1).numpy()
    assert np.array_equal(epochs.predictions(model), turned[codes])


class Two(nn.Module):
    def forward(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return X[:, :10].softmax(1), X


def test_a_module_with_two_outputs_needs_predict(digits: Parts) -> None:
    holdout = digits.holdout()
    with pytest.raises(InvalidSubmission, match="predict="):
        ladder_stopping(holdout).start().update(Two())
    chosen = ladder_stopping(
        holdout, predict=lambda model, X: model(torch.tensor(X, dtype=torch.float64))[0]
    )
    assert not chosen.start().update(Two())


def test_rows_that_are_no_numbers_need_predict() -> None:
    holdout = LadderHoldout(
        [["a"], ["b"], ["c"], ["d"]], [0, 1, 0, 1], scoring="accuracy", ledger="memory"
    )
    with pytest.raises(InvalidArgument, match="predict="):
        ladder_stopping(holdout).start().update(nn.Linear(1, 1))
    lengths = ladder_stopping(holdout, predict=lambda _, X: torch.tensor([0.1, 0.9, 0.2, 0.8]))
    lengths.start().update(nn.Linear(1, 1))
    assert holdout.status().score == 1.0


def test_a_diverged_epoch_is_refused_loudly(digits: Parts) -> None:
    holdout, model = digits.holdout(), network()
    epochs = ladder_stopping(holdout, link=SOFTMAX).start()
    epochs.update(model)
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    with pytest.raises(InvalidSubmission, match=r"finite|nan"):
        epochs.update(model)
    assert_one_batch(holdout, 1)


# -- faults --------------------------------------------------------------------------------


KILLED = """
import os, signal, sys
import numpy as np, torch
from scipy.special import expit
from ladderholdout import LadderHoldout
from ladderholdout.integrations.torch import ladder_stopping

X = np.random.default_rng(0).standard_normal((60, 4))
holdout = LadderHoldout(X, X[:, 0] > 0, scoring="neg_log_loss", name="killed")
epochs = ladder_stopping(holdout, patience=50, link=expit).start()
model = torch.nn.Linear(4, 1)
for epoch in range(20):
    with torch.no_grad():
        model.weight[0, 0] += 0.1
    if epoch == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    epochs.update(model)
"""


def test_a_killed_fit_leaves_a_ledger_that_replays() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=120)
    assert done.returncode == -9
    holdout = LadderHoldout.open("killed")
    assert_one_batch(holdout, 7)
    assert_replays(holdout)


# -- the example ---------------------------------------------------------------------------


def test_the_example_stops_early_and_runs_again() -> None:
    script = ROOT / "examples" / "early_stopping_torch.py"
    first, second = run(script), run(script)
    stopped, kept = map(int, re.findall(r"(\d+) of 200 epochs, kept number (\d+)", first)[0])
    assert (stopped < 200, kept) == (True, stopped - 10)
    # The second run trains the same network: nothing but repeats, which improve nothing.
    improved = re.compile(r"^improved in +(\d+) of them$", re.MULTILINE)
    assert int(improved.findall(first)[0]) > 0 == int(improved.findall(second)[0])
    before, again = (improved.sub("", one).split("submissions")[0] for one in (first, second))
    assert before == again
    history = entries_of(LadderHoldout.open("digits-torch"))
    assert [one.repeat_of is None for one in history] == [True] * stopped + [False] * stopped


def test_the_sessions_of_the_page_give_the_output_it_shows() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    page = ROOT / "docs" / "guide" / "early_stopping_deep.md"
    sessions = [one for one in blocks(page) if one.language == "py"]
    assert sessions
    for one in sessions:
        assert run_python(one.text, names).split() == one.shown.split()
