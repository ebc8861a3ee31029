"""Figures S12 and S13: how the releases of LadderBoot scatter around one prediction's error."""

from __future__ import annotations

import numpy as np
from _neto_data import Floats
from _neto_ladders import BOOTSTRAPS

# Draws of this many counts are held in memory at a time.
CHUNK = 2000


def releases(losses: Floats, b: int, count: int, rng: np.random.Generator) -> Floats:
    """Draw means over b bootstrap replications: each is the mean of b n draws."""
    n = len(losses)
    parts = [
        rng.multinomial(b * n, np.full(n, 1 / n), size=min(CHUNK, count - start)) @ losses
        for start in range(0, count, CHUNK)
    ]
    return np.asarray(np.concatenate(parts) / (b * n))


def all_releases(losses: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return releases (3, count), for each of the bootstrap sizes."""
    return np.array([releases(losses, b, count, rng) for b in BOOTSTRAPS])
