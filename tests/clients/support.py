"""What the tests of other people's software share: recipes, the winner, and what leaks."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout, SearchStopped
from tests.support.holdouts import assert_replays
from tests.support.ledgers import entries_of, record

ROOT = Path(__file__).parents[2]


def page_of(name: str) -> Path:
    """Return a page of recipes: a guide, or one for experts."""
    places = (ROOT / "docs" / room / f"{name}.md" for room in ("guide", "background"))
    return next(place for place in places if place.exists())


def recipe(page: str, title: str, names: dict[str, Any], part: int = 1) -> dict[str, Any]:
    """Run a block of Python under a heading of a page, and return the names that it leaves."""
    text = page_of(page).read_text("utf-8")
    section = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section is not None, f"{page} has no section {title!r}"
    blocks = re.findall(r"^```python\n(.*?)^```$", section[1], re.M | re.S)
    exec(compile(blocks[part - 1], f"<{page}: {title}>", "exec"), names)
    return names


def refusal(run: Any, note: Any, kind: type[BaseException] = SearchStopped, match: str = "") -> str:
    """Return what a refusal says, and note it for the page."""
    with pytest.raises(kind, match=match or None) as refused:
        run()
    text = " ".join(str(refused.value).split())
    note("because", text.removeprefix("The guard cannot answer, so the search stops. "))
    return text


def assert_winner(holdout: LadderHoldout, model: Any, X: Any = None) -> None:
    """The model predicts on the holdout's rows what the incumbent does."""
    before = holdout.status()
    release = holdout.submit(model.predict(X)) if X is not None else holdout.submit(model)
    again = entries_of(holdout)[release.submission - 1]
    assert again.repeat_of == before.incumbent or (
        again.repeat_of is not None
        and entries_of(holdout)[again.repeat_of - 1].repeat_of == before.incumbent
    )
    assert release.is_incumbent and release.score == before.score
    assert_replays(holdout)


def secrets(holdout: LadderHoldout) -> set[float]:
    """Raw scores and risks of the submissions that nobody was shown, as fractions of the rows."""
    entries = record(holdout)[2]
    raw = {entry.raw_risk for entry in entries if not entry.entry.improved}
    n = record(holdout)[0].n_ladder
    shown = {entry.entry.risk for entry in entries if entry.entry.risk is not None}
    # The feedback on what did not improve lies one step below the released score.
    shown |= {risk + 1 / n for risk in shown}
    # The score of one may be the risk of another.
    shown |= {1 - risk for risk in shown}
    hidden = {risk for risk in raw if all(abs(risk - one) > 1e-9 for one in shown)}
    return {value for risk in hidden for value in (risk, 1 - risk, -risk, risk - 1)}


def numbers(kept: Any, seen: set[int] | None = None, depth: int = 0) -> Iterator[float]:
    """Yield each number within what a client keeps, through its attributes and containers."""
    seen = set() if seen is None else seen
    if id(kept) in seen or depth > 12:
        return
    seen.add(id(kept))
    if isinstance(kept, bool | np.bool_):
        return
    if isinstance(kept, int | float | np.integer | np.floating):
        yield float(kept)
    elif isinstance(kept, str):
        yield from (float(one) for one in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", kept))
    elif isinstance(kept, np.ndarray):
        if kept.dtype.kind in "f":
            yield from map(float, kept.ravel())
        elif kept.dtype.kind == "O":
            for one in kept.ravel():
                yield from numbers(one, seen, depth + 1)
    elif isinstance(kept, Mapping):
        for key, value in list(kept.items()):
            yield from numbers(key, seen, depth + 1)
            yield from numbers(value, seen, depth + 1)
    elif isinstance(kept, list | tuple | set | frozenset):
        for one in list(kept):
            yield from numbers(one, seen, depth + 1)
    elif hasattr(kept, "to_dict") and hasattr(kept, "columns"):
        yield from numbers(kept.to_dict("list"), seen, depth + 1)
    elif not isinstance(kept, LadderHoldout | type) and hasattr(kept, "__dict__"):
        yield from numbers(vars(kept), seen, depth + 1)


def assert_nothing_raw(holdout: LadderHoldout, *kept: Any, least: int = 1) -> None:
    """No raw score that was not released is anywhere in what the client keeps."""
    hidden = secrets(holdout)
    assert len(hidden) >= 4 * least, "no score was hidden, so that the test shows nothing"
    found = {one for part in kept for one in numbers(part) if math.isfinite(one)}
    assert found, "nothing was kept, so that the test shows nothing"
    leaked = [one for one in found if any(abs(one - other) < 1e-9 for other in hidden)]
    assert not leaked
    for part in kept:
        try:
            stored = pickle.dumps(part)
        except Exception:
            continue
        for value in hidden:
            assert repr(value)[:14].encode() not in stored


def text_of(kept: Any) -> str:
    """Whatever it is, as text."""
    return json.dumps(kept, default=str)
