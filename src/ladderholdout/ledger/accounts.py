"""Accounts of a server in a ledger: roles, hashes of tokens, limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from ladderholdout.ledger.prepared import Prepared
from ladderholdout.ledger.records import LadderRecord, now, read_all, utc
from ladderholdout.ledger.tables import accounts, ended_sessions, holdouts, submissions

_ACCOUNTS = select(accounts, holdouts.c.name.label("holdout")).join(holdouts)
# Every request asks for this one.
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
        """Return the accounts on a holdout, or on every one, oldest first."""
        return self._found(*([] if holdout_id is None else [accounts.c.holdout_id == holdout_id]))

    def named(self, holdout_id: int, name: str) -> AccountRecord | None:
        """Return the account of a name on a holdout."""
        found = self._found(accounts.c.holdout_id == holdout_id, accounts.c.name == name)
        return found[0] if found else None

    def by_key(self, token_key: str) -> AccountRecord | None:
        """Return the account whose token has this key."""
        found = read_all(_BY_KEY.rows(self._conn, {"key": token_key}), _account)
        return found[0] if found else None

    def of_ids(self, ids: Collection[int]) -> tuple[AccountRecord, ...]:
        """Return the accounts with these numbers, those that there are."""
        return self._found(accounts.c.id.in_(ids))

    def change(self, account_id: int, values: dict[str, Any]) -> None:
        """Change the token of an account, when that ends, or its submissions a day."""
        self._conn.execute(update(accounts).where(accounts.c.id == account_id).values(values))

    def has_made(self, ladder: LadderRecord, count: int, since: datetime) -> bool:
        """Return whether a ladder has had so many submissions since a moment, repeats included."""
        entry, number = submissions.c, ladder.submissions - count + 1
        query = select(entry.time).where(entry.ladder_id == ladder.id, entry.number == number)
        time = self._conn.execute(query).scalar_one_or_none()
        return time is not None and utc(time) >= since

    def end_session(self, digest: str, until: datetime) -> None:
        """Keep that a session was ended, until its cookie ends; forget those that are past."""
        self._conn.execute(delete(ended_sessions).where(ended_sessions.c.until < now()))
        if not self.has_ended(digest):
            self._conn.execute(insert(ended_sessions).values(digest=digest, until=until))

    def has_ended(self, digest: str) -> bool:
        """Return whether a session was ended."""
        query = select(ended_sessions.c.until).where(ended_sessions.c.digest == digest)
        return self._conn.execute(query).first() is not None

    def _found(self, *where: Any) -> tuple[AccountRecord, ...]:
        query = _ACCOUNTS.where(*where).order_by(accounts.c.id)
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
