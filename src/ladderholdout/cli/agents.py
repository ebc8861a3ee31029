"""Tools for agents over the Model Context Protocol: submit, decide, status, history of a holdout.

The process has a token and no labels: it asks a server, and passes on what is released.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from ladderholdout.arguments import text, whole
from ladderholdout.cli.common import json_of
from ladderholdout.cli.files import predictions_from
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LadderHoldoutWarning
from ladderholdout.extras import needed
from ladderholdout.guard import NamedPredictions, ladder_of
from ladderholdout.holdout import LadderHoldout, Submission
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote.connection import Token, place_of
from ladderholdout.remote.predictions import Form

with needed("A server of the Model Context Protocol"):
    from mcp import types
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

# Seconds for which a request is tried again: clients of the protocol give up after a minute.
_PATIENCE = 20.0
_MOST = 1000
_FORMS = {
    "labels": "one class label for each row",
    "probabilities": "for each row the probability of the second class, or a list with one for "
    "each class, in the order of `classes`",
    "scores": "one number for each row, larger where the second class is more likely",
    "values": "one number for each row",
    "items": "one text for each row, which a judge reads",
}

INSTRUCTIONS = (
    "Scores of a holdout whose labels are on another machine. Call `status` first: it states "
    "the metric, the number of rows and what a prediction is. Then `submit` predictions for "
    "all rows, in the order in which the rows were first registered, or with the ids of the "
    "rows in any order. What you are shown is the released score: that of the best submission"
    " so far that improved on the one before by more than the holdout's step, or whether a "
    "submission improved alone, where the holdout shows no more. One that does not improve by"
    " that much shows nothing of its own score. So choose among models on your own training "
    "rows, and submit the few that you would put to use: many small changes do not climb "
    "here, and each submission stays on record. Where `status` names GateLadder as the mechanism, "
    "use `decide`, which states whether a change may be kept."
)


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _answer(**properties: Any) -> dict[str, Any]:
    """Describe an answer: all of its parts are always there, and so are the warnings."""
    listed = properties | {"warnings": {"type": "array", "items": {"type": "string"}}}
    return _object(tuple(listed), **listed)


def _kind(name: str, description: str, *, missing: bool = False) -> dict[str, Any]:
    return {"type": [name, "null"] if missing else name, "description": description}


def _number(description: str) -> dict[str, Any]:
    """Describe a score, which is a text where it is not finite, as JSON knows no such number."""
    return {"type": ["number", "string", "null"], "description": description}


_NONE_YET = "null before the first release, and where improvements alone are shown"
_LEFT = _kind("integer", "How many releases the budget leaves; null without one.", missing=True)
_REPEAT_OF = _kind("integer", "The first submission of the same predictions.", missing=True)
_RELEASED = _number(f"The score of the incumbent; {_NONE_YET}.")
_CERTIFICATE = _object(
    ("low", "high", "confidence", "missing"),
    low=_number("Lower end of the interval for the true score."),
    high=_number("Upper end."),
    confidence=_kind("number", "Probability that all certificates of the holdout hold."),
    missing=_kind("string", "Why there is none.", missing=True),
)

_SUBMITTED: dict[str, Any] = {
    "predictions": {
        "type": ["array", "string"],
        "items": {"type": ["number", "string", "boolean", "array"]},
        "description": "One prediction for each row; `status` states which. A list, or the same as "
        "JSON text. Give this or `file`.",
    },
    "file": _kind(
        "string",
        "Path of a .npy, .csv (with a header), .arrow or .parquet file with the predictions, on "
        "the machine where this tool runs, in the folder in which it was started.",
    ),
    "ids": {
        "type": ["array", "string"],
        "items": {"type": ["number", "string"]},
        "description": "The ids of the rows, which may then come in any order: a list beside "
        "`predictions`, or the name of the column of `file` that has them.",
    },
    "note": _kind("string", "What was submitted, in a few words; `history` shows it."),
}

_TOOLS = (
    types.Tool(
        name="submit",
        description=(
            "Submit predictions for all rows of the holdout, in the order in which the rows were "
            "first registered, or with `ids`, and return what is released. `improved` states "
            "whether the score is better than the released one by more than the holdout's step; "
            "only then does the released score change. Where it is false, nothing more is shown of "
            "this submission: "
            "`released_score` is that of the incumbent, an earlier submission. Predictions that "
            "were submitted before improve nothing and cost nothing."
        ),
        input_schema=_object(**_SUBMITTED),
        output_schema=_answer(
            submission=_kind("integer", "The submission's number."),
            improved=_kind("boolean", "Whether it became the incumbent."),
            repeat_of=_REPEAT_OF,
            is_incumbent=_kind("boolean", "Whether these predictions are the incumbent's."),
            released_score=_RELEASED,
            releases_left=_LEFT,
        ),
    ),
    types.Tool(
        name="decide",
        description=(
            "Ask whether a candidate may be kept in place of the incumbent, on a holdout whose "
            "rule is GateLadder (`status` states it). The first candidate is the baseline, which "
            "is accepted only with `baseline`. One error bounds all decisions together: `accepted` "
            "is true if the candidate was shown to be better. If it is false, keep what "
            "`incumbent` names; `unchanged` states that no prediction differs from it. No score "
            "is shown."
        ),
        input_schema=_object(
            **_SUBMITTED,
            margin=_kind(
                "number",
                "The gain that the candidate has to exceed, in the metric's own units; by default "
                "that of the rule.",
            ),
            baseline=_kind("boolean", "Accept the ladder's first submission as the baseline."),
        ),
        output_schema=_answer(
            accepted=_kind("boolean", "Whether it may replace the incumbent."),
            submission=_kind("integer", "The submission's number."),
            spent=_kind("boolean", "Whether nothing can be accepted any more."),
            reason=_kind("string", "Why."),
            incumbent=_kind("integer", "The submission that is to be kept now."),
            unchanged=_kind("boolean", "Whether no prediction differs from the incumbent's."),
            baseline=_kind("boolean", "Whether there was nothing to compare it with."),
        ),
    ),
    types.Tool(
        name="status",
        description=(
            "Return the holdout's metric, its number of rows, what a prediction is, the released "
            "score, and the interval that its true score is in however you searched. No raw score "
            "and no label is part of it, and it is no submission."
        ),
        input_schema=_object(),
        output_schema=_answer(
            holdout=_kind("string", "Its name."),
            metric=_kind("string", "What is measured, under scikit-learn's name."),
            rows=_kind("integer", "How many predictions a submission has."),
            block=_kind(
                "integer",
                "Which rows these are: one more each time that fresh rows took the place of those "
                "before. Then predictions are refused until `status` was called.",
            ),
            prediction=_kind("string", "What one prediction is."),
            classes={"type": ["array", "null"], "description": "The class labels, sorted."},
            mechanism=_kind("string", "The rule that decides what is released."),
            released_score=_RELEASED,
            incumbent=_kind("integer", "The submission that it belongs to.", missing=True),
            submissions=_kind("integer", "How many there were."),
            releases=_kind("integer", "How many of them improved."),
            releases_left=_LEFT,
            certificate=_CERTIFICATE,
            retired=_kind("boolean", "Whether it takes no more submissions."),
        ),
    ),
    types.Tool(
        name="health",
        description=(
            "Return how used up the holdout is: the width of the interval for the true score now, "
            "and after as many more improvements. It is no submission and costs nothing."
        ),
        input_schema=_object(
            more={"type": "integer", "minimum": 1, "maximum": _MOST, "default": 5},
            spent_at=_kind("number", "A width from which on the rows count as used up."),
        ),
        output_schema=_answer(
            width=_number("Of the interval; null where there is none."),
            width_after=_number("The width after so many more improvements."),
            spent=_kind("boolean", "Whether it is wider than `spent_at`.", missing=True),
            queries_left=_kind("integer", "Queries until it will be.", missing=True),
            reason=_kind("string", "Why there is no width or no forecast; else empty."),
        ),
    ),
    types.Tool(
        name="history",
        description=(
            "Return your latest submissions, and what was released after each. A submission's own "
            "score is known where it improved alone. With `after` it is a page of all of them: "
            "those that follow this number; `next` is what to state for the next page."
        ),
        input_schema=_object(
            limit={"type": "integer", "minimum": 1, "maximum": _MOST, "default": 20},
            after={"type": "integer", "minimum": 0, "description": "A submission's number."},
        ),
        output_schema=_answer(
            submissions=_kind("integer", "How many there were in all."),
            next=_kind("integer", "The last number here; null where none follow.", missing=True),
            latest={
                "type": "array",
                "items": _object(
                    ("submission", "time", "improved", "repeat_of", "released_score", "note"),
                    submission=_kind("integer", "Its number."),
                    time=_kind("string", "When, in UTC."),
                    improved=_kind("boolean", "Whether it became the incumbent."),
                    repeat_of=_REPEAT_OF,
                    released_score=_RELEASED,
                    note=_kind("string", "As it was submitted with.", missing=True),
                ),
            },
        ),
    ),
)


class Tools:
    """What the tools do, on a holdout behind a server.

    Parameters
    ----------
    url : str
        The holdout's URL, for `LadderHoldout.connect`. Nothing is asked of the server before the
        first call.
    folder : Path
        The folder of the files that may be submitted. This process may be able to read others,
        such as labels, that the agent cannot.
    """

    def __init__(self, url: str, folder: Path = Path()) -> None:
        place_of(url)
        Token().read()
        self._url, self._folder = url, folder
        self._holdout: LadderHoldout | None = None
        # Warnings are caught for the whole process, so one call comes after the other.
        self._lock = threading.Lock()
        self._named: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "submit": self._submit,
            "decide": self._decide,
            "status": self._status,
            "health": self._health,
            "history": self._history,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool.

        Parameters
        ----------
        name : str
        arguments : mapping
            The arguments, by the names of the tool's input schema.

        Returns
        -------
        dict
            The answer that the tool's output schema describes.

        Raises
        ------
        LadderHoldoutError
            An argument is refused, or the server refuses or does not answer.
        """
        if name not in self._named:
            raise InvalidArgument("the tool", "one of " + ", ".join(self._named), "another")
        (schema,) = (tool.input_schema["properties"] for tool in _TOOLS if tool.name == name)
        if not set(arguments) <= set(schema):
            allowed = f"some of {', '.join(schema)}" if schema else "none"
            raise InvalidArgument(f"arguments of {name}", allowed, "others")
        given = {key: value for key, value in arguments.items() if value is not None}
        with self._lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LadderHoldoutWarning)
            answer = self._named[name](given)
        ours = (each for each in caught if issubclass(each.category, LadderHoldoutWarning))
        return answer | {"warnings": [str(warning.message) for warning in ours]}

    def _open(self) -> LadderHoldout:
        if self._holdout is None:
            self._holdout = LadderHoldout.connect(self._url, timeout=_PATIENCE)
        return self._holdout

    def _submit(self, given: dict[str, Any]) -> dict[str, Any]:
        note, holdout = _note_of("submit", given), self._open()
        release = holdout.submit(self._predictions(holdout, given), context=note)
        return {
            "submission": release.submission,
            "improved": release.improved,
            "repeat_of": release.repeat_of,
            "is_incumbent": release.is_incumbent,
            "released_score": release.score,
            "releases_left": release.releases_left,
        }

    def _decide(self, given: dict[str, Any]) -> dict[str, Any]:
        note, holdout = _note_of("decide", given), self._open()
        predictions = self._predictions(holdout, given)
        asked = {name: given[name] for name in ("margin", "baseline") if name in given}
        decision = holdout.gate(predictions, context=note, **asked)
        return asdict(decision)

    def _predictions(self, holdout: LadderHoldout, given: Mapping[str, Any]) -> Any:
        if "predictions" in given:
            predictions = _list_in("predictions", given["predictions"])
            if "ids" not in given:
                return predictions
            return NamedPredictions(predictions, _list_in("ids", given["ids"]))
        if not isinstance(given.get("ids", ""), str):
            raise InvalidArgument("ids", "the name of a column of the file", "another type")
        if not isinstance(given["file"], str) or not given["file"].isprintable():
            raise InvalidArgument("file", "the path of a file", "none")
        ladder = ladder_of(holdout, several=True)
        form = Form(ladder.metric, ladder.facts.n, ladder.facts.classes, ladder.state().has_ids)
        path, ids = Path(given["file"]), given.get("ids")
        return predictions_from(path, form, ids=ids, folder=self._folder)

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        # Where fresh rows came, all else is refused until this shows that there are others.
        self._holdout = None
        holdout = self._open()
        known = ladder_of(holdout, several=True).facts.classes
        classes = None if known is None else known.tolist()
        is_text = isinstance(holdout.metric, ItemMetric)
        form = _FORMS["items" if is_text else holdout.metric.response]
        expected = {"prediction": form, "classes": classes}
        status, names = holdout.status(), ("low", "high", "confidence", "missing")
        return expected | {
            "holdout": status.name,
            "metric": status.metric,
            "rows": status.n,
            "block": status.block,
            "mechanism": status.mechanism,
            "released_score": status.score,
            "incumbent": status.incumbent,
            "submissions": status.submissions,
            "releases": status.releases,
            "releases_left": status.releases_left,
            "certificate": {name: getattr(status.certificate, name) for name in names},
            "retired": status.retired is not None,
        }

    def _history(self, given: dict[str, Any]) -> dict[str, Any]:
        limit, holdout = whole("limit", given.get("limit", 20), most=_MOST), self._open()
        total = ladder_of(holdout, several=True).state().submissions
        start = max(0, total - limit)
        if "after" in given:
            start = whole("after", given["after"], least=0, most=math.inf)
        latest = holdout.history(after=start, limit=limit)
        last = latest[-1].number if latest else total
        return {
            "submissions": total,
            "next": last if last < total else None,
            "latest": [_line(submission) for submission in latest],
        }

    def _health(self, given: dict[str, Any]) -> dict[str, Any]:
        health = self._open().health(more=given.get("more", 5), spent_at=given.get("spent_at"))
        names = ("width", "width_after", "spent", "queries_left", "reason")
        return {name: getattr(health, name) for name in names}


def _list_in(name: str, value: Any) -> list[Any]:
    """Return a list; clients of some models send one as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        raise InvalidArgument(name, "a list, or one as JSON text", "neither")
    return value


def _note_of(tool: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the note of what is submitted, of which there has to be one."""
    if ("predictions" in given) == ("file" in given):
        actual = "both" if "file" in given else "neither"
        raise InvalidArgument(f"arguments of {tool}", "one of predictions and file", actual)
    return {"note": text("note", given["note"])} if "note" in given else {}


def _line(submission: Submission) -> dict[str, Any]:
    note = submission.context.get("note")
    return {
        "submission": submission.number,
        "time": submission.time,
        "improved": submission.improved,
        "repeat_of": submission.repeat_of,
        "released_score": submission.score,
        "note": None if note is None else str(note),
    }


def run(url: str, folder: Path) -> None:
    """Serve the tools on standard input and output, until the client closes them.

    Parameters
    ----------
    url : str
        The holdout's URL, for `LadderHoldout.connect`.
    folder : Path
        The folder of the files that may be submitted.

    Raises
    ------
    InvalidArgument
        It is no URL.
    AccessDenied
        There is no token.
    """
    asyncio.run(_serve(Tools(url, folder)))


async def _serve(tools: Tools) -> None:
    async def listed(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(_TOOLS))

    async def called(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer = await asyncio.to_thread(tools.call, asked.name, asked.arguments or {})
        except LadderHoldoutError as error:
            return _result(str(error), is_error=True)
        except Exception as fault:  # its text may show anything
            return _result(f"The tool failed with {type(fault).__name__}.", is_error=True)
        shown = json_of(answer)
        return _result(shown, structured_content=json.loads(shown))

    server = Server(
        "ladder-holdout",
        version=metadata.version("ladderholdout"),
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _result(shown: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=shown)], **more)
