"""Certificates: what may be believed after any adaptive search. Pure functions.

Risks here are means of losses in [0, 1]; other ranges are scaled before.

>>> from ladderholdout.certificates import Transcript, certify
>>> certificate = certify(0.05, 5000, Transcript(before=0, place=144, ladders=()))
>>> round(certificate.low, 3), round(certificate.high, 3)
(0.037, 0.066)
"""

from __future__ import annotations

from ladderholdout.certificates.betting import Limits, mean_limits, mean_lower
from ladderholdout.certificates.class_averages import (
    class_mean_limits,
    f1_limits,
    fbeta_limits,
    mean_of,
    share_limits,
    weighted_by_shares,
)
from ladderholdout.certificates.codes import (
    LadderTranscript,
    event_length,
    falls_length,
    flags_length,
    mixed,
    place_length,
    repeats_length,
    steady_length,
    worst_log_count,
)
from ladderholdout.certificates.intervals import (
    bounded_lower,
    bounded_upper,
    exact_lower,
    exact_upper,
    kl_lower,
    kl_upper,
    weighted_lower,
    weighted_upper,
)
from ladderholdout.certificates.matchings import (
    auc_limits,
    kappa_limits,
    matthews_limits,
    pair_limits,
)
from ladderholdout.certificates.metric_limits import (
    NO_RANGES,
    Bound,
    Rows,
    ScoreInterval,
    assumptions_of,
    bound_of,
    certify_score,
    score_limits,
)
from ladderholdout.certificates.regression_limits import (
    concordance_limits,
    median_limits,
    r2_limits,
    ratio_limits,
)
from ladderholdout.certificates.reserve_intervals import (
    ReserveGrid,
    bayesian_bootstrap,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.certificates.transcript import (
    Certificate,
    Grid,
    Transcript,
    certify,
    grid_of,
    ladder_transcript,
    later_price,
)

__all__ = [
    "NO_RANGES",
    "Bound",
    "Certificate",
    "Grid",
    "LadderTranscript",
    "Limits",
    "ReserveGrid",
    "Rows",
    "ScoreInterval",
    "Transcript",
    "assumptions_of",
    "auc_limits",
    "bayesian_bootstrap",
    "bound_of",
    "bounded_lower",
    "bounded_upper",
    "certify",
    "certify_score",
    "class_mean_limits",
    "concordance_limits",
    "drawn_interval",
    "event_length",
    "exact_lower",
    "exact_upper",
    "f1_limits",
    "falls_length",
    "fbeta_limits",
    "flags_length",
    "grid_of",
    "kappa_limits",
    "kl_lower",
    "kl_upper",
    "ladder_transcript",
    "later_price",
    "matthews_limits",
    "mean_limits",
    "mean_lower",
    "mean_of",
    "median_limits",
    "mixed",
    "pair_limits",
    "place_length",
    "r2_limits",
    "ratio_limits",
    "repeats_length",
    "reserve_assumptions",
    "reserve_interval",
    "reserve_log_count",
    "score_limits",
    "share_limits",
    "steady_length",
    "weighted_by_shares",
    "weighted_lower",
    "weighted_upper",
    "worst_log_count",
]
