"""The ledger: where transactions on the record begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy import select

from ladderholdout.errors import (
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    RestoredWarning,
    warn,
)
from ladderholdout.ledger import connections as engine
from ladderholdout.ledger import postgres as servers
from ladderholdout.ledger import tables
from ladderholdout.ledger.chain import Left
from ladderholdout.ledger.marks import mark_of
from ladderholdout.ledger.place import Access, file_of, is_server, shown
from ladderholdout.ledger.records import (
    EMPTY,
    Asked,
    LadderRecord,
    Progress,
    is_standing,
    same_ladder,
)
from ladderholdout.ledger.sqlite import copy
from ladderholdout.ledger.tables import FORMAT, holdouts
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.ledger.verification import Finding, Verification, verify

T = TypeVar("T")


class Ledger:
    """A durable, ordered record of all submissions.

    It promises, whatever integration, process or machine uses it:

    *Atomic.* All that one call writes is one transaction: a submission with its link in the
    holdout's chain, the ladder's new state and its incumbent; a registration with its ladder.
    An exception or an interrupt in the block undoes all of it.

    *One order.* A submission reads its ladder under lock (`Transaction.locked_ladder`),
    and with it the end of the holdout's chain, or has a server check under lock that both are as
    this process left them; they stay held until the commit. So all
    submissions of a holdout, through any ladder, come one after the other, from threads,
    processes and machines, and their ids and their positions in the chain are in that order.
    ``Access.LADDER`` lets others write to other holdouts meanwhile; ``Access.ALL`` nobody.

    *Commit before release.* The guard returns a release when its transaction is committed and on
    disk (``synchronous=FULL``; a server's settings are in `risks`). What is not committed was
    never shown; what was shown is on record, whatever dies.

    *Readers* see one state, that of the last commit when they began, and block no writer. What a
    reading transaction has read it gives again without asking.

    *Files.* Any number of processes of one machine; one of them writes at a time, and the others
    wait in a queue, for the seconds of the URL's ``timeout``. Threads of a process take turns. No
    file may be on a network's file system. The file is opened once a process and each transaction
    finds, when it begins and before its answer is returned, a file (or its -wal or -shm) that was
    removed, replaced, truncated or overwritten; then nothing is released. After a fork the child
    opens it anew. A ledger in memory is one process's own.

    *PostgreSQL.* Any number of machines. Writers of different holdouts do not wait for each
    other. What the server undoes in favour of others is tried again.

    *Lost connections.* Where a connection is lost in mid-commit, `transact` asks for the hash of
    its last link: it is there, and the answer is given, or it is not, and all is done again. So
    no submission is recorded twice.

    *Older copies.* A database can be rolled back to an older one of its own, which no
    transaction sees. A mark outside of it (`marks`) records how long the chain of each holdout
    was. Whatever locks a chain compares both, puts it on record where the chain has lost what was
    seen, and warns once that is committed; certificates end there. Then the mark is moved.

    *Changes.* The chain (`chain`) finds entries that were changed, removed, inserted or moved by
    whoever lacks the holdout's secret; `replay` recomputes every release from its evidence;
    `verify` does both and asks the database about its indices. Whoever owns the file can
    rebuild all of it, which only a head that was anchored elsewhere shows. Each value that is
    read is checked for its type, so that a damaged one ends in an error and in no number.

    *Formats.* A ledger has the number of its format, which is checked when it is opened and with
    each ladder that is read. Another number is refused, and nothing is changed.

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
        The ledger is missing, unreadable or of another format.

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
        number = self.transact(lambda tx: tables.format_of(tx.conn), Access.READ)
        if number is None and not create:
            raise LedgerError(
                f"The ledger {shown(url)} is empty. Restore the file, or open the holdout "
                "with its rows, LadderHoldout(X, y, ...), to start a new one."
            )
        if number != FORMAT:
            self.transact(_make_tables)
        source.ready = True

    @classmethod
    def opened(cls, url: str) -> Ledger:
        """Return a ledger that this process has opened before, without another check of its format.

        A ledger that this process has not opened is opened now. Each transaction checks the file,
        and the format with the ladder that it reads.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> place = "memory:kept"
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger=place)
        >>> Ledger.opened(place).url
        'memory:kept'
        """
        if not engine.source(url).ready:
            return cls(url)
        ledger = cls.__new__(cls)
        ledger.url = url
        return ledger

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the ledger and blocks no writer."""
        with engine.connection(engine.source(self.url), Access.READ) as conn:
            yield Transaction(conn, self.url, writes=False)

    @contextmanager
    def write(self, access: Access = Access.ALL) -> Iterator[Transaction]:
        """Open a transaction that is alone in writing, and durable when its block ends.

        Parameters
        ----------
        access : Access
            With ``Access.LADDER``, alone on the holdout whose ladder it reads under lock.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> place = "memory:kept"
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger=place)
        >>> with Ledger(place).write() as tx:
        ...     len(tx.holdouts())
        ...
        1
        """
        with engine.connection(engine.source(self.url), access) as conn:
            tx = Transaction(conn, self.url, writes=access is not Access.READ)
            yield tx
        self._move_marks(tx)

    def transact(self, body: Callable[[Transaction], T], access: Access = Access.ALL) -> T:
        """Do something in a transaction, once, though connections are lost on the way.

        Parameters
        ----------
        body : callable
            It is given the transaction, and again another one where the server undid the first
            or was lost. What it links to a chain is found again by the hash of the link: a
            commit whose answer was lost is not repeated.
        access : Access
            With ``Access.READ``, all that is read is of one state.

        Returns
        -------
        object
            What `body` returned in the transaction that was committed.

        Raises
        ------
        LedgerUnreachable
            The server did not come back before the timeout.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> place = "memory:kept"
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger=place)
        >>> Ledger(place).transact(lambda tx: len(tx.holdouts()))
        1
        """
        source = engine.source(self.url)
        pauses = source.pauses()
        # What was committed, perhaps, on connections of which nothing was heard since.
        lost: list[tuple[Transaction, T]] = []
        stale: servers.Stale | None = None
        while True:
            done: tuple[Transaction, T] | None = None
            try:
                committed = self._committed(lost)
                if committed is not None:
                    tx, result = committed
                    break
                if stale is not None:
                    raise stale
                with engine.connection(source, access) as conn:
                    tx = Transaction(conn, self.url, writes=access is not Access.READ)
                    result = body(tx)
                    # A server may read the message of a lost connection only after it was asked.
                    # From here to its own end this transaction is alone in writing to the chain.
                    # It may have made the same link itself, if that has the same moment.
                    for earlier, answer in lost:
                        link = earlier.chains.last
                        if link and link != tx.chains.last and tx.chains.has(*link):
                            raise _CommittedBefore(earlier, answer)
                    if tx.chains.last is not None:
                        done = tx, result
                break
            except _CommittedBefore as earlier:
                tx, result = earlier.args
                break
            except servers.Stale as error:
                # What has moved the ladder on may be the message of a lost connection: it is asked
                # for as at any other try, since this connection can be lost as well.
                if not lost or stale is not None:
                    raise
                stale = error
                continue
            except engine.PASSING:
                if done is not None:
                    lost.append(done)
                pause = next(pauses, None)
                if pause is None:
                    raise
            time.sleep(pause)
        self._move_marks(tx)
        return result

    def write_to(
        self,
        ladder_id: int,
        since: datetime,
        body: Callable[[Transaction, LadderRecord], T],
        *,
        asked: Sequence[Asked] = (),
        left: Left | None = None,
    ) -> T:
        """Write to a ladder, as `transact` does.

        Parameters
        ----------
        ladder_id : int
        since : datetime
            When the ladder was created: another one in its place is refused (`same_ladder`).
        body : callable
            It is given the transaction and the ladder as it is under lock.
        asked, left
            As in `Transaction.locked_ladder`.
        """

        def write(tx: Transaction) -> T:
            ladder = tx.locked_ladder(ladder_id, asked=asked, left=left)
            return body(tx, same_ladder(ladder, since))

        return self.transact(write, Access.LADDER)

    def verify(self, holdout_id: int, progress: Progress | None = None) -> Verification:
        """Verify the record of a holdout, and that this machine has seen no later one.

        It takes and returns what the function `verify` takes and returns.
        """
        with self.read() as tx:
            try:
                seen = mark_of(self.url, tx.holdout(holdout_id)).seen()
            except (LedgerBusy, LedgerUnreachable):
                raise
            except LedgerError:  # its record does not read, which `verify` finds
                seen = None
        # After its mark, so that this ledger does not lag behind that.
        with self.read() as tx:
            verified = verify(tx, holdout_id, progress)
            if (
                seen is None
                or verified.head == EMPTY
                or not tx.chains.lacks(holdout_id, verified.head, seen)
            ):
                return verified
        older = Finding(f"this is an older copy: link {seen.length} was seen on this machine")
        return replace(verified, findings=(*verified.findings, older))

    def _move_marks(self, tx: Transaction) -> None:
        """Keep the ends that were committed, and warn of chains that had lost a marked link."""
        for end in tx.chains.ends.values():
            mark_of(self.url, end).write(end.head)
        for lost in tx.chains.lost:
            warn(
                "An older copy of the ledger was put in place, or another one: link "
                f"{lost.length} of this holdout's chain was seen on this machine and is not in "
                "it. What it had released since is known and off the record, so that nothing can "
                "be certified from now on. This is on record. If you have the newer ledger, put it "
                "back.",
                RestoredWarning,
            )

    def risks(self) -> tuple[str, ...]:
        """Return settings of a server that may let it forget what was released; no file has any."""
        if not is_server(self.url):
            return ()
        with engine.connection(engine.source(self.url), Access.READ) as conn:
            return servers.unsafe_settings(conn)

    def _committed(self, lost: list[tuple[Transaction, T]]) -> tuple[Transaction, T] | None:
        """Return which of the transactions whose answers were lost was committed, if one was.

        No other process writes meanwhile: whoever is still committing its link, on a connection
        that was lost, is waited for.
        """
        if not lost:
            return None
        try:
            with self.write() as tx:
                links = ((pair, pair[0].chains.last) for pair in lost)
                return next((pair for pair, link in links if link and tx.chains.has(*link)), None)
        except LedgerBusy:
            raise LedgerUnreachable(
                f"The connection to the ledger {shown(self.url)} was lost in mid-commit, and who "
                "holds it now was waited for in vain. Run this again: what was recorded will be "
                "answered as it was."
            ) from None


class _CommittedBefore(Exception):
    """Ends a transaction that repeats one whose answer was lost; it has that one and its result."""


def _make_tables(tx: Transaction) -> None:
    if tx.conn.dialect.name == "postgresql" and tables.format_of(tx.conn) is None:
        servers.make_schema(tx.conn)
    tables.ensure(tx.conn)


def holdout_names(url: str) -> tuple[str, ...]:
    """Return the names of the holdouts, oldest first; the ledger is not changed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> holdout_names(f"sqlite:///{ledger}")
    ('coins',)
    >>> folder.cleanup()
    """
    with engine.connection(engine.source(url), Access.READ) as conn:
        if tables.format_of(conn) is None:
            return ()
        return tuple(
            conn.execute(
                select(holdouts.c.name).where(is_standing()).order_by(holdouts.c.id)
            ).scalars()
        )


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
        The target, absolute. It holds everything but the rows, which are in the vault.

    Raises
    ------
    InvalidArgument
        The target is there.
    LedgerError
        There is no such ledger, or the copy cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ladderholdout import LadderHoldout
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = str(Path(folder.name) / "ledger.db")
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    >>> backup(f"sqlite:///{ledger}", Path(folder.name) / "copy.db").name
    'copy.db'
    >>> folder.cleanup()
    """
    path, target = file_of(url), target.expanduser().absolute()
    if is_server(url):
        raise LedgerError(
            f"The ledger {shown(url)} is on a server, which has its own way to copy it while "
            f"it is in use: pg_dump --schema={servers.SCHEMA} --format=custom "
            f"--file={target} DATABASE, and pg_restore to bring it back."
        )
    if path is None:
        raise LedgerError('A ledger in memory ("memory") has no file to copy.')
    with Ledger(url).read():  # it raises where something is wrong
        copy(path, target)
    return target
