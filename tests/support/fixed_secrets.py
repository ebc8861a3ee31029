"""Fixed secrets of holdouts: what is drawn by a secret is the same in each run of a test."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch


def fixed_secrets(seed: str) -> Callable[[int], bytes]:
    """Return what draws the secrets of holdouts, of 32 bytes, and leaves all else as it is.

    Noise, reserves and corrected scores draw from them. What else is drawn depends on what was
    imported before.
    """
    drawn, real = random.Random(seed), os.urandom
    return lambda size: drawn.randbytes(size) if size == 32 else real(size)


@contextmanager
def secrets_of(name: str) -> Iterator[None]:
    """Fix the secrets that are drawn in this process, by a name and LADDERHOLDOUT_TEST_SEED."""
    seed = os.environ.get("LADDERHOLDOUT_TEST_SEED", "") + name
    with patch.object(os, "urandom", fixed_secrets(seed)):
        yield
