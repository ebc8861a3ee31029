"""Who uses the pages: sessions in cookies, tokens of forms, and a ledger's owner at home.

The cookie of a server names accounts, and has the token of each, masked by HMAC-SHA-512 of a
random name of the session under the hash of the token, which the ledger alone holds. So the cookie
without the ledger shows no token, the ledger without the cookie makes no session, and a token that
is revoked or rotated ends its sessions at once, in every process. Nothing is stored for a session
but that somebody ended it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from ladderholdout.ledger.log import now
from ladderholdout.ledger.place import Access
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.server.accounts import AccountRecord, by_key, is_token_of
from ladderholdout.server.views import AccountHolder, LedgerOwner, Person, Served

LIFE = 12 * 60 * 60
"""Seconds that a session lasts."""

_MOST_ACCOUNTS = 16
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")
_ENTRY = re.compile(r"([0-9a-f]{16})\.(\d{1,12})\.([A-Za-z0-9_-]{84})")


@dataclass(frozen=True, slots=True)
class Session:
    """A visit to the pages.

    Attributes
    ----------
    cookie : str
        By which the visitor is known again; drawn anew when somebody signs in.
    person : Person or None
        None where nobody has signed in.
    """

    cookie: str
    person: Person | None = None

    @property
    def form_token(self) -> str:
        """What each form of this session has, and no page of another site can know."""
        return hmac.digest(self.cookie.encode(), b"form", "sha256").hex()

    def takes(self, form_token: str) -> bool:
        """Return whether a form is of this session."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


class AccountGate:
    """Lets in whoever has a token of a server, and knows people again by a cookie.

    Parameters
    ----------
    served : Served

    Attributes
    ----------
    cookie : str
        The name of the cookie.
    port : None
        The pages are not those for one person on 127.0.0.1.
    """

    cookie, port = "ladderholdout", None

    def __init__(self, served: Served) -> None:
        self._served, self._ledger = served, Ledger(served.url)

    def read(self, cookie: str) -> Session:
        """Return the session of a cookie, with those of its accounts that are valid now."""
        if not _NAME.fullmatch(cookie.partition("~")[0]):
            return Session(_drawn())
        accounts = [account for account, _, _ in self._held(cookie)]
        return Session(cookie, AccountHolder(self._served, accounts) if accounts else None)

    def enter(self, cookie: str, token: str) -> Session | None:
        """Add the account of a token to a session, in place of one on the same holdout."""
        account = self._served.holder(token)
        if account is None:
            return None
        before = list(self._held(cookie))
        if before:
            self.leave(cookie)
        kept = [entry for entry in before if entry[0].holdout_id != account.holdout_id]
        held = [*kept, (account, int(time.time()), token)][-_MOST_ACCOUNTS:]
        name = _drawn()
        entries = [
            (owner, since, base64.urlsafe_b64encode(_masked(name, owner, since, text.encode())))
            for owner, since, text in held
        ]
        texts = [f"{owner.token_key}.{since}.{masked.decode()}" for owner, since, masked in entries]
        return self.read("~".join([name, *texts]))

    def leave(self, cookie: str) -> None:
        """End the session of a cookie in the ledger, for every process that reads it."""
        digest, until = _digest(cookie), now() + timedelta(seconds=LIFE)
        self._ledger.transact(lambda tx: tx.end_session(digest, until))

    def _held(self, cookie: str) -> Iterator[tuple[AccountRecord, int, str]]:
        """Yield the accounts of a cookie that are valid, since when, and their tokens."""
        name, *texts = cookie.split("~")[: 1 + _MOST_ACCOUNTS]
        parts = [match.groups() for match in map(_ENTRY.fullmatch, texts) if match is not None]
        entries = {account: (int(since), masked) for account, since, masked in parts}
        fresh = {key: entry for key, entry in entries.items() if 0 <= time.time() - entry[0] < LIFE}
        if not fresh:
            return
        digest = _digest(cookie)

        def valid(tx: Transaction) -> tuple[AccountRecord, ...]:
            if tx.has_ended(digest):
                return ()
            found = (by_key(tx, key) for key in fresh)
            return tuple(account for account in found if account is not None)

        for account in self._ledger.transact(valid, Access.READ):
            since, masked = fresh[account.token_key]
            token = _masked(name, account, since, base64.urlsafe_b64decode(masked))
            if is_token_of(account, token.decode("latin-1")):
                yield account, since, token.decode("latin-1")


def _drawn() -> str:
    """Draw the name of a session."""
    return secrets.token_urlsafe(16)


def _digest(cookie: str) -> str:
    """Return the digest by which the ledger knows a session; nobody makes a cookie from it."""
    return hashlib.sha256(cookie.partition("~")[0].encode()).hexdigest()


def _masked(name: str, account: AccountRecord, since: int, token: bytes) -> bytes:
    """Mask a token, or show a masked one: a token has 63 bytes, and the mask 64."""
    key, text = bytes.fromhex(account.token_hash), f"{name} {account.token_key} {since}".encode()
    mask = hmac.digest(key, text, "sha512")
    return bytes(byte ^ hidden for byte, hidden in zip(token, mask, strict=False))


class LocalGate:
    """Lets in one person, once, who has the token that was printed on this machine.

    Parameters
    ----------
    url : str
        Of the ledger.
    port : int
    token : str
    """

    def __init__(self, url: str, port: int, token: str) -> None:
        # Cookies are of a host, whatever the port: several of these pages may be open.
        self.cookie, self.port = f"ladderholdout-{port}", port
        self._owner, self._token, self._known = LedgerOwner(url), token, ""
        self._lock = threading.Lock()

    def read(self, cookie: str) -> Session:
        """Return the owner's session, or one of nobody."""
        known = self._known and hmac.compare_digest(cookie.encode(), self._known.encode())
        return Session(cookie, self._owner) if known else Session(_drawn())

    def enter(self, cookie: str, token: str) -> Session | None:
        """Take the token, the first time that it is shown."""
        with self._lock:
            if self._known or not hmac.compare_digest(token.encode(), self._token.encode()):
                return None
            self._known = _drawn()
        return Session(self._known, self._owner)

    def leave(self, cookie: str) -> None:
        """End the session; the address that was printed has let somebody in, and lets in nobody."""
        self._known = _drawn()


Gate: TypeAlias = AccountGate | LocalGate
"""Lets people in to the pages."""
