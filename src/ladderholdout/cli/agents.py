"""Tools for agents over the Model Context Protocol: submit, decide, status, history of a holdout.

The process has a token and no labels: it asks a server, and passes on what is released.
"""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, WithJsonSchema

from ladderholdout.arguments import text
from ladderholdout.cli.common import json_of
from ladderholdout.cli.files import predictions_from
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LadderHoldoutWarning
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.guard.rows import NamedPredictions
from ladderholdout.holdout import LadderHoldout
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote.connection import Token, place_of
from ladderholdout.remote.tables import Form

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


_File = Annotated[
    str,
    Field(
        description="the path of a file with the predictions, .npy, .csv (with a header), .arrow "
        "or .parquet, on the machine where this tool runs, in the folder in which it was started"
    ),
]
_Ids = Annotated[
    str | list[commands.Id],
    Field(
        description="ids of the rows, which may then come in any order: a list beside "
        "`predictions`, or the name of the column of `file` that has them"
    ),
]
_Note = Annotated[str, Field(description="what was submitted, in a few words; `history` shows it")]
_Listed = Annotated[
    Any,
    WithJsonSchema(
        {"type": ["array", "string"], "items": {"type": ["number", "string", "boolean", "array"]}}
    ),
    Field(
        description="one prediction for each row; `status` states which. A list, or the same as "
        "JSON text. Give this or `file`"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Arguments of the tool `submit`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    predictions: _Listed = None
    file: _File | None = None
    ids: _Ids | None = None
    note: _Note | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Submit):
    """Arguments of the tool `decide`."""

    margin: Annotated[
        commands.Real | None,
        Field(
            description="the gain that the candidate has to exceed, in the metric's own units; by "
            "default that of the rule"
        ),
    ] = None
    baseline: Annotated[
        commands.Flag, Field(description="accept the ladder's first submission as the baseline")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Arguments of the tool `history`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    limit: Annotated[
        commands.Whole, Field(ge=1, le=_MOST, description="a whole number from 1 to 1000")
    ] = 20
    after: Annotated[commands.Whole | None, Field(ge=0, description="a submission's number")] = None


_WARNINGS = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool: the kinds of its arguments and its answer, and its description."""

    asked: Any
    answer: Any
    description: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def tool(self, name: str) -> types.Tool:
        """Describe it by the schemas of its parts."""
        told = commands.schema_of(self.answer)
        told["properties"] |= {**self.more, "warnings": _WARNINGS}
        told["required"] = list(told["properties"])
        asked = commands.adapter(self.asked).json_schema()
        return types.Tool(
            name=name, description=self.description, input_schema=asked, output_schema=told
        )


OFFERS = {
    "submit": Offer(
        Submit,
        commands.Submit.answer,
        "Submit predictions for all rows of the holdout, in the order in which the rows were "
        "first registered, or with `ids`, and return what is released. `improved` states "
        "whether the score is better than the released one by more than the holdout's step; "
        "only then does the released score change. If it is false, nothing more is shown of "
        "this submission: `score` is that of the incumbent, an earlier submission. Predictions "
        "that were submitted before improve nothing and cost nothing.",
    ),
    "decide": Offer(
        Decide,
        commands.Decide.answer,
        "Ask whether a candidate may be kept in place of the incumbent, on a holdout whose "
        "rule is GateLadder (`status` states it). The first candidate is the baseline, which "
        "is accepted only with `baseline`. One error bounds all decisions together: `accepted` "
        "is true if the candidate was shown to be better. If it is false, keep what "
        "`incumbent` names; `unchanged` states that no prediction differs from it. No score "
        "is shown.",
    ),
    "status": Offer(
        commands.Status,
        commands.Status.answer,
        "Return the holdout's metric, its number of rows, what a prediction is, the released "
        "score, and the interval that its true score is in however you searched. No raw score "
        "and no label is part of it, and it is no submission.",
        {
            "prediction": {"type": "string", "description": "What one prediction is."},
            "classes": {"type": ["array", "null"], "description": "The class labels, sorted."},
        },
    ),
    "health": Offer(
        commands.Health,
        commands.Health.answer,
        "Return how used up the holdout is: the width of the interval for the true score now, "
        "and after as many more improvements. It is no submission and costs nothing.",
    ),
    "history": Offer(
        History,
        commands.History.answer,
        "Return your latest submissions, and what was released after each. A submission's own "
        "score is known if it improved. With `after` it is a page of all of them: "
        "those that follow this number; `next` is what to state for the next page.",
        {"next": {"type": ["integer", "null"], "description": "Null if none follow."}},
    ),
}


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
        self._named: Mapping[str, Callable[[Any], Any]] = {
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
        known = commands.schema_of(OFFERS[name].asked, "validation").get("properties", {})
        if not set(arguments) <= set(known):
            allowed = f"some of {', '.join(known)}" if known else "none"
            raise InvalidArgument(f"arguments of {name}", allowed, "others")
        given = {key: value for key, value in arguments.items() if value is not None}
        asked = commands.checked(OFFERS[name].asked, given)
        with self._lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LadderHoldoutWarning)
            answer: dict[str, Any] = commands.plain(self._named[name](asked))
        ours = (each for each in caught if issubclass(each.category, LadderHoldoutWarning))
        return answer | {"warnings": [str(warning.message) for warning in ours]}

    def _open(self) -> LadderHoldout:
        if self._holdout is None:
            self._holdout = LadderHoldout.connect(self._url, timeout=_PATIENCE)
        return self._holdout

    def _submit(self, asked: Submit) -> Any:
        note, holdout = _note_of("submit", asked), self._open()
        return holdout.submit(self._predictions(holdout, asked), context=note)

    def _decide(self, asked: Decide) -> Any:
        note, holdout = _note_of("decide", asked), self._open()
        predictions, margin = self._predictions(holdout, asked), asked.margin
        return holdout.gate(predictions, context=note, margin=margin, baseline=asked.baseline)

    def _predictions(self, holdout: LadderHoldout, asked: Submit) -> Any:
        if asked.file is None:
            predictions = _list_in("predictions", asked.predictions)
            if asked.ids is None:
                return predictions
            return NamedPredictions(predictions, _list_in("ids", asked.ids))
        if isinstance(asked.ids, list):
            raise InvalidArgument("ids", "the name of a column of the file", "a list")
        if not asked.file.isprintable():
            raise InvalidArgument("file", "the path of a file", "another text")
        ladder = ladder_of(holdout, several=True)
        facts, state = ladder.facts, ladder.execute(commands.State())
        form = Form(ladder.metric, facts.n, facts.classes, state.has_ids)
        return predictions_from(Path(asked.file), form, ids=asked.ids, folder=self._folder)

    def _status(self, asked: commands.Status) -> Any:
        # After fresh rows came, all else is refused until this shows that there are others.
        self._holdout = None
        holdout = self._open()
        known = ladder_of(holdout, several=True).facts.classes
        kind = "items" if isinstance(holdout.metric, ItemMetric) else holdout.metric.response
        expected = {
            "prediction": _FORMS[kind],
            "classes": None if known is None else known.tolist(),
        }
        return commands.plain(holdout.status()) | expected

    def _history(self, asked: History) -> Any:
        ladder, start = ladder_of(self._open(), several=True), asked.after
        if start is None:
            start = max(0, ladder.execute(commands.State()).submissions - asked.limit)
        page = ladder.execute(commands.History(after=start, limit=asked.limit))
        last = page.submissions[-1].number if page.submissions else page.total
        return commands.plain(page) | {"next": last if last < page.total else None}

    def _health(self, asked: commands.Health) -> Any:
        return self._open().health(more=asked.more, spent_at=asked.spent_at)


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


def _note_of(tool: str, asked: Submit) -> dict[str, str]:
    """Return the note of what is submitted, of which there has to be one."""
    if (asked.predictions is None) == (asked.file is None):
        actual = "neither" if asked.file is None else "both"
        raise InvalidArgument(f"arguments of {tool}", "one of predictions and file", actual)
    return {} if asked.note is None else {"note": text("note", asked.note)}


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
        return types.ListToolsResult(tools=[offer.tool(name) for name, offer in OFFERS.items()])

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
