"""Contract suites: the promises of every ledger and every mechanism, as classes of tests.

They need pytest. Derive a class from one of them, in a test file of your own, and state in a
fixture what is to be tested; `docs/background/own_mechanism.md` shows both.
"""

from __future__ import annotations

from ladderholdout.testing.ledgers import LedgerContract
from ladderholdout.testing.mechanisms import MechanismContract

__all__ = ["LedgerContract", "MechanismContract"]
