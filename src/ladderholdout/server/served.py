"""The holdouts of a ledger as a server process holds them, and what it shows of them.

Nothing here depends on labels but releases, certificates and corrected scores; raw scores do not
come into it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.bill import without_others
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.open_ladder import OpenLadder, Origin, SeenGroups, SeenRows
from ladderholdout.guard.score_intervals import known_certificate
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status
from ladderholdout.guard.withdrawal import Withdrawn
from ladderholdout.leaderboard.board import Leaderboard
from ladderholdout.leaderboard.standings import BOARD, Standings
from ladderholdout.ledger import AccountRecord, LadderRecord, Ledger, Transaction
from ladderholdout.ledger.replay import rule_shown
from ladderholdout.remote.predictions import Form
from ladderholdout.remote.wire import plain
from ladderholdout.server.accounts import holder_of, home_of
from ladderholdout.server.bodies import Asked
from ladderholdout.server.settings import ServerSettings

TRAINING_ROWS = "training rows"
LONGEST_SIGN = 100
MOST_ENTRIES = 1000
"""Lines of the history in one answer."""


class NotThere(Exception):
    """There is nothing of this name for this account; whether there is for others is not shown."""


class Served:
    """What one server process knows of the holdouts; their rows are in memory once.

    Parameters
    ----------
    settings : ServerSettings
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings, self.url = settings, settings.url
        self._ledger = Ledger(self.url)
        self._homes: dict[int, LocalLadder] = {}
        self._ladders: dict[int, LocalLadder] = {}
        self._lock = threading.Lock()

    def holder(self, token: str) -> AccountRecord | None:
        """Return whose token this is, by the ledger as it is now."""
        return holder_of(self._ledger, token)

    def home(self, who: AccountRecord) -> LocalLadder:
        """Return the ladder whose rules the accounts of a holdout follow."""
        with self._lock:
            if who.holdout_id not in self._homes:
                self._homes[who.holdout_id] = home_of(self.url, who.holdout)
            return self._homes[who.holdout_id]

    def ladder(self, who: AccountRecord, account: str | None = None) -> LocalLadder:
        """Return the ladder of an account: the own one, or for readers and owners any.

        Raises
        ------
        NotThere
            There is none, or it is not for this account.
        """
        home = self.home(who)
        if who.role == "analyst" and account not in (None, who.name):
            raise NotThere
        if who.role != "analyst" and account is None:
            return home

        def find(tx: Transaction, one: LadderRecord) -> LadderRecord | None:
            for other in tx.ladders(one.holdout_id):
                if who.role == "analyst":
                    if other.id == who.ladder_id:
                        return other
                elif (other.settings.account, other.settings.name) == (account, one.settings.name):
                    return other
            return None

        known = None if who.ladder_id is None else self._ladders.get(who.ladder_id)
        if known is not None:
            return known
        record = home.read(find)
        if record is None:
            raise NotThere
        found = home if record.id == home.id else home.beside(record)
        with self._lock:
            return self._ladders.setdefault(record.id, found)

    # -- what is shown ----------------------------------------------------------------

    def listed(self, who: AccountRecord) -> dict[str, Any]:
        """Describe a holdout in a line of a list."""
        home = self.home(who)
        return {
            "name": home.facts.name,
            "n": home.facts.n,
            "metric": home.metric.name,
            "role": who.role,
            "account": who.name,
            "retired": plain(home.state().retired),
        }

    def described(self, who: AccountRecord, account: str | None) -> dict[str, Any]:
        """Describe a holdout and a ladder on it: what a search needs, and no label.

        The names of the classes are shown, as they are in any description of a task; which rows
        have them, and how many, is not.
        """
        ladder = self.ladder(who, account)
        facts, state, settings = ladder.facts, ladder.state(), self.settings
        stated = ladder.settings()
        return {
            "name": facts.name,
            "fingerprint": facts.fingerprint,
            "n": facts.n,
            "n_reserve": facts.n_reserve,
            "features": _features(ladder.rows().X),
            "classes": None if facts.classes is None else facts.classes.tolist(),
            "confidence": facts.confidence,
            "account": who.name,
            "role": who.role,
            "per_day": who.per_day,
            "allows": {
                "rows": settings.allows("share_rows", facts.name),
                "estimate": settings.allows("allow_estimates", facts.name),
                "reveal": settings.allows("allow_reveals", facts.name),
            },
            "rules": {
                "account": stated.account,
                "ladder": stated.name,
                "metric": stated.metric,
                "metric_settings": plain(stated.metric_settings),
                "mechanism": stated.mechanism,
                "mechanism_settings": plain(stated.mechanism_settings),
                "shown": rule_shown(stated),
                "budget": stated.budget,
                "unit": plain(stated.unit),
                "created": plain(facts.created),
            },
            "state": plain(state),
        }

    def status(self, who: AccountRecord, account: str | None) -> Status:
        """Return a ladder's status, without what is of other holdouts or of the machine."""
        ladder = self.ladder(who, account)
        found = ladder.status()
        if who.role == "analyst":
            own = (found.account, found.ladder, found.submissions)
            found = replace(found, ladders=(own,))
        overlaps = tuple(one for one in found.overlaps if one.source == TRAINING_ROWS)
        found = replace(found, ledger="", sharing=(), overlaps=overlaps)
        cleaned: Status = self._without_names(ladder, found, found.certificate)
        return cleaned

    def certificate(self, who: AccountRecord, account: str | None) -> tuple[ScoreCertificate, bool]:
        """Return the certificate on record, and whether `work_out` would put one there."""
        ladder = self.ladder(who, account)
        found, possible = known_certificate(ladder)
        return self._without_names(ladder, without_others(found)), possible

    def work_out(self, who: AccountRecord, account: str | None) -> ScoreCertificate:
        """Return the certificate with the registered confidence, put on record where it must be."""
        ladder = self.ladder(who, account)
        found = without_others(ladder.certificate(None))
        cleaned: ScoreCertificate = self._without_names(ladder, found)
        return cleaned

    def estimate(self, who: AccountRecord) -> Estimate:
        """Return the corrected score, which is put on record."""
        self._check_allowed("allow_estimates", who, "corrected scores")
        ladder = self.ladder(who)
        cleaned: Estimate = self._without_names(ladder, ladder.estimate())
        return cleaned

    def reveal(self, who: AccountRecord) -> float | None:
        """Return the released score of a ladder that shows none, which is put on record."""
        self._check_allowed("allow_reveals", who, "the scores of a ladder that releases none")
        return self.ladder(who).reveal()

    def history(
        self, who: AccountRecord, account: str | None, after: int, limit: int, search: str | None
    ) -> dict[str, Any]:
        """Return lines of the history, and what a search needs to find its own."""
        ladder = self.ladder(who, account)
        state, submissions = ladder.state(), ladder.history(after, limit, search=search)
        return {
            "submissions": list(map(plain, submissions)),
            "total": state.submissions,
            "incumbent": state.incumbent,
        }

    def standings(self, who: AccountRecord) -> Standings:
        """Return the ranks of all accounts on a leaderboard."""
        if not self.has_leaderboard(who):
            raise HoldoutConflict(
                "This holdout has no leaderboard. Its owner starts one with the rows, "
                "Leaderboard(X, y, name=...), before accounts are added."
            )
        name = self.home(who).facts.ladder
        return Leaderboard.open(who.holdout, ladder=name, ledger=self.url).standings()

    def has_leaderboard(self, who: AccountRecord) -> bool:
        """Return whether the holdout of an account has a leaderboard."""
        return self.home(who).facts.account == BOARD

    # -- what an owner does -------------------------------------------------------------

    def withdraw(
        self, who: AccountRecord, account: str | None, number: int, reason: str
    ) -> Withdrawn:
        """Withdraw a submission of an account, on record."""
        return self.ladder(who, account).withdraw(number, reason)

    def retire(self, who: AccountRecord, confirmed: str) -> datetime:
        """Take no more submissions on the holdout, permanently, where its name was typed again."""
        return retired(self.home(who), confirmed)

    # -- rows -------------------------------------------------------------------------

    def rows(self, who: AccountRecord) -> Any:
        """Return the features in the registered order, where they are shared."""
        self._check_allowed("share_rows", who, "the rows")
        return self.home(who).rows().X

    def order_of(self, who: AccountRecord, hashes: NDArray[Any]) -> NDArray[np.int64]:
        """Return where each registered row is among somebody's rows, by their hashes.

        Of rows with equal features the first is taken for the first.
        """
        known = fp.row_hashes(self.home(who).rows().X)
        order = fp.placed(known, hashes)
        if order is None:
            raise InvalidArgument(
                "X",
                f"the {len(known)} rows of the holdout, in any order",
                "others, or some of them with other values",
                "Give the rows with the features that were registered, or leave X out where the "
                "owner shares them.",
            )
        return order

    def note_overlap(self, who: AccountRecord, rows: int) -> None:
        """Note how many rows of the holdout an analyst found among the training rows."""
        n = self.home(who).facts.n
        if not 1 <= rows <= n:
            raise InvalidArgument("rows", f"a number from 1 to {n}", rows)
        self.ladder(who).note(SeenRows(TRAINING_ROWS, rows))

    def note_groups(self, who: AccountRecord, by: str) -> None:
        """Note what showed an analyst's process that rows come in groups."""
        if not 1 <= len(by) <= LONGEST_SIGN:
            allowed = f"a text of 1 to {LONGEST_SIGN} characters"
            raise InvalidArgument("by", allowed, f"one of {len(by)}")
        self.ladder(who).note(SeenGroups(by))

    # -- submissions ------------------------------------------------------------------

    def wanted(self, who: AccountRecord) -> Form:
        """Return what predictions have to be for the ladder of an account."""
        return form_of(self.ladder(who))

    def submit(self, who: AccountRecord, asked: Asked, key: str | None) -> Release:
        """Submit one set of predictions; the release is durable before it returns.

        An attempt under the same key again is a repeat, and gets the first answer.
        """
        return self.ladder(who).submit(asked.predictions, origin_of(who, asked, key))

    def submit_batch(
        self, who: AccountRecord, batch: Sequence[Asked], key: str | None
    ) -> list[Release]:
        """Submit a batch: all of it is here before any of it is answered."""
        key, ladder = key or uuid4().hex, self.ladder(who)
        # Refused as a whole, or taken as a whole.
        fixed = [ladder.fix(asked.predictions) for asked in batch]
        # Under the same key, other predictions are another batch: they may know the answers.
        name = hashlib.sha256(f"batch {ladder.facts.account} {key}".encode())
        for predictions in fixed:
            name.update(_as_bytes(predictions.values))
        origins = [origin_of(who, asked, f"{key} {place}") for place, asked in enumerate(batch, 1)]
        return list(ladder.submit_batch(name.hexdigest()[:32], fixed, origins))

    # -- what must not be shown ---------------------------------------------------------

    def _check_allowed(self, what: str, who: AccountRecord, described: str) -> None:
        if not self.settings.allows(what, who.holdout):
            option = "--" + what.replace("_", "-")
            raise HoldoutConflict(
                f"The owner of this holdout does not serve {described} "
                f"(ladder-holdout serve {option} NAME)."
            )

    def _without_names(self, ladder: LocalLadder, found: Any, certificate: Any = None) -> Any:
        """Take the names of other holdouts out of the reasons in a result."""
        shared = ladder.read(lambda tx, one: tx.sharing(one.holdout_id))
        if not shared:
            return found

        def clean(text: str | None) -> str | None:
            for one in shared:
                text = text and text.replace(f"the holdout {one.name!r}", "another holdout")
            return text

        changes: Mapping[str, Any]
        if certificate is not None:
            estimate = found.estimate and replace(
                found.estimate, reason=clean(found.estimate.reason)
            )
            shown = replace(certificate, missing=clean(certificate.missing))
            changes = {"certificate": shown, "estimate": estimate}
        else:
            field = "reason" if hasattr(found, "reason") else "missing"
            changes = {field: clean(getattr(found, field))}
        return replace(found, **changes)


def origin_of(who: AccountRecord, asked: Asked, key: str | None) -> Origin:
    """Return where a submission of an account comes from."""
    return Origin(
        search=asked.search,
        key=None if key is None else key_of(key),
        context=asked.context,
        per_day=who.per_day,
    )


def _as_bytes(predictions: NDArray[Any]) -> bytes:
    """Return the content of predictions, which may be texts."""
    if predictions.dtype.kind == "O":
        predictions = predictions.astype(str)
    return predictions.tobytes()


def form_of(ladder: OpenLadder) -> Form:
    """Return what predictions have to be for a ladder."""
    facts = ladder.facts
    return Form(ladder.metric, facts.n, facts.classes, ladder.state().has_ids)


def retired(ladder: LocalLadder, confirmed: str) -> datetime:
    """Retire the holdout of a ladder, where its name was typed to confirm it."""
    if confirmed != ladder.facts.name:
        raise InvalidArgument(
            "name",
            "the name of the holdout, typed again to confirm it",
            "another text",
            "A retired holdout takes no more submissions.",
        )
    return ladder.retire()


def account_shown(one: AccountRecord) -> dict[str, Any]:
    """Return what is shown of an account: nothing of its token."""
    names = ("name", "role", "per_day", "created", "expires", "revoked")
    return {name: plain(getattr(one, name)) for name in names}


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
    return kind | {"shape": [len(X)] if shape is None else [int(one) for one in shape]}


def key_of(key: str) -> str:
    """Return the key of a submission in the ledger, of a length that fits there."""
    return hashlib.sha256(f"http {key}".encode(errors="surrogateescape")).hexdigest()
