"""Lightning: a callback that stops training by the ladder."""

from __future__ import annotations

from typing import Any

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.integrations.adapter import Predict, one_output, refuse_stoppers
from ladderholdout.integrations.torch import TorchStopping

with needed("Early stopping of Lightning"):
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer, callbacks
    from torch.utils.data import DataLoader, SequentialSampler


class LadderStoppingCallback(TorchStopping, Callback):
    """Submit each training epoch, stop by the ladder, end on the weights of the best epoch.

    It is also called `ladder_stopping`, and goes into ``Trainer(callbacks=[...])``. It logs
    nothing, and a checkpoint holds nothing of it: training that is resumed from one is a fit of
    its own. A ``fast_dev_run`` submits nothing. An `EarlyStopping` beside it, or a callback that
    averages weights, is refused: the ladder chooses the weights.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`; a round is an epoch.
    predict : callable or DataLoader, optional
        ``predict(module, X)`` returns the module's output on the holdout's rows. A loader
        yields them batch by batch, in their order, and each goes through the module's
        ``predict_step``. By default the module is called on the rows as one tensor.
    batch_size : int, optional
        How many rows the module is given at a time if `predict` does not state it; by default 1024.
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
        An argument is refused; or in training with several processes, where each would submit a
        model that the others train as well.

    Examples
    --------
    >>> import lightning, torch
    >>> from scipy.special import expit
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> class Model(lightning.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(30, 1)
    ...     def forward(self, X):
    ...         return self.linear(X)[:, 0]
    ...     def training_step(self, batch, _):
    ...         return torch.nn.functional.binary_cross_entropy_with_logits(
    ...             self(batch[0]), batch[1])
    ...     def configure_optimizers(self):
    ...         return torch.optim.SGD(self.parameters(), lr=0.1)
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X).astype("float32")
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> stop = ladder_stopping(holdout, patience=3, link=expit)
    >>> rows = torch.utils.data.TensorDataset(torch.tensor(X[200:]), torch.tensor(y[200:]).float())
    >>> trainer = lightning.Trainer(accelerator="cpu", max_epochs=50, callbacks=[stop],
    ...     logger=False, enable_checkpointing=False, enable_progress_bar=False,
    ...     enable_model_summary=False)
    >>> model = Model()
    >>> trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=100))
    >>> holdout.submit(stop.predictions(model)).is_incumbent  # the model kept is the incumbent
    True
    """

    def _predicting(self, predict: Any) -> Predict:
        return _Loaded(predict) if isinstance(predict, DataLoader) else super()._predicting(predict)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse several processes and what else chooses weights, before training begins."""
        if stage == "fit" and trainer.world_size > 1:
            raise InvalidArgument(
                "devices",
                "one in training that a ladder stops",
                f"{trainer.world_size} processes",
                "Train with Trainer(devices=1, num_nodes=1).",
            )
        if stage == "fit":
            kinds = {name: getattr(callbacks, name, type(None)) for name in _STOPPERS}
            refuse_stoppers(trainer.callbacks, kinds)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a fit."""
        self.start()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Submit the epoch."""
        if not trainer.fast_dev_run and self.update(pl_module):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the module the state of the best epoch."""
        self.restore(pl_module)


ladder_stopping = LadderStoppingCallback

_STOPPERS = ("EarlyStopping", "StochasticWeightAveraging", "WeightAveraging")


class _Loaded:
    """Predicts batch by batch, as ``Trainer.predict`` does."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not isinstance(loader.sampler, SequentialSampler):
            raise InvalidArgument(
                "predict",
                "a loader that yields the holdout's rows in their order",
                f"one with a {type(loader.sampler).__name__}",
                "Make it with shuffle=False.",
            )
        self._loader = loader

    def __call__(self, module: LightningModule, _: object) -> torch.Tensor:
        outputs = []
        for number, batch in enumerate(self._loader):
            here = module.transfer_batch_to_device(batch, module.device, 0)
            outputs.append(one_output(module.predict_step(here, number), torch.Tensor))
        return torch.cat(outputs)
