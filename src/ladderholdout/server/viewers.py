"""What somebody may see and do on the pages: accounts of a server, or a ledger's owner at home.

The pages ask a `Person` for views of ladders, and a `View` for what it shows. Both kinds of views
show releases, certificates and corrected scores, and nothing raw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

from ladderholdout.audit.report import page_of, record_of
from ladderholdout.guard.ladder import LocalLadder, by_first_order, reopen
from ladderholdout.guard.open_ladder import OpenLadder, Origin
from ladderholdout.guard.score_intervals import known_certificate
from ladderholdout.guard.settings import HoldoutSettings
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status
from ladderholdout.guard.withdrawal import Withdrawn
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard.board import Leaderboard
from ladderholdout.leaderboard.standings import BOARD, Standings
from ladderholdout.ledger import AccountRecord, Ledger, shown
from ladderholdout.remote.predictions import Form
from ladderholdout.server.bodies import Asked
from ladderholdout.server.served import (
    NotThere,
    Served,
    form_of,
    key_of,
    retired,
)
from ladderholdout.server.space import Space

SUBMIT, CERTIFY, ESTIMATE, REVEAL = "submit", "certify", "estimate", "reveal"
MANAGE, LEADERBOARD, REPORT = "manage", "leaderboard", "report"
"""What a view may be asked for, beside its status and its history."""


class View(Protocol):
    """One ladder of a holdout, as somebody may see it."""

    @property
    def name(self) -> str:
        """The holdout's name."""

    @property
    def role(self) -> str:
        """The viewer's role."""

    @property
    def chosen(self) -> dict[str, str]:
        """What of a query names this ladder."""

    @property
    def may(self) -> frozenset[str]:
        """What it may be asked for."""

    @property
    def url(self) -> str:
        """The ledger's."""

    def ladder(self) -> OpenLadder:
        """Return the ladder, whose facts, state and history are shown."""

    def wanted(self) -> Form:
        """Return what predictions have to be for the ladder."""

    def space(self) -> Space:
        """Return how much predictions may hold."""

    def status(self) -> Status:
        """Return the released score and what queried the holdout."""

    def certificate(self) -> tuple[ScoreCertificate, bool]:
        """Return what is on record, and whether more would be worked out on request."""

    def certify(self) -> ScoreCertificate:
        """Work out the certificate, and put it on record."""

    def estimate(self) -> Estimate:
        """Correct the score for its selection, on record."""

    def reveal(self) -> float | None:
        """Show the score of a ladder that releases none, on record."""

    def submit(self, asked: Asked, key: str) -> Release:
        """Submit predictions; again with the same key, they are a repeat."""

    def standings(self) -> Standings:
        """Return the leaderboard."""

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission, on record."""

    def retire(self, confirmed: str) -> datetime:
        """Take no more submissions on the holdout."""

    def report(self) -> str:
        """Return the report on what was released."""


class Person(Protocol):
    """A person who uses the pages."""

    @property
    def label(self) -> str:
        """Who it is, for the head of each page."""

    def views(self) -> Sequence[View]:
        """Return a view for each line of the list of holdouts."""

    def view(self, name: str, chosen: dict[str, str]) -> View:
        """Return one ladder; NotThere where there is none for this person."""


# -- accounts of a server --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AccountHolder:
    """Who holds tokens of a server, one for each of some holdouts.

    Attributes
    ----------
    served : Served
    accounts : sequence of AccountRecord
    """

    served: Served
    accounts: Sequence[AccountRecord]

    @property
    def label(self) -> str:
        """Name the accounts."""
        return ", ".join(dict.fromkeys(one.name for one in self.accounts))

    def views(self) -> Sequence[View]:
        """Return a view for each account."""
        return [AccountView(self.served, one, {}) for one in self.accounts]

    def view(self, name: str, chosen: dict[str, str]) -> View:
        """Return the ladder of an account, or for readers and owners of any."""
        chosen = {key: value for key, value in chosen.items() if key == "account"}
        for one in self.accounts:
            if one.holdout == name:
                self.served.ladder(one, chosen.get("account"))
                return AccountView(self.served, one, chosen)
        raise NotThere


_OF_ROLE = {
    "analyst": {SUBMIT, CERTIFY, ESTIMATE, REVEAL},
    "reader": set(),
    "owner": {CERTIFY, MANAGE},
}


@dataclass(frozen=True)
class AccountView:
    """A ladder behind a server, as an account may see it: what the API answers."""

    served: Served
    who: AccountRecord
    chosen: dict[str, str]

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self.who.holdout

    @property
    def role(self) -> str:
        """The account's role."""
        return self.who.role

    @property
    def url(self) -> str:
        """The ledger's."""
        return self.served.url

    @property
    def _account(self) -> str | None:
        return self.chosen.get("account")

    @cached_property
    def may(self) -> frozenset[str]:
        """What the role and the settings of the server allow."""
        found, allows = set(_OF_ROLE[self.role]), self.served.settings.allows
        for what, setting in ((ESTIMATE, "allow_estimates"), (REVEAL, "allow_reveals")):
            if not allows(setting, self.name):
                found.discard(what)
        if self.served.has_leaderboard(self.who):
            found.add(LEADERBOARD)
        return frozenset(found)

    def ladder(self) -> OpenLadder:
        """Return the ladder."""
        return self.served.ladder(self.who, self._account)

    def wanted(self) -> Form:
        """Return what predictions have to be."""
        return self.served.wanted(self.who)

    def space(self) -> Space:
        """Return how much predictions may hold."""
        return Space.of(self.served.home(self.who))

    def status(self) -> Status:
        """Return the status without what is of others."""
        return self.served.status(self.who, self._account)

    def certificate(self) -> tuple[ScoreCertificate, bool]:
        """Return what is on record."""
        return self.served.certificate(self.who, self._account)

    def certify(self) -> ScoreCertificate:
        """Work out the certificate."""
        return self.served.work_out(self.who, self._account)

    def estimate(self) -> Estimate:
        """Correct the score for its selection."""
        return self.served.estimate(self.who)

    def reveal(self) -> float | None:
        """Show the score of a ladder that releases none."""
        return self.served.reveal(self.who)

    def submit(self, asked: Asked, key: str) -> Release:
        """Submit to the account's own ladder."""
        return self.served.submit(self.who, asked, key)

    def standings(self) -> Standings:
        """Return the leaderboard."""
        return self.served.standings(self.who)

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission."""
        return self.served.withdraw(self.who, self._account, number, reason)

    def retire(self, confirmed: str) -> datetime:
        """Retire the holdout."""
        return self.served.retire(self.who, confirmed)

    def report(self) -> str:
        """Refuse: reports are made where the ledger is."""
        raise NotThere


# -- the owner of a ledger, where it is ------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerOwner:
    """The one person of `ladder-holdout ui`, whose ledger it is.

    Attributes
    ----------
    url : str
    """

    url: str

    @property
    def label(self) -> str:
        """Name the ledger."""
        return shown(self.url)

    def views(self) -> Sequence[View]:
        """Return a view for each ladder of each holdout, the newest holdout first."""
        found: list[View] = []
        with Ledger(self.url).read() as tx:
            for one in reversed(tx.holdouts()):
                stated = [ladder.settings for ladder in tx.ladders(one.id)]
                boards = {of.name for of in stated if of.account == BOARD}
                found += (
                    OwnerView(
                        self.url,
                        one.name,
                        {"account": of.account, "ladder": of.name},
                        ranked=of.name in boards,
                    )
                    for of in stated
                )
        return found

    def view(self, name: str, chosen: dict[str, str]) -> View:
        """Return a ladder; without a choice the first of the holdout."""
        for one in self.views():
            if one.name == name and all(
                chosen.get(key) in (None, value) for key, value in one.chosen.items()
            ):
                return one
        raise NotThere


@dataclass(frozen=True)
class OwnerView:
    """A ladder of a ledger that this process reads, for its owner."""

    url: str
    name: str
    chosen: dict[str, str]
    ranked: bool = False
    role: str = "owner"

    @cached_property
    def _ladder(self) -> LocalLadder:
        found = reopen(
            HoldoutSettings(
                name=self.name,
                account=self.chosen["account"],
                ladder=self.chosen["ladder"],
                overlap="ignore",
                ledger=self.url,
            )
        )
        by_first_order(found)
        return found

    @property
    def may(self) -> frozenset[str]:
        """All; to the ladder that holds the rules of a leaderboard nobody submits."""
        found = {SUBMIT, CERTIFY, ESTIMATE, REVEAL, MANAGE, REPORT, LEADERBOARD}
        if not self.ranked:
            found -= {LEADERBOARD}
        if self.chosen["account"] == BOARD:
            found -= {SUBMIT, CERTIFY, ESTIMATE, REVEAL}
        return frozenset(found)

    def ladder(self) -> OpenLadder:
        """Return the ladder."""
        return self._ladder

    def wanted(self) -> Form:
        """Return what predictions have to be."""
        return form_of(self._ladder)

    def space(self) -> Space:
        """Return how much predictions may hold."""
        return Space.of(self._ladder)

    def status(self) -> Status:
        """Return the status."""
        return self._ladder.status()

    def certificate(self) -> tuple[ScoreCertificate, bool]:
        """Return what is on record."""
        return known_certificate(self._ladder)

    def certify(self) -> ScoreCertificate:
        """Work out the certificate."""
        return self._ladder.certificate(None)

    def estimate(self) -> Estimate:
        """Correct the score for its selection."""
        return self._ladder.estimate()

    def reveal(self) -> float | None:
        """Show the score of a ladder that releases none."""
        return self._ladder.reveal()

    def submit(self, asked: Asked, key: str) -> Release:
        """Submit to this ladder."""
        origin = Origin(key=key_of(key), context=asked.context)
        return self._ladder.submit(asked.predictions, origin)

    def standings(self) -> Standings:
        """Return the leaderboard of this name."""
        name = self.chosen["ladder"]
        return Leaderboard.open(self.name, ladder=name, ledger=self.url).standings()

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission."""
        return self._ladder.withdraw(number, reason)

    def retire(self, confirmed: str) -> datetime:
        """Retire the holdout."""
        return retired(self._ladder, confirmed)

    def report(self) -> str:
        """Return the report, which has no raw score."""
        account, ladder = self.chosen["account"], self.chosen["ladder"]
        opened = LadderHoldout.open(self.name, account=account, ladder=ladder, ledger=self.url)
        return page_of(record_of(opened))
