"""What of a ladder was told: a release to all, or a value to those who asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, func, select

from ladderholdout.ledger.chain import RESTORED, Head
from ladderholdout.ledger.links import Chains, has_link
from ladderholdout.ledger.looks import (
    Chosen,
    asked_looks,
    read_askings,
    read_chosen,
    read_improved,
    read_openings,
    read_restorings,
)
from ladderholdout.ledger.records import Entry, LadderRecord
from ladderholdout.ledger.replay import rules_of
from ladderholdout.ledger.tables import events, submissions


class Telling:
    """The part of a transaction that knows what may be shown, and what was."""

    _conn: Connection
    _chains: Chains

    def chosen(self, ladder: LadderRecord) -> Chosen | None:
        """Return what had been told of the holdout when a ladder's incumbent was chosen."""
        return read_chosen(self._conn, ladder.holdout_id, ladder.id, ladder.incumbent)

    def openings(self, holdout_id: int) -> tuple[int, ...]:
        """Return after which links of its chain an audit had shown raw scores of a holdout."""
        return read_openings(self._conn, holdout_id)

    def end(self, holdout_id: int) -> Head:
        """Return where the chain of a holdout ends inside this write."""
        return self._chains.end(holdout_id).head

    @property
    def linked(self) -> tuple[int, Head] | None:
        """The holdout and the last link that this transaction added to its chain, if any."""
        return self._chains.last

    def has_link(self, holdout_id: int, head: Head) -> bool:
        """Tell whether the chain of a holdout has this link."""
        return has_link(self._conn, holdout_id, head)

    def note_restored(self, holdout_id: int, length: int) -> None:
        """Note that an older copy of the ledger was put in place of one with so many links."""
        self._chains.note(holdout_id, f"{RESTORED} {length}")

    def restorings(self, holdout_id: int) -> tuple[tuple[int, int], ...]:
        """Return where older copies were found in place, and how many links there had been."""
        return read_restorings(self._conn, holdout_id)

    def opened_after(self, ladder_id: int) -> int | None:
        """Return how many submissions a ladder had when an audit opened it; None: none did.

        By the places in the chain, for clocks jump.
        """
        links = select(events.c.position).where(
            events.c.ladder_id == ladder_id, events.c.kind == "opened"
        )
        opened = self._conn.execute(links).scalar_one_or_none()
        if opened is None:
            return None
        before = select(func.count()).where(
            submissions.c.ladder_id == ladder_id, submissions.c.position < opened
        )
        return int(self._conn.execute(before).scalar_one())

    def asked(self, holdout_id: int) -> dict[tuple[int, int], int]:
        """Return which values of ladders that tell none were asked for, and when.

        Returns
        -------
        dict of (ladder id, number of the submission) to position in the holdout's chain
        """
        askings = read_askings(self._conn, holdout_id)
        return asked_looks(read_improved(self._conn, holdout_id), askings) if askings else {}

    def ask(self, ladder: LadderRecord) -> None:
        """Note that the standing score of a ladder is shown; the first time stands.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        """
        if ladder.incumbent is not None and self.standing(ladder) is None:
            self._chains.note(ladder.holdout_id, "asked", ladder.id)

    def standing(self, ladder: LadderRecord) -> float | None:
        """Return the standing risk as the analyst may see it.

        None before the first release, and where it is not told and was not asked for.
        """
        if ladder.incumbent is None:
            return None
        if _tells(ladder) or (ladder.id, ladder.incumbent) in self.asked(ladder.holdout_id):
            return float(ladder.state["standing"])
        return None

    def shown_risks(self, ladder: LadderRecord) -> frozenset[float] | None:
        """Return the released risks of a ladder that were asked for; None where all are told."""
        if _tells(ladder):
            return None
        asked = self.asked(ladder.holdout_id)
        improved = read_improved(self._conn, ladder.holdout_id) if asked else ()
        own = (one for one in improved if one.ladder_id == ladder.id)
        return frozenset(one.risk for one in own if (ladder.id, one.number) in asked)

    def improvements(self, ladder_id: int, number: int) -> int:
        """Count the submissions that had improved a ladder up to this one, repeats left out."""
        query = select(func.count()).where(
            submissions.c.ladder_id == ladder_id,
            submissions.c.number <= number,
            submissions.c.improved,
            submissions.c.repeat_of.is_(None),
        )
        return int(self._conn.execute(query).scalar_one())


def as_told(entries: Sequence[Entry], shown: frozenset[float] | None) -> tuple[Entry, ...]:
    """Take the released risks from entries where they are not among those that were shown.

    The values of a ladder fall, so that one which was shown belongs to one incumbent.
    """
    if shown is None:
        return tuple(entries)
    return tuple(one if one.risk in shown else replace(one, risk=None) for one in entries)


def _tells(ladder: LadderRecord) -> bool:
    """Tell whether all values of a ladder are known: told as they came, or opened by an audit."""
    return rules_of(ladder.settings).mechanism.tells_values or ladder.opened is not None
