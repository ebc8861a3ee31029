"""The tables of a ledger, one set for SQLite and PostgreSQL, and what may be in their cells."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    Table,
    UniqueConstraint,
    insert,
    inspect,
    literal_column,
    select,
    text,
    types,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from ladderholdout.errors import LedgerError

FAULTS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What reading a value that this library did not write may raise, beside running out of memory."""


def damaged() -> LedgerError:
    """Return what is raised for a value that was changed; it does not show it."""
    return LedgerError(
        "The ledger holds an entry that was changed and cannot be read any more. "
        "`ladder-holdout verify NAME` names it; restore the ledger from a backup."
    )


class _Checked(TypeDecorator[Any]):
    """A type whose values are checked when they are read."""

    kinds: ClassVar[tuple[type, ...]]
    # Whether a value of the right type is one that this library writes, where not all are.
    fits: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        cls.cache_ok = True  # asked of each class itself

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        read = super().result_processor(dialect, coltype)
        kinds, fits = self.kinds, self.fits

        def checked(value: Any) -> Any:
            if value is None:
                return None
            if type(value) not in kinds or (fits is not None and not fits(value)):
                raise damaged()
            try:
                return value if read is None else read(value)
            except FAULTS:
                raise damaged() from None

        return checked


class Integer(_Checked):
    """A whole number."""

    impl = types.Integer
    kinds = (int,)


class Float(_Checked):
    """A real number, infinite at most."""

    impl = types.Float
    kinds = (float, int)

    @staticmethod
    def fits(value: Any) -> bool:
        """Return whether a value is a number and not nan."""
        return not math.isnan(value)


class Boolean(_Checked):
    """Yes or no."""

    impl = types.Boolean
    kinds = (bool, int)

    fits = staticmethod((0, 1).__contains__)


class String(_Checked):
    """A text of a limited length."""

    impl = types.String
    kinds = (str,)


class Text(_Checked):
    """A text."""

    impl = types.Text
    kinds = (str,)


class LargeBinary(_Checked):
    """Some bytes."""

    impl = types.LargeBinary
    kinds = (bytes, memoryview)


class DateTime(_Checked):
    """A moment; SQLite keeps it as a text."""

    impl = types.DateTime
    kinds = (str, datetime)


RAW: TypeEngine[Any] = types.NullType()
"""The type of a value as it is, for `verify`: one that was changed must not hide the others."""


def read_json(text: str) -> dict[str, Any]:
    """Read what `json.dumps` wrote of a dict; ValueError where it is anything else, or has nan."""
    value, end = _DECODER.raw_decode(text)
    if end != len(text) or not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError(name)
    return float(name)


_DECODER = json.JSONDecoder(parse_constant=_constant)


FORMAT = 1
"""The number of the format that this version of the library reads and writes.

`docs/background/format.md` lists what a change of the tables, of what is chained or of the vault's
files has to bring along.
"""

NUMBER: ColumnElement[Any] = literal_column("(SELECT number FROM ledger_format)")
"""The number of a ledger's format, in any statement."""

MARKED = "(improved AND repeat_of IS NULL)"
"""Which submissions a certificate names one by one: those that improved their ladder."""


def _of_some(name: str, which: str, column: str, *, unique: bool = False) -> Index:
    """Return an index of a ladder's submissions that leaves most of them out."""
    where = text(which)
    return Index(
        name, "ladder_id", column, unique=unique, sqlite_where=where, postgresql_where=where
    )


metadata = MetaData()

holdouts = Table(
    "holdouts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("fingerprint", String(64), nullable=False, index=True),
    # A keyed digest of rows and labels together: the fingerprint alone does not show that
    # a label was changed, and an unkeyed digest would let labels be guessed one by one.
    Column("content_digest", LargeBinary, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("n", Integer, nullable=False),
    Column("classes", LargeBinary),
    Column("row_hashes", LargeBinary, nullable=False),
    Column("vault_path", Text),
    Column("vault_digest", String(64)),
    Column("created", DateTime(timezone=True), nullable=False),
    # Since when no submission is taken any more.
    Column("retired", DateTime(timezone=True)),
    # Which rows no ladder measures, a bit for each, in the order of the content.
    Column("reserve", LargeBinary),
    # Of all certificates of this holdout, fixed when it is registered.
    Column("confidence", Float, nullable=False, server_default="0.95"),
    # What is known of the rows beside their features, each in the order of registration and
    # null where it is not known: hashes of the user's ids; keyed digests of the labels, of all
    # in their order (where that order is one of very many) and of each; those of the weights
    # (null where all are one); the place of each row in the order of the content as first
    # registered, in which predictions are kept.
    Column("ids", LargeBinary),
    Column("labels_digest", LargeBinary),
    Column("label_digests", LargeBinary),
    Column("weight_digests", LargeBinary),
    Column("places", LargeBinary),
    # Where whole groups of rows were drawn: a hash of each row's group, in the order of
    # registration, and the mean that certificates are of.
    Column("groups", LargeBinary),
    Column("estimand", String(10)),
    # How many versions of the labels there have been: one more for each amendment.
    Column("labels_version", Integer, nullable=False, server_default="1"),
    # Which block of rows of its holdout it is: each takes the place of the one before it.
    Column("block", Integer, nullable=False, server_default="1"),
)

# The same rows with other features. The first view is the holdout's own row.
views = Table(
    "views",
    metadata,
    Column("holdout_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String(64), nullable=False, index=True),
    # In the order in which this view was given; so are the places.
    Column("row_hashes", LargeBinary, nullable=False),
    Column("places", LargeBinary, nullable=False),
    Column("vault_path", Text),
    Column("vault_digest", String(64)),
    Column("created", DateTime(timezone=True), nullable=False),
)

ladders = Table(
    "ladders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("holdout_id", ForeignKey("holdouts.id"), nullable=False),
    Column("account", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("metric", String(200), nullable=False),
    Column("metric_settings", Text, nullable=False),
    Column("mechanism", String(200), nullable=False),
    Column("mechanism_settings", Text, nullable=False),
    Column("budget", Integer),
    Column("unit", Float),
    Column("show", String(20), nullable=False),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("opened", DateTime(timezone=True)),
    # What changes with a submission. `version` counts the incumbents, so that a process
    # knows whether the predictions it has cached are still theirs.
    Column("submissions", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("incumbent", Integer),
    # How many of its submissions were withdrawn.
    Column("withdrawals", Integer, nullable=False, server_default="0"),
    # How many of its submissions are queries, as the last of them counts.
    Column("queries", Integer, nullable=False, server_default="0"),
    UniqueConstraint("holdout_id", "account", "name", name="uq_ladders_place"),
)

submissions = Table(
    "submissions",
    metadata,
    # Assigned while the holdout's row is locked: the order of ids is the one order of
    # all submissions on a holdout, whichever ladder they went to.
    Column("id", Integer, primary_key=True),
    Column("ladder_id", ForeignKey("ladders.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    # Of the predictions for the rows that ladders measure.
    Column("digest", String(64), nullable=False),
    Column("batch", String(32)),
    Column("search", String(32)),
    Column("repeat_of", Integer),
    Column("raw_risk", Float, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("released_risk", Float, nullable=False),
    Column("improved", Boolean, nullable=False),
    Column("disagreement", Float),
    Column("context", Text, nullable=False),
    # What names a submission before its predictions are known (a trial of a study): asked
    # for twice, it is answered once. Kept by the first alone.
    Column("key", String(64)),
    # Of its link in the holdout's chain.
    Column("position", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    # Of those for the reserve.
    Column("reserve_digest", String(64)),
    # The candidate's own place in its batch, from 1, whenever it came in; null where unknown.
    Column("place", Integer),
    # Runs of queries of one batch that had begun on the holdout, and queries of the ladder, this
    # one included: what a certificate counts without reading all entries. A repeat whose answer was
    # known to who submitted it is no query. Checked by `verify`, and not chained.
    Column("runs", Integer, nullable=False, server_default="0"),
    Column("queries", Integer, nullable=False, server_default="0"),
    UniqueConstraint("ladder_id", "number", name="uq_submissions_number"),
    Index("ix_submissions_digest", "ladder_id", "digest"),
    Index("ix_submissions_order", "ladder_id", "id"),
    # Of few submissions each.
    _of_some("ix_submissions_search", "search IS NOT NULL", "search"),
    _of_some("ix_submissions_key", "key IS NOT NULL", "key", unique=True),
    _of_some("ix_submissions_marked", MARKED, "number"),
)

# The predictions of the incumbent, and of earlier ones to go back to when a submission is
# withdrawn. Not beside the ladder, for SQLite would write them anew with each submission.
incumbents = Table(
    "incumbents",
    metadata,
    Column("ladder_id", ForeignKey("ladders.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Empty where they are among the candidates.
    Column("predictions", LargeBinary, nullable=False),
    # What the ladder's state was when it became the incumbent, as JSON.
    Column("state", Text, nullable=False),
)

# The predictions of the first batch of a ladder, compressed: its winner's score is corrected by
# choosing once more, on rows that are drawn anew. Labels play no part in them.
candidates = Table(
    "candidates",
    metadata,
    Column("ladder_id", ForeignKey("ladders.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("predictions", LargeBinary, nullable=False),
)

overlaps = Table(
    "overlaps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("holdout_id", ForeignKey("holdouts.id"), nullable=False),
    Column("source", String(250), nullable=False),
    Column("rows", Integer, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    UniqueConstraint("holdout_id", "source", name="uq_overlaps_source"),
)

# How many rows of a holdout are rows of another one as well, both ways and where there is any:
# certificates count what was revealed of either. Any view counts, and so do ids.
shared = Table(
    "shared",
    metadata,
    Column("holdout_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("other_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("rows", Integer, nullable=False),
)

# Where the chain of each holdout ends: beside the holdouts, whose rows are long.
chains = Table(
    "chains",
    metadata,
    Column("holdout_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("length", Integer, nullable=False),
    Column("head", String(64), nullable=False),
    # Of the holdout's last submission: see there.
    Column("runs", Integer, nullable=False, server_default="0"),
    Column("batch", String(32)),
)

# The links of a chain that are no submissions. Most of what they cover is in other tables.
events = Table(
    "events",
    metadata,
    Column("holdout_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(20), nullable=False),
    Column("ladder_id", ForeignKey("ladders.id")),
    Column("hash", String(64), nullable=False),
    # The id of the last submission to any holdout when this was noted: places in chains order
    # what happened to one holdout only.
    Column("after", Integer, nullable=False),
    # What else is to be known of it, as JSON.
    Column("detail", Text),
)

# Queries of the reserve: each about the incumbent of a ladder, and shown once it is here.
reserve_looks = Table(
    "reserve_looks",
    metadata,
    Column("holdout_id", ForeignKey("holdouts.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("ladder_id", ForeignKey("ladders.id"), nullable=False),
    Column("submission", Integer, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    # What can be shown, and what was measured, which is raw; then what was shown.
    Column("evidence", Text, nullable=False),
    Column("low", Float),
    Column("risk", Float),
    Column("high", Float),
    # Logarithm of the number of values that it could have shown.
    Column("log_values", Float, nullable=False),
    Column("position", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    # As in events.
    Column("after", Integer, nullable=False),
    # How long the chains of the holdouts that share rows with this one were, as JSON, by their
    # ids: what happened there after the same submission came before this or not. Null without.
    Column("others", Text),
)

# Who may query a holdout through a server. What they submit is in the ladder of their name; this
# is no part of the chain, for it records who may ask and not what was answered.
accounts = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("holdout_id", ForeignKey("holdouts.id"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("role", String(20), nullable=False),
    # The ladder of an analyst; null for those who submit nothing.
    Column("ladder_id", ForeignKey("ladders.id")),
    # The part of the token by which it is found, and the SHA-256 of all of it.
    Column("token_key", String(32), nullable=False),
    Column("token_hash", String(64), nullable=False),
    # Submissions a day, in UTC; null without a limit.
    Column("per_day", Integer),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("expires", DateTime(timezone=True)),
    Column("revoked", DateTime(timezone=True)),
    UniqueConstraint("holdout_id", "name", name="uq_accounts_name"),
    Index("ix_accounts_token_key", "token_key", unique=True),
)

# Submissions to a leaderboard with rounds: those that wait, and those that were answered. They are
# no part of the chain, in which the digests of their predictions are once their round is closed.
collected = Table(
    "collected",
    metadata,
    Column("id", Integer, primary_key=True),
    # The ladder that holds the rules of the board, and that which will answer.
    Column("home_id", ForeignKey("ladders.id"), nullable=False),
    Column("ladder_id", ForeignKey("ladders.id"), nullable=False),
    Column("account", String(200), nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("key", String(64)),
    Column("context", Text, nullable=False),
    # Canonical, compressed. They stay when their round is closed, for a replay of it.
    Column("predictions", LargeBinary, nullable=False),
    # The round that answered it, and which submission of its ladder it became.
    Column("round", Integer),
    Column("number", Integer),
    # What waits is read with each submission, beside all that was answered before.
    Index("ix_collected_round", "home_id", "round"),
    Index("ix_collected_number", "ladder_id", "number"),
)

_format = Table(
    "ledger_format",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
)

# Sessions on the pages that somebody ended: a cookie is all that there is of the others.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    # SHA-256 of the session's random name.
    Column("digest", String(64), primary_key=True),
    # When its cookie ends by itself, and this row may go.
    Column("until", DateTime(timezone=True), nullable=False),
)


def format_of(conn: Connection) -> int | None:
    """Return the number of a ledger's format, None for an empty database.

    Raises
    ------
    LedgerError
        It is a database, and no ledger, or one that was written before 0.1.0.
    """
    names = set(inspect(conn).get_table_names())
    if not names:
        return None
    if {"alembic_version", "holdouts", "ladders"} <= names:
        raise LedgerError(
            "This ledger was written before ladderholdout 0.1.0, which does not read it. The last "
            "commit whose changelog has no version reads it: `ladder-holdout export` of that "
            "commit takes its record to MLflow. Name another place for a new ledger with ledger= "
            "or LADDERHOLDOUT_LEDGER."
        )
    if not {"ledger_format", "holdouts", "ladders"} <= names:
        raise LedgerError(
            "This database belongs to another program: it holds tables, and none of a ledger. "
            "Name another place with ledger= or LADDERHOLDOUT_LEDGER."
        )
    return conn.execute(select(NUMBER)).scalar()


def check_format(number: object) -> None:
    """Refuse a ledger of another format, or one that got another format since it was opened."""
    if number != FORMAT:
        raise LedgerError(
            f"This ledger has format {number}, and this version of ladderholdout reads format "
            f"{FORMAT}. Upgrade the package where the ledger is newer."
        )


def ensure(conn: Connection) -> None:
    """Make the tables in an empty database, inside the caller's transaction.

    Raises
    ------
    LedgerError
        The ledger has another format.
    """
    number = format_of(conn)
    if number is None:
        metadata.create_all(conn)
        conn.execute(insert(_format).values(number=FORMAT))
    else:
        check_format(number)
