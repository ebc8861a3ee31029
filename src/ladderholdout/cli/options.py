"""Options of the commands: each has its type where the command is, and its help in a docstring.

The positional parameters of a command are its arguments, and the keyword-only ones its options.
Their help is in the docstring of the command, or in that of its module if several commands have
them, with what represents a value. The options of all modules are below.

Parameters
----------
account
    Whose ladder, where several people submit.
as_json
    Print JSON, for other programs.
audit_tracking_uri
    The tracking server of the audit experiment, if it is another one.
confidence
    Probability that all certificates of the holdout hold together. By default the registered one;
    another one has a price.
ladder
    Which of the account's ladders.
ledger
    The ledger: a file or a URL. By default what LADDERHOLDOUT_LEDGER names, else a file in your
    data folder.
loss_range : LOW HIGH
    For unbounded losses: intervals clip them to it, in the metric's own unit.
missing : TEXT
    A text that means a missing target, such as NA; repeat it for several. By default only empty
    cells do, and NA is a class.
name : NAME
    The holdout's name, as `status` without one lists it.
scoring : METRIC
    One of the ladder's metrics, where it has several.
server : URL
    Of a server that holds the holdout, instead of a ledger; the token, which names the account, is
    in LADDERHOLDOUT_TOKEN, or in the private file that LADDERHOLDOUT_TOKEN_FILE names.
yes
    Do not ask for confirmation.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer

from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.guard import open_ladder, opening
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import holdout_names, resolve_url

_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_LISTED = "\n\nParameters\n----------\n"
_ENTRY = re.compile(r"^(\w+)(?: : (.*))?\n((?:    .*\n?)+)", re.MULTILINE)
# Options that are typed by another name than that of their parameter.
_NAMES = {
    "as_json": ("--json",),
    "classes": ("--class",),
    "header": ("--header/--no-header",),
    "kept": ("--filter",),
    "metrics": ("--metric",),
    "n": ("--rows",),
    "n_train": ("--train-rows",),
    "table": ("--csv",),
    "yes": ("--yes", "-y"),
}


def _known_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a holdout's name; a ledger that cannot be read has none to offer."""
    try:
        names = holdout_names(resolve_url(ctx.params.get("ledger")))
    except LadderHoldoutError:
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[str, {"autocompletion": _known_names}]
"""The name of a holdout. Metadata of a parameter are arguments of Typer's, beside its help."""

AnyName = Annotated[str | None, {"autocompletion": _known_names}]
"""The same, where a command without one answers for all."""


def check_unnamed(stated: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse options of one holdout if none is named; those that are for all are not among them."""
    for name, default in defaults.items():
        if name != "ledger" and stated[name] != default:
            option = _NAMES.get(name, (f"--{name.replace('_', '-')}",))[0]
            raise InvalidArgument("NAME", f"stated with {option}", "missing")


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Describe the parameters of a command for Typer, by the docstrings."""
    docstrings = __doc__, sys.modules[command.__module__].__doc__, command.__doc__
    help_of = dict(ChainMap(*map(_entries, reversed(docstrings))))
    signature = inspect.signature(command, eval_str=True)
    as_json = inspect.Parameter("as_json", _KEYWORD, default=False, annotation=bool)
    parameters = []
    for name, parameter in {**signature.parameters, "as_json": as_json}.items():
        value, text = help_of.get(name, (None, None))
        made: Any = typer.Argument if parameter.kind is _POSITIONAL else typer.Option
        names = _NAMES.get(name, ())
        if parameter.default is False and not names:
            names = (f"--{name.replace('_', '-')}",)  # without its opposite
        more = dict(ChainMap(*getattr(parameter.annotation, "__metadata__", ())))
        info = made(*names, **{"metavar": value or None, "help": text} | more)
        parameters.append(parameter.replace(annotation=Annotated[parameter.annotation, info]))
    vars(command)["__signature__"] = signature.replace(parameters=parameters)
    command.__doc__ = inspect.cleandoc(command.__doc__ or "").partition(_LISTED)[0]
    return command


def _entries(docstring: str | None) -> dict[str, tuple[str, str]]:
    """Return the parameters that a docstring lists: what represents a value, and the help."""
    _, _, listed = inspect.cleandoc(docstring or "").partition(_LISTED)
    return {name: (value, " ".join(text.split())) for name, value, text in _ENTRY.findall(listed)}


def taken(by: Callable[..., Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return those variables of a command that a function has as keyword-only parameters."""
    parameters = inspect.signature(by).parameters.values()
    return {
        parameter.name: variables[parameter.name]
        for parameter in parameters
        if parameter.kind is _KEYWORD and parameter.name in variables
    }


def on_ladder(
    *,
    scoring: bool = True,
    server: bool = True,
    single: bool = False,
    unnamed: Callable[[str | None], None] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the parameters that name a ladder, and the opened holdout instead of them.

    Parameters
    ----------
    scoring, server : bool, default=True
        Whether one metric of several, or a server instead of a ledger, can be named.
    single : bool, default=False
        Whether a ladder of several metrics is refused.
    unnamed : callable, optional
        Answers in place of the command if no holdout is named, with `ledger`.

    Returns
    -------
    callable
        Decorates a command whose first parameter is the holdout.
    """
    shared: dict[str, str | None] = {"account": "default", "ladder": "main"}
    shared |= {"scoring": None} if scoring else {}
    shared |= {"ledger": None, "server": None} if server else {"ledger": None}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        _, *own = signature.parameters.values()

        @functools.wraps(command)
        def run(name: str | None, **options: Any) -> None:
            if name is None and unnamed is not None:
                defaults = shared | {option.name: option.default for option in own}
                check_unnamed(options, defaults)
                unnamed(options["ledger"])
                return
            of_ladder = {option: options.pop(option) for option in shared}
            command(_opened(str(name), single=single, **of_ladder), **options)

        named = (
            inspect.Parameter(
                option, _KEYWORD, default=default, annotation=str if default else str | None
            )
            for option, default in shared.items()
        )
        first = inspect.Parameter("name", _POSITIONAL, annotation=Name)
        if unnamed is not None:
            first = first.replace(default=None, annotation=AnyName)
        vars(run)["__signature__"] = signature.replace(parameters=[first, *own, *named])
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
        opening.by_first_order(open_ladder.ladder_of(holdout, several=True))
        metrics = list(open_ladder.ladder_of(holdout, several=True).by_metric)
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


def check_block(holdout: LadderHoldout, block: int | None, ids: str | None) -> None:
    """Refuse a file that may have been made for the rows of an earlier block."""
    now = open_ladder.ladder_of(holdout, several=True).facts.block
    if block is None and (now == 1 or ids is not None):
        return
    if block != now:
        raise InvalidArgument(
            "--block",
            f"{now}, the block of the rows that {holdout.name!r} has (`ladder-holdout status`)",
            "missing" if block is None else block,
            "Make the file for these rows, or give --ids with a column that names its rows.",
        )
