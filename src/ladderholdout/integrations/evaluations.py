"""Answers of evaluations of language models, and the submission that they become."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard import commands
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.rows import NamedPredictions
from ladderholdout.identity.spelling import any_number
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote.tables import labels_like

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
    document : set of str or None
        What the item is made of, if `item` is only its place in a run.
    """

    item: Any
    epoch: int
    text: str
    document: Set[str] | None = field(default=None, compare=False, repr=False)


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
        The holdout has no ids or a metric for which an answer is no prediction, an item was
        answered twice in one epoch, or it cannot be checked which items they are.
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
    named = _named_by_documents(ladder, answers, names)
    values = _values(ladder, [reading.of(answer.text) for answer in answers], named, reading)
    return NamedPredictions(values, named)


def _named_by_documents(
    ladder: OpenLadder, answers: Sequence[Answer], names: Sequence[Any]
) -> Sequence[Any]:
    """Return the ids of items that are known by their place in a run, by texts of the rows."""
    if all(answer.document is None for answer in answers):
        return names
    if isinstance(ladder, LocalLadder):
        placed, _ = ladder.placed(NamedPredictions(np.arange(len(answers)), names))
        table = np.asarray(ladder.rows().X, dtype=object).reshape(len(answers), -1)
        for column in table.T:
            told = {
                text.strip(): place
                for text, place in zip(column, placed, strict=True)
                if type(text) is str
            }
            found = [told.keys() & (answer.document or set()) for answer in answers]
            if {len(one) for one in found} == {1} and len(set().union(*found)) == len(answers):
                return [names[told[text]] for (text,) in found]
    raise InvalidArgument(
        "ids",
        "stated, unless each document has the text of one row",
        "left out",
        "The doc_id of lm_eval is a place in a run, and with --samples that of another document. "
        "State the field of the documents that has the id, --ids FIELD; or --ids doc_id, if all "
        "documents ran in their own order.",
    )


def check_takes_answers(ladder: OpenLadder) -> None:
    """Refuse a holdout without ids, or whose metric takes no answers."""
    if not ladder.execute(commands.State()).has_ids:
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
