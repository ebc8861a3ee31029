"""A ledger: transactions on its record, done once though connections are lost on the way."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic_core import PydanticSerializationError

from ladderholdout import errors
from ladderholdout.ledger import events, fold, log, postgres, sqlite
from ladderholdout.ledger.place import Access, file_of, is_server, shown
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.ledger.verify import Finding, Verification, verify
from ladderholdout.process import PerProcess, around_fork

T = TypeVar("T")

_MANY = 100  # faults that a database is asked for

Source: TypeAlias = sqlite.FileSource | postgres.ServerSource

PASSING = (errors.LedgerUnreachable, postgres.Undone)
"""What may go well when it is tried again."""

# Kept alive on purpose: closing a connection that the parent still uses could release the
# parent's locks, or end its talk with the server.
_inherited: list[dict[str, Source]] = []
# Files that a thread of the parent was writing to: SQLite counts its locks in memory, so they stay
# locked in this process.
_locked: set[Path] = set()
# For so many seconds a fork waits for the writers of its process.
_WAIT = 1.0


def _inherit(parents: dict[str, Source]) -> None:
    """Keep what is the parent's, for closing it here would give up the parent's locks."""
    _inherited.append(parents)
    for one in parents.values():
        if isinstance(one, sqlite.FileSource) and one.path and one.writer:
            _locked.add(one.path)


_sources: PerProcess[dict[str, Source]] = PerProcess(dict, drop=_inherit)
_held = threading.local()


def _hold() -> None:
    """Wait until no other thread of this process writes, and let none begin."""
    locks = [one.lock for one in [*_sources().values()] if isinstance(one, sqlite.FileSource)]
    _held.locks = [lock for lock in locks if lock.acquire(timeout=_WAIT)]


def _let_go() -> None:
    for lock in _held.__dict__.pop("locks", ()):
        lock.release()


around_fork(_hold, _let_go)
_guard = PerProcess(threading.Lock)


def _at_exit() -> None:
    # A server's connections are closed; a file needs no such thing.
    for known in _sources().values():
        if isinstance(known, postgres.ServerSource):
            known.dispose()


atexit.register(_at_exit)


def source(url: str, *, create: bool = False) -> Source:
    """Return this process's source of connections to a ledger; `create` makes an empty one."""
    path = file_of(url)
    if path in _locked:
        raise errors.LedgerError(
            f"This process was forked while a thread of its parent wrote to the ledger {path}, "
            "which stays locked in it. Nothing was recorded. Fork between submissions, or start "
            "processes by 'spawn'."
        )
    with _guard():
        known = _sources()
        if create and url in known and not known[url].current():
            known.pop(url).dispose()
        if url not in known:
            found = postgres.source(url) if is_server(url) else sqlite.source(url, create=create)
            known[url] = found
        return known[url]


@contextmanager
def connection(source: Source, access: Access) -> Iterator[log.Connection]:
    """Open one transaction: committed at the end of the block, undone by any exception.

    Raises
    ------
    LedgerBusy
        Another process held the lock for longer than the timeout.
    LedgerUnreachable
        The server did not answer for longer than the timeout, or was lost on the way.
    LedgerError
        The ledger is missing, replaced, damaged, read-only or out of space.
    """
    # `with` lets no interrupt between taking the lock and the promise to give it back.
    turn = source.turn(write=access is not Access.READ)
    try:
        with turn:
            # What is in it is undone: an interrupt may come between any two steps.
            taken: list[Any] = []
            try:
                try:
                    _begin(source, access, taken)
                    yield taken[0]
                    source.commit(taken[0])
                except Exception:
                    _undo(source, taken)
                    raise
            except BaseException:
                # Ctrl-C, perhaps in the midst of undoing, may leave a statement open, and bar later
                # writes by it.
                _undo(source, taken, interrupted=True)
                raise
    except (UnicodeEncodeError, OverflowError, PydanticSerializationError):
        raise errors.LedgerError(
            "A text with a lone surrogate, or a number of more than 64 bits, was asked for: no "
            "ledger holds one."
        ) from None
    except UnicodeDecodeError:  # in SQLite's own words on a damaged schema
        raise events.Damaged from None
    except source.faults as fault:
        # The driver's own error stays inside, also as context: it holds the refused row.
        error = source.translated(fault)
        try:
            raise error from None
        finally:
            error.__context__ = None


def _begin(source: Source, access: Access, taken: list[Any]) -> None:
    """Connect and begin, again while a server may come back: nothing was done by then."""
    pauses = source.pauses()
    while True:
        try:
            taken.append(source.connect())
            source.begin(taken[0], access)
            return
        except source.faults as fault:
            pause = next(pauses, None)
            if pause is None or not isinstance(source.translated(fault), PASSING):
                raise
        _undo(source, taken)
        time.sleep(pause)


def _undo(source: Source, taken: list[Any], *, interrupted: bool = False) -> None:
    """Take back what was not committed on connections, which are not undone again."""
    while taken:
        source.undo(taken[-1], interrupted=interrupted)
        taken.pop()


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

    *Changes.* The chain (`log`) finds entries that were changed, removed, inserted or moved by
    whoever lacks the holdout's secret; `rules.Replay` recomputes every release from its evidence;
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
        opened = source(url, create=create)
        if not self.transact(lambda tx: _is_ledger(tx.db), Access.READ):
            if not create:
                raise errors.LedgerError(
                    f"The ledger {shown(url)} is empty. Restore the file, or open the holdout "
                    "with its rows, LadderHoldout(X, y, ...), to start a new one."
                )
            self.transact(_make_tables)
        opened.ready = True

    @classmethod
    def opened(cls, url: str) -> Ledger:
        """Return a ledger that this process has opened before, without another check of its format.

        A ledger that this process has not opened is opened now. Each transaction checks the file,
        and the format with the ladder that it reads.

        Examples
        --------
        >>> ledger = Ledger("memory:opened", create=True)
        >>> Ledger.opened("memory:opened").url
        'memory:opened'
        """
        ledger = cls.__new__(cls)
        ledger.url = url
        return ledger if source(url).ready else cls(url)

    def read(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that sees one state of the ledger and blocks no writer."""
        return self.write(Access.READ)

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
        with connection(source(self.url), access) as conn:
            tx = Transaction(conn, self.url)
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
        connections = source(self.url)
        pauses = connections.pauses()
        # What was committed, perhaps, on connections of which nothing was heard since.
        lost: list[tuple[Transaction, T]] = []
        while True:
            done: tuple[Transaction, T] | None = None
            try:
                # After a loss, once nobody else can write: whoever is still committing on a lost
                # connection is waited for, and a message that the server reads later than this is
                # refused, since its chain has gone on.
                with connection(connections, Access.ALL if lost else access) as conn:
                    tx = Transaction(conn, self.url)
                    before = [pair for pair in lost if pair[0].last and tx.has(*pair[0].last)]
                    if before:
                        tx, result = before[0]
                    else:
                        result = body(tx)
                        done = None if tx.last is None else (tx, result)
                break
            except (errors.LedgerBusy, errors.LedgerUnreachable) as fault:
                if done is not None and isinstance(fault, PASSING):
                    lost.append(done)
                pause = next(pauses, None) if lost or isinstance(fault, PASSING) else None
                if pause is None and lost and type(fault) is errors.LedgerBusy:
                    raise errors.LedgerUnreachable(
                        f"The connection to the ledger {shown(self.url)} was lost in mid-commit, "
                        "and who holds it now was waited for in vain. Run this again: what was "
                        "recorded will be answered as it was."
                    ) from None
                if pause is None:
                    raise
            time.sleep(pause)
        self._move_marks(tx)
        return result

    def verify(self, holdout_id: int, progress: log.Progress | None = None) -> Verification:
        """Verify the record of a holdout, and that this machine has seen no later one.

        It takes and returns what the function `verify` takes and returns.
        """
        found = source(self.url)
        with ThreadPoolExecutor(1) as thread:
            # SQLite's check of a million events takes seconds, in which Python waits for nothing.
            database = thread.submit(lambda: [Finding(what) for what in found.findings(_MANY)])
            with self.read() as tx:
                try:
                    seen = tx.mark(holdout_id).seen()
                except (errors.LedgerBusy, errors.LedgerUnreachable):
                    raise
                except errors.LedgerError:  # its record does not read, which `verify` finds
                    seen = None
            try:
                # After its mark, so that this ledger does not lag behind that.
                with self.read() as tx:
                    verified = verify(tx, holdout_id, progress, seen)
            except errors.LedgerError:
                if not database.result():
                    raise
                rest = Finding("the rest of it cannot be read")
                verified = Verification("", 0, fold.EMPTY, (rest,))
            return replace(verified, findings=(*database.result(), *verified.findings))

    def _move_marks(self, tx: Transaction) -> None:
        """Keep the ends that were committed, and warn of chains that had lost a marked link."""
        for holdout_id, mark in tx.held.items():
            mark.write(tx.ends[holdout_id])
        for lost in tx.lost:
            errors.warn(
                "An older copy of the ledger was put in place, or another one: link "
                f"{lost.length} of this holdout's chain was seen on this machine and is not in "
                "it. What it had released since is known and off the record, so that nothing can "
                "be certified from now on. This is on record. If you have the newer ledger, put it "
                "back.",
                errors.RestoredWarning,
            )

    def risks(self) -> tuple[str, ...]:
        """Return settings of a server that may let it forget what was released; no file has any."""
        return source(self.url).risks()


def _is_ledger(db: log.Connection) -> bool:
    """Return whether a database holds a ledger; not if it is empty.

    Raises
    ------
    LedgerError
        It is a database, and no ledger, or one of another format.
    """
    names = db.send(db.names).fetchall()
    if names and ("ledger_format",) not in names:
        raise errors.LedgerError(
            "This database belongs to another program: it holds tables, and none of a ledger. "
            "Name another place with ledger= or LADDERHOLDOUT_LEDGER."
        )
    if names:
        number = db.send("SELECT number FROM ledger_format").fetchone()
        log.refuse_other_format(number and number[0])
    return bool(names)


def _make_tables(tx: Transaction) -> None:
    if not _is_ledger(tx.db):  # nobody else has made them meanwhile
        tx.db.make_tables()


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
    with connection(source(url), Access.READ) as conn:
        # Of any format: the names are asked for to complete a command.
        is_ledger = ("ledger_format",) in conn.send(conn.names).fetchall()
        names = conn.send(log.HOLDOUTS.format("")).fetchall() if is_ledger else ()
    return tuple(name for _, name in names if fold.FORGOTTEN not in name)


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
        raise errors.LedgerError(
            f"The ledger {shown(url)} is on a server, which has its own way to copy it while "
            f"it is in use: pg_dump --schema={postgres.SCHEMA} --format=custom "
            f"--file={target} DATABASE, and pg_restore to bring it back."
        )
    if path is None:
        raise errors.LedgerError('A ledger in memory ("memory") has no file to copy.')
    with Ledger(url).read():  # it raises where something is wrong
        sqlite.copy(path, target)
    return target
