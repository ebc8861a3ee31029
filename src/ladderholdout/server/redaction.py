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
from ladderholdout.guard import certificate, certify, commands, open_ladder, views
from ladderholdout.guard.open_ladder import STATED_BY, TRAINING_ROWS
from ladderholdout.leaderboard.commands import ClosedRound, OpenRound
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
    commands.Withdrawn,
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
        ladders, noted = status.ladders, status.overlaps
        noted = tuple(seen for seen in noted if seen.source.startswith(TRAINING_ROWS))
        if self.role == "analyst":  # who sees no note of another one
            ladders = ((status.account, status.ladder, status.submissions),)
            own = (TRAINING_ROWS, training_source(self.name))
            noted = tuple(seen for seen in noted if seen.source in own)
        return replace(
            status,
            ledger="",
            ladders=ladders,
            sharing=(),
            overlaps=noted,
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
