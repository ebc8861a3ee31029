"""`View`: a ladder of a holdout as somebody may use it; who gets which; sessions in cookies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, TypeAlias

from ladderholdout.audit import report
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import certificate, commands, opening
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.on_record import known_certificate
from ladderholdout.guard.open_ladder import DESCRIBED, STATED_BY
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.leaderboard import commands as boards
from ladderholdout.leaderboard.standings import BOARD, start, team_ladder
from ladderholdout.ledger import Ledger, fold, log, place, shown, transaction
from ladderholdout.ledger.rules import rule_shown
from ladderholdout.remote.tables import Form
from ladderholdout.server import accounts
from ladderholdout.server.accounts import AccountRecord
from ladderholdout.server.redaction import Reader, training_source
from ladderholdout.server.settings import ServerSettings, metrics_in

REPORT = "report"
"""What the owner of a ledger may see besides all commands, on the machine of the ledger."""

MOST_SIGNS = 5
_QUERIES = frozenset({"submit", "decide", "compare", "certify", "estimate", "reveal"})
_OF_ROUNDS = {"round", "collect", "close_round"}
_NOT_SERVED = {
    "share_rows": ("rows", "the rows"),
    "allow_comparisons": ("compare", "comparisons"),
    "allow_estimates": ("estimate", "corrected scores"),
    "allow_reveals": ("reveal", "the scores of a ladder that shows improvements alone"),
}
_CONFIRMED = {
    "retire": "A retired holdout takes no more submissions.",
    "close_round": "All that waits is answered.",
    "hold_finals": "Finals show how entries do on the reserve, once.",
}


class NotThere(Exception):
    """There is nothing of this name for this account; whether there is for others is not shown."""


@dataclass(frozen=True)
class View:
    """One ladder of a holdout, as an account of a server or the owner of a ledger may use it.

    Attributes
    ----------
    url : str
        Of the ledger.
    name : str
        Of the holdout.
    chosen : mapping
        What of an address names this ladder.
    open_ladder : callable
        Return the ladder; NotThere where there is none for this account.
    account : AccountRecord or None
        None for the owner of the ledger, on whose machine this runs.
    settings : ServerSettings or None
        Of the server of the account.
    """

    url: str
    name: str
    chosen: Mapping[str, str]
    open_ladder: Callable[[], LocalLadder] = field(repr=False)
    account: AccountRecord | None = None
    settings: ServerSettings | None = None

    @cached_property
    def ladder(self) -> LocalLadder:
        """The ladder."""
        return self.open_ladder()

    @property
    def role(self) -> str:
        """The role of the account."""
        return "owner" if self.account is None else self.account.role

    @property
    def holder(self) -> str:
        """The name of the account."""
        return self.ladder.facts.account if self.account is None else self.account.name

    @property
    def per_day(self) -> int | None:
        """How much the account may submit a day."""
        return None if self.account is None else self.account.per_day

    @cached_property
    def board(self) -> str | None:
        """The name of the ladder that holds the rules of the leaderboard, where there is one.

        A server has one for each holdout; the owner of a ledger sees that of the ladder.
        """

        def find(tx: transaction.Transaction, ladder: fold.LadderRecord) -> str | None:
            known = (other.settings for other in tx.ladders(ladder.holdout_id))
            names = [stated.name for stated in known if stated.account == BOARD]
            own = ladder.settings.name
            return next((name for name in names if self.account is not None or name == own), None)

        return self.ladder.read(find)

    @cached_property
    def by_rounds(self) -> bool:
        """Whether the account submits to a leaderboard that answers by rounds."""
        own = self.board is not None and self.ladder.facts.ladder == self.board
        return own and self._open_board().by_rounds

    @cached_property
    def may(self) -> frozenset[str]:
        """The commands that pages offer: by the role, the settings and the ladder.

        To the ladder that holds the rules of a leaderboard nobody submits.
        """
        names = {
            word
            for word, kind in commands.COMMANDS.items()
            if self.plays(kind) and self._allows(kind.setting)
        }
        if self.account is None:
            names.add(REPORT)
        if self.chosen.get("account", BOARD) == BOARD and self.role != "analyst":
            names -= _QUERIES
        if self.board is None:
            names -= {"leaderboard", "finals", "hold_finals"}
        return frozenset(names - ({"submit", "submit_batch"} if self.by_rounds else _OF_ROUNDS))

    def wanted(self) -> Form:
        """Return what predictions have to be for the ladder."""
        facts, state = self.ladder.facts, self.ladder.execute(commands.State())
        return Form(self.ladder.metric, facts.n, facts.classes, state.has_ids)

    # -- commands -----------------------------------------------------------------------

    def execute(self, command: commands.Command[Any]) -> Any:
        """Do what a command asks for, and return what this account may see of the answer."""
        self.check_role(type(command))
        setting = command.setting
        if setting is not None and not self._allows(setting):
            raise HoldoutConflict(
                f"The owner of this holdout does not serve {_NOT_SERVED[setting][1]} "
                f"(ladder-holdout serve --{setting.replace('_', '-')} NAME)."
            )
        if command.word in _CONFIRMED and getattr(command, "name", self.name) != self.name:
            allowed, why = "the name of the holdout, typed again", _CONFIRMED[command.word]
            raise InvalidArgument("name", allowed + " to confirm it", "another text", why)
        return self._shown(self._done(command), command)

    def plays(self, kind: type[commands.Command[Any]]) -> bool:
        """Return whether the role may ask for this; the owner of a ledger may ask for all."""
        return self.account is None or self.role in kind.roles

    def check_role(self, kind: type[commands.Command[Any]]) -> None:
        """Let there be nothing for an account whose role may not ask for this."""
        if not self.plays(kind):
            raise NotThere

    def known_certificate(self) -> tuple[certificate.ScoreCertificate, bool]:
        """Return the certificate on record, and whether `Certify` would put one there."""
        known, possible = known_certificate(self.ladder)
        return self._shown(known), possible

    def report(self) -> str:
        """Return the report on what was released, which has no raw score."""
        account, ladder = self.chosen["account"], self.chosen["ladder"]
        holdout = LadderHoldout.open(self.name, account=account, ladder=ladder, ledger=self.url)
        return report.page_of(report.record_of(holdout), Leaderboard.on(holdout))

    def check_block(self, known: str | None) -> None:
        """Refuse a client that knows other rows than those of now.

        Parameters
        ----------
        known : str or None
            The block that it knows; None where it does not state one, and cannot be checked.
        """
        if known is not None and known != str(block := self.ladder.facts.block):
            raise HoldoutConflict(
                "Fresh rows took the place of those that this client knows: the holdout is at "
                f"block {block}. Nothing was submitted. Connect again, LadderHoldout.connect(url), "
                "or load the page again, and predict for the rows of now."
            )

    def _done(self, command: commands.Command[Any]) -> Any:
        """Do what a command asks for, on the ladder, its leaderboard or the accounts."""
        match command:
            case commands.Describe():
                return self._description()
            case commands.NoteRows(rows=rows):
                n = self.ladder.facts.n
                if rows > n:
                    raise InvalidArgument("rows", f"a number from 1 to {n}", rows)
                return self.ladder.note_rows(rows, training_source(self.holder))
            case commands.NoteGroups(by=by):
                return self.ladder.note_groups(self._signed(by), self.holder)
            case commands.Candidate() | commands.SubmitBatch():
                self._check_submission(command)
        if type(command).__module__ == boards.__name__:
            account = self.ladder.facts.account
            return boards.execute(self._open_board(), account, command, self.per_day)
        if type(command).__module__ == accounts.__name__:
            return accounts.execute(self.url, self.name, command)
        return self.ladder.execute(command, per_day=self.per_day)

    def _shown(self, answer: Any, command: commands.Command[Any] | None = None) -> Any:
        """Return what may be seen of an answer; rows have no labels, and name nobody."""
        if self.account is None or isinstance(command, commands.Rows):
            return answer

        def others(tx: transaction.Transaction, ladder: fold.LadderRecord) -> tuple[str, ...]:
            return tuple(other.name for other, _ in tx.sharing(ladder.holdout_id))

        return Reader(self.role, self.holder, partial(self.ladder.read, others)).shown(answer)

    def _signed(self, by: str) -> str:
        """Return a note as its account's; refuse one more than an account may leave."""
        known = self.ladder.read(lambda tx, it: tx.fold(it.holdout_id).grouped(withdrawn=True))
        signed = by + STATED_BY + self.holder
        if signed not in known and list(known.values()).count(self.holder) >= MOST_SIGNS:
            raise HoldoutConflict(
                f"This account has {MOST_SIGNS} notes of groups on record, and no more are taken. "
                "Write to the owner what else shows groups."
            )
        return signed

    def _description(self) -> commands.Description:
        facts, settings = self.ladder.facts, self.ladder.read(lambda tx, it: it.settings)
        shared = {name: getattr(facts, name) for name in DESCRIBED}
        return commands.Description(
            **shared,
            created=facts.created,
            features=_features(self.ladder.rows().X),
            classes=None if facts.classes is None else facts.classes.tolist(),
            account=self.holder,
            role=self.role,
            per_day=self.per_day,
            allows={word: self._allows(name) for name, (word, _) in _NOT_SERVED.items()},
            settings=settings,
            shown=rule_shown(settings),
            state=self.ladder.execute(commands.State()),
        )

    def _open_board(self) -> Leaderboard:
        if self.board is None:
            raise HoldoutConflict(
                "This holdout has no leaderboard. Its owner starts one with the rows, "
                "Leaderboard(X, y, name=...), before accounts are added."
            )
        return Leaderboard.open(
            self.name, scoring=self.ladder.metric, ladder=self.board, ledger=self.url
        )

    # -- what is refused ----------------------------------------------------------------

    def _allows(self, setting: str | None) -> bool:
        """Return whether the settings of the server allow something; all is allowed at home."""
        return setting is None or self.settings is None or self.settings.allows(setting, self.name)

    def _check_submission(self, command: commands.Command[Any]) -> None:
        """Refuse one of a host that does not name whose it is, or that is for a round."""
        if self.role == "host" and self.ladder.facts.account == BOARD:
            allowed = f"the name of a participant, other than {BOARD!r}"
            raise InvalidArgument("account", allowed, "none", "State it: ?account=NAME.")
        if self.by_rounds and not isinstance(command, boards.Collect):
            raise HoldoutConflict(
                "This leaderboard answers by rounds: send predictions to POST /collect, and read "
                "the answers in the history once the round is closed."
            )


def _features(X: Any) -> dict[str, Any]:
    """Describe the features: their number, and of a table their names and types."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        kinds = list(getattr(X.dtypes, "values", X.dtypes))
        columns = [
            {"name": str(name), "type": str(kind)}
            for name, kind in zip(X.columns, kinds, strict=True)
        ]
        return {"kind": type(X).__module__.partition(".")[0], "columns": columns}
    shape = getattr(X, "shape", None)
    kind = {"kind": type(X).__name__, "dtype": str(getattr(X, "dtype", "object"))}
    return kind | {"shape": [len(X)] if shape is None else [int(size) for size in shape]}


# -- the accounts of a server -----------------------------------------------------------


class Served:
    """The holdouts of a ledger as one process of a server holds them: their rows are there once.

    Parameters
    ----------
    settings : ServerSettings
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings, self.url = settings, settings.url
        self._ledger, self._metrics = Ledger(self.url), metrics_in(settings.metrics)
        self._homes: dict[int, LocalLadder] = {}
        self._ladders: dict[int, LocalLadder] = {}
        self._lock = threading.Lock()

    def holder(self, token: str) -> AccountRecord | None:
        """Return whose token this is, by the ledger as it is now."""
        return accounts.holder_of(self._ledger, token)

    def view(
        self, account: AccountRecord, whose: str | None = None, *, starts: bool = False
    ) -> View:
        """Return the view of an account on its own ladder, or for the other roles on any.

        Parameters
        ----------
        account : AccountRecord
        whose : str, optional
            The account whose ladder is meant; by default the other roles see the ladder whose rules
            the accounts follow.
        starts : bool, default=False
            Whether a host starts the ladder of an account that has none yet.
        """
        return View(
            self.url,
            account.holdout,
            {} if whose is None else {"account": whose},
            partial(self._ladder, account, whose, starts and account.role == "host"),
            account,
            self.settings,
        )

    def _ladder(self, account: AccountRecord, whose: str | None, starts: bool) -> LocalLadder:
        with self._lock:
            if account.holdout_id not in self._homes:
                self._homes[account.holdout_id] = accounts.home_of(
                    self.url, account.holdout, self._metrics
                )
            home = self._homes[account.holdout_id]
        if account.role == "analyst":
            if whose not in (None, account.name):
                raise NotThere
            known = self._ladders.get(account.ladder or 0)
            if known is not None:
                return known
        elif whose is None:
            return home

        def find(
            tx: transaction.Transaction, ladder: fold.LadderRecord
        ) -> fold.LadderRecord | None:
            if account.role == "analyst":
                return tx.fold(ladder.holdout_id).ladders.get(account.ladder or 0)
            holdout = tx.holdout(ladder.holdout_id)
            return opening.find_ladder(tx, holdout, whose or "", ladder.settings.name)

        record = home.read(find)
        if record is None and starts and whose is not None:
            # Locked, so that two processes start one ladder between them.
            record = home.write(
                lambda tx, rules: team_ladder(tx, rules, whose) or start(tx, rules, whose)
            )
        if record is None:
            raise NotThere
        ladder = home if record.id == home.id else home.beside(record)
        with self._lock:
            return self._ladders.setdefault(record.id, ladder)


@dataclass(frozen=True, slots=True)
class AccountHolder:
    """A person who holds tokens of a server, one for each of some holdouts.

    Attributes
    ----------
    served : Served
    accounts : sequence of AccountRecord
    """

    served: Served
    accounts: Sequence[AccountRecord]

    @property
    def label(self) -> str:
        """The accounts, for the head of each page."""
        return ", ".join(dict.fromkeys(account.name for account in self.accounts))

    def views(self) -> Sequence[View]:
        """Return a view for each line of the list of holdouts."""
        return [self.served.view(account) for account in self.accounts]

    def view(self, name: str, chosen: Mapping[str, str]) -> View:
        """Return the view on a ladder of a holdout; NotThere where there is none for this person.

        For readers and owners the choice may name the account whose ladder is meant.
        """
        for account in self.accounts:
            if account.holdout == name:
                return self.served.view(account, chosen.get("account"))
        raise NotThere


# -- sessions ---------------------------------------------------------------------------
# The cookie of a server names accounts, and has the token of each, masked by HMAC-SHA-512 of a
# random name of the session under the hash of the token, which the ledger alone holds. So the
# cookie without the ledger shows no token, the ledger without the cookie makes no session, and a
# token that is revoked or rotated ends its sessions at once, in every process. Nothing is stored
# for a session but that somebody ended it.

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
        held = [account for account, _, _ in self._held(cookie)]
        return Session(cookie, AccountHolder(self._served, held) if held else None)

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
        digest, until = _digest(cookie), log.now() + timedelta(seconds=LIFE)
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

        def valid(tx: transaction.Transaction) -> tuple[AccountRecord, ...]:
            if tx.has_ended(digest):
                return ()
            found = (accounts.by_key(tx, key) for key in fresh)
            return tuple(account for account in found if account is not None)

        for account in self._ledger.transact(valid, place.Access.READ):
            since, masked = fresh[account.token_key]
            token = _masked(name, account, since, base64.urlsafe_b64decode(masked))
            if accounts.is_token_of(account, token.decode("latin-1")):
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
    """Lets in the owner of a ledger, once, who has the token that was printed on this machine.

    Parameters
    ----------
    url : str
        Of the ledger.
    port : int
    token : str

    Attributes
    ----------
    label : str
        The ledger, for the head of each page.
    """

    def __init__(self, url: str, port: int, token: str) -> None:
        # Cookies are of a host, whatever the port: several of these pages may be open.
        self.cookie, self.port = f"ladderholdout-{port}", port
        self.label, self._url = shown(url), url
        self._token, self._known = token, ""
        self._lock = threading.Lock()

    def read(self, cookie: str) -> Session:
        """Return the owner's session, or one of nobody."""
        known = self._known and hmac.compare_digest(cookie.encode(), self._known.encode())
        return Session(cookie, self) if known else Session(_drawn())

    def enter(self, cookie: str, token: str) -> Session | None:
        """Take the token, the first time that it is shown."""
        with self._lock:
            if self._known or not hmac.compare_digest(token.encode(), self._token.encode()):
                return None
            self._known = _drawn()
        return Session(self._known, self)

    def leave(self, cookie: str) -> None:
        """End the session; the address that was printed has let somebody in, and lets in nobody."""
        self._known = _drawn()

    def views(self) -> Sequence[View]:
        """Return a view for each ladder of each holdout, the newest holdout first."""
        with Ledger(self._url).read() as tx:
            return [
                self._view(holdout.name, ladder.settings.account, ladder.settings.name)
                for holdout in reversed(tx.holdouts())
                for ladder in tx.ladders(holdout.id)
            ]

    def view(self, name: str, chosen: Mapping[str, str]) -> View:
        """Return the view on a ladder; without a choice on the first of the holdout."""
        for view in self.views():
            if view.name == name and chosen.items() <= view.chosen.items():
                return view
        raise NotThere

    def _view(self, name: str, account: str, ladder: str) -> View:
        opened = partial(accounts.reopened, self._url, name, account, ladder)
        return View(self._url, name, {"account": account, "ladder": ladder}, opened)


Person: TypeAlias = AccountHolder | LocalGate
"""Somebody who uses the pages."""

Gate: TypeAlias = AccountGate | LocalGate
"""Lets people in to the pages."""
