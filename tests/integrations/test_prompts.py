"""Attacks the check for items of the holdout among those that a search for prompts goes by."""

from __future__ import annotations

from typing import Any

import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import OverlapError
from ladderholdout.integrations.prompts import GuardedPromptOptimizer
from ladderholdout.metrics import metric_of_items

ITEMS = [f"item {place}" for place in range(20)]
ALIKE = metric_of_items("exact", lambda reference, answer: reference == answer)


def searched(inputs: Any, examples: list[dict[str, Any]]) -> None:
    holdout = LadderHoldout(ITEMS, ITEMS, scoring=ALIKE, name="items", ledger="memory")
    guarded = GuardedPromptOptimizer(None, holdout, inputs=inputs)
    guarded.optimize(lambda *_: [], [{"inputs": example} for example in examples], {})


def test_items_that_cannot_be_compared_are_refused() -> None:
    examples = [{"question": item} for item in ITEMS[:7]]
    with pytest.raises(OverlapError, match="7 of the training items"):
        searched(lambda item: {"question": item}, examples)
    with pytest.raises(OverlapError, match="7 of the training items"):
        searched(lambda item: {"question": item}, [{**each, "id": 1} for each in examples])
    for inputs in (lambda item: {"question": item, "context": "c"}, lambda item: {}):
        with pytest.raises(InvalidArgument, match="7 of 7 items lack one"):
            searched(inputs, examples)
    with pytest.raises(InvalidArgument, match="1 of 8 items lack one"):
        searched(lambda item: {"question": item}, [*examples, {"text": "other"}])
