"""The withdrawals of submissions, inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from ladderholdout.ledger.chain import GROUPED, WITHDRAWN, Chains, refuse_retired
from ladderholdout.ledger.history import EventRecord, read_withdrawal
from ladderholdout.ledger.records import LadderRecord, Withdrawal, now, read_all
from ladderholdout.ledger.replay import rules_of
from ladderholdout.ledger.tables import events, incumbents, ladders, read_json


class Withdrawals:
    """The withdrawals of ladders; `Transaction.withdrawals` makes it.

    Parameters
    ----------
    conn : Connection
    chains : Chains
    """

    __slots__ = ("_chains", "_conn")

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn, self._chains = conn, chains

    def of(self, ladder: LadderRecord) -> tuple[Withdrawal, ...]:
        """Return the withdrawals of a ladder, oldest first."""
        return self.noted(ladder.id) if ladder.withdrawals else ()

    def noted(self, ladder_id: int) -> tuple[Withdrawal, ...]:
        """Return the withdrawals that events record, whatever the ladder counts, for `verify`."""
        query = (
            select(events.c.detail, events.c.position)
            .where(events.c.ladder_id == ladder_id, events.c.kind == WITHDRAWN)
            .order_by(events.c.position)
        )
        return tuple(read_withdrawal(row) for row in self._conn.execute(query))

    def reasons(self, ladder: LadderRecord) -> dict[int, str]:
        """Return why submissions were withdrawn, by their numbers."""
        return {withdrawal.number: withdrawal.reason for withdrawal in self.of(ladder)}

    def add(self, ladder: LadderRecord, number: int, reason: str, n: int) -> Withdrawal:
        """Withdraw a submission that is no repeat; where it is the incumbent, the ladder goes back.

        Nothing is removed: the submission and its release stay in the ledger, and count in every
        certificate. What changes is the incumbent.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        number : int
            The submission's, which was not withdrawn before.
        reason : str
        n : int
            How many rows the ladder measures.

        Raises
        ------
        HoldoutConflict
            The holdout was retired.
        """
        end = self._chains.end(ladder.holdout_id)
        refuse_retired(end.name, end.retired)
        rules = rules_of(ladder.settings)
        of_ladder = incumbents.c.ladder_id == ladder.id
        self._conn.execute(delete(incumbents).where(of_ladder, incumbents.c.number == number))
        changes: dict[str, Any] = {"withdrawals": ladder.withdrawals + 1}
        replaced, back = ladder.incumbent == number, None
        if replaced:
            # What was spent stays spent, and a threshold keeps its noise.
            risk = rules.start(n).standing
            columns = (incumbents.c.number, incumbents.c.state)
            last = select(*columns).where(of_ladder).order_by(incumbents.c.number.desc())
            earlier = self._conn.execute(last.limit(1)).one_or_none()
            if earlier is not None:
                back, risk = earlier.number, json.loads(earlier.state)["standing"]
            changes["incumbent"] = back
            changes["state"] = json.dumps({**ladder.state, "standing": risk})
            changes["version"] = ladder.version + 1
        self._conn.execute(update(ladders).where(ladders.c.id == ladder.id).values(changes))
        detail = {
            "number": number,
            "reason": reason,
            "time": now().isoformat(),
            "until": ladder.submissions,
            "replaced": replaced,
            "incumbent": back,
            # Noise that is drawn anew for the same predictions could be averaged away.
            "again": not (rules.mechanism.noisy or rules.mechanism.redraws),
        }
        self._chains.note(ladder.holdout_id, WITHDRAWN, ladder.id, detail)
        return self.noted(ladder.id)[-1]

    @staticmethod
    def notes(noted: Sequence[EventRecord], *, withdrawn: bool) -> tuple[str, ...]:
        """Return the signs of groups in such events, with or without those that were withdrawn."""
        read = read_all(noted, lambda event: read_json(event.detail or ""))
        gone = () if withdrawn else {note["by"] for note in read if "withdrawn" in note}
        return tuple(dict.fromkeys(str(note["by"]) for note in read if note["by"] not in gone))

    def add_note(self, holdout_id: int, by: str, reason: str | None) -> None:
        """Withdraw a sign of groups: nobody can note it again."""
        self._chains.note(holdout_id, GROUPED, detail={"by": by, "withdrawn": reason})
