"""Identity of rows: what makes a holdout the same holdout, whatever it is kept in.

`hashing` gives each row one 64-bit hash of its features, `matching` finds rows again by these
hashes, `labels` has what rows are known by where their features changed, `spelling` what a text
names, and `copies` what is held and handed out.
"""

from __future__ import annotations

from ladderholdout.identity.hashing import row_hashes

__all__ = ["row_hashes"]
