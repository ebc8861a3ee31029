"""From what was released to the limits of a score, by transcript, reserve or estimate."""

from __future__ import annotations

from ladderholdout.guard.certify.certification import certificate_or_why, shown_beside
from ladderholdout.guard.certify.comparing import Compared, compared, number_of
from ladderholdout.guard.certify.estimation import estimate
from ladderholdout.guard.certify.finals import finals_of, finals_on_record
from ladderholdout.guard.certify.reserve import certify
from ladderholdout.guard.certify.score_intervals import certificate

__all__ = [
    "Compared",
    "certificate",
    "certificate_or_why",
    "certify",
    "compared",
    "estimate",
    "finals_of",
    "finals_on_record",
    "number_of",
    "shown_beside",
]
