"""The verdicts of a judge, on record: the first one for an item and an answer counts."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ladderholdout import process
from ladderholdout.errors import InvalidArgument

_DIGITS = 64  # hexadecimal ones, of a digest or a secret
_START = "0" * _DIGITS
_asker: ContextVar[str | None] = ContextVar("asker", default=None)


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """What a file of verdicts holds.

    Attributes
    ----------
    verdicts : int
        Pairs of item and answer with a verdict.
    again : int
        Verdicts that came second, for another ladder or row, or from processes that asked at the
        same time. They do not count.
    unequal : int
        Those among them that differ from the first: the judge is noisy.
    damaged : int
        Lines that are no verdict, such as one that a full disk cut off.
    changed : str
        What is not as it was written, and in which line: a verdict that was changed, removed or
        moved. Empty where all is as it was written; nothing is measured by the file otherwise.
    head : str
        The end of the chain of its lines, to be noted elsewhere.

    Examples
    --------
    >>> VerdictRecord(verdicts=500, again=2, unequal=1, damaged=0).unequal
    1
    """

    verdicts: int
    again: int
    unequal: int
    damaged: int
    changed: str = ""
    head: str = ""


@dataclass(slots=True)
class _Known:
    """What was read of a file so far."""

    place: tuple[int, int] | None = None
    size: int = 0
    lines: int = 0
    first: dict[bytes, float] = field(default_factory=dict)
    # Which ladder was given verdicts for which row and answer.
    asked: set[str] = field(default_factory=set)
    again: int = 0
    unequal: int = 0
    damaged: int = 0
    changed: str = ""
    # The chain: the seal of each verdict covers the line and the seal before it.
    seals: list[str] = field(default_factory=list)
    # Held while the file is locked, and while it is closed: closing drops a process's locks.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def read(self, descriptor: int, beside: int) -> None:
        """Read the lines that came since, and compare the chain with the head that was noted."""
        with self.lock:
            secret, count, seal = _noted(beside)  # before the lines, which are never behind it
            status = os.fstat(descriptor)
            place = status.st_dev, status.st_ino
            if place != self.place or status.st_size < self.size:  # another file
                self.place, self.size, self.lines, self.changed = place, 0, 0, ""
                self.first, self.asked, self.seals = {}, set(), []
                self.again = self.unequal = self.damaged = 0
            if status.st_size > self.size:
                os.lseek(descriptor, self.size, os.SEEK_SET)
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(status.st_size - self.size)
                # A line that somebody is writing is read the next time.
                whole = data[: data.rfind(b"\n") + 1]
                self.size += len(whole)
                for line in whole.splitlines():
                    self._take(line, secret)
            if not self.changed and count and self.seals[count - 1 : count] != [seal]:
                self.changed = f"{len(self.seals)} verdicts, and the head of {count} was noted"

    @property
    def end(self) -> str:
        return self.seals[-1] if self.seals else _START

    def _take(self, line: bytes, secret: bytes) -> None:
        self.lines += 1
        if not line:
            return
        try:
            key, number, when, asked, seal = line.decode("ascii").split(" ")
            verdict = float(number)
            if {len(key), len(asked), len(seal)} != {_DIGITS} or not 0 <= verdict <= 1:
                raise ValueError
        except ValueError:
            self.damaged += 1
            return
        if not hmac.compare_digest(seal, _seal(secret, self.end, f"{key} {number} {when} {asked}")):
            self.changed = self.changed or f"line {self.lines} does not follow the lines before it"
        self.seals.append(seal)
        self.asked.add(asked)
        found = bytes.fromhex(key)
        if found in self.first:
            self.again += 1
            self.unequal += self.first[found] != verdict
        else:
            self.first[found] = verdict


_files: process.PerProcess[dict[Path, _Known]] = process.PerProcess(dict)


def key_of(secret: bytes, judge: str, item: bytes, answer: bytes) -> bytes:
    """Return what a verdict is found by, which nobody can calculate without the file's secret."""
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (judge.encode(), item, answer):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


@contextmanager
def asked_by(asker: str) -> Iterator[None]:
    """Ask for verdicts on behalf of a ladder.

    How long an answer takes must not show what was answered on others, nor which references are
    equal. So for each row and answer the judge is asked anew by each ladder, though the first
    verdict for item and answer counts.
    """
    token = _asker.set(asker)
    try:
        yield
    finally:
        _asker.reset(token)


def given(
    path: Path, judge: str, pairs: Sequence[tuple[bytes, bytes]], ask: Callable[[int], float]
) -> list[float]:
    """Return a verdict for each pair of item and answer, asking for those that nobody has given.

    What was given for another row, or another ladder than that of `asked_by`, is asked once more.

    Each is written as soon as it is given, in one piece at the end of the file, so that one that is
    on record is not asked for again, whatever fails later. Where several processes ask at
    once, what is first in the file counts for all of them.

    Parameters
    ----------
    path : Path
        A private file of lines "key verdict time asked seal". It is made if it is not there, and
        beside it the file of its secret and of its head, with ".key" after its name.
    judge : str
        The judge's name.
    pairs : sequence of tuple
        An item and an answer, as bytes.
    ask : callable
        ``ask(place)``: the verdict, from 0 to 1, for the pair at a place of `pairs`.

    Raises
    ------
    InvalidArgument
        The files cannot be used, others may read them, or a verdict is not as it was written.
    """
    known = _files().setdefault(path, _Known())
    with _opened(path, known) as (descriptor, beside):
        secret = _noted(beside)[0]
        keys = [key_of(secret, judge, *pair) for pair in pairs]
        asker, written = _asker.get(), False
        asked = [_START] * len(pairs)
        if asker is not None:
            whose = json.dumps([judge, asker])
            parts = ((str(place).encode(), answer) for place, (_, answer) in enumerate(pairs))
            asked = [key_of(secret, whose, *part).hex() for part in parts]

        def is_known(place: int) -> bool:
            return keys[place] in known.first and (asker is None or asked[place] in known.asked)

        try:
            known.read(descriptor, beside)
            _check(path, known)
            for place, key in enumerate(keys):
                # Read again each time: a verdict may cost much, and another process may have it.
                if not is_known(place):
                    known.read(descriptor, beside)
                if not is_known(place):
                    verdict = ask(place)
                    now = datetime.now(UTC).isoformat(timespec="seconds")
                    with _turn(descriptor, known):
                        line = f"{key.hex()} {verdict!r} {now} {asked[place]}"
                        _append(descriptor, beside, known, line)
                    written = True
            known.read(descriptor, beside)
            _check(path, known)
            return [known.first[key] for key in keys]
        finally:
            if written:  # before any score that rests on them is released
                _note(descriptor, beside, known)


def verdicts_of(path: str | Path) -> VerdictRecord:
    """Return what a file of verdicts holds, for its owner.

    Parameters
    ----------
    path : str or Path
        As for `metric_of_items`.

    Returns
    -------
    VerdictRecord

    Raises
    ------
    InvalidArgument
        There is no such file, or others may read it.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout.metrics import metric_of_items
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "polite.verdicts"
    ...     polite = metric_of_items("polite", lambda item, text: "please" in text, verdicts=path)
    ...     items = polite.targets(["Ask for tea.", "Ask for rest."], None)
    ...     answers = polite.canonical(["Tea, please.", "Be quiet."], 2, None)
    ...     risk, record = polite.evaluate(items, answers).risk, verdicts_of(path)
    >>> risk, record.verdicts, record.changed
    (0.5, 2, '')
    """
    path = Path(path).absolute()
    shared = _files().setdefault(path, _Known())  # its lock, not what it knows
    known = _Known(lock=shared.lock)
    with _opened(path, known, create=False) as (descriptor, beside):
        known.read(descriptor, beside)
    counts = known.again, known.unequal, known.damaged
    return VerdictRecord(len(known.first), *counts, known.changed, known.end)


@contextmanager
def _opened(path: Path, known: _Known, *, create: bool = True) -> Iterator[tuple[int, int]]:
    """Open the file of verdicts and the one beside it, which has its secret and its head."""
    opened = [_private(path, create=create, append=True)]
    try:
        beside = path.with_name(f"{path.name}.key")
        if create and not os.fstat(opened[0]).st_size:
            _make_secret(beside)
        opened.append(_private(beside, create=False))
        yield opened[0], opened[1]
    finally:
        with known.lock:
            for descriptor in opened:
                os.close(descriptor)


def _private(path: Path, *, create: bool, append: bool = False) -> int:
    try:
        descriptor = process.open_private(path, create=create, append=append)
    except OSError as fault:
        allowed, came = "a file that can be written", f"{path}: {fault.strerror}"
        remedy = "Verdicts are read with the file beside them whose name ends with .key."
        raise InvalidArgument("verdicts", allowed, came, remedy) from None
    status = os.fstat(descriptor)
    if process.is_open_to_others(status) or process.is_of_another(status):
        os.close(descriptor)
        allowed, came = "a file of your own that nobody else may use", f"{path}, which others may"
        raise InvalidArgument("verdicts", allowed, came, "Verdicts show labels: chmod 600.")
    return descriptor


def _make_secret(beside: Path) -> None:
    """Make the secret where there is none, whole from its first moment for other processes."""
    if beside.exists():
        return
    own = beside.with_name(f"{beside.name}.{os.getpid()}-{threading.get_ident()}")
    with open(process.open_private(own, new=True), "wb") as file:
        file.write(_note_of(secrets.token_hex(_DIGITS // 2), 0, _START))
        process.sync(file)
    try:
        with suppress(FileExistsError):  # another process was first
            os.link(own, beside)
        process.sync_folder(beside.parent)
    finally:
        own.unlink()


def _note_of(secret: str, count: int, seal: str) -> bytes:
    return f"{secret} {count:020d} {seal}\n".encode("ascii")


def _noted(beside: int) -> tuple[bytes, int, str]:
    """Return the secret, how many verdicts there were when the head was noted, and that head."""
    try:
        secret, count, seal = process.read_start(beside, 1 << 10).decode("ascii").split()
        if (len(secret), len(seal)) != (_DIGITS, _DIGITS):
            raise ValueError
        return bytes.fromhex(secret), int(count), seal
    except ValueError:
        allowed = "with the file of its secret as it was written"
        raise InvalidArgument("verdicts", allowed, "with another beside it") from None


def _seal(secret: bytes, before: str, line: str) -> str:
    return hmac.new(secret, f"seal {before} {line}".encode("ascii"), hashlib.sha256).hexdigest()


def _check(path: Path, known: _Known) -> None:
    if known.changed:
        raise InvalidArgument(
            "verdicts",
            "as they were written",
            f"{path}: {known.changed}",
            "Put back the file and the one beside it from one and the same copy.",
        )


@contextmanager
def _turn(descriptor: int, known: _Known) -> Iterator[None]:
    """Write alone: a line is sealed with what is before it."""
    with known.lock:
        process.lock_byte(descriptor, 0, wait=True)
        try:
            yield
        finally:
            process.unlock_byte(descriptor, 0)


def _append(descriptor: int, beside: int, known: _Known, line: str) -> None:
    if _is_cut_off(descriptor):
        os.write(descriptor, b"\n")
    known.read(descriptor, beside)
    data = f"{line} {_seal(_noted(beside)[0], known.end, line)}\n".encode("ascii")
    if os.write(descriptor, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _note(descriptor: int, beside: int, known: _Known) -> None:
    """Sync the verdicts, and only then note their head: a note is never ahead of its lines."""
    with _turn(descriptor, known):
        known.read(descriptor, beside)
        with open(descriptor, "r+b", buffering=0, closefd=False) as file:
            process.sync(file)
        if not known.changed:
            secret = _noted(beside)[0].hex()
            process.write_start(beside, _note_of(secret, len(known.seals), known.end))
            with open(beside, "r+b", buffering=0, closefd=False) as file:
                process.sync(file)


def _is_cut_off(descriptor: int) -> bool:
    """Return whether the last line has no end: what follows would become a part of it."""
    size = os.fstat(descriptor).st_size
    if not size:
        return False
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) != b"\n"
