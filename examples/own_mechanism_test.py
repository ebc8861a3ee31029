# Install: pip install . pytest
"""The contract of the library's mechanisms, for a mechanism of your own.

It finds what breaks a replay, or changes a state in place. Name your mechanism in the fixture.

    python -m pytest examples/own_mechanism_test.py
"""

from __future__ import annotations

import pytest
from own_mechanism import RisingLadder

from ladderholdout.mechanisms import Mechanism
from ladderholdout.testing import MechanismContract


class TestRisingLadder(MechanismContract):
    @pytest.fixture
    def mechanism(self) -> Mechanism:
        return RisingLadder(step=0.02)
