"""skorch: a callback that stops training by the ladder, alone or inside a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import ArrayLike

from ladderholdout.arguments import function
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations.adapter import Predict, refuse_stoppers
from ladderholdout.integrations.stopping import LadderStopping, check_classes
from ladderholdout.integrations.torch import array_of, best_state, untouched
from ladderholdout.metrics.responses import known_classes

with needed("Early stopping of skorch"):
    from skorch import NeuralNet
    from skorch.callbacks import Callback, Checkpoint, EarlyStopping
    from torch.nn import Module, ModuleList


def ladder_stopping(
    holdout: HasLadder, patience: int = 10, **settings: Any
) -> LadderStoppingCallback:
    """Return a callback for ``NeuralNet(..., callbacks=[...])``.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`; a round is an epoch.
    **settings
        `min_rounds` and `context` of `LadderStopping`, and two more. ``predict(net, X)`` returns
        the net's output on the holdout's rows. By default the net is asked as
        ``holdout.submit(net)`` asks it, with `predict`, or `predict_proba` where the metric needs
        probabilities, in batches of the size of its own. ``classes``, an array-like: the holdout's
        classes in the order of the net's outputs. By default those that the net itself learns; they
        have to be stated where these are others, such as numbers for texts.

    Returns
    -------
    LadderStoppingCallback

    Raises
    ------
    InvalidArgument
        An argument is refused.

    Examples
    --------
    >>> import torch
    >>> from skorch import NeuralNetClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X).astype("float32")
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> net = NeuralNetClassifier(
    ...     torch.nn.Linear, module__in_features=30, module__out_features=2, max_epochs=50,
    ...     criterion=torch.nn.CrossEntropyLoss, lr=0.1, train_split=None, verbose=0,
    ...     callbacks=[ladder_stopping(holdout, patience=3)])
    >>> net = net.fit(X[200:], y[200:])
    >>> holdout.submit(net).is_incumbent  # the model kept is the incumbent
    True
    """
    return LadderStoppingCallback(holdout, patience, **settings).initialize()


class LadderStoppingCallback(Callback):
    """Submit each epoch, stop by the ladder, end on the weights of the best epoch.

    Its settings are parameters of the net, as of any callback: ``callbacks__name__patience``.
    It writes nothing into the net's history. An `EarlyStopping` beside it, or a `Checkpoint` with
    ``load_best``, is refused: the ladder chooses the weights.

    Parameters
    ----------
    holdout, patience, min_rounds, context, predict, classes
        As for `ladder_stopping`.
    """

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        min_rounds: int = 1,
        context: Mapping[str, Any] | None = None,
        predict: Predict | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        # As scikit-learn's clone wants it: the arguments under their names, and nothing else.
        self.holdout = holdout
        self.patience = patience
        self.min_rounds = min_rounds
        self.context = context
        self.predict = predict
        self.classes = classes

    @property
    def stopping(self) -> LadderStopping:
        """The rule, and what it has seen of the last fit."""
        if not hasattr(self, "stopping_"):
            self.initialize()
        return self.stopping_

    def initialize(self) -> Self:
        """Make the rule from the settings as they are now."""
        if self.predict is not None:
            function("predict", self.predict)
        self.stopping_ = LadderStopping(
            self.holdout, self.patience, min_rounds=self.min_rounds, context=self.context
        )
        return self

    def on_train_begin(self, net: NeuralNet, X: Any = None, y: Any = None, **_: Any) -> None:
        """Begin a fit."""
        listed = [one for _, one in net.callbacks_]
        loading = [one for one in listed if not isinstance(one, Checkpoint) or one.load_best]
        refuse_stoppers(loading, {"EarlyStopping": EarlyStopping, "Checkpoint": Checkpoint})
        self.stopping.start()._fit.own.best = best_state(self.stopping)

    def on_epoch_begin(self, net: NeuralNet, **_: Any) -> None:
        """Refuse other classes before the first epoch: the net learns its own in `fit`."""
        if not self.stopping.rounds:
            known = known_classes(net) if self.classes is None else self.classes
            check_classes(self.stopping, known, _REMEDY)

    def on_epoch_end(self, net: NeuralNet, **_: Any) -> None:
        """Submit the epoch; where it is the best so far, copy the weights."""
        modules = _modules(net)
        with untouched(modules):
            stop = self._submit(net)
        self.stopping._fit.own.best.snapshot(modules)
        if stop:
            raise KeyboardInterrupt  # which a net takes for the wish to end its training

    def on_train_end(self, net: NeuralNet, X: Any = None, y: Any = None, **_: Any) -> None:
        """Give the net the weights of the best epoch."""
        self.stopping._fit.own.best.restore(_modules(net))

    def _submit(self, net: NeuralNet) -> bool:
        if self.predict is None and self.classes is None:
            return self.stopping.evaluate(net)
        X = self.stopping.X
        output = net.predict_proba(X) if self.predict is None else array_of(self.predict(net, X))
        answer = self.stopping.answer(output, classes=self.classes)
        return self.stopping.update(answer)


_REMEDY = (
    "Fit the net on the holdout's labels where these are 0 to k - 1, or give "
    "ladder_stopping(holdout, classes=[...]) the holdout's class for each output of the net."
)


def _modules(net: NeuralNet) -> ModuleList:
    """Return all modules of a net: there may be more than ``module_``."""
    fitted = (value for name, value in vars(net).items() if name.endswith("_"))
    return ModuleList(value for value in fitted if isinstance(value, Module))
