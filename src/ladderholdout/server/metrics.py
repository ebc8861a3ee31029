"""Metrics of the owner, such as judges: files that the owner names and nobody else changes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import Metric
from ladderholdout.process import is_writable_to_others

_ALLOWED = "FILE.py:NAME, of a metric in a file that nobody else may write to"


def metrics_in(places: Sequence[str]) -> Mapping[str, Metric]:
    """Run files of the owner's, and return the metrics in them by their names.

    Parameters
    ----------
    places : sequence of str
        Each ``FILE.py:NAME``.

    Raises
    ------
    InvalidArgument
        There is no such file or metric, or others may write to the file.

    Examples
    --------
    >>> metrics_in(())
    {}
    """
    found = {}
    for place in places:
        file, _, name = place.rpartition(":")
        metric = _run(Path(file)).get(name)
        if not isinstance(metric, Metric):
            raise InvalidArgument("metrics", _ALLOWED, repr(place))
        found[metric.name] = metric
    return found


def _run(file: Path) -> dict[str, object]:
    """Run a file, and return its names."""
    spec = importlib.util.spec_from_file_location(f"ladderholdout_{file.stem}", file)
    try:
        if spec is None or spec.loader is None or is_writable_to_others(os.stat(file)):
            raise InvalidArgument("metrics", _ALLOWED, str(file))
    except OSError as fault:
        raise InvalidArgument("metrics", _ALLOWED, f"{file}: {fault.strerror}") from None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)
