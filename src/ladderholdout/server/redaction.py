"""Redaction by role: the only way by which an answer leaves a server.

Whatever an answer shows depends on labels through releases, certificates and corrected scores
alone. What is taken out here is who else there is, and on which holdouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from ladderholdout import leaderboard
from ladderholdout.guard import certificate, certify, commands, open_ladder, views, withdrawal
from ladderholdout.guard.open_ladder import STATED_BY, TRAINING_ROWS
from ladderholdout.leaderboard.commands import ClosedRound, OpenRound
from ladderholdout.ledger.fold import Overlap
from ladderholdout.server import accounts

# Answers that name nobody but their account, or what its role is there for.
AS_THEY_ARE = (
    accounts.Account,
    commands.Description,
    commands.Page,
    certificate.Comparison,
    views.Decision,
    views.Release,
    open_ladder.State,
    withdrawal.Withdrawn,
    leaderboard.Collected,
    leaderboard.Finals,
    leaderboard.Standings,
    ClosedRound,
    OpenRound,
    datetime,
    float,
    type(None),
)


@dataclass(frozen=True)
class Reader:
    """Somebody who is shown an answer.

    Attributes
    ----------
    role : str
    name : str
        Of the account.
    find_hidden : callable
        Return the names of other holdouts that share rows, which no account of this one may learn.
    """

    role: str
    name: str
    find_hidden: Callable[[], Sequence[str]]

    @cached_property
    def hidden(self) -> Sequence[str]:
        """The names of other holdouts."""
        return self.find_hidden()

    def shown(self, answer: Any) -> Any:
        """Return an answer as the role may see it.

        Raises
        ------
        TypeError
            The answer is of a kind for which nothing states what may be seen of it.
        """
        match answer:
            case views.Status():
                return self._status(answer)
            case certificate.ScoreCertificate():
                missing = self._cleaned(answer.missing)
                return replace(certify.without_others(answer), missing=missing)
            case views.Estimate():
                return replace(answer, reason=self._cleaned(answer.reason))
            case certificate.Health():
                return replace(answer, reason=self._cleaned(answer.reason) or "")
            case tuple():
                return tuple(map(self.shown, answer))
            case np.ndarray():  # places and hashes
                return answer
        if not isinstance(answer, AS_THEY_ARE):
            raise TypeError(f"no rule states what may be seen of {type(answer).__name__}")
        return answer

    def _status(self, status: views.Status) -> views.Status:
        ladders, reader = status.ladders, None
        if self.role == "analyst":
            ladders, reader = ((status.account, status.ladder, status.submissions),), self.name
        return replace(
            status,
            ledger="",
            ladders=ladders,
            sharing=(),
            overlaps=of_training(status.overlaps, reader),
            certificate=self.shown(status.certificate),
            estimate=self.shown(status.estimate),
        )

    def _cleaned(self, text: str | None) -> str | None:
        for name in self.hidden if text else ():
            text = text and text.replace(f"the holdout {name!r}", "another holdout")
        return text


def training_source(holder: str) -> str:
    """Return the source of an account's note that rows of the holdout are its training rows."""
    return TRAINING_ROWS + STATED_BY + holder


def of_training(overlaps: Sequence[Overlap], reader: str | None) -> tuple[Overlap, ...]:
    """Return what was noted of training rows; an analyst sees no note of another one."""
    own = training_source(reader or "")
    known = (seen for seen in overlaps if seen.source.startswith(TRAINING_ROWS))
    return tuple(seen for seen in known if reader is None or seen.source in (TRAINING_ROWS, own))
