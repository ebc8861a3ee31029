"""Keras: a callback that stops training by the ladder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.extras import needed
from ladderholdout.integrations import adapter
from ladderholdout.thirdparty import EPOCH_CALLBACKS, local_of

with needed("Early stopping of Keras"):
    import keras
    from keras.callbacks import EarlyStopping, SwapEMAWeights


class LadderStoppingCallback(adapter.Network, keras.callbacks.Callback):
    """Submit each epoch, stop by the ladder, end on the weights of the best epoch.

    It is also called `ladder_stopping`, and goes into ``model.fit(callbacks=[...])``. It adds
    nothing to the logs. Whoever interrupts training has the weights of that moment. An
    `EarlyStopping` or `SwapEMAWeights` beside it is refused: the ladder chooses the weights.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`; a round is an epoch.
    predict : callable, optional
        ``predict(model, X)`` returns the model's output on the holdout's rows, for models that
        take something else than one array of them or have several outputs.
    batch_size : int, optional
        How many rows the model is given at a time; by default 32, as in ``model.predict``.
    **settings
        `min_rounds` and `context` of `LadderStopping`, and ``classes``, an array-like: the
        holdout's classes in the order of the model's outputs; they have to be stated where they are
        not the numbers 0 to k - 1.
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

    _batch_size = 32

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin a fit."""
        adapter.refuse_stoppers(
            getattr(local_of(EPOCH_CALLBACKS, "self"), "callbacks", ()),
            {"EarlyStopping": EarlyStopping, "SwapEMAWeights": SwapEMAWeights},
        )
        self._start()
        get, put = keras.Model.get_weights, keras.Model.set_weights
        self._own.best = adapter.BestRound(self.stopping, get, put)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Submit the epoch; where it is the best so far, copy the weights."""
        if self._round(lambda: self._output(self.model), self.model):
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Give the model the weights of the best epoch."""
        self._own.best.restore(self.model)

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
        rows, size = np.asarray(X.toarray() if hasattr(X, "toarray") else X), self._batch_size
        outputs = [
            adapter.one_output(model.predict_on_batch(rows[at : at + size]), np.ndarray)
            for at in range(0, len(rows), size)
        ]
        return np.concatenate(outputs)


ladder_stopping = LadderStoppingCallback
