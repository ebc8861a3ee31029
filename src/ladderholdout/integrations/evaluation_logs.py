"""Readers of what evaluations of language models leave: logs of Inspect, samples of lm_eval.

What a log has as targets, scores and metrics is never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ladderholdout.errors import InvalidArgument
from ladderholdout.integrations.evaluations import Answer

LOGS = (".eval", ".json", ".jsonl")
"""The files of which `answers_in` reads answers."""


def answers_in(path: Path, *, ids: str | None = None, kept: str | None = None) -> list[Answer]:
    """Read the answers in the log of an evaluation.

    Parameters
    ----------
    path : Path
        A log of Inspect (.eval, or .json), or the samples that the Language Model Evaluation
        Harness writes with ``--log_samples`` (samples_*.jsonl).
    ids : str, optional
        A field of the samples that has the ids of the items: of the metadata in Inspect, of the
        document in the harness. By default the sample's id, or the row whose text the document
        has; ``"doc_id"`` takes the document's number as it is.
    kept : str, optional
        The filter of the harness whose answers are meant, where samples are there for several.

    Returns
    -------
    list of Answer
        In the order of the file. Of a multiple choice the text is the number of the most likely
        choice, from 0.

    Raises
    ------
    InvalidArgument
        The file cannot be read, has no answers, or an item failed.
    MissingExtra
        Inspect is not installed, whose log it is.
    """
    if path.suffix.lower() == ".jsonl":
        return list(_of_harness(path, ids, kept))
    if kept is not None:
        raise InvalidArgument("filter", "left out for this file", "stated", "Inspect has none.")
    if path.suffix.lower() == ".json" and not {"eval", "samples"} & set(_json_of(path)):
        raise InvalidArgument(
            "the file",
            "a log of Inspect, or samples of lm_eval",
            "another, such as results alone",
            "Run lm_eval with --log_samples, and give samples_TASK_*.jsonl.",
        )
    from ladderholdout.integrations import inspect_ai

    return inspect_ai.answers_of(path, ids)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "no text in UTF-8"
        raise InvalidArgument("the file", "one that can be read", f"{path}: {reason}") from None


def _json_of(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(_text_of(path))
    except (ValueError, RecursionError):  # its text shows a part of the file
        read = None
    if not isinstance(read, dict):
        raise InvalidArgument("the file", "a JSON object", f"{path}, which is none")
    return read


def _of_harness(path: Path, ids: str | None, kept: str | None) -> Iterator[Answer]:
    """Read samples of the harness: one line for each document and filter."""
    samples = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            sample = json.loads(line)
            samples.append((number, sample, str(sample.get("filter", "none"))))
        except (ValueError, AttributeError, RecursionError):
            came = f"something else in line {number}"
            raise InvalidArgument("the file", "a JSON object in each line", came) from None
    filters = list(dict.fromkeys(name for _, _, name in samples))
    if kept is None and len(filters) > 1:
        came = "left out for a file with several"
        raise InvalidArgument("filter", f"one of {', '.join(filters)}", came)
    if kept is not None and kept not in filters:
        raise InvalidArgument("filter", f"one of {', '.join(filters) or 'none'}", repr(kept))
    for number, sample, name in samples:
        if kept in (None, name):
            yield from _of_sample(sample, number, ids)


def _of_sample(sample: Mapping[str, Any], number: int, ids: str | None) -> Iterator[Answer]:
    try:
        document = sample["doc"]
        by_place = ids is None or (ids == "doc_id" and ids not in document)
        item = sample["doc_id"] if by_place else document[ids]
        asked, given = [*sample["arguments"].values()], sample["filtered_resps"]
        texts = _texts_of(asked, given)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        field = "doc_id" if ids is None else f"doc.{ids}"
        allowed = f"samples of lm_eval, with doc, {field}, arguments and filtered_resps"
        raise InvalidArgument("the file", allowed, f"without some of it in line {number}") from None
    if isinstance(item, dict | list | None):
        raise InvalidArgument("ids", "a field with the id of each item", f"none in line {number}")
    if not texts:
        allowed = "a number for the likelihood of each choice, one above another"
        came = f"nan, infinity or a tie, for the item {item!r}"
        raise InvalidArgument("the answers", allowed, came, "Run the model again, such as in bf16.")
    shown = {str(value).strip() for value in document.values()} if ids is None else None
    for epoch, text in enumerate(texts, 1):
        yield Answer(item, epoch, text, shown)


def _texts_of(asked: Sequence[Mapping[str, Any]], given: Sequence[Any]) -> list[str]:
    """Return the texts that were generated for a document, or the choice that is most likely.

    There is no such choice, and so no text, if a likelihood is nan or all are the same.

    All that the harness was answered are texts, numbers too. A request to generate has its
    settings as the second argument, one for a likelihood the text whose likelihood is asked for.
    """
    if isinstance(asked[0]["arg_1"], str):
        # Beside likelihoods given the question there may be those without it.
        conditional = [place for place, one in enumerate(asked) if one["arg_0"] != ""]
        places = conditional or range(len(asked))
        likelihoods = [float(given[place][0]) for place in places]
        if len(likelihoods) < 2:
            raise ValueError
        best = max(likelihoods)
        if np.isnan(likelihoods).any() or best == np.inf or best == min(likelihoods):
            return []
        return [str(int(np.argmax(likelihoods)))]
    (answer,) = given
    answers = answer if isinstance(answer, list) else [answer]
    if not answers or not all(isinstance(one, str) for one in answers):
        raise ValueError
    return answers
