"""The blocks of rows that a holdout has had: each is a record, and their chains are tied together.

The newest block has the name of the holdout. Those before it are called ``name@1``, ``name@2`` and
so on from when fresh rows took their place. The registration of fresh rows, the first link of their
chain, covers where the chain before them ended; the last links of that one record that it was
retired and followed. So whoever takes a block away, or puts another one in, is found by `verify`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from ladderholdout.ledger.chain import FOLLOWED, SPENT_AT, Chains, refuse_retired
from ladderholdout.ledger.history import EventRecord, read_events
from ladderholdout.ledger.records import FORGOTTEN, Head, block_name, now, parted_name, read_all
from ladderholdout.ledger.tables import FAULTS, accounts, holdouts


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the rows of a holdout.

    Attributes
    ----------
    id : int
        Of its record.
    name : str
        That of the holdout for the newest block, else with its number, as ``coins@1``.
    number : int
        From 1.
    """

    id: int
    name: str
    number: int


class Blocks:
    """The blocks of holdouts inside one transaction; `Transaction.blocks` makes it.

    Parameters
    ----------
    conn : Connection
    chains : Chains
    """

    __slots__ = ("_chains", "_conn")

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn = conn
        self._chains = chains

    def up_to(self, name: str) -> tuple[Block, ...]:
        """Return the blocks of a holdout up to that of this name, oldest first.

        They are found by their names, so that one that is gone hides none of the others.
        """
        whole, last = parted_name(name)
        columns = (holdouts.c.id, holdouts.c.name)
        earlier = holdouts.c.name.startswith(f"{whole}@", autoescape=True)
        query = select(*columns).where((holdouts.c.name == whole) | earlier)
        blocks, newest = [], None
        for row in self._conn.execute(query):
            base, number = parted_name(str(row.name))
            if base != whole:
                continue
            if number is None:
                newest = row
            elif last is None or number <= last:
                blocks.append(Block(row.id, row.name, number))
        blocks.sort(key=lambda block: block.number)
        if newest is not None and last is None:
            number = blocks[-1].number + 1 if blocks else 1
            blocks.append(Block(newest.id, newest.name, number))
        return tuple(blocks)

    def newest(self, holdout_id: int) -> str:
        """Return the name of a holdout by its newest block, which is locked from here on.

        Raises
        ------
        HoldoutConflict
            This is an earlier block, or was forgotten.
        """
        end = self._chains.end(holdout_id)
        if parted_name(end.name)[1] is not None or FORGOTTEN in end.name:
            refuse_retired(end.name, end.retired or now())
        return end.name

    def pass_on(self, holdout_id: int) -> tuple[int, dict[str, Any]]:
        """End the newest block of a holdout, whose name is free then.

        Returns
        -------
        block : int
            The number of the next one.
        after : dict
            What the registration of the fresh rows has to cover.
        """
        name, end = self.newest(holdout_id), self._chains.end(holdout_id)
        of_record = select(holdouts.c.block).where(holdouts.c.id == holdout_id)
        number = int(self._conn.execute(of_record).scalar_one())
        of_block = update(holdouts).where(holdouts.c.id == holdout_id)
        if end.retired is None:
            end.retired = now()
            self._conn.execute(of_block.values(retired=end.retired))
            self._chains.note(holdout_id, "retired")
        end.name = block_name(name, number)
        self._conn.execute(of_block.values(name=end.name))
        self._chains.note(holdout_id, FOLLOWED, detail={"block": number + 1})
        return number + 1, {"after": holdout_id, "head": str(end.head)}

    def hand_over(self, holdout_id: int, to: int, ladder_ids: Mapping[int, int]) -> None:
        """Let the accounts of a server go on with the ladders of the next block."""
        of_block = accounts.c.holdout_id == holdout_id
        for before, after in ladder_ids.items():
            moved = update(accounts).where(of_block, accounts.c.ladder_id == before)
            self._conn.execute(moved.values(ladder_id=after))
        self._conn.execute(update(accounts).where(of_block).values(holdout_id=to))

    def note_spent_at(self, holdout_id: int, widths: Mapping[str, float | None]) -> None:
        """Note by metric from which width on rows are used up; None takes a rule back."""
        self._chains.note(holdout_id, SPENT_AT, detail={"widths": dict(widths)})

    def findings(self, holdout_id: int) -> Iterator[str]:
        """Yield what is wrong with the place of a record among the blocks of its holdout."""
        columns = holdouts.c.name, holdouts.c.block
        row = self._conn.execute(select(*columns).where(holdouts.c.id == holdout_id)).one()
        whole, named = parted_name(row.name)
        number = int(row.block)
        if named not in (None, number):
            yield f"its name was changed: it is block {number} of {whole!r}"
        if number > 1:
            yield from self._before(whole, number, self._registered(holdout_id))
        followed = bool(read_events(self._conn, holdout_id, FOLLOWED))
        if followed != (named is not None):
            yield "its name was changed: " + (
                "fresh rows took its place" if followed else "no fresh rows took its place"
            )
        if followed and not self._is_followed(holdout_id, whole, number):
            yield f"block {number + 1} of {whole!r}, which took its place, was removed"

    def _before(self, whole: str, number: int, registered: Mapping[str, Any]) -> Iterator[str]:
        """Compare the block before with where its chain ended when fresh rows came."""
        before = self._id_of(block_name(whole, number - 1))
        if before is None or before != registered.get("after"):
            yield f"block {number - 1} of {whole!r} was removed"
            return
        length, _, digest = str(registered.get("head")).partition(":")
        if not (length.isdecimal() and self._chains.has(before, Head(int(length), digest))):
            yield f"block {number - 1} of {whole!r} has lost the end that its chain had"

    def _is_followed(self, holdout_id: int, whole: str, number: int) -> bool:
        """Return whether the next block is there, and registered after this one."""
        for name in (whole, block_name(whole, number + 1)):
            following = self._id_of(name)
            if following is not None and self._registered(following).get("after") == holdout_id:
                return True
        return False

    def _id_of(self, name: str) -> int | None:
        query = select(holdouts.c.id).where(holdouts.c.name == name)
        return self._conn.execute(query).scalar_one_or_none()

    def _registered(self, holdout_id: int) -> dict[str, Any]:
        """Return after which block, and which end of its chain, some rows were registered."""
        events = read_events(self._conn, holdout_id, "holdout")
        if not events or events[0].detail is None:
            return {}
        try:
            return dict(json.loads(events[0].detail))
        except FAULTS:  # the chain records it
            return {}


def spent_at(noted: Iterable[EventRecord]) -> dict[str, float]:
    """Return by metric from which width on the owner takes rows for used up, by what is noted.

    `noted` are the events of the kind `SPENT_AT` of a block, oldest first.
    """
    stated = read_all(noted, lambda event: json.loads(event.detail or "")["widths"].items())
    widths = dict(pair for pairs in stated for pair in pairs)
    return {metric: float(width) for metric, width in widths.items() if width is not None}
