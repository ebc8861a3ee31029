"""The statements of the submission path, made once.

To make a statement with SQLAlchemy takes longer than to run it.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import ColumnElement, bindparam, exists, func, select

from ladderholdout.ledger.chain import (
    END_COLUMNS,
    GROUPED,
    LEFT,
    MERGED,
    RESTORED,
    SPENT_AT,
    WITHDRAWN,
)
from ladderholdout.ledger.history import is_marked, is_of
from ladderholdout.ledger.prepared import Prepared
from ladderholdout.ledger.records import (
    holdout_record,
    is_known,
    select_entries,
    select_holdouts,
)
from ladderholdout.ledger.tables import (
    NUMBER,
    chains,
    events,
    holdouts,
    ladders,
    overlaps,
    shared,
    submissions,
)

_LADDER = (
    select(ladders).add_columns(NUMBER.label("format")).where(ladders.c.id == bindparam("ladder"))
)
_OF_HOLDOUT = "its_holdout_"
# The kinds of events that are read together, for they are few; others describe all of the rows.
KINDS = (
    *("amended", "asked", "batch", "compared", "confidence", "estimate", "interval", "opened"),
    *(GROUPED, LEFT, MERGED, RESTORED, SPENT_AT, WITHDRAWN),
)
# What most holdouts have none of, by the name under which a transaction reads it.
MISSING: dict[str, ColumnElement[bool]] = {
    "_events": exists().where(events.c.holdout_id == ladders.c.holdout_id, is_of(KINDS)),
    "overlaps": exists().where(overlaps.c.holdout_id == ladders.c.holdout_id),
    "sharing": exists().where(shared.c.holdout_id == ladders.c.holdout_id),
}
_BESIDE = ladders.alias("beside")
_COUNT = (
    select(func.count())
    .select_from(_BESIDE)
    .where(_BESIDE.c.holdout_id == ladders.c.holdout_id)
    .scalar_subquery()
)
LADDER_WITH_HOLDOUT = Prepared(
    _LADDER.join(holdouts).add_columns(
        *(column.label(_OF_HOLDOUT + column.name) for column in select_holdouts().selected_columns),
        _COUNT.label("ladders"),
        *(exist.label(f"with_{name}") for name, exist in MISSING.items()),
    )
)
holdout_with_ladder = partial(holdout_record, prefix=_OF_HOLDOUT)
"""Returns the holdout of a row of `LADDER_WITH_HOLDOUT`."""
# All ladders of a holdout take turns, so that the ids of their submissions are in one order.
# That the holdout's row still reads also finds a damaged file. The holdout is locked first: who
# waits for it holds no ladder, which a submission to several may need.
LOCKED_LADDER = Prepared(
    _LADDER.add_columns(*END_COLUMNS)
    .select_from(ladders.join(holdouts).join(chains))
    .with_for_update(of=[holdouts, chains, ladders])
)
ONE_LADDER = Prepared(_LADDER)
LADDERS = Prepared(
    select(ladders).where(ladders.c.holdout_id == bindparam("holdout")).order_by(ladders.c.id)
)
HOLDOUT = Prepared(select_holdouts().where(holdouts.c.id == bindparam("holdout")))
_ENTRIES = (
    select_entries(bindparam("ladder"))
    .where(submissions.c.number > bindparam("after"))
    .order_by(submissions.c.number)
    .limit(bindparam("most"))
)
ENTRIES = Prepared(_ENTRIES)
OF_SEARCH = Prepared(_ENTRIES.where(submissions.c.search == bindparam("search")))
_OF_LADDER = submissions.c.ladder_id == bindparam("ladder")
IMPROVEMENTS = Prepared(
    select(func.count().label("count"))
    .select_from(submissions)
    .where(
        _OF_LADDER,
        submissions.c.number <= bindparam("number"),
        is_marked,
    )
)
# Added to zero: by the index of numbers SQLite would read all entries of the ladder.
_IN_ORDER = submissions.c.number + 0
_BY_DIGEST = submissions.c.digest == bindparam("digest")
_BY_KEY = submissions.c.key == bindparam("key")


def _asked(*where: ColumnElement[bool], repeats: bool) -> tuple[Prepared, Prepared]:
    """Return the query of the submissions that fit, oldest first, and that of the first alone."""
    columns = (submissions.c[name] for name in ("number", "released_risk", "improved", "repeat_of"))
    # What a gate tests again for a smaller gain may be accepted then.
    query = select(*columns).where(_OF_LADDER, *where)
    query = query.order_by(submissions.c.improved.desc(), _IN_ORDER)
    query = query.where(~is_known if repeats else submissions.c.repeat_of.is_(None))
    return Prepared(query), Prepared(query.limit(1))


FIRST_BY_KEY = _asked(_BY_KEY, repeats=False)
FIRST_BY_DIGEST = _asked(_BY_DIGEST, repeats=False)
# Where there is a reserve: of the same predictions for its rows, too.
OF_ALL_ROWS = _asked(
    _BY_DIGEST, submissions.c.reserve_digest == bindparam("reserve_digest"), repeats=True
)
# The columns of a submission, some of which not every caller has something for.
OPTIONAL = dict.fromkeys(
    ("batch", "search", "key", "repeat_of", "place", "disagreement", "reserve_digest")
)
_ANY = select(submissions.c.id).where(_OF_LADDER)
_UNCHANGED = (
    select(ladders.c.id)
    .select_from(ladders.join(holdouts).join(chains))
    .where(
        ladders.c.id == bindparam("ladder"),
        chains.c.length == bindparam("length"),
        chains.c.head == bindparam("head"),
        bindparam("format") == NUMBER,
        ~_ANY.where(_BY_DIGEST).exists(),
        ~_ANY.where(_BY_KEY).exists(),
    )
    .with_for_update(of=[holdouts, chains, ladders])
    .subquery()
)
# Locks what `LOCKED_LADDER` does, and divides by zero where anything was linked to the chain since
# that end, or where a submission is known: the server then skips all that follows.
UNCHANGED = Prepared(select((1 // func.count()).label("one")).select_from(_UNCHANGED))
_ADDED = [column.name for column in submissions.c if column.name != "id"]
ADD_SUBMISSION = f"INSERT INTO submissions ({', '.join(_ADDED)}) VALUES (:{', :'.join(_ADDED)})"
_COUNT_SUBMISSION = "UPDATE ladders SET submissions = :number, queries = :queries"
COUNT_SUBMISSION = f"{_COUNT_SUBMISSION} WHERE id = :ladder"
STEP_LADDER = f"{_COUNT_SUBMISSION}, state = :state WHERE id = :ladder"
IMPROVE_LADDER = (
    f"{_COUNT_SUBMISSION}, state = :state, version = :version, incumbent = :number "
    "WHERE id = :ladder"
)
