"""The same secrets, searches and studies in each run: a test fails for a reason or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from unittest.mock import patch

import numpy as np
from optuna.samplers import NSGAIISampler, TPESampler

from tests.support.fixed_secrets import secrets_of


@contextmanager
def same_draws(name: str) -> Iterator[None]:
    """Fix the secrets by a name, the global generators, and the samplers that Optuna takes itself.

    These two are what a study has where it names none.
    """
    random.seed(0)
    np.random.seed(0)
    study, studies = (partialmethod(one.__init__, seed=0) for one in (TPESampler, NSGAIISampler))
    with (
        patch.object(TPESampler, "__init__", study),
        patch.object(NSGAIISampler, "__init__", studies),
        secrets_of(name),
    ):
        yield
