"""Certificates: what may be believed after any adaptive search. Pure functions.

Risks here are means of losses in [0, 1]; other ranges are scaled before.

>>> from ladderholdout.certificates import Transcript, certify
>>> certificate = certify(0.05, 5000, Transcript(before=0, place=144, ladders=()))
>>> round(certificate.low, 3), round(certificate.high, 3)
(0.037, 0.066)
"""

from __future__ import annotations

from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.comparisons import certify_difference
from ladderholdout.certificates.metric_limits import Bound, Rows, bound_of, score_limits
from ladderholdout.certificates.score_intervals import certify_score
from ladderholdout.certificates.transcript import (
    Transcript,
    certify,
    grid_of,
    ladder_transcript,
)

__all__ = [
    "Bound",
    "LadderTranscript",
    "Rows",
    "Transcript",
    "bound_of",
    "certify",
    "certify_difference",
    "certify_score",
    "grid_of",
    "ladder_transcript",
    "score_limits",
]
