"""What all commands share: common options, the console, errors in a sentence."""

from __future__ import annotations

import functools
import gc
import inspect
import json
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.text import Text

from ladderholdout.errors import (
    DailyLimit,
    InvalidArgument,
    LadderHoldoutError,
    LadderHoldoutWarning,
    LedgerError,
    MetricError,
    VaultError,
    printable,
)
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.guard.opening import by_first_order
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import holdout_names, resolve_url
from ladderholdout.ledger.log import AT_A_TIME

T = TypeVar("T")

# In a pipe each line stays whole, for grep.
_PIPE = 10_000
# A range as the library's argument states it, which is an option here.
_RANGE = re.compile(r"\b(loss|target)_range=\((\S+), (\S+)\)")
_LONGEST_CELL = 2_000


def _known_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a holdout's name; a ledger that cannot be read has none to offer."""
    try:
        names = holdout_names(resolve_url(ctx.params.get("ledger")))
    except LadderHoldoutError:
        return []
    return [name for name in names if name.startswith(incomplete)]


LedgerOption = Annotated[
    str | None,
    typer.Option(
        help="The ledger: a file or a URL. By default what LADDERHOLDOUT_LEDGER names, else a "
        "file in your data folder."
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The holdout's name, as `list` prints it.",
        autocompletion=_known_names,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Of a server that holds the holdout, instead of a ledger; the token, which names "
        "the account, is in LADDERHOLDOUT_TOKEN, or in the private file that "
        "LADDERHOLDOUT_TOKEN_FILE names.",
    ),
]
AccountOption = Annotated[str, typer.Option(help="Whose ladder, where several people submit.")]
LadderOption = Annotated[str, typer.Option(help="Which of the account's ladders.")]
ScoringOption = Annotated[
    str | None,
    typer.Option(metavar="METRIC", help="One of the ladder's metrics, where it has several."),
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A text that means a missing target, such as NA; repeat it for several. By "
        "default only empty cells do, and NA is a class.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
LossRangeOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LOW HIGH",
        help="For unbounded losses: intervals clip them to it, in the metric's own unit.",
    ),
]
BlockOption = Annotated[
    int | None,
    typer.Option(
        help="Which rows the file was made for: 1 for the first ones, one more each time that "
        "fresh rows took their place. Needed from the second block on, unless --ids names the rows."
    ),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Of a log: what of an answer is the prediction, the first group of the last match. "
        "By default all of it.",
    ),
]
OtherwiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="Of a log: the class that answers count as which are none of the classes.",
    ),
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="NAME",
        help="Of samples of lm_eval: the filter whose answers are meant.",
    ),
]


ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        help="Probability that all certificates of the holdout hold together. By default the "
        "registered one; another one has a price."
    ),
]
TrackingOption = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        help="MLflow's tracking server; by default MLflow's own choice: MLFLOW_TRACKING_URI, "
        "else a database in this folder.",
    ),
]
AuditTrackingOption = Annotated[
    str | None,
    typer.Option(
        "--audit-tracking-uri",
        help="The tracking server of the audit experiment, if it is another one.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class _Console(Console):
    """A console on which no text does anything but to be read."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with whatever acts on a terminal escaped."""
        super().print(
            *(printable(part) if isinstance(part, str) else part for part in objects), **options
        )


def cell(text: str | Text) -> Text:
    """Return a text as a table shows it: in one line, and not without end."""
    shown = text if isinstance(text, Text) else Text(text)
    shown.plain = printable(shown.plain, longest=_LONGEST_CELL).replace("\n", "\\n")
    return shown


def json_of(value: Any) -> str:
    """Return JSON in which what acts on a terminal, or is no Unicode, is escaped."""
    return _escaped(_ENCODE(commands.plain(value)))


# Made once: for what is not the default, json.dumps makes an encoder each time.
_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=commands.plain).encode


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def console(*, stderr: bool = False) -> Console:
    """Return where results are printed, or errors and warnings."""
    # Without markup and emojis: names are shown as they are.
    out = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _PIPE
    return out


def print_json(value: Any) -> None:
    """Print JSON that any parser takes: dataclasses as objects, times in ISO 8601."""
    typer.echo(json_of(value))


def print_lines(*lines: str) -> None:
    """Print each line whole, however narrow the terminal is."""
    for line in lines:
        console().print(line, soft_wrap=True)


def print_pages(lines: Iterable[str]) -> None:
    """Print what may be millions of lines, some at a time: to print one costs more than to make it.

    No line is held back while the next one is worked out for long, for they come from memory.
    """
    rest = iter(lines)
    while some := list(islice(rest, AT_A_TIME)):
        typer.echo("\n".join(some))


def print_json_of(
    value: Mapping[str, Any], name: str, rows: Iterable[T], finite: Callable[[T], Any]
) -> None:
    """Print a JSON object whose last member is a list of rows, some at a time.

    They may have times in them. Where they have numbers that JSON does not know, `finite` is
    asked for other ones.
    """
    typer.echo(f'{json_of(value)[:-1]}, "{name}": [', nl=False)
    rest, before = iter(rows), ""
    while some := list(islice(rest, AT_A_TIME)):
        try:
            text = _ENCODE(some)
        except ValueError:  # to check each value before takes as long as to write it
            text = _ENCODE(list(map(finite, some)))
        typer.echo(before + _escaped(text)[1:-1], nl=False)
        before = ", "
    typer.echo("]}")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, on standard error; nothing elsewhere."""
    out = console(stderr=True)
    with Bar(console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_result(result: Any, as_json: bool) -> None:
    """Print a result as the text that it has for people, or as JSON."""
    if as_json:
        print_json(result)
    else:
        print_lines(str(result))


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command print the library's own errors and warnings, without a traceback.

    Both go to standard error, as sentences, or as JSON objects with --json; an error ends with
    status 1, or with that which `ends_with` states for the command.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        def report(what: str, message: str, kind: str) -> None:
            if options.get("as_json"):
                typer.echo(json_of({what: message, "kind": kind}), err=True)
            else:
                console(stderr=True).print(f"{what.capitalize()}: {message}", soft_wrap=True)

        def warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            report("warning", _RANGE.sub(r"--\1-range \2 \3", str(message)), category.__name__)

        status = getattr(command, _STATUS, None)
        try:
            with warnings.catch_warnings(), _collecting_seldom():
                warnings.simplefilter("always", LadderHoldoutWarning)
                warnings.showwarning = warn
                command(**options)
        except LadderHoldoutError as error:
            report("error", str(error), type(error).__name__)
            raise typer.Exit((status or _one)(error)) from None
        except Exception as error:
            # Whoever goes by the exit status must not take a fault for an answer.
            if isinstance(error, typer.Exit | typer.Abort | typer.BadParameter) or status is None:
                raise
            traceback.print_exc()
            raise typer.Exit(status(error)) from None

    return run


_STATUS = "_status_of_error"


def _one(error: Exception) -> int:
    return 1


def ends_with(
    status: Callable[[Exception], int],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """State with which status each error ends a command, whatever kind it is of."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        setattr(command, _STATUS, status)
        return command

    return decorated


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Let Python look for cycles after as many objects as some rows of a ledger have.

    After 700 it would go through all that was imported dozens of times while a million rows pass.
    """
    first, *rest = gc.get_threshold()
    gc.set_threshold(max(first, 10 * AT_A_TIME) if first else 0, *rest)  # 0: it is turned off
    try:
        yield
    finally:
        gc.set_threshold(first, *rest)


def on_ladder(
    *, scoring: bool = True, server: bool = True, single: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the parameters that name a ladder, and the opened holdout instead of them.

    Parameters
    ----------
    scoring, server : bool, default=True
        Whether one metric of several, or a server instead of a ledger, can be named.
    single : bool, default=False
        Whether a ladder of several metrics is refused.

    Returns
    -------
    callable
        Decorates a command whose first parameter is the holdout, and the last one `as_json`.
    """
    shared: dict[str, tuple[Any, Any]] = {
        "account": (AccountOption, "default"),
        "ladder": (LadderOption, "main"),
        **({"scoring": (ScoringOption, None)} if scoring else {}),
        "ledger": (LedgerOption, None),
        **({"server": (ServerOption, None)} if server else {}),
    }

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(name: str, **options: Any) -> None:
            of_ladder = {option: options.pop(option) for option in shared}
            command(_opened(name, single=single, **of_ladder), **options)

        signature, kind = inspect.signature(command, eval_str=True), inspect.Parameter.KEYWORD_ONLY
        _, *own, as_json = signature.parameters.values()
        parameters = [
            inspect.Parameter("name", kind, annotation=NameArgument),
            *own,
            *(
                inspect.Parameter(option, kind, default=default, annotation=annotation)
                for option, (annotation, default) in shared.items()
            ),
            as_json,
        ]
        # What Typer makes options and arguments of.
        vars(run)["__signature__"] = signature.replace(
            parameters=[parameter.replace(kind=kind) for parameter in parameters]
        )
        return run

    return decorated


def _opened(
    name: str,
    account: str,
    ladder: str,
    ledger: str | None,
    server: str | None = None,
    scoring: str | None = None,
    *,
    single: bool,
) -> LadderHoldout:
    """Return a holdout of the ledger, by all of its metrics or one, or one behind a server."""
    if server is None:
        holdout = LadderHoldout.open(
            name, scoring=scoring, account=account, ladder=ladder, ledger=ledger
        )
        by_first_order(ladder_of(holdout, several=True))
        metrics = list(ladder_of(holdout, several=True).by_metric)
        if single and metrics:
            raise InvalidArgument(
                "--ladder",
                "the ladder of one metric here",
                f"that of {len(metrics)}",
                f"Name the one that is meant: --ladder {ladder}:{metrics[0]}.",
            )
        return holdout
    if (ledger, scoring) != (None, None) or (account, ladder) != ("default", "main"):
        raise InvalidArgument(
            "--server",
            "stated without --ledger, --account, --ladder and --scoring",
            "stated with one of them",
            "The token names the account and its ladder.",
        )
    path = f"/holdouts/{quote(name, safe='')}"
    return LadderHoldout.connect(server.rstrip("/").removesuffix(path) + path)


def context_of(pairs: Sequence[str]) -> dict[str, str]:
    """Read ``key=value`` pairs.

    Examples
    --------
    >>> context_of(["idea=more trees", "note=a=b"])
    {'idea': 'more trees', 'note': 'a=b'}
    """
    parted = [pair.partition("=") for pair in pairs]
    for pair, (key, equals, _) in zip(pairs, parted, strict=True):
        if not key or not equals:
            raise InvalidArgument("--context", "of the form key=value", repr(pair))
    return {key: value for key, _, value in parted}


STATUSES = {"unchanged": 5, "baseline": 6}
_NOT_DECIDED = LedgerError, VaultError, MetricError


def status_of_refusal(error: Exception) -> int:
    """Return the exit status of a gate that gives no decision."""
    if isinstance(error, _NOT_DECIDED) or not isinstance(error, LadderHoldoutError):
        return 4
    return 3 if isinstance(error, DailyLimit) else 2


def check_block(holdout: LadderHoldout, block: int | None, ids: str | None) -> None:
    """Refuse a file that may have been made for the rows of an earlier block."""
    now = ladder_of(holdout, several=True).facts.block
    if block is None and (now == 1 or ids is not None):
        return
    if block != now:
        raise InvalidArgument(
            "--block",
            f"{now}, the block of the rows that {holdout.name!r} has (`ladder-holdout status`)",
            "missing" if block is None else block,
            "Make the file for these rows, or give --ids with a column that names its rows.",
        )
