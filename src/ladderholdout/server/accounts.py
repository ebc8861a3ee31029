"""Accounts of a server: who may query which holdout, by tokens that are shown once.

A token names its account by a key, by which the ledger finds it, and proves it by a secret of 256
random bits, of which the ledger holds the SHA-256 alone. So whoever reads the ledger has no token,
and the comparison takes the same time for every wrong one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

from pydantic import Field

from ladderholdout.arguments import choice, segment, whole
from ladderholdout.errors import HoldoutConflict, InvalidArgument, UnknownHoldout, did_you_mean
from ladderholdout.guard import commands, opening, settings
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.leaderboard.rules import check_rule
from ladderholdout.leaderboard.standings import BOARD, start
from ladderholdout.ledger import Ledger, events, fold, log, place, resolve_url, transaction
from ladderholdout.mechanisms import mechanism_from
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import Metric

ROLES = ("analyst", "program", "host", "reader", "owner")
"""An analyst submits and sees one ladder; a reader sees all of them; an owner manages it.

A program is an analyst that is shown improvements alone, unless `show` states another thing. A host
is a reader that also submits for the accounts of a leaderboard, each of which it names: what hosts
a challenge knows its participants, and the server does not.
"""

_SUBMITTING = ("analyst", "program", "host")

T = TypeVar("T", bound="Account | AccountRecord")

_TOKEN = re.compile(r"lh_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecord(events.AccountChanged):
    """An account on a holdout, as it was stated last.

    Attributes
    ----------
    holdout_id, holdout : int, str
        The holdout it is for, and its name.
    """

    holdout_id: int
    holdout: str

    @property
    def valid(self) -> bool:
        """Whether the token lets in now."""
        return self.revoked is None and (self.expires is None or log.now() < self.expires)


@dataclass(frozen=True, slots=True)
class Account:
    """An account as it is shown: nothing of its token."""

    holdout: str
    name: str
    role: str
    per_day: int | None
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    valid: bool


@dataclass(frozen=True, slots=True)
class Token(Account):
    """An account with its token, which is shown once.

    Attributes
    ----------
    token : str

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> "lh_" in repr(issued)
    False
    >>> folder.cleanup()
    """

    token: str = field(repr=False)


def _made(kind: type[T], stated: events.AccountChanged, **more: Any) -> T:
    """Return an account of this kind: what an event or a record states, and more."""
    names = (name for name in commands.names_of(kind) if name not in more)
    return kind(**{name: getattr(stated, name) for name in names}, **more)


Name = Annotated[str, Field(description="the name of an account")]
PerDay = Annotated[
    commands.Whole | None, Field(description="a whole number, or none for any number of them")
]
Day = Annotated[str | None, Field(description="the last day of the token, as 2026-12-31")]


@commands.command(commands.OWNER, reads=True)
class Accounts(commands.Command[tuple[Account, ...]]):
    """List the accounts on the holdout."""


@commands.command(commands.OWNER)
class AddAccount(commands.Command[Token]):
    """Add an account, and show its token once."""

    account: Name
    role: Annotated[str, Field(description="analyst, program, host, reader or owner")]
    per_day: PerDay = None
    budget: Annotated[
        commands.Whole | None, Field(description="a whole number, or none for that of the holdout")
    ] = None
    show: Annotated[
        str | None, Field(description="scores or improvements, or none for the holdout's")
    ] = None
    expires: Day = None


@commands.command(commands.OWNER)
class RotateToken(commands.Command[Token]):
    """Give an account a new token, shown once; the one before ends at once."""

    account: Name
    expires: Day = None


@commands.command(commands.OWNER)
class RevokeToken(commands.Command[Account]):
    """End the token of an account at once."""

    account: Name


@commands.command(commands.OWNER)
class LimitAccount(commands.Command[Account]):
    """Change the submissions a day of an account."""

    account: Name
    per_day: PerDay = None


def execute(url: str, holdout: str, command: commands.Command[Any]) -> Any:
    """Do what a command asks of the accounts on a holdout."""
    stated = {name: getattr(command, name) for name in commands.names_of(type(command))}
    if "expires" in stated:
        stated["expires"] = end_of(stated["expires"])
    does: dict[type[commands.Command[Any]], Callable[..., Any]] = {
        Accounts: accounts_of,
        AddAccount: add_account,
        RotateToken: rotate_token,
        RevokeToken: revoke_token,
        LimitAccount: limit_account,
    }
    return does[type(command)](url, holdout, **stated)


def add_account(
    ledger: str | None,
    holdout: str,
    account: str,
    role: str,
    *,
    per_day: int | None = None,
    budget: int | None = None,
    show: str | None = None,
    expires: datetime | None = None,
) -> Token:
    """Add an account on a holdout; an analyst gets a ladder of its own.

    The ladder follows the rules of the holdout's leaderboard, where there is one, else those of
    the ladder that was started first.

    Parameters
    ----------
    ledger : str or None
        As `resolve_url` takes it.
    holdout, account : str
    role : {"analyst", "program", "host", "reader", "owner"}
    per_day : int, optional
        Submissions a day, by UTC; of a host, for each of its accounts.
    budget : int, optional
        Releases in all; by default that of the ladder whose rules are taken.
    show : {"scores", "improvements"}, optional
        What answers have; by default as of that ladder.
    expires : datetime, optional
        When the token ends.

    Returns
    -------
    Token

    Raises
    ------
    InvalidArgument
        An argument is refused.
    UnknownHoldout
        The ledger holds no such holdout.
    HoldoutConflict
        There is an account of this name, or a ladder of it with other rules; or a host is to submit
        to a holdout without a leaderboard.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> issued.name, issued.role, issued.per_day
    ('Ada', 'analyst', 20)
    >>> folder.cleanup()
    """
    name, role = segment("NAME", account), choice("--role", role, ROLES)
    if name == BOARD:
        raise InvalidArgument("NAME", f"another name than {BOARD!r}", "that", "It is taken.")
    per_day = _limit("--per-day", role, per_day)
    budget = _limit("--budget", role, budget)
    home = home_of(resolve_url(ledger), holdout)
    if role == "host" and home.facts.account != BOARD:
        raise HoldoutConflict(
            f"{holdout!r} has no leaderboard, and a host submits for the accounts of one. Start it "
            "with the rows: Leaderboard(X, y, name=...)."
        )
    if role == "program":
        role = "analyst"
        if show is None and home.facts.account != BOARD:
            show = SHOWN[1]
    if show is not None:
        choice("--show", show, SHOWN)
        if role != "analyst":
            raise InvalidArgument("--show", "left out for a role that submits nothing", show)
        if show == SHOWN[0] and home.facts.rules.mechanism.flags_alone:
            allowed = f"'improvements' for {home.facts.rules.mechanism.name}"
            raise InvalidArgument("--show", allowed, show, "Its decisions show no score.")
    if budget is not None and home.facts.account == BOARD:
        raise InvalidArgument("--budget", "left out on a leaderboard, which has its own", budget)
    if show is not None and home.facts.account == BOARD:
        raise InvalidArgument("--show", "left out on a leaderboard, which shows scores", show)
    token, fields = _new_token(expires)

    def add(tx: transaction.Transaction, rules: fold.LadderRecord) -> AccountRecord:
        if name in tx.hold(rules.holdout_id).accounts:
            raise HoldoutConflict(
                f"There is an account {name!r} on {holdout!r}. `account rotate` gives it a new "
                "token, and `account limit` other submissions a day."
            )
        ladder = _ladder_of(tx, rules, name, budget, show) if role == "analyst" else None
        added = events.AccountChanged(
            name=name,
            role=role,
            ladder=None if ladder is None else ladder.id,
            per_day=per_day,
            created=log.now(),
            revoked=None,
            **fields,
        )
        tx.add(rules.holdout_id, added)
        return _made(AccountRecord, added, holdout_id=rules.holdout_id, holdout=holdout)

    return _made(Token, home.write(add), token=token)


def rotate_token(
    ledger: str | None, holdout: str, account: str, *, expires: datetime | None = None
) -> Token:
    """Give an account a new token; the one before ends at once, and a revocation too.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> rotate_token(ledger, "coins", "Ada").token == issued.token
    False
    >>> folder.cleanup()
    """
    token, fields = _new_token(expires)
    fields = fields | {"revoked": None}
    return _made(Token, _changed(ledger, holdout, account, lambda _: fields), token=token)


def revoke_token(ledger: str | None, holdout: str, account: str) -> Account:
    """End the token of an account at once; what it submitted stays and counts.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> revoke_token(ledger, "coins", "Ada").valid
    False
    >>> folder.cleanup()
    """
    return _made(Account, _changed(ledger, holdout, account, lambda _: {"revoked": log.now()}))


def limit_account(ledger: str | None, holdout: str, account: str, per_day: int | None) -> Account:
    """Change how many submissions a day an account may make; None for any number.

    It holds from the next submission on. A budget of releases is one of the rules of the
    account's ladder, and stays.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> limit_account(ledger, "coins", "Ada", 5).per_day
    5
    >>> folder.cleanup()
    """

    def limits(known: events.AccountChanged) -> dict[str, Any]:
        return {"per_day": _limit("--per-day", known.role, per_day)}

    return _made(Account, _changed(ledger, holdout, account, limits))


def end_of(day: str | None) -> datetime | None:
    """Return the end of a day, in UTC; None of none."""
    if day is None:
        return None
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise InvalidArgument("--expires", "a date, as 2026-12-31", repr(day)) from None


def accounts_of(ledger: str | None, holdout: str | None) -> tuple[Account, ...]:
    """Return the accounts on a holdout, or on all of a ledger.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> from ladderholdout.server.accounts import add_account
    >>> issued = add_account(ledger, "coins", "Ada", "analyst", per_day=20)
    >>> [account.name for account in accounts_of(ledger, "coins")]
    ['Ada']
    >>> folder.cleanup()
    """
    with Ledger(resolve_url(ledger)).read() as tx:
        holdouts = tx.holdouts() if holdout is None else (opening.named(tx, holdout),)
        return tuple(
            _made(Account, _made(AccountRecord, account, holdout_id=rows.id, holdout=rows.name))
            for rows in holdouts
            for account in tx.fold(rows.id).accounts.values()
        )


def is_token_of(account: AccountRecord, token: str) -> bool:
    """Return whether this is the token of an account, and valid now."""
    return hmac.compare_digest(_hash(token), account.token_hash) and account.valid


def holder_of(ledger: Ledger, token: str) -> AccountRecord | None:
    """Return the account of a token; None where it is wrong, expired or revoked."""
    parts = _TOKEN.fullmatch(token)
    key = "" if parts is None else parts[1]
    account = ledger.transact(lambda tx: by_key(tx, key), place.Access.READ)
    same = hmac.compare_digest(_hash(token), _NOBODY if account is None else account.token_hash)
    return account if account is not None and same and account.valid else None


def by_key(tx: transaction.Transaction, token_key: str) -> AccountRecord | None:
    """Return the account whose token has this key."""
    found = tx.by_token(token_key)
    if found is None:
        return None
    holdout_id, stated = found
    holdout = tx.fold(holdout_id).name
    return _made(AccountRecord, stated, holdout_id=holdout_id, holdout=holdout)


def home_of(url: str, holdout: str, metrics: Mapping[str, Metric] | None = None) -> LocalLadder:
    """Return the ladder of a holdout whose rules the ladders of accounts follow.

    `metrics` has the owner's own by their names: without its function one refuses to be computed.

    Raises
    ------
    UnknownHoldout
        The ledger holds no such holdout.
    HoldoutConflict
        The holdout has a leaderboard per rank, which is not served.
    """
    with Ledger(url).read() as tx:
        ladders = tx.ladders(opening.named(tx, holdout).id)
    boards = [ladder for ladder in ladders if ladder.settings.account == BOARD]
    if not ladders:
        raise UnknownHoldout(f"The holdout {holdout!r} has no ladder.")
    chosen = (boards or list(ladders))[0].settings
    base, metric = settings.parted(chosen.name)
    if metric is not None and not boards:
        raise HoldoutConflict(
            f"{holdout!r} was registered with several metrics ({base!r} of account "
            f"{chosen.account!r}), and a server answers by one. Register the rows with that one "
            "metric in the ledger that is served: ladder-holdout register FILE --scoring "
            f"{metric} --ledger ANOTHER."
        )
    if boards:
        try:
            check_rule("team", mechanism_from(chosen.mechanism, chosen.mechanism_settings))
        except InvalidArgument:
            raise HoldoutConflict(
                f"{holdout!r} has a leaderboard per rank, whose one ladder is for all accounts. "
                'Only leaderboards with per="team" are served.'
            ) from None
    own = (metrics or {}).get(chosen.metric)
    return reopened(url, holdout, chosen.account, chosen.name, own)


def reopened(
    url: str, holdout: str, account: str, ladder: str, metric: Metric | None = None
) -> LocalLadder:
    """Return a ladder that takes predictions in the order of the first registration."""
    known = opening.reopen_ladder(
        settings.HoldoutSettings(
            scoring=metric,
            name=holdout,
            account=account,
            ladder=ladder,
            overlap="ignore",
            ledger=url,
        )
    )
    opening.by_first_order(known)
    return known


def _changed(
    ledger: str | None,
    holdout: str,
    name: str,
    values: Callable[[events.AccountChanged], dict[str, Any]],
) -> AccountRecord:
    def change(tx: transaction.Transaction) -> AccountRecord:
        rows = opening.named(tx, holdout)
        accounts = tx.hold(rows.id).accounts
        if name not in accounts:
            close = did_you_mean(name, accounts)
            raise UnknownHoldout(f"There is no account {name!r} on {holdout!r}. {close}".rstrip())
        changed = replace(accounts[name], **values(accounts[name]))
        tx.add(rows.id, changed)
        return _made(AccountRecord, changed, holdout_id=rows.id, holdout=rows.name)

    return Ledger(resolve_url(ledger)).transact(change)


def _ladder_of(
    tx: transaction.Transaction,
    home: fold.LadderRecord,
    name: str,
    budget: int | None,
    show: str | None,
) -> fold.LadderRecord:
    """Return the ladder of an account, started if there is none."""
    stated: dict[str, Any] = {"account": name, "budget": budget, "show": show}
    wanted = replace(home.settings, **{rule: v for rule, v in stated.items() if v is not None})
    ladder = opening.find_ladder(tx, tx.holdout(home.holdout_id), name, wanted.name)
    if ladder is not None and ladder.settings != wanted:
        raise HoldoutConflict(
            f"There is a ladder of account {name!r} with other rules. Take another name for the "
            "account."
        )
    return ladder or start(tx, replace(home, settings=wanted), name)


def _limit(option: str, role: str, value: int | None) -> int | None:
    if value is None:
        return None
    if role not in _SUBMITTING:
        raise InvalidArgument(option, "left out for a role that submits nothing", value)
    return min(whole(option, value), settings.LARGEST_NUMBER)


def _new_token(expires: datetime | None) -> tuple[str, dict[str, Any]]:
    """Draw a token, and return it with what the ledger keeps of it."""
    if expires is not None and expires <= log.now():
        raise InvalidArgument("--expires", "a moment to come", f"{expires:%Y-%m-%d %H:%M} UTC")
    key = secrets.token_hex(8)
    token = f"lh_{key}_{secrets.token_urlsafe(32)}"
    return token, {"token_key": key, "token_hash": _hash(token), "expires": expires}


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
