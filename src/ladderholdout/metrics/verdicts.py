"""The verdicts of a judge, on record: the first one for an item and an answer counts."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ladderholdout.errors import InvalidArgument
from ladderholdout.process import PerProcess, is_of_another, is_open_to_others, open_private, sync

_KEY = 64  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """What a file of verdicts holds.

    Attributes
    ----------
    verdicts : int
        Pairs of item and answer with a verdict.
    again : int
        Verdicts that came second, from processes that asked at the same time. They do not count.
    unequal : int
        Those among them that differ from the first: the judge is noisy.
    damaged : int
        Lines that are no verdict, such as one that a full disk cut off.

    Examples
    --------
    >>> VerdictRecord(verdicts=500, again=2, unequal=1, damaged=0).unequal
    1
    """

    verdicts: int
    again: int
    unequal: int
    damaged: int


@dataclass(slots=True)
class _Known:
    """What was read of a file so far."""

    place: tuple[int, int] | None = None
    size: int = 0
    first: dict[str, float] = field(default_factory=dict)
    again: int = 0
    unequal: int = 0
    damaged: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, descriptor: int) -> dict[str, float]:
        """Read the lines that came since, and return the verdicts that count."""
        status = os.fstat(descriptor)
        place = status.st_dev, status.st_ino
        with self.lock:
            if place != self.place or status.st_size < self.size:  # another file
                self.place, self.size, self.first = place, 0, {}
                self.again = self.unequal = self.damaged = 0
            if status.st_size > self.size:
                os.lseek(descriptor, self.size, os.SEEK_SET)
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(status.st_size - self.size)
                # A line that somebody is writing is read the next time.
                whole = data[: data.rfind(b"\n") + 1]
                self.size += len(whole)
                for line in whole.splitlines():
                    self._take(line)
            return self.first

    def _take(self, line: bytes) -> None:
        if not line:
            return
        try:
            key, number, _ = line.decode("ascii").split(" ")
            verdict = float(number)
            if len(key) != _KEY or not 0 <= verdict <= 1:
                raise ValueError
        except ValueError:
            self.damaged += 1
            return
        if key in self.first:
            self.again += 1
            self.unequal += self.first[key] != verdict
        else:
            self.first[key] = verdict


_files: PerProcess[dict[Path, _Known]] = PerProcess(dict)


def key_of(judge: str, item: bytes, answer: bytes) -> str:
    """Return what a verdict is found by: a digest of the judge's name, the item and the answer."""
    digest = hashlib.sha256()
    for part in (judge.encode(), item, answer):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def given(path: Path, keys: Sequence[str], ask: Callable[[int], float]) -> list[float]:
    """Return a verdict for each key, asking for those that nobody has given.

    Each is written as soon as it is given, in one piece at the end of the file, so that one that is
    on record is not asked for again, whatever fails later. Where several processes ask at
    once, what is first in the file counts for all of them.

    Parameters
    ----------
    path : Path
        A private file of lines "key verdict time"; it is made if it is not there.
    keys : sequence of str
        From `key_of`.
    ask : callable
        ``ask(place)``: the verdict, from 0 to 1, for the key at a place of `keys`.

    Raises
    ------
    InvalidArgument
        The file cannot be used, or others may read it.
    """
    descriptor = _opened(path)
    known = _files().setdefault(path, _Known())
    written = False
    try:
        if _is_cut_off(descriptor):
            _append(descriptor, "")
        first = known.read(descriptor)
        for place, key in enumerate(keys):
            # Read again each time: a verdict may cost much, and another process may have it by now.
            if key not in first and key not in (first := known.read(descriptor)):
                verdict = ask(place)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                _append(descriptor, f"{key} {verdict!r} {now}")
                written = True
        first = known.read(descriptor)
        return [first[key] for key in keys]
    finally:
        with open(descriptor, "r+b", buffering=0) as file:
            if written:  # before any score that rests on them is released
                sync(file)


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
    ...     polite.evaluate(items, answers).risk, verdicts_of(path)
    (0.5, VerdictRecord(verdicts=2, again=0, unequal=0, damaged=0))
    """
    descriptor = _opened(Path(path), create=False)
    known = _Known()
    try:
        first = known.read(descriptor)
    finally:
        os.close(descriptor)
    return VerdictRecord(len(first), known.again, known.unequal, known.damaged)


def _opened(path: Path, *, create: bool = True) -> int:
    try:
        descriptor = open_private(path, create=create, append=True)
    except OSError as fault:
        allowed, came = "a file that can be written", f"{path}: {fault.strerror}"
        raise InvalidArgument("verdicts", allowed, came) from None
    status = os.fstat(descriptor)
    if is_open_to_others(status) or is_of_another(status):
        os.close(descriptor)
        allowed, came = "a file of your own that nobody else may use", f"{path}, which others may"
        raise InvalidArgument("verdicts", allowed, came, "Verdicts show labels: chmod 600.")
    return descriptor


def _append(descriptor: int, line: str) -> None:
    data = f"{line}\n".encode("ascii")
    if os.write(descriptor, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_cut_off(descriptor: int) -> bool:
    """Return whether the last line has no end: what follows would become a part of it."""
    size = os.fstat(descriptor).st_size
    if not size:
        return False
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) != b"\n"
