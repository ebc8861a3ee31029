"""The promises of every mechanism, as a class of tests.

It needs pytest. Derive a class from it, in a test file of your own, and state in a fixture what is
to be tested; `docs/background/own_mechanism.md` shows it.
"""

from __future__ import annotations

from ladderholdout.testing.mechanisms import MechanismContract

__all__ = ["MechanismContract"]
