"""One training run: what was released of its rounds, and how it fails inside a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ladderholdout.errors import LadderHoldoutError, SearchStopped
from ladderholdout.holdout.guard import Guard, bare
from ladderholdout.holdout.views import Release


@dataclass(slots=True, repr=False)
class Fit:
    """One training run: what was released of its rounds.

    It holds the guard, labels and all, so it never travels.
    """

    guard: Guard
    X: Any
    context: Mapping[str, Any]
    id: str = field(default_factory=lambda: uuid4().hex[:8])
    batch: str = field(default_factory=lambda: uuid4().hex)
    releases: list[Release] = field(default_factory=list)
    best_round: int = 0
    best_submission: int = 0
    stopped: bool = False
    # What was said and shown: that the budget is used up, and the rows in their order.
    said: bool = False
    shown: bool = False

    def take(self, release: Release) -> None:
        """Count one round.

        A later submission of the ledger that improved stands higher. Rounds that repeat one
        of the same fit, as trees without a split do, are therefore no improvement, and in a
        second fit of the same rounds they are none again.
        """
        self.releases.append(release)
        if release.improved and release.submission > self.best_submission:
            self.best_round, self.best_submission = len(self.releases), release.submission


class Loud:
    """Whatever fails in here ends a search of scikit-learn, which would score it as nan.

    Outside of searches errors stay what they are, without the frames below them.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from ladderholdout.integrations import rounds

        if not isinstance(error, Exception):
            return
        reason = f"A round has none ({type(error).__name__})."
        if isinstance(error, LadderHoldoutError):
            error, reason = bare(error), str(error)
        if rounds.searching():
            message = f"The guard cannot answer, so the search stops. {reason}"
            raise SearchStopped(message) from error
        if isinstance(error, LadderHoldoutError):
            raise error from None
