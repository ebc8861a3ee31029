"""Commands on a holdout: register, submit, status, history, certificate and their like.

Nothing raw is ever read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from ladderholdout import vault as vaults
from ladderholdout.cli import common
from ladderholdout.cli.files import ids_of, predictions_from, read_rows, target_of
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, UnknownHoldout
from ladderholdout.guard import commands
from ladderholdout.guard.commands import Withdrawn
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.guard.opening import named
from ladderholdout.guard.printing import cells, varied
from ladderholdout.guard.settings import stated_in
from ladderholdout.holdout import LadderHoldout, Release, Status, Submission
from ladderholdout.identity.labels import are_texts
from ladderholdout.integrations.evaluation_logs import LOGS, answers_in
from ladderholdout.integrations.evaluations import Reading, submission_of
from ladderholdout.ledger import Ledger, resolve_url, shown
from ladderholdout.ledger.fold import block_name, parted_name
from ladderholdout.ledger.rules import rule_shown
from ladderholdout.mechanisms import mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.remote.tables import Form, labels_like

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
AnswersArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A .csv, .parquet, .arrow or .npy file; or the log of an evaluation: of Inspect "
        "(.eval, .json), or samples of lm_eval (.jsonl).",
    ),
]

ContextOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A note for the history; repeat it for several."),
]
HeaderOption = Annotated[
    bool, typer.Option("--header/--no-header", help="Whether line 1 names the columns.")
]
IdsOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column with the ids of the rows, which may then come in any order. Of a log the "
        "field of each sample's metadata or document; by default its own id.",
    ),
]
TargetOption = Annotated[
    list[str], typer.Option(help="The column with the labels; repeat it for several outputs.")
]
WeightOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column with the rows' weights.")
]
OverlapOption = Annotated[
    str,
    typer.Option(help="Where another holdout has some of the rows: auto, warn, error or ignore."),
]


def register(
    file: FileArgument,
    target: TargetOption,
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
    show: Annotated[
        str | None,
        typer.Option(
            help="What answers have: scores, or improvements alone, so that the score is shown "
            "on request (reveal) and certificates are narrower. By default scores."
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="How many times the released score may improve.")
    ] = None,
    account: common.AccountOption = "default",
    ladder: common.LadderOption = "main",
    sample_weight: WeightOption = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that names each row: by it the holdout is known again in another "
            "order and with other features.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that names the group of each row, such as a patient, where whole "
            "groups were drawn; certificates are by groups then.",
        ),
    ] = None,
    estimand: Annotated[
        str | None,
        typer.Option(
            help="What certificates are of, where there are groups: the mean over rows, by "
            "default, or over groups."
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="Each class, where the file lacks some; repeat it."),
    ] = None,
    loss_range: common.LossRangeOption = None,
    target_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Holds every target; the certificates of R2 and its like need it.",
        ),
    ] = None,
    pos_label: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="The class that F1, precision, recall or average precision is about; by default "
            "the second of the sorted ones.",
        ),
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the rows that no ladder measures, kept for `certificate --reserve`.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Probability that all certificates hold together, fixed; by default .95."
        ),
    ] = None,
    overlap: OverlapOption = "auto",
    vault: Annotated[
        Path | None,
        typer.Option(help="Folder for the private copy of the rows; by default beside the ledger."),
    ] = None,
    missing: common.MissingOption = None,
    ledger: common.LedgerOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Register a file's rows as a holdout, or start one more ladder on it.

    A ladder is the rule that answers submissions, with its state on one holdout and metric.
    Labels, ids and groups are texts unless each is the plain spelling of a number: 7, not 007.
    """
    stated = stated_in(locals())
    stated["mechanism"] = None if mechanism is None else mechanism_of(mechanism)
    numbers = _of_numbers(scoring or [], name, ledger)
    features, y, given = _rows_in(
        file, target, sample_weight, ids, groups, numbers=numbers, missing_texts=missing or ()
    )
    stated |= given | {
        "scoring": scoring[0] if scoring and len(scoring) == 1 else scoring or None,
        "classes": labels_like(y, classes, "--class") if classes else None,
        "pos_label": None if pos_label is None else labels_like(y, [pos_label], "--pos-label")[0],
    }
    holdout = LadderHoldout(features, y, **stated)
    print_shown(holdout.status(), as_json)


def replenish(
    name: common.NameArgument,
    file: FileArgument,
    target: TargetOption,
    sample_weight: WeightOption = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that names each row; needed where the rows so far have ids.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that names the group of each row; needed where they have groups.",
        ),
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option(
            help="The share of the fresh rows that no ladder measures; by default that of the "
            "rows so far."
        ),
    ] = None,
    overlap: OverlapOption = "auto",
    missing: common.MissingOption = None,
    ledger: common.LedgerOption = None,
    yes: common.YesOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Let the fresh rows of a file take the place of those of a holdout.

    All of its ladders, accounts and settings go on, and start anew on these rows. Those before
    them take no more submissions, and are called NAME@1, NAME@2 and so on.
    """
    with Ledger(resolve_url(ledger)).read() as tx:
        record = named(tx, name)
        ladders, known = tx.ladders(record.id), tx.known(record.id)
        texts = are_texts(known.ids), are_texts(known.groups)
    if not ladders:
        raise UnknownHoldout(f"The holdout {name!r} has no ladder.")
    features, y, given = _rows_in(
        *(file, target, sample_weight, ids, groups),
        numbers=record.classes is None,
        missing_texts=missing or (),
        texts=texts,
    )
    if not yes:
        typer.echo(
            f"The {record.n} rows of {name!r} will take no more submissions, permanently; {len(y)} "
            "fresh ones take their place. Their history, status and audit stay.",
            err=True,
        )
        typer.confirm("Replenish it?", abort=True, err=True)
    first = ladders[0].settings
    holdout = LadderHoldout.open(
        name, account=first.account, ladder=first.name, overlap=overlap, ledger=ledger
    )
    print_shown(holdout.replenish(features, y, reserve=reserve, **given).status(), as_json)


def _rows_in(
    file: Path,
    target: Sequence[str],
    sample_weight: str | None,
    ids: str | None,
    groups: str | None,
    *,
    numbers: bool,
    missing_texts: Sequence[str],
    texts: Sequence[bool] = (False, False),
) -> tuple[Any, Any, dict[str, Any]]:
    """Read features and labels of a file, and by argument what else of them is in its columns.

    `texts` states whether ids and groups stay texts, though all of them may be numbers.
    """
    others = {"--sample-weight": sample_weight, "--ids": ids, "--groups": groups}
    columns = {option: [column] for option, column in others.items() if column is not None}
    rows = read_rows(file, {"--target": target, **columns})
    labels = [
        target_of(rows, "--target", column, numbers=numbers, missing_texts=missing_texts)
        for column in target
    ]
    weights = None
    if sample_weight is not None:
        weights = target_of(rows, "--sample-weight", sample_weight, numbers=True)
    given = {
        "sample_weight": weights,
        "ids": None if ids is None else ids_of(rows, ids, texts=texts[0]),
        "groups": None if groups is None else ids_of(rows, groups, "--groups", texts=texts[1]),
    }
    return rows.features, labels[0] if len(labels) == 1 else np.column_stack(labels), given


def _of_numbers(scoring: Sequence[str], name: str | None, ledger: str | None) -> bool:
    """Return whether targets are numbers: by the metric, or by the ladders that go on."""
    if scoring:
        return not any(get_metric(metric).is_classification for metric in scoring)
    with suppress(LadderHoldoutError), Ledger(resolve_url(ledger)).read() as tx:
        known = tx.holdouts(name=name) if name is not None else tx.holdouts()
        return bool(known) and all(holdout.classes is None for holdout in known)
    return False


@common.on_ladder()
def submit(
    holdout: LadderHoldout,
    file: AnswersArgument,
    context: ContextOption = None,
    block: common.BlockOption = None,
    header: HeaderOption = True,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The predicted labels, where some metrics take labels and others do not.",
        ),
    ] = None,
    ids: IdsOption = None,
    pattern: common.PatternOption = None,
    otherwise: common.OtherwiseOption = None,
    kept: common.FilterOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Submit predictions for a holdout's rows, and print the release.

    They come in the order in which the rows were first registered, whatever views came later, or
    with --ids in any order.
    """
    stated = common.context_of(context or [])
    common.check_block(holdout, block, ids)
    predictions = _answers(holdout, file, labels, header, ids, Reading(pattern, otherwise), kept)
    print_shown(holdout.submit(predictions, context=stated), as_json)


@common.ends_with(common.status_of_refusal)
@common.on_ladder(single=True)
def gate(
    holdout: LadderHoldout,
    file: AnswersArgument,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The gain that the candidate has to exceed, in the metric's own units; by "
            "default that of the ladder's rule."
        ),
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option("--baseline", help="Accept the ladder's first file, as the baseline."),
    ] = False,
    block: common.BlockOption = None,
    context: ContextOption = None,
    header: HeaderOption = True,
    ids: IdsOption = None,
    pattern: common.PatternOption = None,
    otherwise: common.OtherwiseOption = None,
    kept: common.FilterOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Decide whether predictions may replace the incumbent, by one error for all decisions.

    The exit status is 0 if they are accepted, 1 if they are not shown to be better, 2 if they are
    refused or the command is used wrongly, 3 if nothing can be accepted any more or a limit is
    reached, 4 if nothing was decided (no server, a ledger that is locked, a judge that failed), 5
    if they are those of the incumbent on all rows, and 6 if there was nothing to compare them with.
    The ladder has the rule GateLadder (register --mechanism "GateLadder()"). The first file is the
    baseline, which is accepted with --baseline alone.
    """
    stated = common.context_of(context or [])
    common.check_block(holdout, block, ids)
    predictions = _answers(holdout, file, None, header, ids, Reading(pattern, otherwise), kept)
    decision = holdout.gate(predictions, margin=margin, baseline=baseline, context=stated)
    common.print_result(decision, as_json)
    if not decision:
        raise typer.Exit(common.STATUSES.get(decision.verdict, 3 if decision.spent else 1))


def _check_header(header: bool, ids: str | None) -> None:
    """Refuse to look for a column of ids where no line names the columns."""
    if ids is not None and not header:
        raise InvalidArgument("--ids", "left out where line 1 names no columns", "stated")


def _answers(
    holdout: LadderHoldout,
    file: Path,
    labels: Path | None,
    header: bool,
    ids: str | None,
    reading: Reading,
    kept: str | None,
) -> Any:
    """Read predictions of a table, or the answers in the log of an evaluation."""
    if file.suffix.lower() in LOGS:
        answers = answers_in(file, ids=ids, kept=kept)
        return submission_of(ladder_of(holdout), answers, reading)
    if (reading, kept) != (Reading(), None):
        allowed = "left out for a file that is no log of an evaluation"
        raise InvalidArgument("--pattern, --otherwise and --filter", allowed, "stated")
    _check_header(header, ids)
    return _predictions(holdout, file, labels, header, ids)


def _predictions(
    holdout: LadderHoldout, file: Path, labels: Path | None, header: bool, ids: str | None
) -> Any:
    """Read what all metrics of a holdout take: one file, and one with labels beside others."""
    ladder = ladder_of(holdout, several=True)
    facts, has_ids = ladder.facts, ladder.execute(commands.State()).has_ids
    by_response = {metric.response: metric for metric in holdout.metrics.values()}
    others = {kind: metric for kind, metric in by_response.items() if kind != "labels"}
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
    predictions = predictions_from(file, form, ids=ids)
    if labels is None:
        return predictions
    form = Form(by_response["labels"], facts.n, facts.classes, has_ids, header)
    return {metric.response: predictions, "labels": predictions_from(labels, form, ids=ids)}


def list_holdouts(ledger: common.LedgerOption = None, as_json: common.JsonOption = False) -> None:
    """List the holdouts in the ledger, with their ladders."""
    url = resolve_url(ledger)
    out, ladders = common.console(), list(_ladders(url))
    if as_json:
        common.print_json({"ledger": shown(url), "ladders": ladders})
        return
    if ladders:
        out.print(_chosen(_HOLDOUTS, map(_listed, ladders), out.width))
    else:
        out.print("No holdout is registered yet.")
    common.print_lines(f"ledger: {shown(url)}")


@common.on_ladder()
def status(
    holdout: LadderHoldout,
    health: Annotated[
        bool,
        typer.Option("--health", help="Add how wide the certificate is, and what it becomes."),
    ] = False,
    spent_at: Annotated[
        float | None,
        typer.Option(
            metavar="WIDTH",
            help="With --health: from which width on the rows are used up; forecasts when, and "
            "how many fresh rows would restore it.",
        ),
    ] = None,
    more: Annotated[
        int, typer.Option(help="With --health: after how many more improvements to forecast.")
    ] = 5,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Put the width of --spent-at on record, as the owner's rule for all."
        ),
    ] = False,
    as_json: common.JsonOption = False,
) -> None:
    """Show a ladder's released score and certificate, and how much was asked of the holdout."""
    shown = holdout.status()
    if not health:
        if spent_at is not None:
            raise InvalidArgument("--spent-at", "stated with --health", "without")
        print_shown(shown, as_json)
        return
    if keep:
        if spent_at is None:
            raise InvalidArgument("--keep", "stated with --spent-at", "without")
        holdout.owner.spent_at(spent_at)
    found = holdout.health(more=more, spent_at=spent_at)
    if as_json:
        common.print_json(commands.plain(shown) | {"health": found})
    else:
        lines = [*shown.lines(), *found.lines()]
        common.console().print(_table(["what", "value"], lines, header=False))


@common.on_ladder()
def certificate(
    holdout: LadderHoldout,
    confidence: common.ConfidenceOption = None,
    reserve: Annotated[
        bool,
        typer.Option(
            "--reserve",
            help="By the rows that no ladder has measured. This spends one of the reserve's "
            "queries; asked again about the same incumbent, none.",
        ),
    ] = False,
    as_json: common.JsonOption = False,
) -> None:
    """Print a confidence interval for the incumbent's true score, and what it assumes."""
    ask = holdout.reserve_certificate if reserve else holdout.certificate
    common.print_result(ask(confidence), as_json)


@common.on_ladder(single=True)
def compare(
    holdout: LadderHoldout,
    first: Annotated[
        str, typer.Argument(metavar="FIRST", help="The number of a submission, or a file.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="SECOND", help="The number of a submission, or a file.")
    ],
    confidence: common.ConfidenceOption = None,
    header: HeaderOption = True,
    ids: IdsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it costs, and compare nothing.")
    ] = False,
    as_json: common.JsonOption = False,
) -> None:
    """Print an interval for the true score of one model less that of another.

    It is put on record, and later certificates and decisions pay for it. Predictions of submissions
    that improved are kept; of others give the file.
    """
    _check_header(header, ids)
    if dry_run:
        price = holdout.price()
        if as_json:
            common.print_json({"price": price})
        else:
            common.print_lines(price)
        return

    def model(stated: str) -> Any:
        if stated.isdecimal():
            return int(stated)
        return _predictions(holdout, Path(stated), None, header, ids)

    common.print_result(
        holdout.compare(model(first), model(second), confidence=confidence), as_json
    )


@common.on_ladder()
def history(
    holdout: LadderHoldout,
    last: Annotated[int, typer.Option(min=1, help="How many to show at most, the latest.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, help="Show those that follow this number instead.")
    ] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show the submissions, what was released after each, and when.

    A submission's own score is known where it became the incumbent, and a dash elsewhere;
    "released" is the score of the incumbent after it. No raw score is shown.
    """
    several = len(holdout.metrics) > 1
    shown = {metric: holdout[metric] if several else holdout for metric in holdout.metrics}
    by_metric = {metric: _history(ladder, last, after) for metric, ladder in shown.items()}
    if as_json:
        common.print_json(by_metric if several else next(iter(by_metric.values())))
        return
    out = common.console()
    for metric, page in by_metric.items():
        if several:
            out.print(f"{metric}:")
        if page.submissions:
            out.print(_chosen(_HISTORY, _entries(page.submissions), out.width))
        out.print(f"{page.total} submissions in all")
    block = ladder_of(holdout, several=True).facts.block
    if block > 1:
        earlier = block_name(parted_name(holdout.name)[0], block - 1)
        out.print(f"of block {block}; those of the block before it: history {earlier}")


def _history(holdout: LadderHoldout, last: int, after: int | None) -> commands.Page:
    """Return the submissions that are shown, and how many a ladder has."""
    state = ladder_of(holdout, several=True).execute(commands.State())
    start = max(0, state.submissions - last) if after is None else after
    lines = tuple(holdout.history(after=start, limit=last))
    return commands.Page(lines, state.submissions, state.incumbent)


@common.on_ladder(single=True)
def reveal(holdout: LadderHoldout, as_json: common.JsonOption = False) -> None:
    """Show the released score of a ladder that shows improvements alone, and record the request.

    Certificates pay for it. Other ladders show their score anyway (register --show).
    """
    holdout.reveal()
    print_shown(holdout.status(), as_json)


@common.on_ladder()
def estimate(holdout: LadderHoldout, as_json: common.JsonOption = False) -> None:
    """Print the incumbent's score corrected for the choice among the submissions of one batch.

    It is put on record first, and certificates of later incumbents pay for it. Where submissions
    learned from answers there is none, and the message names what gives a score instead.
    """
    common.print_result(holdout.estimate(), as_json)


@common.on_ladder(scoring=False, server=False, single=True)
def withdraw(
    holdout: LadderHoldout,
    number: Annotated[int, typer.Argument(help="The submission's number, as in the history.")],
    reason: Annotated[str, typer.Option(help="What happened, for those who read the record.")],
    as_json: common.JsonOption = False,
) -> None:
    """Withdraw a submission that was an accident, on record.

    What its release revealed stays counted in all certificates.
    """
    print_shown(holdout.owner.withdraw(number, reason=reason), as_json)


def retire(
    name: common.NameArgument,
    ledger: common.LedgerOption = None,
    yes: common.YesOption = False,
    as_json: common.JsonOption = False,
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
    closed = store.transact(lambda tx: tx.retire(record.id))
    if as_json:
        common.print_json({"holdout": name, "retired": closed.retired})
    else:
        common.console().print(f"{name} is retired since {closed.retired:%Y-%m-%d %H:%M} UTC")


def forget(
    name: common.NameArgument,
    ledger: common.LedgerOption = None,
    yes: common.YesOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Take back the registration of a holdout that was never queried; its name is free again."""
    store = Ledger(resolve_url(ledger))
    with store.read() as tx:
        record = named(tx, name)
    if not yes:
        typer.echo(f"The {record.n} rows of {name!r} will be known no more.", err=True)
        typer.confirm("Forget it?", abort=True, err=True)
    for path in store.transact(lambda tx: tx.forget(record.id)):
        vaults.remove(path)
    if as_json:
        common.print_json({"holdout": name, "forgotten": True})
    else:
        common.console().print(f"{name} is forgotten: its rows can be registered again")


def print_shown(what: Status | Release | Withdrawn, as_json: bool) -> None:
    """Print a status, a release or a withdrawal, one fact a line."""
    if as_json:
        common.print_json(what)
    else:
        common.console().print(_table(["what", "value"], what.lines(), header=False))


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


def _listed(ladder: Mapping[str, Any]) -> dict[str, str | Text]:
    marks = [mark for mark in ("opened", "retired") if ladder[mark]]
    whose = f"{ladder['account']}/{ladder['ladder']}"
    texts = {name: str(value) for name, value in ladder.items()}
    return {**texts, "ladder": whose, "": ", ".join(marks)}


def _entries(latest: Sequence[Submission]) -> Iterator[dict[str, str | Text]]:
    differing = varied(latest)
    for submission in latest:
        texts = cells(submission, differing)
        yield {**texts, "from": Text(texts["from"], no_wrap=True, overflow="ellipsis")}


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
        table.add_row(*map(common.cell, row))
    return table
