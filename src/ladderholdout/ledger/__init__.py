"""The durable record of all that happened to holdouts: events, and what they come to.

`events` has the kinds of events, `fold` what a holdout is after some of them, `log` reads and
writes them inside one transaction, and `store` opens transactions on a file (`sqlite`), on a
server (`postgres`) or in memory. `verify` finds what was changed.
"""

from ladderholdout.ledger.place import resolve_url, shown
from ladderholdout.ledger.store import Ledger, backup, holdout_names

__all__ = ["Ledger", "backup", "holdout_names", "resolve_url", "shown"]
