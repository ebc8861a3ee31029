"""Another user of the machine: which Python that user can run, and what was read of the labels."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

STRANGER = 54321  # of nobody here
# Of a number of eight bytes all but the last, which rounding changes.
PARTS = (("<d", slice(1, 8)), (">d", slice(0, 7)))


def is_root() -> bool:
    """Whether this process may start one of another user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def interpreter() -> str | None:
    """A Python that the stranger can run; tests may be run by one in somebody's home."""
    for one in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run([one, "-c", ""], user=STRANGER, group=STRANGER, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return one
    return None


def encodings(labels: np.ndarray) -> Iterator[bytes]:
    """A run of labels as bytes and as texts."""
    for kind in ("i1", "<i2", "<i4", "<i8", ">i8", "<f4", "<f8", "?"):
        yield labels.astype(kind).tobytes()
    for gap in (",", ", ", "\n", "\r\n", " ", ""):
        yield gap.join(map(str, labels)).encode()


def bits(labels: np.ndarray) -> Iterator[bytes]:
    """All labels, eight in a byte."""
    for order in ("big", "little"):
        yield np.packbits(labels, bitorder=order).tobytes()[:-1]


def labels_in(found: bytes, orders: list[np.ndarray]) -> int:
    """Count the encodings of 40 labels in a row, or of all, that are in some bytes."""
    runs = [
        text for y in orders for start in (0, 150, 350) for text in encodings(y[start : start + 40])
    ]
    whole = [text for y in orders for text in bits(y)]
    return sum(text in found for text in [*runs, *whole])


def numbers_in(found: bytes, scores: set[float], rows: int) -> int:
    """Count the scores, and risks, that are in some bytes as text or as a number of eight bytes."""
    counts = {round(rows * one) for one in scores} | {round(rows * (1 - one)) for one in scores}
    # However it was computed, and in the byte orders of memory and of SQLite.
    values = {one for k in counts for one in (k / rows, 1 - (rows - k) / rows)}
    texts = {f"{one:.12f}"[:-1].encode() for one in values}  # and whatever digits follow
    packed = {struct.pack(order, one)[cut] for one in values for order, cut in PARTS}
    return sum(one in found for one in texts | packed)
