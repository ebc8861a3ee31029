"""Canaries: labels, secrets and raw scores in every form in which they may leave the guard."""

from __future__ import annotations

import base64
import io
import logging
import pickle
import re
import struct
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
from numpy.typing import NDArray

import ladderholdout
from ladderholdout import LadderHoldout
from ladderholdout.ledger.store import Ledger

PACKAGE = Path(ladderholdout.__file__).parent
ONLY_HERE = "canary-7731-only-here"


def number_forms(value: float) -> Iterator[bytes]:
    """Every text of at least six digits starts with one of these; then come the bytes.

    Six digits of a number in [0, 1) meet one of k canaries by chance with probability
    2k/10^6: below one in a thousand for all the numbers that a channel prints.
    """
    exact = f"{value:.17f}"
    yield from (exact[:8].encode(), f"{value:.6f}".encode())
    yield from (f"{100 * value:.9f}"[:7].encode(), f"{100 * value:.4f}".encode())
    yield from (f"{value:.9e}"[:7].encode(), f"{value:.5e}"[:7].encode())
    # Another way to sum changes the last of the eight bytes; six meet nothing by chance.
    yield from (struct.pack("<d", value)[-6:], struct.pack(">d", value)[:6])
    yield value.hex()[:10].encode()


def label_forms(y: NDArray[Any], class_name: str) -> Iterator[bytes]:
    """A class name in the encodings of files and arrays, and a run of labels as codes."""
    yield from (class_name.encode(), class_name.encode("utf-32-le"), class_name.encode("utf-16-le"))
    codes = np.unique(y, return_inverse=True)[1][:24]
    yield from (codes.astype(kind).tobytes() for kind in ("i1", "<i4", "<i8", "<f8"))
    yield from (separator.join(map(str, codes)).encode() for separator in (", ", " ", ","))


def secret_forms(secret: bytes) -> Iterator[bytes]:
    yield from (secret, secret.hex().encode(), base64.b64encode(secret), repr(secret).encode())


@dataclass(frozen=True, repr=False)
class Canaries:
    """What must not be found, as bytes by what they are of."""

    forms: dict[bytes, str]

    @classmethod
    def of(
        cls, y: NDArray[Any], risks: Iterable[float], secret: bytes, class_name: str = ONLY_HERE
    ) -> Canaries:
        forms = dict.fromkeys(label_forms(y, class_name), "label")
        forms |= dict.fromkeys(secret_forms(secret), "secret")
        for risk in risks:
            forms |= dict.fromkeys(number_forms(risk), "raw risk")
            forms |= dict.fromkeys(number_forms(1.0 - risk), "raw score")
        return cls(forms)

    def found_in(self, *channels: object) -> set[str]:
        """Say what of it stands in these texts, bytes or objects (as their repr)."""
        blobs = [one if isinstance(one, bytes) else str(one).encode() for one in channels]
        return {what for form, what in self.forms.items() if any(form in blob for blob in blobs)}


def pickles(thing: object) -> bytes:
    """Return an object as the three things that pickle would write it."""
    written = io.BytesIO()
    joblib.dump(thing, written)
    return pickle.dumps(thing) + cloudpickle.dumps(thing) + written.getvalue()


def folder_bytes(folder: Path) -> bytes:
    """Return all files of a folder, names included, as one string of bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in files)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that hang on it, shown by Python or not."""
    while error is not None:
        yield error
        yield from chain(error.__cause__)
        error = error.__context__


def words_of(error: BaseException) -> str:
    """Return all that an error and those it hangs on say, in whatever way they are shown."""
    said = [text for one in chain(error) for text in (one, [one, one.args, vars(one)])]
    return "\n".join([*map(str, said), *traceback.format_exception(error)])


def texts_of(error: BaseException) -> str:
    """Return also the variables that verbose tracebacks and error collectors show.

    Those of the library's frames alone: those of a test do hold the labels.
    """
    shown = [
        traceback.TracebackException.from_exception(one, capture_locals=True)
        for one in chain(error)
    ]
    frames = [frame for one in shown for frame in one.stack]
    ours = [frame.locals for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    return words_of(error) + repr(ours)


def canaries_of(holdout: LadderHoldout, y: NDArray[Any], class_name: str = ONLY_HERE) -> Canaries:
    """Read from the ledger what the ledger alone may hold."""
    with Ledger(holdout.ledger).read() as tx:
        risks = [
            entry.raw
            for known in tx.holdouts()
            for ladder in tx.ladders(known.id)
            for entry in tx.submissions(ladder.id)
        ]
        return Canaries.of(y, risks, tx.holdouts()[0].secret, class_name)


_SECONDS = re.compile(r"(generated in|cached since) [\d.e-]+s")


class Records(logging.Handler):
    """Keeps all that was logged, arguments included."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage(), record.args, record.exc_info, record.exc_text
        # The seconds that SQLAlchemy writes may by chance have the digits of a score.
        self.texts.append(_SECONDS.sub("", f"{record.name} {said!r}"))


@contextmanager
def all_logs() -> Iterator[Records]:
    """Set the root logger and every other one to its loudest, as a debugging user does."""
    known = [
        one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)
    ]
    before = [(one, one.level, one.disabled, one.propagate) for one in [logging.root, *known]]
    records = Records()
    for one, *_ in before:
        one.level, one.disabled, one.propagate = 1, False, True
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]
    logging.root.addHandler(records)
    try:
        yield records
    finally:
        logging.root.removeHandler(records)
        for one, level, disabled, propagate in before:
            one.level, one.disabled, one.propagate = level, disabled, propagate
        logging.root.manager._clear_cache()  # type: ignore[attr-defined]
