"""What a transaction means to do, and which of its faults pass when it is tried again."""

from __future__ import annotations

from enum import Enum, auto

from ladderholdout.errors import LedgerBusy, LedgerUnreachable


class Access(Enum):
    """What a transaction means to do; a file has one writer, whichever it is."""

    READ = auto()
    """See one state of the ledger; block nobody."""
    LADDER = auto()
    """Write to one holdout, whose row it locks: others go on with other holdouts."""
    ALL = auto()
    """Be alone in writing: whatever is looked for is there or not there until the end."""


class Undone(LedgerBusy):
    """The server undid a transaction in favour of another one."""


PASSING = (LedgerUnreachable, Undone)
"""What may go well when it is tried again."""
