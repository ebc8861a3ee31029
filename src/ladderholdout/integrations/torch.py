"""PyTorch: early stopping in a training loop of your own; Lightning and skorch build on it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.integrations.adapter import BestRound, Network, one_output
from ladderholdout.integrations.stopping import LadderStopping

with needed("Early stopping of PyTorch"):
    import torch


class TorchStopping(Network):
    """The epochs of a training loop of your own, and the state of the best of them.

    It is also called `ladder_stopping`.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`; a round is an epoch.
    predict : callable, optional
        ``predict(module, X)`` returns the module's output on the holdout's rows, for modules
        that take something else than one tensor of them. It is called in evaluation mode and
        without gradients.
    batch_size : int, optional
        How many rows the module is given at a time; by default 1024.
    **settings
        `min_rounds` and `context` of `LadderStopping`, and ``classes``, an array-like: the
        holdout's classes in the order of the module's outputs; they have to be stated where they
        are not the numbers 0 to k - 1.
    link : callable, optional
        From logits, as a NumPy array, to probabilities: `scipy.special.expit` for one output,
        ``functools.partial(scipy.special.softmax, axis=1)`` for one output per class. No library
        knows which of the two a network returns.

    Raises
    ------
    InvalidArgument
        An argument is refused.

    Examples
    --------
    >>> from scipy.special import expit
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, _ = scale(X).astype("float32"), torch.manual_seed(0)
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> model = torch.nn.Linear(30, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loss, inputs = torch.nn.BCEWithLogitsLoss(), torch.tensor(X[200:])
    >>> targets = torch.tensor(y[200:], dtype=torch.float32)
    >>> epochs = ladder_stopping(holdout, patience=5, link=expit).start()
    >>> for epoch in range(100):
    ...     optimizer.zero_grad()
    ...     loss(model(inputs)[:, 0], targets).backward()
    ...     optimizer.step()
    ...     if epochs.update(model):
    ...         break
    >>> epochs.restore(model)
    >>> epochs.stopping.rounds - epochs.stopping.best_round
    5
    >>> holdout.submit(epochs.predictions(model)).is_incumbent  # the model kept is the incumbent
    True
    """

    _batch_size = 1024

    def start(self, **context: Any) -> Self:
        """Begin a fit: the epochs of the one before are forgotten.

        Parameters
        ----------
        **context
            Added to the context of every epoch of this fit.

        Returns
        -------
        TorchStopping
            This object.
        """
        self._start(**context)
        self._own.best = best_state(self.stopping)
        return self

    def update(self, module: torch.nn.Module) -> bool:
        """Submit the module as it is after an epoch; where it is the best so far, copy its state.

        Parameters
        ----------
        module : torch.nn.Module
            Its training modes, its gradients and PyTorch's random numbers stay as they are.

        Returns
        -------
        bool
            Whether to stop now.

        Raises
        ------
        InvalidSubmission, LedgerError
            The epoch is refused, or the guard cannot answer. Nothing was released.
        SearchStopped
            The same inside a search of scikit-learn.
        """
        if not hasattr(self._own, "best"):  # begun by this very epoch
            self._check_classes()
            self._own.best = best_state(self.stopping)
        return self._round(lambda: self._output(module), module)

    def restore(self, module: torch.nn.Module) -> None:
        """Give the module the state of the best epoch; within a fit that ends its batch.

        Parameters
        ----------
        module : torch.nn.Module
        """
        if hasattr(self._own, "best"):
            self._own.best.restore(module)

    def _output(self, module: torch.nn.Module) -> Any:
        predict = self._predict or self._forward
        with untouched(module):
            return array_of(predict(module, self.stopping.X))

    def _forward(self, module: torch.nn.Module, X: Any) -> torch.Tensor:
        """Call the module on one batch of rows after another."""
        rows, (device, dtype) = numbers_of(X), _place_of(module)
        outputs = []
        for start in range(0, len(rows), self._batch_size):
            # A copy: a module that works in place must not change the holdout's rows.
            batch = torch.tensor(rows[start : start + self._batch_size])
            batch = batch.to(dtype) if batch.is_floating_point() else batch
            outputs.append(one_output(module(batch.to(device)), torch.Tensor))
        return torch.cat(outputs)


ladder_stopping = TorchStopping


def best_state(stopping: LadderStopping) -> BestRound:
    """Return what holds the state of a module after its best epoch."""
    return BestRound(
        stopping,
        lambda module: copy.deepcopy(module.state_dict()),
        lambda module, state: module.load_state_dict(state) and None,
    )


@contextmanager
def untouched(module: torch.nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode; modes, gradients and random numbers stay as they were.

    Parameters
    ----------
    module : torch.nn.Module
        Each of its parts gets its own mode back: some may be frozen in evaluation mode.
    """
    modes = {part: part.training for part in module.modules()}
    elsewhere = {p.device for p in module.parameters()} - {torch.device("cpu")}
    kind = next(iter(elsewhere)).type if elsewhere else "cuda"
    # Not inference_mode: a tensor that a module caches meanwhile could not be trained with. A
    # loader draws a seed from the generator of PyTorch, and training would go on with another.
    with torch.random.fork_rng(sorted(elsewhere, key=str), device_type=kind), torch.no_grad():
        module.eval()
        try:
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode


def numbers_of(X: Any) -> NDArray[Any]:
    """Return the holdout's rows as an array of numbers."""
    rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    if rows.dtype.kind not in "biuf":
        raise InvalidArgument(
            "predict",
            "given for rows that are no array of numbers",
            "missing",
            "predict=lambda model, X: ... returns the model's output on the rows.",
        )
    return rows


def array_of(output: Any) -> Any:
    """Bring a tensor to NumPy, from whatever device; leave what is none."""
    if not isinstance(output, torch.Tensor):
        return output
    # NumPy knows no bfloat16.
    wide = output.float() if output.dtype == torch.bfloat16 else output
    return wide.detach().cpu().numpy()


def _place_of(module: torch.nn.Module) -> tuple[torch.device, torch.dtype]:
    """Return where a module computes, and in which type of real numbers."""
    own = (*module.parameters(), *module.buffers())
    device = own[0].device if own else torch.device("cpu")
    real = (one.dtype for one in own if one.is_floating_point())
    return device, next(real, torch.get_default_dtype())
