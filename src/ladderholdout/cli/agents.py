"""Tools for agents over the Model Context Protocol: submit, decide, status, history of a holdout.

The process has a token and no labels: it asks a server, and passes on what is released.
"""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, WithJsonSchema

from ladderholdout import errors, extras
from ladderholdout.arguments import text
from ladderholdout.cli import common, files
from ladderholdout.guard import commands, open_ladder, rows
from ladderholdout.holdout import LadderHoldout
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote import connection, tables

with extras.needed("A server of the Model Context Protocol"):
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
# Each tool is a method of `Tools`: the kinds of its arguments and its answer, and what it adds.
_TOOLS: Mapping[str, tuple[Any, Any, dict[str, Any]]] = {
    "submit": (Submit, commands.Submit.answer, {}),
    "decide": (Decide, commands.Decide.answer, {}),
    "status": (
        commands.Status,
        commands.Status.answer,
        {
            "prediction": {"type": "string", "description": "What one prediction is."},
            "classes": {"type": ["array", "null"], "description": "The class labels, sorted."},
        },
    ),
    "health": (commands.Health, commands.Health.answer, {}),
    "history": (
        History,
        commands.History.answer,
        {"next": {"type": ["integer", "null"], "description": "Null if none follow."}},
    ),
}


def tool(name: str) -> types.Tool:
    """Describe a tool by the schemas of its parts, and by its docstring."""
    asked, answer, more = _TOOLS[name]
    told = commands.schema_of(answer)
    told["properties"] |= {**more, "warnings": _WARNINGS}
    told["required"] = list(told["properties"])
    return types.Tool(
        name=name,
        description=" ".join((getattr(Tools, name).__doc__ or "").split()),
        input_schema=commands.adapter(asked).json_schema(),
        output_schema=told,
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
        connection.place_of(url)
        connection.Token().read()
        self._url, self._folder = url, folder
        self._holdout: LadderHoldout | None = None
        # Warnings are caught for the whole process, so one call comes after the other.
        self._lock = threading.Lock()

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
        if name not in _TOOLS:
            raise errors.InvalidArgument("the tool", "one of " + ", ".join(_TOOLS), "another")
        kind, _, _ = _TOOLS[name]
        known = commands.schema_of(kind, "validation").get("properties", {})
        if not set(arguments) <= set(known):
            allowed = f"some of {', '.join(known)}" if known else "none"
            raise errors.InvalidArgument(f"arguments of {name}", allowed, "others")
        given = {key: value for key, value in arguments.items() if value is not None}
        asked = commands.checked(kind, given)
        with self._lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", errors.LadderHoldoutWarning)
            answer: dict[str, Any] = commands.plain(getattr(self, name)(asked))
        ours = (each for each in caught if issubclass(each.category, errors.LadderHoldoutWarning))
        return answer | {"warnings": [str(warning.message) for warning in ours]}

    def _open(self) -> LadderHoldout:
        if self._holdout is None:
            self._holdout = LadderHoldout.connect(self._url, timeout=_PATIENCE)
        return self._holdout

    def submit(self, asked: Submit) -> Any:
        """Submit predictions for all rows of the holdout, and return what is released.

        They are in the order in which the rows were first registered, or have `ids`. `improved`
        states whether the score is better than the released one by more than the holdout's step;
        only then does the released score change. If it is false, nothing more is shown of this
        submission: `score` is that of the incumbent, an earlier submission. Predictions that were
        submitted before improve nothing and cost nothing.
        """
        note, holdout = _note_of("submit", asked), self._open()
        return holdout.submit(self._predictions(holdout, asked), context=note)

    def decide(self, asked: Decide) -> Any:
        """Ask whether a candidate may be kept in place of the incumbent.

        It needs a holdout whose rule is GateLadder (`status` states it). The first candidate is the
        baseline, which is accepted only with `baseline`. One error bounds all decisions together:
        `accepted` is true if the candidate was shown to be better. If it is false, keep what
        `incumbent` names; `unchanged` states that no prediction differs from it. No score is shown.
        """
        note, holdout = _note_of("decide", asked), self._open()
        predictions, margin = self._predictions(holdout, asked), asked.margin
        return holdout.gate(predictions, context=note, margin=margin, baseline=asked.baseline)

    def _predictions(self, holdout: LadderHoldout, asked: Submit) -> Any:
        if asked.file is None:
            predictions = _list_in("predictions", asked.predictions)
            if asked.ids is None:
                return predictions
            return rows.NamedPredictions(predictions, _list_in("ids", asked.ids))
        if isinstance(asked.ids, list):
            raise errors.InvalidArgument("ids", "the name of a column of the file", "a list")
        if not asked.file.isprintable():
            raise errors.InvalidArgument("file", "the path of a file", "another text")
        ladder = open_ladder.ladder_of(holdout, several=True)
        facts, state = ladder.facts, ladder.execute(commands.State())
        form = tables.Form(ladder.metric, facts.n, facts.classes, state.has_ids)
        return files.predictions_from(Path(asked.file), form, ids=asked.ids, folder=self._folder)

    def status(self, asked: commands.Status) -> Any:
        """Return the metric, the number of rows, what a prediction is, and what was released.

        That is the released score, and the interval that its true score is in however you
        searched. No raw score and no label is part of it, and it is no submission.
        """
        # After fresh rows came, all else is refused until this shows that there are others.
        self._holdout = None
        holdout = self._open()
        known = open_ladder.ladder_of(holdout, several=True).facts.classes
        kind = "items" if isinstance(holdout.metric, ItemMetric) else holdout.metric.response
        expected = {
            "prediction": _FORMS[kind],
            "classes": None if known is None else known.tolist(),
        }
        return commands.plain(holdout.status()) | expected

    def history(self, asked: History) -> Any:
        """Return your latest submissions, and what was released after each.

        A submission's own score is known if it improved. With `after` it is a page of all of them:
        those that follow this number; `next` is what to state for the next page.
        """
        ladder, start = open_ladder.ladder_of(self._open(), several=True), asked.after
        if start is None:
            start = max(0, ladder.execute(commands.State()).submissions - asked.limit)
        page = ladder.execute(commands.History(after=start, limit=asked.limit))
        last = page.submissions[-1].number if page.submissions else page.total
        return commands.plain(page) | {"next": last if last < page.total else None}

    def health(self, asked: commands.Health) -> Any:
        """Return how used up the holdout is: the width of the interval for the true score.

        It is that of now, and that after as many more improvements. It is no submission and costs
        nothing.
        """
        return self._open().health(more=asked.more, spent_at=asked.spent_at)


def _list_in(name: str, value: Any) -> list[Any]:
    """Return a list; clients of some models send one as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        raise errors.InvalidArgument(name, "a list, or one as JSON text", "neither")
    return value


def _note_of(tool: str, asked: Submit) -> dict[str, str]:
    """Return the note of what is submitted, of which there has to be one."""
    if (asked.predictions is None) == (asked.file is None):
        actual = "neither" if asked.file is None else "both"
        raise errors.InvalidArgument(f"arguments of {tool}", "one of predictions and file", actual)
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
        return types.ListToolsResult(tools=[*map(tool, _TOOLS)])

    async def called(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer = await asyncio.to_thread(tools.call, asked.name, asked.arguments or {})
        except errors.LadderHoldoutError as error:
            return _result(str(error), is_error=True)
        except Exception as fault:  # its text may show anything
            return _result(f"The tool failed with {type(fault).__name__}.", is_error=True)
        shown = common.json_of(answer)
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
