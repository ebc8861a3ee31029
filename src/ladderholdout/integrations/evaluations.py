"""Answers of evaluations of language models: from their logs, or from a scorer, to a submission.

What a log has as targets, scores and metrics is never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard import NamedPredictions, OpenLadder
from ladderholdout.identity.spelling import any_number
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote.predictions import labels_like

LOGS = (".eval", ".json", ".jsonl")
"""The files of which `answers_in` reads answers."""

_EPOCHS = "Where each item is answered several times, an id is ID/EPOCH: q7/1, q7/2."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered to an item, once.

    Attributes
    ----------
    item : object
        The item's id.
    epoch : int
        Which of its answers it is, from 1.
    text : str
    """

    item: Any
    epoch: int
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How the text of an answer becomes a prediction.

    Attributes
    ----------
    pattern : str or None
        A regular expression whose last match in the text is the prediction: its first group, or
        all of it where there is none. A text without a match is the empty answer. By default the
        whole text, without the spaces around it.
    otherwise : str or None
        The class that answers count as which are none of the classes. By default they are refused.

    Raises
    ------
    InvalidArgument
        `pattern` is no regular expression.

    Examples
    --------
    >>> Reading(r"answer is ([A-D])").of("I think of B, and the answer is C.")
    'C'
    >>> Reading(r"answer is ([A-D])").of("I do not know.")
    ''
    """

    pattern: str | None = None
    otherwise: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except (re.error, TypeError):
                allowed = "a regular expression, with the prediction in its first group"
                raise InvalidArgument("pattern", allowed, as_given(self.pattern)) from None

    def of(self, text: str) -> str:
        """Return the prediction that an answer has."""
        if self.pattern is None:
            return text.strip()
        last = None
        for match in re.finditer(self.pattern, text):
            last = match
        if last is None:
            return ""
        return str((last.group(1) if last.re.groups else last.group()) or "").strip()


def submission_of(
    ladder: OpenLadder, answers: Sequence[Answer], reading: Reading
) -> NamedPredictions:
    """Return the predictions that a ladder is given, with the ids of its rows.

    Where items were answered several times, each answer has a row, whose id is ``ITEM/EPOCH``.

    Parameters
    ----------
    ladder : OpenLadder
        Of one metric, on a holdout that was registered with ids.
    answers : sequence of Answer
    reading : Reading

    Returns
    -------
    NamedPredictions

    Raises
    ------
    InvalidArgument
        The holdout has no ids or a metric for which an answer is no prediction, or an item was
        answered twice in one epoch.
    InvalidSubmission
        There are more or fewer answers than rows, or some are no class and no number.
    """
    check_takes_answers(ladder)
    several = any(answer.epoch != 1 for answer in answers)
    if len(answers) != ladder.facts.n:
        allowed = f"one to each of the {ladder.facts.n} rows"
        raise InvalidSubmission("the answers", allowed, len(answers), _EPOCHS)
    seen: set[tuple[str, int]] = set()
    for answer in answers:
        key = str(answer.item), answer.epoch
        if key in seen:
            came = f"two to the item {answer.item!r}" + f" in epoch {answer.epoch}" * several
            raise InvalidArgument("the answers", "one to each item", came)
        seen.add(key)
    names = [f"{answer.item}/{answer.epoch}" if several else answer.item for answer in answers]
    if not all(isinstance(name, int) for name in names):
        names = list(map(str, names))
    values = _values(ladder, [reading.of(answer.text) for answer in answers], names, reading)
    return NamedPredictions(values, names)


def check_takes_answers(ladder: OpenLadder) -> None:
    """Refuse a holdout without ids, or whose metric takes no answers."""
    if not ladder.state().has_ids:
        raise InvalidArgument(
            "the holdout",
            "registered with the ids of the items here",
            "registered without ids",
            f"Register its rows with ids= or --ids. {_EPOCHS}",
        )
    if ladder.metric.response not in ("labels", "values"):
        raise InvalidArgument(
            "the metric",
            "one of labels, of values or of judged items here",
            f"{ladder.metric.name}, which takes {ladder.metric.response}",
            "Start a ladder with scoring='accuracy' beside it.",
        )


def _values(
    ladder: OpenLadder, texts: list[str], names: Sequence[Any], reading: Reading
) -> list[Any] | NDArray[Any]:
    metric, classes = ladder.metric, ladder.facts.classes
    if isinstance(metric, ItemMetric):
        return texts
    if metric.response == "values":
        read = {text: any_number(text) for text in texts}
        _refuse_others(texts, names, read, "numbers", "State a pattern that finds them.")
        return np.array([read[text] for text in texts], dtype=np.float64)
    assert classes is not None
    known = set(classes.tolist())
    read = {text: _class_of(text, classes, known) for text in dict.fromkeys(texts)}
    if reading.otherwise is not None:
        instead = _class_of(reading.otherwise, classes, known)
        if instead is None:
            raise InvalidArgument(
                "otherwise",
                "one of the holdout's classes",
                "another",
                "Register the holdout with one class more: classes= or --class none.",
            )
        read = {text: instead if label is None else label for text, label in read.items()}
    remedy = (
        "State a pattern that finds the label, and with otherwise the class that other answers "
        "count as: one that the holdout was registered with in addition, such as none."
    )
    _refuse_others(texts, names, read, "labels of the holdout's classes", remedy)
    return np.array([read[text] for text in texts])


def _class_of(text: str, classes: NDArray[Any], known: set[Any]) -> Any:
    """Return the class that a text names, in the type that classes have; else None."""
    try:
        label = labels_like(classes, [text]).tolist()[0]
    except InvalidSubmission:
        return None
    return label if label in known else None


def _refuse_others(
    texts: Sequence[str],
    names: Sequence[Any],
    read: Mapping[str, Any],
    allowed: str,
    remedy: str,
) -> None:
    """Refuse answers that were read as nothing; the text is not shown, for it may be a label."""
    wrong = [place for place, text in enumerate(texts) if read[text] is None]
    if wrong:
        came = f"others in {len(wrong)} of {len(texts)}, the first to {names[wrong[0]]!r}"
        raise InvalidSubmission("the answers", allowed, came, remedy)


# Files


def answers_in(path: Path, *, ids: str | None = None, kept: str | None = None) -> list[Answer]:
    """Read the answers in the log of an evaluation.

    Parameters
    ----------
    path : Path
        A log of Inspect (.eval, or .json), or the samples that the Language Model Evaluation
        Harness writes with ``--log_samples`` (samples_*.jsonl).
    ids : str, optional
        A field of the samples that has the ids of the items: of the metadata in Inspect, of the
        document in the harness. By default the sample's id, or the document's number.
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
    except ValueError:  # its text shows a part of the file
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
        except (ValueError, AttributeError):
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
        item = sample["doc_id"] if ids is None else sample["doc"][ids]
        asked, given = [*sample["arguments"].values()], sample["filtered_resps"]
        texts = _texts_of(asked, given)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        field = "doc_id" if ids is None else f"doc.{ids}"
        allowed = f"samples of lm_eval, with {field}, arguments and filtered_resps"
        raise InvalidArgument("the file", allowed, f"without some of it in line {number}") from None
    if isinstance(item, dict | list | None):
        raise InvalidArgument("ids", "a field with the id of each item", f"none in line {number}")
    for epoch, text in enumerate(texts, 1):
        yield Answer(item, epoch, text)


def _texts_of(asked: Sequence[Mapping[str, Any]], given: Sequence[Any]) -> list[str]:
    """Return the texts that were generated for a document, or the choice that is most likely.

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
        return [str(int(np.argmax(likelihoods)))]
    (answer,) = given
    answers = answer if isinstance(answer, list) else [answer]
    if not answers or not all(isinstance(one, str) for one in answers):
        raise ValueError
    return answers
