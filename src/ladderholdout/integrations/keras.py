"""Keras: a callback that stops training by the ladder."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import function, whole
from ladderholdout.errors import InvalidSubmission
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations.adapter import Adapter, BestRound, Link, Predict, again_at_the_end
from ladderholdout.integrations.stopping import LadderStopping, Rule
from ladderholdout.thirdparty import EPOCH_CALLBACKS, local_of

with needed("Early stopping of Keras"):
    import keras


def ladder_stopping(
    holdout: HasLadder,
    patience: int = 10,
    *,
    predict: Predict | None = None,
    batch_size: int = 32,
    classes: ArrayLike | None = None,
    link: Link | None = None,
    **rule: Unpack[Rule],
) -> LadderStoppingCallback:
    """Return a callback for ``model.fit(callbacks=[...])``.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        `patience`, `min_rounds` and `context` of `LadderStopping`; a round is an epoch.
    predict : callable, optional
        ``predict(model, X)`` returns the model's output on the holdout's rows, for models that
        take something else than one array of them or have several outputs.
    batch_size : int, default=32
        How many rows the model is given at a time; 32 as in ``model.predict``.
    classes : array-like, optional
        The holdout's classes in the order of the model's outputs; they have to be stated where
        they are not the numbers 0 to k - 1.
    link : callable, optional
        From logits, as a NumPy array, to probabilities: `scipy.special.expit` for one output,
        ``functools.partial(scipy.special.softmax, axis=1)`` for one output per class. No library
        knows which of the two a network returns.

    Returns
    -------
    LadderStoppingCallback

    Raises
    ------
    InvalidArgument
        An argument is refused.

    Examples
    --------
    >>> import keras
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X).astype("float32")
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> model = keras.Sequential([keras.Input((30,)), keras.layers.Dense(1, "sigmoid")])
    >>> model.compile("adam", "binary_crossentropy")
    >>> stop = ladder_stopping(holdout, patience=3)
    >>> _ = model.fit(X[200:], y[200:], epochs=50, verbose=0, callbacks=[stop])
    >>> holdout.submit(stop.predictions(model)).is_incumbent  # the model kept is the incumbent
    True
    """
    stopping = LadderStopping(holdout, patience, **rule)
    return LadderStoppingCallback(stopping, predict, batch_size, classes, link)


class LadderStoppingCallback(Adapter, keras.callbacks.Callback):
    """Submit each epoch, stop by the ladder, end on the weights of the best epoch.

    It adds nothing to the logs. Whoever interrupts training has the weights of that moment.
    An `EarlyStopping` beside it may end training, but the weights are those of the ladder's best
    epoch, whatever it would restore.
    `ladder_stopping` makes it.
    """

    def __init__(
        self,
        stopping: LadderStopping,
        predict: Predict | None,
        batch_size: int,
        classes: ArrayLike | None,
        link: Link | None,
    ) -> None:
        Adapter.__init__(self, stopping, classes, link)
        keras.callbacks.Callback.__init__(self)
        self._predict = None if predict is None else function("predict", predict)
        self._batch_size = whole("batch_size", batch_size)

    def predictions(self, model: keras.Model) -> NDArray[Any]:
        """Return a model's predictions on the holdout's rows, as an epoch submits them.

        Parameters
        ----------
        model : keras.Model

        Returns
        -------
        ndarray
        """
        self._check_classes()
        return self._answer(self._output(model))

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin a fit."""
        self._check_classes()
        get, put = keras.Model.get_weights, keras.Model.set_weights
        self._here.best = BestRound(self.stopping.start(), get, put, others=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Submit the epoch; where it is the best so far, copy the weights."""
        stop = self._submit(self._output(self.model))
        self._here.best.snapshot(self.model)
        if stop:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Give the model the weights of the best epoch."""
        called = local_of(EPOCH_CALLBACKS, "self")
        again = called is not None and again_at_the_end(self, called.callbacks)
        self._here.best.restore(self.model, again)

    def _output(self, model: keras.Model) -> Any:
        output = (self._predict or self._by_batches)(model, self.stopping.X)
        output = keras.ops.convert_to_numpy(output) if keras.ops.is_tensor(output) else output
        # bfloat16 is none of NumPy's own types.
        own = getattr(output, "dtype", np.dtype(float)).kind != "V"
        return output if own else output.astype(np.float32)

    def _by_batches(self, model: keras.Model, X: Any) -> NDArray[Any]:
        # Not model.predict: under PyTorch its loader draws from the random numbers of training.
        # Its modules stay in training mode there until set otherwise; each epoch sets them anew.
        if hasattr(model, "eval"):
            model.eval()
        rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
        outputs = [
            _one_array(model.predict_on_batch(rows[start : start + self._batch_size]))
            for start in range(0, len(rows), self._batch_size)
        ]
        return np.concatenate(outputs)


def _one_array(output: Any) -> NDArray[Any]:
    if not isinstance(output, np.ndarray):
        raise InvalidSubmission(
            "predictions",
            "from a model with one output",
            f"from one that returns a {type(output).__name__}",
            "Pick the output that counts: predict=lambda model, X: ...",
        )
    return output
