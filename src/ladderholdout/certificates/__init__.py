"""Certificates: what may be believed after any adaptive search. Pure functions.

Risks here are means of losses in [0, 1]; other ranges are scaled before.

>>> from ladderholdout.certificates import Transcript, certify
>>> certificate = certify(0.05, 5000, Transcript(before=0, place=144, ladders=()))
>>> round(certificate.low, 3), round(certificate.high, 3)
(0.037, 0.066)
"""

from __future__ import annotations

from ladderholdout.certificates.codes import (
    LadderTranscript,
    event_length,
    place_length,
    worst_log_count,
)
from ladderholdout.certificates.comparisons import (
    Difference,
    certify_difference,
    difference_limits,
)
from ladderholdout.certificates.finals import (
    FinalsEvidence,
    FinalsShown,
    interval_price,
    sign_evidence,
    upper_triangle,
)
from ladderholdout.certificates.metric_limits import (
    NO_RANGES,
    Bound,
    Rows,
    bound_of,
    score_limits,
)
from ladderholdout.certificates.reserve_intervals import (
    DRAWN_LEVEL,
    RESERVE_LABELS,
    ReserveGrid,
    bayesian_bootstrap,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.certificates.score_intervals import (
    ScoreInterval,
    assumptions_of,
    certify_score,
    clipping_of,
    shown_limits,
)
from ladderholdout.certificates.transcript import (
    COUNT_NOISE,
    Certificate,
    Grid,
    Request,
    Transcript,
    certify,
    grid_of,
    highest_release,
    ladder_transcript,
    later_price,
)
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.limits.trinomial import paired_limits

__all__ = [
    "COUNT_NOISE",
    "DRAWN_LEVEL",
    "NO_RANGES",
    "RESERVE_LABELS",
    "Bound",
    "Certificate",
    "Difference",
    "FinalsEvidence",
    "FinalsShown",
    "Grid",
    "LadderTranscript",
    "Limits",
    "Request",
    "ReserveGrid",
    "Rows",
    "ScoreInterval",
    "Transcript",
    "assumptions_of",
    "bayesian_bootstrap",
    "bound_of",
    "certify",
    "certify_difference",
    "certify_score",
    "clipping_of",
    "difference_limits",
    "drawn_interval",
    "event_length",
    "exact_lower",
    "exact_upper",
    "grid_of",
    "highest_release",
    "interval_price",
    "ladder_transcript",
    "later_price",
    "paired_limits",
    "place_length",
    "reserve_assumptions",
    "reserve_interval",
    "reserve_log_count",
    "score_limits",
    "shown_limits",
    "sign_evidence",
    "upper_triangle",
    "worst_log_count",
]
