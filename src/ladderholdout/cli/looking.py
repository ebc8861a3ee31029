"""Commands that only look: list, status, history. Nothing raw is ever read here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from ladderholdout.cli.common import (
    AccountOption,
    LadderOption,
    LedgerOption,
    NameArgument,
    app,
    console,
    said,
)
from ladderholdout.holdout import LadderHoldout, Submission
from ladderholdout.ledger import Ledger, resolve_url, shown
from ladderholdout.ledger.replay import rules_of

# Each column with the width of the terminal from which on there is room for it.
_HOLDOUTS = {
    "holdout": 0,
    "rows": 60,
    "ladder": 0,
    "metric": 80,
    "mechanism": 80,
    "submissions": 0,
    "releases": 0,
}
_HISTORY = {
    "number": 0,
    "time (UTC)": 60,
    "released": 0,
    "": 0,
    "differs": 80,
    "batch": 110,
    "from": 0,
}
_NUMBERS = {"rows", "submissions", "releases", "number"}
_FOLDING = {"holdout", "ladder", "metric", "mechanism", "stands", "from"}
_LONGEST_VALUE = 24
_ESTIMATOR = {"estimator", "parameters"}


@app.command("list")
def list_holdouts(ledger: LedgerOption = None) -> None:
    """List the holdouts that the ledger knows, with their ladders."""
    with said():
        url = resolve_url(ledger)
        out, found = console(), list(_ladders(url))
        if found:
            out.print(_chosen(_HOLDOUTS, found, out.width))
        else:
            out.print("No holdout is registered yet.")
        out.print(f"ledger: {shown(url)}", soft_wrap=True)


@app.command()
def status(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
) -> None:
    """Show where a ladder stands, and what else looked at its holdout."""
    with said():
        found = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger).status()
        console().print(_table(["what", "stands"], found.lines(), header=False))


@app.command()
def history(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    last: Annotated[int, typer.Option(min=1, help="Show at most so many, the latest.")] = 50,
    ledger: LedgerOption = None,
) -> None:
    """Show the submissions as the analyst may see them: what was released, and when."""
    with said():
        holdout = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger)
        total = holdout.status().submissions
        out, latest = console(), holdout.history(after=max(0, total - last))
        if latest:
            out.print(_chosen(_HISTORY, _entries(latest), out.width))
        out.print(f"{total} submissions in all")


def _ladders(url: str) -> Iterator[dict[str, str | Text]]:
    with Ledger(url).read() as tx:
        for holdout in tx.holdouts():
            for ladder in tx.ladders(holdout.id):
                stated = ladder.settings
                yield {
                    "holdout": holdout.name,
                    "rows": str(holdout.n),
                    "ladder": f"{stated.account}/{stated.name}",
                    "metric": stated.metric,
                    "mechanism": repr(rules_of(stated).mechanism),
                    "submissions": str(ladder.submissions),
                    "releases": str(ladder.state["releases"]),
                }


def _entries(latest: Sequence[Submission]) -> Iterator[dict[str, str | Text]]:
    varied = _varied(latest)
    for one in latest:
        mark = "improved" if one.improved else ""
        origin = _origin(one.context, varied)
        yield {
            "number": str(one.number),
            "time (UTC)": f"{one.time:%Y-%m-%d %H:%M}",
            "released": f"{one.score:.6g}",
            "": f"repeats {one.repeat_of}" if one.repeat_of else mark,
            "differs": "" if one.disagreement is None else f"{one.disagreement:.3g}",
            "batch": (one.batch or "")[:8],
            "from": Text(origin, no_wrap=True, overflow="ellipsis"),
        }


def _varied(latest: Sequence[Submission]) -> dict[str, set[str]]:
    """Return, for each class of estimators, the parameters in which the shown ones differ."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in latest:
        for name, value in one.context.get("parameters", {}).items():
            values[str(one.context.get("estimator"))][name].add(repr(value))
    return {
        estimator: {name for name, seen in parameters.items() if len(seen) > 1}
        for estimator, parameters in values.items()
    }


def _origin(context: Mapping[str, Any], varied: Mapping[str, set[str]]) -> str:
    """Say in a line where a submission came from."""
    source = str(context.get("estimator", "by hand"))
    told = {name: value for name, value in context.items() if name not in _ESTIMATOR}
    for name, value in context.get("parameters", {}).items():
        # The steps of a pipeline and their like are long, and stand beside their parameters.
        if name in varied.get(source, ()) and len(str(value)) <= _LONGEST_VALUE:
            told[name] = value
    return " ".join([source, *(f"{name}={value}" for name, value in told.items())])


def _chosen(
    columns: Mapping[str, int], rows: Iterable[Mapping[str, str | Text]], width: int
) -> Table:
    """Lay out the columns that a terminal of this width has room for."""
    fitting = [column for column, least in columns.items() if width >= least]
    return _table(fitting, ([row[column] for column in fitting] for row in rows))


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, header: bool = True
) -> Table:
    """Lay out rows; numbers stay whole, and longer texts fold rather than lose their end."""
    table = Table(box=None, pad_edge=False, show_header=header)
    for column in columns:
        side: JustifyMethod = "right" if column in _NUMBERS else "left"
        table.add_column(column, justify=side, no_wrap=column not in _FOLDING, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
