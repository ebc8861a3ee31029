"""One thread for PyTorch: on small models many of them wait for each other, and for others."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
