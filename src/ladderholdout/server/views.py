"""`View`, whose methods are the operations on a ladder, and who gets a view on which ladder.

Whatever a view shows depends on labels through releases, certificates and corrected scores alone;
raw scores do not come into it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.audit.report import page_of, record_of
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import (
    Comparison,
    Decision,
    Estimate,
    Health,
    HoldoutSettings,
    LocalLadder,
    Origin,
    Release,
    ScoreCertificate,
    SeenGroups,
    Status,
    Withdrawn,
    by_first_order,
    health_of,
    known_certificate,
    reopen_ladder,
    without_others,
)
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard import Collected, Finals, Leaderboard
from ladderholdout.leaderboard.rounds import due_of, round_shown
from ladderholdout.leaderboard.standings import BOARD, Standings, start, team_ladder
from ladderholdout.ledger import Ledger, shown
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.rules import rule_shown
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.remote.predictions import Form
from ladderholdout.server.accounts import (
    AccountRecord,
    Issued,
    accounts_of,
    add_account,
    end_of,
    holder_of,
    home_of,
    limit_account,
    revoke_token,
    rotate_token,
)
from ladderholdout.server.bodies import Asked
from ladderholdout.server.metrics import metrics_in
from ladderholdout.server.operations import (
    A_BATCH,
    A_CANDIDATE,
    A_SUBMISSION,
    ANALYST,
    ANYONE,
    COMPARED,
    HASHES,
    OPERATIONS,
    OWNER,
    SUBMITTING,
    AccountName,
    Added,
    Confirmed,
    FoundRows,
    HeldFinals,
    Limited,
    Rotated,
    Sign,
    Withdrawal,
    of_training,
    operation,
    signed,
    training_note,
)
from ladderholdout.server.settings import ServerSettings

LONGEST_SIGN = 100
REPORT = "report"
"""What the owner of a ledger may see besides all operations, on the machine of the ledger."""

_QUERIES = frozenset({"submit", "decide", "compare", "work_out", "estimate", "reveal"})
_OF_ROUNDS = {"open_round", "collect", "close_round"}
_NOT_SERVED = {
    "share_rows": "the rows",
    "allow_comparisons": "comparisons",
    "allow_estimates": "corrected scores",
    "allow_reveals": "the scores of a ladder that shows improvements alone",
}

R = TypeVar("R", ScoreCertificate, Estimate)


class NotThere(Exception):
    """There is nothing of this name for this account; whether there is for others is not shown."""


@dataclass(frozen=True)
class View:
    """One ladder of a holdout, as an account of a server or the owner of a ledger may use it.

    Its methods are what may be asked for: `operation` enters them into the list from which the API
    and the pages are made, which also ask whether the role may (`may`).

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

        def find(tx: Transaction, ladder: LadderRecord) -> str | None:
            known = (other.settings for other in tx.ladders(ladder.holdout_id))
            names = [stated.name for stated in known if stated.account == BOARD]
            if self.account is None:
                names = [name for name in names if name == ladder.settings.name]
            return names[0] if names else None

        return self.ladder.read(find)

    @cached_property
    def may(self) -> frozenset[str]:
        """The names of the operations that pages offer: by the role, the settings and the ladder.

        To the ladder that holds the rules of a leaderboard nobody submits.
        """
        if self.account is None:
            names = {REPORT, *OPERATIONS}
        else:
            names = {name for name, known in OPERATIONS.items() if self.role in known.roles}
        if self.chosen.get("account", BOARD) == BOARD and self.role != "analyst":
            names -= _QUERIES
        withheld = {name for name, known in OPERATIONS.items() if not self._allows(known.setting)}
        if self.board is None:
            withheld |= {"leaderboard", "finals", "hold_finals"}
        withheld |= {"submit", "submit_batch"} if self.by_rounds else _OF_ROUNDS
        return frozenset(names - withheld)

    # -- the holdout ------------------------------------------------------------------

    def listed(self) -> dict[str, Any]:
        """Describe the holdout in a line of a list."""
        return {
            "name": self.name,
            "n": self.ladder.facts.n,
            "metric": self.ladder.metric.name,
            "role": self.role,
            "account": self.holder,
            "retired": self.ladder.state().retired,
        }

    @operation("GET", "/rows", "holdouts", ANYONE, setting="share_rows")
    def rows(self) -> Any:
        """Send the features without labels, where the owner shares them."""
        self._check_allowed("share_rows")
        return self.ladder.rows().X

    @operation("POST", "/rows/order", "holdouts", ANALYST, openapi=HASHES)
    def order(self, hashes: NDArray[Any]) -> NDArray[np.int64]:
        """Return where each row of the holdout is among somebody's own, by hashes of these."""
        known = fp.row_hashes(self.ladder.rows().X)
        # Of rows with equal features the first is taken for the first.
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

    @operation("GET", "/rows/groups", "holdouts", ANALYST, setting="share_rows")
    def group_names(self) -> NDArray[Any]:
        """Send a hash of each group of the rows, where the owner shares the rows."""
        self._check_allowed("share_rows")
        known = self.ladder.rows().groups
        return np.zeros(0, dtype=np.uint64) if known is None else known

    @operation("POST", "/overlaps", "holdouts", ANALYST, name="overlaps", model=FoundRows)
    def note_overlap(self, rows: int) -> None:
        """Note that rows of the holdout are among the training rows: {"rows": count}."""
        n = self.ladder.facts.n
        if not 1 <= rows <= n:
            raise InvalidArgument("rows", f"a number from 1 to {n}", rows)
        self.ladder.note(training_note(self.holder, rows))

    @operation("POST", "/groups", "holdouts", ANALYST, name="groups", model=Sign)
    def note_groups(self, by: str) -> None:
        """Note what showed that the rows come in groups: {"by": text}."""
        if not 1 <= len(by) <= LONGEST_SIGN:
            allowed = f"a text of 1 to {LONGEST_SIGN} characters"
            raise InvalidArgument("by", allowed, f"one of {len(by)}")
        known = self.ladder.read(lambda tx, it: tx.fold(it.holdout_id).grouped(withdrawn=True))
        self.ladder.note(SeenGroups(signed(by, self.holder, known)))

    # -- submissions ------------------------------------------------------------------

    def wanted(self) -> Form:
        """Return what predictions have to be for the ladder."""
        facts = self.ladder.facts
        return Form(self.ladder.metric, facts.n, facts.classes, self.ladder.state().has_ids)

    @operation("POST", "/submissions", "submissions", SUBMITTING, openapi=A_SUBMISSION)
    def submit(self, asked: Asked, key: str | None) -> Release:
        """Submit predictions for the rows: in the order of the first registration, or with ids."""
        self._check_answers_at_once()
        self._check_names_whom()
        return self.ladder.submit(asked.predictions, self._origin(asked, key))

    @operation("POST", "/decisions", "submissions", ANALYST, openapi=A_CANDIDATE)
    def decide(self, asked: Asked, key: str | None) -> Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        self._check_answers_at_once()
        origin = replace(self._origin(asked, key), margin=asked.margin, baseline=asked.baseline)
        return self.ladder.decide(asked.predictions, origin)

    @operation("POST", "/batches", "submissions", ANALYST, openapi=A_BATCH)
    def submit_batch(self, batch: Sequence[Asked], key: str | None) -> dict[str, Any]:
        """Submit several sets of predictions, all fixed before feedback on any of them."""
        self._check_answers_at_once()
        key, ladder = key or uuid4().hex, self.ladder
        # Refused as a whole, or taken as a whole.
        fixed = [ladder.fix(asked.predictions) for asked in batch]
        # Under the same key, other predictions are another batch: they may know the answers.
        name = hashlib.sha256(f"batch {ladder.facts.account} {key}".encode())
        for predictions in fixed:
            values = predictions.values
            name.update((values.astype(str) if values.dtype.kind == "O" else values).tobytes())
        origins = [self._origin(asked, f"{key} {place}") for place, asked in enumerate(batch, 1)]
        return {"releases": list(ladder.submit_batch(name.hexdigest()[:32], fixed, origins))}

    def _origin(self, asked: Asked, key: str | None) -> Origin:
        """Return where a submission comes from; its key is brought to a length that fits."""
        if key is not None:
            key = hashlib.sha256(f"http {key}".encode(errors="surrogateescape")).hexdigest()
        return Origin(search=asked.search, key=key, context=asked.context, per_day=self.per_day)

    @operation("GET", "/submissions", "submissions", ANYONE, any_ladder=True)
    def history(self, after: int, limit: int, search: str | None) -> dict[str, Any]:
        """List submissions and what was released after each."""
        state, submissions = self.ladder.state(), self.ladder.history(after, limit, search=search)
        return {
            "submissions": submissions,
            "total": state.submissions,
            "incumbent": state.incumbent,
        }

    # -- results ----------------------------------------------------------------------

    @operation("GET", "/status", "results", ANYONE, any_ladder=True)
    def status(self) -> Status:
        """Return the released score, its certificate, and how much was asked."""
        status = self.ladder.status()
        if self.account is None:
            return status
        ladders = status.ladders
        if self.role == "analyst":
            ladders = ((status.account, status.ladder, status.submissions),)
        return replace(
            status,
            ledger="",
            ladders=ladders,
            sharing=(),
            overlaps=of_training(status.overlaps, self.holder if self.role == "analyst" else None),
            certificate=self._without_names(status.certificate),
            estimate=status.estimate and self._without_names(status.estimate),
        )

    @operation("GET", "/health", "results", ANYONE, any_ladder=True)
    def health(self, more: int, spent_at: float | None) -> Health:
        """Return how used up the holdout is: the width of the certificate, now and later."""
        found = health_of(self.ladder, more, spent_at)
        return replace(found, reason=self._cleaned(found.reason) or "")

    @operation("GET", "/certificate", "results", ANYONE, any_ladder=True)
    def certificate(self) -> ScoreCertificate:
        """Return the interval for the true score of the incumbent that is on record."""
        return self.known_certificate()[0]

    def known_certificate(self) -> tuple[ScoreCertificate, bool]:
        """Return the certificate on record, and whether `work_out` would put one there."""
        known, possible = known_certificate(self.ladder)
        return self._without_names(known), possible

    @operation("POST", "/certificate", "results", ANALYST | OWNER, any_ladder=True)
    def work_out(self) -> ScoreCertificate:
        """Work out that interval, put it on record where it has a price, and return it."""
        return self._without_names(self.ladder.certificate(None))

    @operation("POST", "/estimate", "results", ANALYST, setting="allow_estimates")
    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection in a batch, where the owner allows it."""
        self._check_allowed("allow_estimates")
        return self._without_names(self.ladder.estimate())

    @operation("POST", "/reveal", "results", ANALYST, setting="allow_reveals")
    def reveal(self) -> dict[str, Any]:
        """Show the score of a ladder that releases none, where the owner allows it."""
        self._check_allowed("allow_reveals")
        return {"score": self.ladder.reveal()}

    @operation(
        "POST", "/comparisons", "results", ANALYST, setting="allow_comparisons", openapi=COMPARED
    )
    def compare(self, first: Any, second: Any) -> Comparison:
        """Compare two models, each the number of a submission or predictions."""
        self._check_allowed("allow_comparisons")
        return self.ladder.compare(first, second, None, self.per_day)

    @operation("GET", "/leaderboard", "results", ANYONE)
    def leaderboard(self) -> Standings:
        """Rank the accounts by their released scores."""
        return self._open_board().standings()

    def _open_board(self) -> Leaderboard:
        if self.board is None:
            raise HoldoutConflict(
                "This holdout has no leaderboard. Its owner starts one with the rows, "
                "Leaderboard(X, y, name=...), before accounts are added."
            )
        return Leaderboard.open(
            self.name, scoring=self.ladder.metric, ladder=self.board, ledger=self.url
        )

    @cached_property
    def by_rounds(self) -> bool:
        """Whether the account submits to a leaderboard that answers by rounds."""
        if self.board is None or self.ladder.facts.ladder != self.board:
            return False
        return self._open_board().by_rounds

    def _check_names_whom(self) -> None:
        """Refuse a submission of a host that does not name whose it is."""
        if self.role == "host" and self.ladder.facts.account == BOARD:
            allowed = f"the name of a participant, other than {BOARD!r}"
            raise InvalidArgument("account", allowed, "none", "State it: ?account=NAME.")

    def _check_answers_at_once(self) -> None:
        if self.by_rounds:
            raise HoldoutConflict(
                "This leaderboard answers by rounds: send predictions to POST /round, and read the "
                "answers in the history once the round is closed."
            )

    @operation("GET", "/round", "results", ANYONE)
    def open_round(self) -> dict[str, Any]:
        """Describe the open round of a leaderboard: how many submissions wait; and those before."""
        board = self._open_board()
        waiting, rounds = board.waiting(), board.rounds()
        if rounds is None:
            raise HoldoutConflict("This leaderboard answers at once, and has no rounds.")
        return {
            "round": rounds.number,
            "since": rounds.since,
            "due": due_of(rounds),
            "waiting": sum(waiting.values()),
            "of_account": waiting.get(self.ladder.facts.account, 0),
            "closed": [round_shown(record, board.metric) for record in rounds.closed],
        }

    @operation("POST", "/round", "submissions", SUBMITTING, openapi=A_SUBMISSION)
    def collect(self, asked: Asked, key: str | None) -> Collected:
        """Submit predictions to the open round of a leaderboard, whose end brings the answer."""
        self._check_names_whom()
        account, board = self.ladder.facts.account, self._open_board()
        return board.collect(account, asked.predictions, self._origin(asked, key))

    @operation("POST", "/round/closing", "submissions", OWNER, model=Confirmed)
    def close_round(self, name: str) -> dict[str, Any]:
        """Answer what waits as one batch: {"name"}, the holdout's, to confirm it."""
        self._confirm(name, "All that waits is answered.")
        board = self._open_board()
        closed = board.close_round()
        return {"closed": closed and round_shown(closed.record, board.metric)}

    @operation("GET", "/finals", "results", ANYONE)
    def finals(self) -> dict[str, Any]:
        """Return the finals that were held, oldest first: scores, sets of ranks and ties."""
        return {"finals": self._open_board().finals_held()}

    @operation("POST", "/finals", "results", OWNER, model=HeldFinals)
    def hold_finals(
        self,
        name: str,
        best: int | None,
        entries: dict[str, int | list[int] | None] | None,
        again: bool,
    ) -> Finals:
        """Hold finals: {"name", "best", "entries", "again"}; the name is to confirm it."""
        self._confirm(name, "Finals show how entries do on the reserve, once.")
        board = self._open_board()
        if best is not None and entries is not None:
            raise InvalidArgument("best", "left out with entries", best)
        return board.finals(entries if best is None else best, again=again)

    # -- what an owner does -------------------------------------------------------------

    @operation("GET", "/accounts", "accounts", OWNER)
    def accounts(self) -> dict[str, Any]:
        """List the accounts on the holdout."""
        return {"accounts": [*map(_account_shown, accounts_of(self.url, self.name))]}

    @operation("POST", "/accounts", "accounts", OWNER, model=Added)
    def add(
        self,
        account: str,
        role: str,
        per_day: int | None,
        budget: int | None,
        show: str | None,
        expires: str | None,
    ) -> dict[str, Any]:
        """Add one: {"account", "role", "per_day", "budget", "show", "expires"}; shows its token."""
        issued = add_account(
            *(self.url, self.name, account, role),
            per_day=per_day,
            budget=budget,
            show=show,
            expires=end_of(expires),
        )
        return _token_shown(issued)

    @operation("POST", "/accounts/rotate", "accounts", OWNER, model=Rotated)
    def rotate(self, account: str, expires: str | None) -> dict[str, Any]:
        """Give an account a new token, shown once: {"account", "expires"}."""
        return _token_shown(rotate_token(self.url, self.name, account, expires=end_of(expires)))

    @operation("POST", "/accounts/revoke", "accounts", OWNER, model=AccountName)
    def revoke(self, account: str) -> dict[str, Any]:
        """End the token of an account at once: {"account"}."""
        return _account_shown(revoke_token(self.url, self.name, account))

    @operation("POST", "/accounts/limit", "accounts", OWNER, model=Limited)
    def limit(self, account: str, per_day: int | None) -> dict[str, Any]:
        """Change the submissions a day of an account: {"account", "per_day"}."""
        return _account_shown(limit_account(self.url, self.name, account, per_day))

    @operation("POST", "/withdrawals", "holdouts", OWNER, model=Withdrawal)
    def withdraw(self, submission: int, reason: str) -> Withdrawn:
        """Withdraw a submission, on record: {"account", "submission", "reason"}."""
        return self.ladder.withdraw(submission, reason)

    @operation("POST", "/retirement", "holdouts", OWNER, model=Confirmed)
    def retire(self, name: str) -> dict[str, Any]:
        """Take no more submissions: {"name"}, the holdout's, to confirm it."""
        self._confirm(name, "A retired holdout takes no more submissions.")
        return {"retired": self.ladder.retire()}

    def _confirm(self, name: str, why: str) -> None:
        """Refuse what cannot be undone unless the name of the holdout is stated."""
        if name != self.name:
            allowed = "the name of the holdout, typed again to confirm it"
            raise InvalidArgument("name", allowed, "another text", why)

    def report(self) -> str:
        """Return the report on what was released, which has no raw score."""
        account, ladder = self.chosen["account"], self.chosen["ladder"]
        holdout = LadderHoldout.open(self.name, account=account, ladder=ladder, ledger=self.url)
        return page_of(record_of(holdout), Leaderboard.on(holdout))

    # Last: a name of an older ledger may have slashes, and this path has nothing after the name.
    @operation("GET", "", "holdouts", ANYONE, any_ladder=True)
    def describe(self) -> dict[str, Any]:
        """Describe a holdout: its size, features, metric, rules, and the state of a ladder."""
        # The names of the classes are shown, as in any description of a task; which rows have them,
        # and how many, is not.
        facts, settings = self.ladder.facts, self.ladder.settings()
        return {
            "name": facts.name,
            "fingerprint": facts.fingerprint,
            "n": facts.n,
            "n_reserve": facts.n_reserve,
            "features": _features(self.ladder.rows().X),
            "classes": None if facts.classes is None else facts.classes.tolist(),
            "confidence": facts.confidence,
            "estimand": facts.estimand,
            "block": facts.block,
            "account": self.holder,
            "role": self.role,
            "per_day": self.per_day,
            "allows": {
                "rows": self._allows("share_rows"),
                "estimate": self._allows("allow_estimates"),
                "reveal": self._allows("allow_reveals"),
                "compare": self._allows("allow_comparisons"),
            },
            "rules": {
                "account": settings.account,
                "ladder": settings.name,
                "metric": settings.metric,
                "metric_settings": settings.metric_settings,
                "mechanism": settings.mechanism,
                "mechanism_settings": settings.mechanism_settings,
                "shown": rule_shown(settings),
                "budget": settings.budget,
                "unit": settings.unit,
                "show": settings.show,
                "created": facts.created,
            },
            "state": self.ladder.state(),
        }

    # -- what must not be shown ---------------------------------------------------------

    def _allows(self, setting: str | None) -> bool:
        """Return whether the settings of the server allow something; all is allowed at home."""
        return setting is None or self.settings is None or self.settings.allows(setting, self.name)

    def _check_allowed(self, setting: str) -> None:
        if not self._allows(setting):
            option = "--" + setting.replace("_", "-")
            raise HoldoutConflict(
                f"The owner of this holdout does not serve {_NOT_SERVED[setting]} "
                f"(ladder-holdout serve {option} NAME)."
            )

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

    @cached_property
    def _hidden_names(self) -> tuple[str, ...]:
        """The names of other holdouts that share rows, which no account of this one may learn."""
        if self.account is None:
            return ()
        return self.ladder.read(
            lambda tx, ladder: tuple(other.name for other in tx.sharing(ladder.holdout_id))
        )

    def _without_names(self, result: R) -> R:
        """Take other accounts and holdouts out of a result, but for the owner of the ledger."""
        if self.account is None:
            return result
        if isinstance(result, ScoreCertificate):
            return replace(without_others(result), missing=self._cleaned(result.missing))
        return replace(result, reason=self._cleaned(result.reason))

    def _cleaned(self, text: str | None) -> str | None:
        for name in self._hidden_names if text else ():
            text = text and text.replace(f"the holdout {name!r}", "another holdout")
        return text


def _account_shown(account: AccountRecord) -> dict[str, Any]:
    """Return what is shown of an account: nothing of its token."""
    names = ("name", "role", "per_day", "created", "expires", "revoked")
    return {name: getattr(account, name) for name in names}


def _token_shown(issued: Issued) -> dict[str, Any]:
    return _account_shown(issued.account) | {"token": issued.token}


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
        return holder_of(self._ledger, token)

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
        named = {} if whose is None else {"account": whose}
        found = partial(self._ladder, account, whose, starts and account.role == "host")
        return View(self.url, account.holdout, named, found, account, self.settings)

    def _ladder(self, account: AccountRecord, whose: str | None, starts: bool) -> LocalLadder:
        with self._lock:
            if account.holdout_id not in self._homes:
                self._homes[account.holdout_id] = home_of(self.url, account.holdout, self._metrics)
            home = self._homes[account.holdout_id]
        if account.role == "analyst":
            if whose not in (None, account.name):
                raise NotThere
            known = self._ladders.get(account.ladder_id or 0)
            if known is not None:
                return known
        elif whose is None:
            return home

        def find(tx: Transaction, ladder: LadderRecord) -> LadderRecord | None:
            for other in tx.ladders(ladder.holdout_id):
                names = (other.settings.account, other.settings.name)
                if account.role == "analyst":
                    if other.id == account.ladder_id:
                        return other
                elif names == (whose, ladder.settings.name):
                    return other
            return None

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
        """The ledger, for the head of each page."""
        return shown(self.url)

    def views(self) -> Sequence[View]:
        """Return a view for each ladder of each holdout, the newest holdout first."""
        with Ledger(self.url).read() as tx:
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
        stated = HoldoutSettings(
            name=name, account=account, ladder=ladder, overlap="ignore", ledger=self.url
        )

        def reopened() -> LocalLadder:
            known = reopen_ladder(stated)
            by_first_order(known)
            return known

        return View(self.url, name, {"account": account, "ladder": ladder}, reopened)


Person: TypeAlias = AccountHolder | LedgerOwner
"""Somebody who uses the pages."""
