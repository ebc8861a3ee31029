"""One submission as a mechanism may see it: its risk, under any weighting of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given, finite, inside
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics.arrays import FloatArray, IntArray, read_only, shares_of_groups


def _floats(values: ArrayLike, argument: str) -> FloatArray:
    """Return numbers in float64; whatever an entry raises names the argument alone."""
    try:
        if not np.ma.is_masked(values):
            return np.asarray(values, dtype=np.float64)
        came = "an array with masked entries"
    except Exception:  # its text may quote an entry
        came = as_given(values)
    raise InvalidArgument(argument, "an array of real numbers", came)


def checked_weights(weights: ArrayLike, n: int, argument: str) -> FloatArray:
    """Return ``weights`` as float64 of shape (n,), non-negative and not all zero."""
    array = _floats(weights, argument)
    allowed = f"{n} finite non-negative numbers, not all of them zero"
    if array.shape != (n,):
        raise InvalidArgument(argument, allowed, f"an array of shape {array.shape}")
    if not (array.min() >= 0 and 0 < array.sum() < np.inf):
        raise InvalidArgument(argument, allowed, "something else")
    return array


def checked_matrix(weights: ArrayLike, n: int) -> FloatArray:
    """Return ``weights`` as float64 of shape (b, n), non-negative and finite."""
    matrix = _floats(weights, "weights")
    if matrix.ndim != 2 or matrix.shape[1] != n:
        raise InvalidArgument("weights", f"of shape (b, {n})", f"of shape {matrix.shape}")
    if matrix.size and not (matrix.min() >= 0 and matrix.max() < np.inf):
        raise InvalidArgument("weights", "finite non-negative numbers", "something else")
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """One submission as a mechanism may see it.

    Its text shows neither risk nor losses, so that it may occur in a log or a traceback.

    Parameters
    ----------
    n : int
        Number of examples.
    risk : float
        Empirical risk; smaller is better.
    losses : ndarray of shape (n,) or None
        Per-example losses, float64, for metrics that are means of them; their mean is
        ``risk`` exactly.
    inner_score : float or None
        The risk on the training rows, for mechanisms that compare the two.
    account : str or None
        Who submits it, for mechanisms that serve many.
    clipped : int or None
        How many losses are beyond the stated range, to which limits of the risk clip them; None
        where none can be. It depends on the labels as the risk does, so it is for the ledger and
        for audits.
    counts : bool or None
        Whether each loss is 0 or 1 by what the metric is; None where no metric states it.
    needs_whole_weights : bool
        Whether the metric is one of ranks or of extremes, which fractions of a row do not
        change as a draw of other rows would: it is resampled with whole rows.
    groups : ndarray of int, shape (n,), or None
        The number of each row's group, from 0 on, where whole groups of rows were drawn: what is
        compared or resampled are groups then.
    alike : bool
        Whether every group counts alike in a decision, and not every example.

    Examples
    --------
    >>> evaluation = Evaluation.from_losses([0, 1, 0, 0])
    >>> evaluation.risk
    0.25
    >>> evaluation.risk_under([1, 2, 1, 0])
    0.5
    >>> evaluation
    Evaluation(n=4)
    """

    n: int
    risk: float = field(repr=False)
    losses: FloatArray | None = field(repr=False)
    # The holdout's own weights with mean 1: the losses already carry them.
    _row_weights: FloatArray | None = field(default=None, repr=False)
    # The risk under a weighting, for metrics that are no mean of losses.
    _function: Callable[[FloatArray], float] | None = field(default=None, repr=False)
    # The same under many weightings at once, nan where there is none.
    _many: Callable[[FloatArray], FloatArray] | None = field(default=None, repr=False)
    # The influence function of the risk, worked out when it is asked for.
    _influences: Callable[[], FloatArray | None] | None = field(default=None, repr=False)
    inner_score: float | None = field(default=None, repr=False)
    account: str | None = field(default=None, repr=False)
    needs_whole_weights: bool = field(default=False, repr=False)
    clipped: int | None = field(default=None, repr=False)
    _bounded: FloatArray | None = field(default=None, repr=False)
    counts: bool | None = field(default=None, repr=False)
    groups: IntArray | None = field(default=None, repr=False)
    alike: bool = field(default=False, repr=False)

    @property
    def n_draws(self) -> int:
        """How many units were drawn: the examples, or their groups."""
        return self.n if self.groups is None else int(self.groups.max()) + 1

    @property
    def bounded_losses(self) -> FloatArray | None:
        """The losses, clipped to the stated range: for proofs that need one, and for nothing else.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> mae = get_metric("neg_mean_absolute_error").with_range((0, 5))
        >>> evaluation = mae.evaluate(np.zeros(2), np.array([1.0, 9.0]))
        >>> evaluation.risk, evaluation.bounded_losses.tolist()
        (5.0, [1.0, 5.0])
        """
        return self.losses if self._bounded is None else self._bounded

    def of_draws(self, values: FloatArray) -> FloatArray:
        """Return the sums of numbers of the examples over each unit that was drawn.

        Examples
        --------
        >>> evaluation = Evaluation.from_losses([0, 1, 1]).in_groups(np.array([0, 0, 1]))
        >>> evaluation.of_draws(evaluation.losses).tolist()
        [1.0, 1.0]
        """
        if self.groups is None:
            return values
        return np.asarray(np.bincount(self.groups, values), dtype=np.float64)

    def shares(self, values: FloatArray) -> FloatArray:
        """Return the sum of each unit as a share of the most that it can be, of values up to 1.

        Of the size of the largest group, or of its own where every group counts alike.

        Examples
        --------
        >>> evaluation = Evaluation.from_losses([0, 1, 1]).in_groups(np.array([0, 0, 1]))
        >>> evaluation.shares(evaluation.losses).tolist()
        [0.5, 0.5]
        """
        if self.groups is None:
            return values
        return shares_of_groups(self.groups, values, alike=self.alike)

    def of_examples(self, weights: FloatArray) -> FloatArray:
        """Return the weights of the examples by those of the units that were drawn.

        Parameters
        ----------
        weights : ndarray of shape (b, n_draws)

        Returns
        -------
        ndarray of shape (b, n)

        Examples
        --------
        >>> evaluation = Evaluation.from_losses([0, 1, 1]).in_groups(np.array([0, 0, 1]))
        >>> evaluation.of_examples(np.array([[1.0, 2.0]])).tolist()
        [[1.0, 1.0, 2.0]]
        """
        return weights if self.groups is None else weights[:, self.groups]

    def in_groups(self, groups: IntArray, *, alike: bool = False) -> Evaluation:
        """Return the same submission on examples of which whole groups were drawn.

        Parameters
        ----------
        groups : ndarray of int, shape (n,)
            The number of each example's group, from 0 on; each number occurs.
        alike : bool, default=False
            Whether every group counts alike in a decision, and not every example.

        Returns
        -------
        Evaluation

        Examples
        --------
        >>> Evaluation.from_losses([0, 1, 1]).in_groups(np.array([0, 0, 1])).n_draws
        2
        """
        return replace(self, groups=groups, alike=alike)

    @property
    def is_count(self) -> bool:
        """Whether each loss is 0 or 1; of losses without a metric they alone can show it."""
        if self.counts is not None or self.losses is None:
            return bool(self.counts)
        return bool(((self.losses == 0.0) | (self.losses == 1.0)).all())

    @classmethod
    def from_losses(cls, losses: ArrayLike) -> Evaluation:
        """Evaluate per-example losses, as in a simulation.

        Parameters
        ----------
        losses : array-like of shape (n,)
            Losses, smaller is better.

        Returns
        -------
        Evaluation

        Raises
        ------
        InvalidArgument
            If there are no losses, or they are not one finite number for each example.

        Examples
        --------
        >>> Evaluation.from_losses([0.5, 1.5]).risk
        1.0
        """
        array = _floats(losses, "losses")
        allowed = "one finite number for each example"
        if array.ndim != 1 or array.size == 0:
            raise InvalidArgument("losses", allowed, f"an array of shape {array.shape}")
        risk = float(array.mean())
        if not np.isfinite(risk):
            raise InvalidArgument("losses", allowed, "an array with nan or infinity")
        return cls(array.size, risk, read_only(array))

    def risk_under(self, weights: ArrayLike) -> float:
        """Return the risk when example i counts ``weights[i]`` times.

        Parameters
        ----------
        weights : array-like of shape (n,)
            Non-negative weights, in any scale; they multiply the holdout's own weights.

        Returns
        -------
        float
            For integer weights the risk on rows repeated that often.

        Raises
        ------
        InvalidArgument
            If the weights are negative, all zero, not finite, or not n.
        """
        array = checked_weights(weights, self.n, "weights")
        if self.losses is None:
            return self._risk_under(array)
        # (w * l).sum() and not a dot product: BLAS libraries differ in the last bits
        # between machines, and a replay must not.
        total = float((array if self._row_weights is None else array * self._row_weights).sum())
        if total == 0:
            raise InvalidArgument("weights", "positive where the holdout's are", "zero there")
        return float((array * self.losses).sum()) / total

    def risks_under(self, weights: ArrayLike) -> FloatArray:
        """Return the risk under each of many weightings: `risk_under`, in bulk.

        The last digits may differ from `risk_under` and between machines.

        Parameters
        ----------
        weights : array-like of shape (b, n)
            A weighting in each row, as `risk_under` takes it. A few arrays of this size are
            held in memory meanwhile.

        Returns
        -------
        ndarray of shape (b,)
            nan where the metric has no value.

        Raises
        ------
        InvalidArgument
            If the weights are negative, not finite, or not b times n.

        Examples
        --------
        >>> evaluation = Evaluation.from_losses([0, 1, 0, 0])
        >>> evaluation.risks_under([[1, 2, 1, 0], [1, 1, 1, 1]]).tolist()
        [0.5, 0.25]
        """
        matrix = checked_matrix(weights, self.n)
        if self.losses is None:
            if self._many is not None:
                return self._many(matrix)
            return np.array([self._risk_under(row) for row in matrix], dtype=np.float64)
        totals = matrix.sum(axis=1) if self._row_weights is None else matrix @ self._row_weights
        risks = np.full(len(totals), np.nan)
        np.divide(matrix @ self.losses, totals, out=risks, where=totals > 0)
        return risks

    def influences(self) -> FloatArray | None:
        """Return what a little more weight of each example does to the risk.

        Returns
        -------
        ndarray of shape (n,) or None
            The influence function, of mean 0: under weights w the risk is about its value
            plus the weighted mean of these. None for metrics of which it is not known, and
            on holdouts with weights of their own.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> y, scores = np.array([0, 1, 1, 0]), np.array([0.1, 0.2, 0.8, 0.6])
        >>> get_metric("roc_auc").evaluate(y, scores).influences().tolist()
        [-0.5, 0.5, -0.5, 0.5]
        """
        return None if self._influences is None else self._influences()

    def with_inner_score(self, risk: float) -> Evaluation:
        """Return the same submission with its risk on the training rows beside it.

        Parameters
        ----------
        risk : float
            Finite, in the same unit.

        Returns
        -------
        Evaluation

        Raises
        ------
        InvalidArgument
            If the risk is not finite.

        Examples
        --------
        >>> Evaluation.from_losses([0, 1]).with_inner_score(0.25).inner_score
        0.25
        """
        return replace(self, inner_score=finite("risk", risk))

    def by(self, account: str) -> Evaluation:
        """Return the same submission with who submits it beside it.

        Parameters
        ----------
        account : str

        Returns
        -------
        Evaluation

        Examples
        --------
        >>> Evaluation.from_losses([0, 1]).by("Ada").account
        'Ada'
        """
        return replace(self, account=account)

    def shifted(self, amount: float) -> Evaluation:
        """Return the same submission with a risk, and losses, that are higher by an amount.

        Parameters
        ----------
        amount : float
            In the unit of the risk.

        Returns
        -------
        Evaluation

        Examples
        --------
        >>> Evaluation.from_losses([0, 1]).shifted(0.25).risk
        0.75
        """
        if self.losses is not None:
            row_weights = 1.0 if self._row_weights is None else self._row_weights
            losses = read_only(self.losses + amount * row_weights)
            return replace(self, risk=float(losses.mean()), losses=losses, _bounded=None)
        many = self._many
        return replace(
            self,
            risk=self.risk + amount,
            _function=lambda weights: amount + self._risk_under(weights),
            _many=None if many is None else lambda weights: amount + many(weights),
        )

    def scaled(self, factor: float) -> Evaluation:
        """Return the same submission with risk and losses times ``factor``.

        Parameters
        ----------
        factor : float
            A positive finite number; 1 returns this very object.

        Returns
        -------
        Evaluation

        Raises
        ------
        InvalidArgument
            If the factor is not positive and finite.

        Examples
        --------
        >>> Evaluation.from_losses([2, 4]).scaled(0.5).risk
        1.5
        """
        if inside("factor", factor, high=math.inf) == 1:
            return self
        inner_score = None if self.inner_score is None else self.inner_score * factor
        if self.losses is not None:
            losses = read_only(self.losses * factor)
            bounded = None if self._bounded is None else self._bounded * factor
            own = replace(self, losses=losses, _bounded=bounded)
            return replace(own, risk=float(losses.mean()), inner_score=inner_score)
        many = self._many

        def influences() -> FloatArray | None:
            unscaled = self.influences()
            return None if unscaled is None else factor * unscaled

        return replace(
            self,
            risk=self.risk * factor,
            _function=lambda weights: factor * self._risk_under(weights),
            _many=None if many is None else lambda weights: factor * many(weights),
            _influences=influences,
            inner_score=inner_score,
        )

    def _risk_under(self, weights: FloatArray) -> float:
        assert self._function is not None  # there are losses or a function
        return float(self._function(weights))
