"""The ledger: where transactions on the record begin.

`Ledger.read` and `Ledger.write` open a transaction; what is done in it stands on the
`Transaction` they yield. A write commits when its block ends, before anyone is told
anything (promise 2), and holds the holdout's row for its whole length (promise 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import select

from ladderholdout.errors import LedgerError
from ladderholdout.ledger import copies, engine, schema
from ladderholdout.ledger.place import file_of, shown
from ladderholdout.ledger.tables import SCHEMA, holdouts
from ladderholdout.ledger.transaction import Transaction


class Ledger:
    """A durable, ordered record of all submissions.

    Parameters
    ----------
    url : str
        As `resolve_url` returns it.
    create : bool, default=False
        Make an empty ledger where there is none; otherwise a missing one is an error, so
        that a ledger deleted in mid-search never comes back empty.

    Raises
    ------
    LedgerError
        The ledger is missing, unreadable or of a newer schema.

    Examples
    --------
    >>> ledger = Ledger("memory:example", create=True)
    >>> with ledger.read() as tx:
    ...     tx.holdouts()
    ()
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        source = engine.create(url) if create else engine.source(url)
        with engine.connection(source, write=False) as conn:
            version = schema.version_of(conn)
        if version == SCHEMA:
            return
        if version is None and not create:
            raise LedgerError(
                f"The ledger {shown(url)} is empty. Restore the file, or open the holdout "
                "with its rows, LadderHoldout(X, y, ...), to start a new one."
            )
        with engine.connection(source, write=True) as conn:
            schema.ensure(conn, file_of(url))

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the ledger and blocks no writer."""
        with engine.connection(engine.source(self.url), write=False) as conn:
            yield Transaction(conn)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction that is alone in writing, and durable when its block ends."""
        with engine.connection(engine.source(self.url), write=True) as conn:
            yield Transaction(conn)


def holdout_names(url: str) -> tuple[str, ...]:
    """Return the names of the holdouts, oldest first; the ledger is not even upgraded."""
    with engine.connection(engine.source(url), write=False) as conn:
        if schema.version_of(conn) is None:
            return ()
        return tuple(conn.execute(select(holdouts.c.name).order_by(holdouts.c.id)).scalars())


def backup(url: str, target: Path) -> Path:
    """Copy a ledger while it is in use, into a private file of its own.

    Parameters
    ----------
    url : str
        As `resolve_url` returns it.
    target : Path
        A file that is not there yet.

    Returns
    -------
    Path
        The target, absolute. It holds everything but the rows, which lie in the vault.

    Raises
    ------
    InvalidArgument
        The target is there.
    LedgerError
        There is no such ledger, or the copy cannot be written.
    """
    path, target = file_of(url), target.expanduser().absolute()
    if path is None:
        raise LedgerError('A ledger in memory ("memory") has no file to copy.')
    with Ledger(url).read():  # says what is wrong with it, where something is
        copies.copy(path, target)
    return target
