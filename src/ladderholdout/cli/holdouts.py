"""Commands on a holdout: register, submit, status, history, certificate and their like.

Nothing raw is ever read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from ladderholdout.cli.common import (
    AccountOption,
    ConfidenceOption,
    JsonOption,
    LadderOption,
    LedgerOption,
    MissingOption,
    NameArgument,
    ScoringOption,
    ServerOption,
    YesOption,
    cell,
    console,
    context_of,
    opened,
    opened_one,
    print_json,
    print_lines,
    print_result,
)
from ladderholdout.cli.files import ids_of, predictions_from, read_rows, target_of
from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.guard.history_table import number, origin, varied
from ladderholdout.guard.registration import named
from ladderholdout.guard.settings import stated_in
from ladderholdout.guard.views import outcome
from ladderholdout.guard.withdrawal import Withdrawn
from ladderholdout.holdout import LadderHoldout, Release, Status, Submission
from ladderholdout.ledger import Ledger, resolve_url, shown
from ladderholdout.ledger.replay import rule_shown
from ladderholdout.mechanisms.parsing import mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.remote.predictions import Form, labels_like

# Each column with the width of the terminal from which on it fits.
_HOLDOUTS = {
    "holdout": 0,
    "rows": 60,
    "ladder": 0,
    "metric": 80,
    "mechanism": 80,
    "submissions": 0,
    "releases": 0,
    "": 100,
}
_HISTORY = {
    "number": 0,
    "time (UTC)": 60,
    "own score": 80,
    "released": 0,
    "": 0,
    "batch": 110,
    "from": 0,
}
_NUMBERS = {"rows", "submissions", "releases", "number", "own score", "released"}
_FOLDING = {"holdout", "ladder", "metric", "mechanism", "value", "from"}

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .csv, .parquet or .arrow file.")
]
PredictionsArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .csv, .parquet, .arrow or .npy file.")
]


def register(
    file: FileArgument,
    target: Annotated[
        list[str], typer.Option(help="The column with the labels; repeat it for several outputs.")
    ],
    scoring: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric of scikit-learn, such as accuracy; for a new ladder. Repeat it for "
            "several, which are queried together."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call it; by default part of its fingerprint.")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help='The rule that answers submissions, written as in Python: "Ladder(step=0.01)". '
            "By default it is chosen by the metric."
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="How many times the released score may improve.")
    ] = None,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    sample_weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column with the rows' weights.")
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that names each row: by it the holdout is known again in another "
            "order and with other features.",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="Each class, where the file lacks some; repeat it."),
    ] = None,
    loss_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="For unbounded losses: they are clipped to it, in the metric's own unit.",
        ),
    ] = None,
    target_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Holds every target; the certificates of R2 and its like need it.",
        ),
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Share of the rows that no ladder measures, kept for `certify`."
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Probability that all certificates hold together, fixed; by default .95."
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            help="Where another holdout has some of the rows: auto, warn, error or ignore."
        ),
    ] = "auto",
    vault: Annotated[
        Path | None,
        typer.Option(help="Folder for the private copy of the rows; by default beside the ledger."),
    ] = None,
    missing: MissingOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a file's rows as a holdout, or start one more ladder on it.

    A ladder is the rule that answers submissions, with its state on one holdout and metric.
    Labels and ids are texts unless each of them is the plain spelling of a number: 7, not 007.
    """
    stated = stated_in(locals())
    stated["mechanism"] = None if mechanism is None else mechanism_of(mechanism)
    others = {"--sample-weight": sample_weight, "--ids": ids}
    named = {option: [column] for option, column in others.items() if column is not None}
    rows = read_rows(file, {"--target": target, **named})
    numbers = _of_numbers(scoring or [], name, ledger)
    labels = [
        target_of(rows, "--target", column, numbers=numbers, missing_texts=missing or ())
        for column in target
    ]
    weights = None
    if sample_weight is not None:
        weights = target_of(rows, "--sample-weight", sample_weight, numbers=True)
    y = labels[0] if len(labels) == 1 else np.column_stack(labels)
    stated |= {
        "scoring": scoring[0] if scoring and len(scoring) == 1 else scoring or None,
        "sample_weight": weights,
        "ids": None if ids is None else ids_of(rows, ids),
        "classes": labels_like(y, classes, "--class") if classes else None,
    }
    holdout = LadderHoldout(rows.features, y, **stated)
    show(holdout.status(), as_json)


def _of_numbers(scoring: Sequence[str], name: str | None, ledger: str | None) -> bool:
    """Return whether targets are numbers: by the metric, or by the ladders that go on."""
    if scoring:
        return not any(get_metric(one).is_classification for one in scoring)
    with suppress(LadderHoldoutError), Ledger(resolve_url(ledger)).read() as tx:
        known = tx.holdouts(name=name) if name is not None else tx.holdouts()
        return bool(known) and all(one.classes is None for one in known)
    return False


def submit(
    name: NameArgument,
    file: PredictionsArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    context: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A note for the history; repeat it for several."),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether line 1 names the columns.")
    ] = True,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The predicted labels, where some metrics take labels and others do not.",
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column with the ids of the rows, which may then come in any order.",
        ),
    ] = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit predictions for a holdout's rows, and print the release.

    They come in the order in which the rows were first registered, whatever views came later, or
    with --ids in any order.
    """
    stated = context_of(context or [])
    if ids is not None and not header:
        raise InvalidArgument("--ids", "left out where line 1 names no columns", "stated")
    holdout = opened(name, account, ladder, ledger, server, scoring)
    release = holdout.submit(_predictions(holdout, file, labels, header, ids), context=stated)
    show(release, as_json)


def _predictions(
    holdout: LadderHoldout, file: Path, labels: Path | None, header: bool, ids: str | None
) -> Any:
    """Read what all metrics of a holdout take: one file, and one with labels beside others."""
    facts, has_ids = holdout.open_ladder.facts, holdout.open_ladder.state().has_ids
    by_response = {one.response: one for one in holdout.metrics.values()}
    others = {kind: one for kind, one in by_response.items() if kind != "labels"}
    if (labels is not None) != (bool(others) and "labels" in by_response):
        some = "some metrics take labels and others do not"
        raise InvalidArgument(
            "--labels",
            f"stated where {some}, and only there",
            "left out" if labels is None else "stated",
        )
    # A file of probabilities serves metrics of scores as well.
    metric = others.get("probabilities") or next(iter((others or by_response).values()))
    form = Form(metric, facts.n, facts.classes, has_ids, header)
    found = predictions_from(file, form, ids=ids)
    if labels is None:
        return found
    form = Form(by_response["labels"], facts.n, facts.classes, has_ids, header)
    return {metric.response: found, "labels": predictions_from(labels, form, ids=ids)}


def list_holdouts(ledger: LedgerOption = None, as_json: JsonOption = False) -> None:
    """List the holdouts in the ledger, with their ladders."""
    url = resolve_url(ledger)
    out, found = console(), list(_ladders(url))
    if as_json:
        print_json({"ledger": shown(url), "ladders": found})
        return
    if found:
        out.print(_chosen(_HOLDOUTS, map(_listed, found), out.width))
    else:
        out.print("No holdout is registered yet.")
    print_lines(f"ledger: {shown(url)}")


def status(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a ladder's released score and certificate, and how much was asked of the holdout."""
    found = opened(name, account, ladder, ledger, server, scoring).status()
    show(found, as_json)


def certificate(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    confidence: ConfidenceOption = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a confidence interval for the incumbent's true score, and what it assumes."""
    holdout = opened(name, account, ladder, ledger, server, scoring)
    found = holdout.certificate(confidence)
    print_result(found, as_json)


def history(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    last: Annotated[int, typer.Option(min=1, help="How many to show at most, the latest.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, help="Show those that follow this number instead.")
    ] = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the submissions, what was released after each, and when.

    A submission's own score is known where it became the incumbent, and a dash elsewhere;
    "released" is the score of the incumbent after it. No raw score is shown.
    """
    holdout = opened(name, account, ladder, ledger, server, scoring)
    several = len(holdout.metrics) > 1
    shown = {metric: holdout[metric] if several else holdout for metric in holdout.metrics}
    by_metric = {metric: _history(one, last, after) for metric, one in shown.items()}
    if as_json:
        lists = {
            metric: {
                "submissions": total,
                "latest": [asdict(one) | {"own_score": one.own_score} for one in latest],
            }
            for metric, (total, latest) in by_metric.items()
        }
        print_json(lists if several else next(iter(lists.values())))
        return
    out = console()
    for metric, (total, latest) in by_metric.items():
        if several:
            out.print(f"{metric}:")
        if latest:
            out.print(_chosen(_HISTORY, _entries(latest), out.width))
        out.print(f"{total} submissions in all")


def _history(
    holdout: LadderHoldout, last: int, after: int | None
) -> tuple[int, tuple[Submission, ...]]:
    """Return how many submissions a ladder has, and those that are shown."""
    total = holdout.open_ladder.state().submissions
    start = max(0, total - last) if after is None else after
    return total, holdout.history(after=start, limit=last)


def reveal(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the released score of a one-bit ladder; later certificates pay for it.

    Such a ladder releases only whether each submission improved. Others show their score anyway.
    """
    holdout = opened_one(name, account, ladder, ledger, server, scoring)
    holdout.reveal()
    show(holdout.status(), as_json)


def estimate(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    ledger: LedgerOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the incumbent's score corrected for the choice among the submissions of one batch.

    It is put on record first, and certificates of later incumbents pay for it. Where submissions
    learned from answers there is none, and the message names what gives a score instead.
    """
    holdout = opened(name, account, ladder, ledger, server, scoring)
    print_result(holdout.estimate(), as_json)


def certify(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    scoring: ScoringOption = None,
    confidence: ConfidenceOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Certify the incumbent on the reserve, the rows that no ladder has measured.

    This spends one of the reserve's queries; asked again about the same incumbent, none.
    """
    holdout = opened(name, account, ladder, ledger, scoring=scoring)
    found = holdout.certify(confidence)
    print_result(found, as_json)


def withdraw(
    name: NameArgument,
    number: Annotated[int, typer.Argument(help="The submission's number, as in the history.")],
    reason: Annotated[str, typer.Option(help="What happened, for those who read the record.")],
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Withdraw a submission that was an accident, on record.

    What its release revealed stays counted in all certificates.
    """
    holdout = opened_one(name, account, ladder, ledger)
    show(holdout.withdraw(number, reason=reason), as_json)


def retire(
    name: NameArgument,
    ledger: LedgerOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Close a holdout: no ladder on it takes another submission."""
    store = Ledger(resolve_url(ledger))
    with store.read() as tx:
        record = named(tx, name)
    if record.retired is None and not yes:
        typer.echo(
            f"{name!r} will take no more submissions, through any ladder, permanently. Its "
            "history, status and audit stay.",
            err=True,
        )
        typer.confirm("Retire it?", abort=True, err=True)
    holdout_id = record.id
    record = store.transact(lambda tx: tx.retire(holdout_id))
    if as_json:
        print_json({"holdout": name, "retired": record.retired})
    else:
        console().print(f"{name} is retired since {record.retired:%Y-%m-%d %H:%M} UTC")


def show(what: Status | Release | Withdrawn, as_json: bool) -> None:
    """Print a status, a release or a withdrawal, one fact a line."""
    if as_json:
        derived = {} if isinstance(what, Withdrawn) else {"releases_left": what.releases_left}
        print_json(asdict(what) | derived)
    else:
        console().print(_table(["what", "value"], what.lines(), header=False))


def _ladders(url: str) -> Iterator[dict[str, Any]]:
    with Ledger(url).read() as tx:
        for holdout in tx.holdouts():
            for ladder in tx.ladders(holdout.id):
                stated = ladder.settings
                yield {
                    "holdout": holdout.name,
                    "rows": holdout.n,
                    "account": stated.account,
                    "ladder": stated.name,
                    "metric": stated.metric,
                    "mechanism": rule_shown(stated),
                    "submissions": ladder.submissions,
                    "releases": ladder.state["releases"],
                    "opened": ladder.opened,
                    "retired": holdout.retired,
                }


def _listed(found: Mapping[str, Any]) -> dict[str, str | Text]:
    marks = [mark for mark in ("opened", "retired") if found[mark]]
    ladder = f"{found['account']}/{found['ladder']}"
    texts = {name: str(value) for name, value in found.items()}
    return {**texts, "ladder": ladder, "": ", ".join(marks)}


def _entries(latest: Sequence[Submission]) -> Iterator[dict[str, str | Text]]:
    differing = varied(latest)
    for one in latest:
        yield {
            "number": str(one.number),
            "time (UTC)": f"{one.time:%Y-%m-%d %H:%M}",
            "own score": number(one.own_score, "-"),
            "released": number(one.score),
            "": outcome(one).removeprefix("not improved"),
            "batch": (one.batch or "")[:8],
            "from": Text(origin(one, differing), no_wrap=True, overflow="ellipsis"),
        }


def _chosen(
    columns: Mapping[str, int], rows: Iterable[Mapping[str, str | Text]], width: int
) -> Table:
    """Lay out the columns that a terminal of this width has space for."""
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
        table.add_row(*map(cell, row))
    return table
