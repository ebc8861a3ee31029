"""What a ledger holds, as frozen records.

Two views of a submission: `Entry` is what the analyst may see, `AuditEntry` adds what
only an audit and a replay may. The store reads the raw columns for the second alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HoldoutRecord:
    """A registered holdout, without its rows.

    Attributes
    ----------
    id, name : int, str
    fingerprint : str
        64 hex characters over the rows' features; labels never enter it.
    content_digest, secret : bytes
        The keyed digest of rows and labels, and its key (which also seeds the noise).
    n : int
        Number of rows.
    classes : ndarray or None
        All class labels, sorted; None where no metric has needed them.
    vault_path, vault_digest : str or None
        The private file and its SHA-256; None where no copy of the rows is kept.
    created : datetime
    retired : datetime or None
        Since when it takes no submissions.
    reserve : ndarray of bool, shape (n,), or None
        Which rows no ladder measures, in the order of the content.
    """

    id: int
    name: str
    fingerprint: str
    content_digest: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    n: int
    classes: NDArray[Any] | None = field(repr=False, compare=False)
    vault_path: str | None
    vault_digest: str | None
    created: datetime
    retired: datetime | None
    reserve: NDArray[np.bool_] | None = field(repr=False, compare=False)

    @property
    def n_reserve(self) -> int:
        """Number of rows that no ladder measures."""
        return 0 if self.reserve is None else int(self.reserve.sum())

    @property
    def n_ladder(self) -> int:
        """Number of rows that the ladders measure."""
        return self.n - self.n_reserve


@dataclass(frozen=True, slots=True)
class LadderSettings:
    """What identifies a ladder on its holdout, and the rules it follows for good.

    Attributes
    ----------
    account, name : str
    metric : str
    metric_settings : Mapping
        What makes a metric of that name this one (a stated range of the loss).
    mechanism : str
    mechanism_settings : Mapping
    budget : int or None
        Releases allowed in all.
    unit : float or None
        Width of the loss range, by which risks are divided; None: adapted to the risk.
    """

    account: str
    name: str
    metric: str
    metric_settings: Mapping[str, Any]
    mechanism: str
    mechanism_settings: Mapping[str, Any]
    budget: int | None
    unit: float | None


@dataclass(frozen=True, slots=True)
class LadderRecord:
    """A ladder with where it stands.

    Attributes
    ----------
    id, holdout_id : int
    settings : LadderSettings
    created : datetime
    opened : datetime or None
        When an audit showed its raw scores.
    submissions : int
        Entries, repeats included.
    state : Mapping
        The mechanism's state in numbers (standing risk, noise, releases).
    version : int
        How many incumbents there have been.
    incumbent : int or None
        The number of the incumbent's submission.
    """

    id: int
    holdout_id: int
    settings: LadderSettings
    created: datetime
    opened: datetime | None
    submissions: int
    state: Mapping[str, Any] = field(repr=False)
    version: int
    incumbent: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One submission as the analyst may see it.

    `risk` is the released one; None where the ladder tells no values and it was not asked for.
    """

    number: int
    time: datetime
    account: str
    batch: str | None
    search: str | None
    digest: str
    risk: float | None
    improved: bool
    repeat_of: int | None
    disagreement: float | None
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One submission with what only an audit or a replay may see."""

    entry: Entry
    raw_risk: float
    evidence: Mapping[str, Any]
    reserve_digest: str | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of a holdout that were seen elsewhere: in another holdout or in training."""

    source: str
    rows: int
    time: datetime
