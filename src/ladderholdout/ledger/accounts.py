"""Accounts of a server in a ledger: roles, hashes of tokens, limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from ladderholdout.ledger.prepared import Prepared
from ladderholdout.ledger.records import LadderRecord, now, parted_name, read_all, utc
from ladderholdout.ledger.tables import accounts, ended_sessions, holdouts, ladders, submissions

_ACCOUNTS = select(accounts, holdouts.c.name.label("holdout")).join(holdouts)
# Every request to a server asks for it.
_BY_KEY = Prepared(_ACCOUNTS.where(accounts.c.token_key == bindparam("key")))


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """Who may query one holdout through a server.

    Attributes
    ----------
    id, holdout_id : int
    holdout, name : str
        Names of the holdout and of the account.
    role : str
    ladder_id : int or None
        The ladder that it queries; None for roles that submit nothing.
    token_hash : str
        SHA-256 of the token, which nobody keeps.
    per_day : int or None
        Submissions a day, in UTC.
    created : datetime
    expires, revoked : datetime or None
    """

    id: int
    holdout_id: int
    holdout: str
    name: str
    role: str
    ladder_id: int | None
    token_hash: str = field(repr=False)
    per_day: int | None
    created: datetime
    expires: datetime | None
    revoked: datetime | None

    def is_valid(self) -> bool:
        """Return whether its token is neither revoked nor expired now."""
        return self.revoked is None and (self.expires is None or now() < self.expires)


class Accounts:
    """The accounts inside one transaction; `Transaction.accounts` makes it.

    Parameters
    ----------
    conn : Connection
    """

    __slots__ = ("_conn",)

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def add(self, holdout_id: int, values: dict[str, Any]) -> None:
        """Add an account: name, role, ladder_id, token_key, token_hash, per_day, expires."""
        row = {**values, "holdout_id": holdout_id, "created": now()}
        self._conn.execute(insert(accounts).values(row))

    def all(self, holdout_id: int | None = None) -> tuple[AccountRecord, ...]:
        """Return the accounts on a holdout, or on all of them, oldest first."""
        return self._where(*([] if holdout_id is None else [accounts.c.holdout_id == holdout_id]))

    def named(self, holdout_id: int, name: str) -> AccountRecord | None:
        """Return the account of a name on a holdout."""
        named = self._where(accounts.c.holdout_id == holdout_id, accounts.c.name == name)
        return named[0] if named else None

    def by_key(self, token_key: str) -> AccountRecord | None:
        """Return the account whose token has this key."""
        records = read_all(_BY_KEY.rows(self._conn, {"key": token_key}), _account)
        return records[0] if records else None

    def of_ids(self, ids: Collection[int]) -> tuple[AccountRecord, ...]:
        """Return those of the accounts with these ids that exist."""
        return self._where(accounts.c.id.in_(ids))

    def change(self, account_id: int, values: dict[str, Any]) -> None:
        """Change the token of an account, the time when it ends, or the submissions a day."""
        self._conn.execute(update(accounts).where(accounts.c.id == account_id).values(values))

    def has_made(self, ladder: LadderRecord, count: int, since: datetime) -> bool:
        """Return whether a ladder has had so many submissions since a moment, repeats included.

        Fresh rows that came since do not begin the count anew.
        """
        count -= self._on_earlier_blocks(ladder, since)
        if count <= 0:
            return True
        entry, number = submissions.c, ladder.submissions - count + 1
        query = select(entry.time).where(entry.ladder_id == ladder.id, entry.number == number)
        time = self._conn.execute(query).scalar_one_or_none()
        return time is not None and utc(time) >= since

    def _on_earlier_blocks(self, ladder: LadderRecord, since: datetime) -> int:
        """Count the submissions since a moment to this ladder on blocks that ended after it."""
        of_holdout = select(holdouts.c.name).where(holdouts.c.id == ladder.holdout_id)
        whole, _ = parted_name(self._conn.execute(of_holdout).scalar_one())
        ended = select(holdouts.c.id, holdouts.c.name).where(
            holdouts.c.name.startswith(f"{whole}@", autoescape=True), holdouts.c.retired >= since
        )
        # Another holdout may be called "coins@home".
        rows = self._conn.execute(ended)
        blocks = [row.id for row in rows if parted_name(row.name)[0] == whole]
        if not blocks:
            return 0
        query = (
            select(func.count())
            .select_from(submissions.join(ladders))
            .where(
                ladders.c.holdout_id.in_(blocks),
                ladders.c.account == ladder.settings.account,
                ladders.c.name == ladder.settings.name,
                submissions.c.time >= since,
            )
        )
        return int(self._conn.execute(query).scalar_one())

    def end_session(self, digest: str, until: datetime) -> None:
        """Keep that a session was ended, until its cookie ends; forget sessions that are past."""
        self._conn.execute(delete(ended_sessions).where(ended_sessions.c.until < now()))
        if not self.has_ended(digest):
            self._conn.execute(insert(ended_sessions).values(digest=digest, until=until))

    def has_ended(self, digest: str) -> bool:
        """Return whether a session was ended."""
        query = select(ended_sessions.c.until).where(ended_sessions.c.digest == digest)
        return self._conn.execute(query).first() is not None

    def _where(self, *conditions: Any) -> tuple[AccountRecord, ...]:
        query = _ACCOUNTS.where(*conditions).order_by(accounts.c.id)
        return read_all(self._conn.execute(query), _account)


def _account(row: Row[Any]) -> AccountRecord:
    return AccountRecord(
        id=row.id,
        holdout_id=row.holdout_id,
        holdout=row.holdout,
        name=row.name,
        role=row.role,
        ladder_id=row.ladder_id,
        token_hash=row.token_hash,
        per_day=row.per_day,
        created=utc(row.created),
        expires=row.expires and utc(row.expires),
        revoked=row.revoked and utc(row.revoked),
    )
