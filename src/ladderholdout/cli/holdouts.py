"""Commands on a holdout: register, submit, status, history, certificate and their like.

Nothing raw is ever read here.

Parameters
----------
block
    Which rows the file was made for: 1 for the first ones, one more each time that fresh rows took
    their place. Needed from the second block on, unless --ids names the rows.
context : KEY=VALUE
    A note for the history; repeat it for several.
file : FILE
    A .csv, .parquet, .arrow or .npy file; or the log of an evaluation: of Inspect (.eval, .json),
    or samples of lm_eval (.jsonl).
header
    Whether line 1 names the columns.
ids : COLUMN
    The column with the ids of the rows, which may then come in any order. Of a log the field of
    each sample's metadata or document; by default its own id.
kept : NAME
    Of samples of lm_eval: the filter whose answers are meant.
otherwise : CLASS
    Of a log: the class that answers count as which are none of the classes.
overlap
    Where another holdout has some of the rows: auto, warn, error or ignore.
pattern : REGEX
    Of a log: what of an answer is the prediction, the first group of the last match. By default all
    of it.
sample_weight : COLUMN
    The column with the rows' weights.
target
    The column with the labels; repeat it for several outputs.
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

from ladderholdout import errors
from ladderholdout import vault as vaults
from ladderholdout.cli import common, options
from ladderholdout.cli.files import ids_of, predictions_from, read_rows, target_of
from ladderholdout.guard import commands, open_ladder, opening, printing, settings
from ladderholdout.guard.commands import Withdrawn
from ladderholdout.holdout import LadderHoldout, Release, Status, Submission
from ladderholdout.identity.labels import are_texts
from ladderholdout.integrations.evaluation_logs import LOGS, answers_in
from ladderholdout.integrations.evaluations import Reading, submission_of
from ladderholdout.ledger import Ledger, fold, resolve_url, rules, shown
from ladderholdout.mechanisms import mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.metrics.arrays import is_text
from ladderholdout.remote.tables import Form, labels_like

_HOLDOUTS = "holdout", "rows", "ladder", "metric", "mechanism", "submissions", "releases", ""
_HISTORY = "number", "time (UTC)", "own score", "released", "", "batch", "from"
# From which width of the terminal on a column fits.
_FITS = {
    "rows": 60,
    "metric": 80,
    "mechanism": 80,
    "time (UTC)": 60,
    "own score": 80,
    "batch": 110,
}
_NUMBERS = {"rows", "submissions", "releases", "number", "own score", "released"}
_FOLDING = {"holdout", "ladder", "metric", "mechanism", "value", "from"}


def register(
    file: Path,
    *,
    target: list[str],
    scoring: list[str] | None = None,
    name: str | None = None,
    mechanism: str | None = None,
    show: str | None = None,
    budget: int | None = None,
    account: str = "default",
    ladder: str = "main",
    sample_weight: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    estimand: str | None = None,
    classes: list[str] | None = None,
    loss_range: tuple[float, float] | None = None,
    target_range: tuple[float, float] | None = None,
    pos_label: str | None = None,
    reserve: float | None = None,
    confidence: float | None = None,
    overlap: str = "auto",
    vault: Path | None = None,
    missing: list[str] | None = None,
    ledger: str | None = None,
) -> None:
    """Register a file's rows as a holdout, or start one more ladder on it.

    A ladder is the rule that answers submissions, with its state on one holdout and metric.
    Labels, ids and groups are texts unless each is the plain spelling of a number: 7, not 007.

    Parameters
    ----------
    file : FILE
        A .csv, .parquet or .arrow file.
    scoring
        A metric of scikit-learn, such as accuracy; for a new ladder. Repeat it for several, which
        are queried together.
    name
        What to call it; by default part of its fingerprint.
    mechanism
        The rule that answers submissions, written as in Python: "Ladder(step=0.01)". By default it
        is chosen by the metric.
    show
        What answers have: scores, or improvements alone, so that the score is shown on request
        (reveal) and certificates are narrower. By default scores.
    budget
        How many times the released score may improve.
    ids : COLUMN
        The column that names each row: by it the holdout is known again in another order and with
        other features.
    groups : COLUMN
        The column that names the group of each row, such as a patient, where whole groups were
        drawn; certificates are by groups then.
    estimand
        What certificates are of, where there are groups: the mean over rows, by default, or over
        groups.
    classes
        Each class, where the file lacks some; repeat it.
    target_range : LOW HIGH
        Holds every target; the certificates of R2 and its like need it.
    pos_label : CLASS
        The class that F1, precision, recall or average precision is about; by default the second of
        the sorted ones.
    reserve : SHARE
        Share of the rows that no ladder measures, kept for `certificate --reserve`.
    confidence
        Probability that all certificates hold together, fixed; by default .95.
    vault
        Folder for the private copy of the rows; by default beside the ledger.
    """
    stated = settings.stated_in(locals())
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
    print_shown(holdout.status())


def replenish(
    name: options.Name,
    file: Path,
    *,
    target: list[str],
    sample_weight: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    reserve: float | None = None,
    overlap: str = "auto",
    missing: list[str] | None = None,
    ledger: str | None = None,
    yes: bool = False,
) -> None:
    """Let the fresh rows of a file take the place of those of a holdout.

    All of its ladders, accounts and settings go on, and start anew on these rows. Those before
    them take no more submissions, and are called NAME@1, NAME@2 and so on.

    Parameters
    ----------
    file : FILE
        A .csv, .parquet or .arrow file.
    ids : COLUMN
        The column that names each row; needed where the rows so far have ids.
    groups : COLUMN
        The column that names the group of each row; needed where they have groups.
    reserve
        The share of the fresh rows that no ladder measures; by default that of the rows so far.
    """
    with Ledger(resolve_url(ledger)).read() as tx:
        record = opening.named(tx, name)
        ladders, known = tx.ladders(record.id), tx.known(record.id)
        of_classes = record.classes is not None and is_text(record.classes)
        texts = of_classes, are_texts(known.ids), are_texts(known.groups)
    if not ladders:
        raise errors.UnknownHoldout(f"The holdout {name!r} has no ladder.")
    features, y, given = _rows_in(
        *(file, target, sample_weight, ids, groups),
        numbers=record.classes is None,
        missing_texts=missing or (),
        texts=texts,
    )
    if not yes:
        common.confirm(
            f"The {record.n} rows of {name!r} will take no more submissions, permanently; {len(y)} "
            "fresh ones take their place. Their history, status and audit stay.",
            "Replenish it?",
        )
    first = ladders[0].settings
    holdout = LadderHoldout.open(
        name, account=first.account, ladder=first.name, overlap=overlap, ledger=ledger
    )
    print_shown(holdout.replenish(features, y, reserve=reserve, **given).status())


def _rows_in(
    file: Path,
    target: Sequence[str],
    sample_weight: str | None,
    ids: str | None,
    groups: str | None,
    *,
    numbers: bool,
    missing_texts: Sequence[str],
    texts: Sequence[bool] = (False, False, False),
) -> tuple[Any, Any, dict[str, Any]]:
    """Read features and labels of a file, and by argument what else of them is in its columns.

    `texts` states whether classes, ids and groups stay texts, though all of them may be numbers.
    """
    others = {"--sample-weight": sample_weight, "--ids": ids, "--groups": groups}
    columns = {option: [column] for option, column in others.items() if column is not None}
    rows = read_rows(file, {"--target": target, **columns})
    labels = [
        target_of(
            *(rows, "--target", column),
            numbers=numbers,
            missing_texts=missing_texts,
            texts=texts[0],
        )
        for column in target
    ]
    weights = None
    if sample_weight is not None:
        weights = target_of(rows, "--sample-weight", sample_weight, numbers=True)
    given = {
        "sample_weight": weights,
        "ids": None if ids is None else ids_of(rows, ids, texts=texts[1]),
        "groups": None if groups is None else ids_of(rows, groups, "--groups", texts=texts[2]),
    }
    return rows.features, labels[0] if len(labels) == 1 else np.column_stack(labels), given


def _of_numbers(scoring: Sequence[str], name: str | None, ledger: str | None) -> bool:
    """Return whether targets are numbers: by the metric, or by the ladders that go on."""
    if scoring:
        return not any(get_metric(metric).is_classification for metric in scoring)
    with suppress(errors.LadderHoldoutError), Ledger(resolve_url(ledger)).read() as tx:
        known = tx.holdouts(name=name) if name is not None else tx.holdouts()
        return bool(known) and all(holdout.classes is None for holdout in known)
    return False


@options.on_ladder()
def submit(
    holdout: LadderHoldout,
    file: Path,
    *,
    context: list[str] | None = None,
    block: int | None = None,
    header: bool = True,
    labels: Path | None = None,
    ids: str | None = None,
    pattern: str | None = None,
    otherwise: str | None = None,
    kept: str | None = None,
) -> None:
    """Submit predictions for a holdout's rows, and print the release.

    They come in the order in which the rows were first registered, whatever views came later, or
    with --ids in any order.

    Parameters
    ----------
    labels : FILE
        The predicted labels, where some metrics take labels and others do not.
    """
    stated = options.context_of(context or [])
    options.check_block(holdout, block, ids)
    predictions = _answers(holdout, file, labels, header, ids, Reading(pattern, otherwise), kept)
    print_shown(holdout.submit(predictions, context=stated))


@options.on_ladder(single=True)
def gate(
    holdout: LadderHoldout,
    file: Path,
    *,
    margin: float | None = None,
    baseline: bool = False,
    block: int | None = None,
    context: list[str] | None = None,
    header: bool = True,
    ids: str | None = None,
    pattern: str | None = None,
    otherwise: str | None = None,
    kept: str | None = None,
) -> None:
    """Decide whether predictions may replace the incumbent, by one error for all decisions.

    The exit status is 0 if they are accepted, 1 if they are not shown to be better, 2 if they are
    refused or the command is used wrongly, 3 if nothing can be accepted any more or a limit is
    reached, 4 if nothing was decided (no server, a ledger that is locked, a judge that failed), 5
    if they are those of the incumbent on all rows, and 6 if there was nothing to compare them with.
    The ladder has the rule GateLadder (register --mechanism "GateLadder()"). The first file is the
    baseline, which is accepted with --baseline alone.

    Parameters
    ----------
    margin
        The gain that the candidate has to exceed, in the metric's own units; by default that of the
        ladder's rule.
    baseline
        Accept the ladder's first file, as the baseline.
    """
    stated = options.context_of(context or [])
    options.check_block(holdout, block, ids)
    predictions = _answers(holdout, file, None, header, ids, Reading(pattern, otherwise), kept)
    decision = holdout.gate(predictions, margin=margin, baseline=baseline, context=stated)
    common.print_result(decision)
    if not decision:
        raise typer.Exit(_STATUSES.get(decision.verdict, 3 if decision.spent else 1))


_STATUSES = {"unchanged": 5, "baseline": 6}


def status_of_refusal(error: Exception) -> int:
    """Return the exit status of a gate that gives no decision."""
    undecided = errors.LedgerError | errors.VaultError | errors.MetricError
    if isinstance(error, undecided) or not isinstance(error, errors.LadderHoldoutError):
        return 4
    return 3 if isinstance(error, errors.DailyLimit) else 2


def _check_header(header: bool, ids: str | None) -> None:
    """Refuse to look for a column of ids where no line names the columns."""
    if ids is not None and not header:
        raise errors.InvalidArgument("--ids", "left out where line 1 names no columns", "stated")


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
        return submission_of(open_ladder.ladder_of(holdout), answers, reading)
    if (reading, kept) != (Reading(), None):
        allowed = "left out for a file that is no log of an evaluation"
        raise errors.InvalidArgument("--pattern, --otherwise and --filter", allowed, "stated")
    _check_header(header, ids)
    return _predictions(holdout, file, labels, header, ids)


def _predictions(
    holdout: LadderHoldout, file: Path, labels: Path | None, header: bool, ids: str | None
) -> Any:
    """Read what all metrics of a holdout take: one file, and one with labels beside others."""
    ladder = open_ladder.ladder_of(holdout, several=True)
    facts, has_ids = ladder.facts, ladder.execute(commands.State()).has_ids
    by_response = {metric.response: metric for metric in holdout.metrics.values()}
    others = {kind: metric for kind, metric in by_response.items() if kind != "labels"}
    if (labels is not None) != (bool(others) and "labels" in by_response):
        some = "some metrics take labels and others do not"
        raise errors.InvalidArgument(
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


def _list(ledger: str | None) -> None:
    """List the holdouts in the ledger, with their ladders."""
    url = resolve_url(ledger)
    out, ladders = common.console(), list(_ladders(url))
    if common.as_json():
        common.print_json({"ledger": shown(url), "ladders": ladders})
        return
    if ladders:
        out.print(_chosen(_HOLDOUTS, _FITS | {"": 100}, map(_listed, ladders), out.width))
    else:
        out.print("No holdout is registered yet.")
    common.print_lines(f"ledger: {shown(url)}")


@options.on_ladder(unnamed=_list)
def status(
    holdout: LadderHoldout,
    *,
    reveal: bool = False,
    health: bool = False,
    spent_at: float | None = None,
    more: int = 5,
    keep: bool = False,
) -> None:
    """Show a ladder's released score and certificate, and how much was asked of the holdout.

    Without NAME it lists the holdouts in the ledger, with their ladders.

    Parameters
    ----------
    reveal
        On a ladder that shows improvements alone (register --show): request the released score,
        on record. Certificates pay for it.
    health
        Add how wide the certificate is, and what it becomes.
    spent_at : WIDTH
        With --health: from which width on the rows are used up; forecasts when, and how many fresh
        rows would restore it.
    more
        With --health: after how many more improvements to forecast.
    keep
        Put the width of --spent-at on record, as the owner's rule for all.
    """
    if reveal:
        holdout.reveal()
    shown = holdout.status()
    if not health:
        if spent_at is not None:
            raise errors.InvalidArgument("--spent-at", "stated with --health", "without")
        print_shown(shown)
        return
    if keep:
        if spent_at is None:
            raise errors.InvalidArgument("--keep", "stated with --spent-at", "without")
        holdout.owner.spent_at(spent_at)
    found = holdout.health(more=more, spent_at=spent_at)
    if common.as_json():
        common.print_json(commands.plain(shown) | {"health": found})
    else:
        lines = [*shown.lines(), *found.lines()]
        common.console().print(_table(["what", "value"], lines, header=False))


@options.on_ladder()
def certificate(
    holdout: LadderHoldout,
    *,
    confidence: float | None = None,
    reserve: bool = False,
    estimate: bool = False,
) -> None:
    """Print a confidence interval for the incumbent's true score, and what it assumes.

    Parameters
    ----------
    reserve
        By the rows that no ladder has measured. This spends one of the reserve's queries; asked
        again about the same incumbent, none.
    estimate
        Print instead the incumbent's score, corrected for the choice among the submissions of one
        batch. It is put on record first, and certificates of later incumbents pay for it. If
        submissions learned from answers there is none, and the message names what gives a score.
    """
    if estimate:
        if reserve or confidence is not None:
            stated = "--reserve" if reserve else "--confidence"
            raise errors.InvalidArgument("--estimate", f"stated without {stated}", "stated with it")
        common.print_result(holdout.estimate())
        return
    ask = holdout.reserve_certificate if reserve else holdout.certificate
    common.print_result(ask(confidence))


@options.on_ladder(single=True)
def compare(
    holdout: LadderHoldout,
    first: str,
    second: str,
    *,
    confidence: float | None = None,
    header: bool = True,
    ids: str | None = None,
    dry_run: bool = False,
) -> None:
    """Print an interval for the true score of one model less that of another.

    It is put on record, and later certificates and decisions pay for it. Predictions of submissions
    that improved are kept; of others give the file.

    Parameters
    ----------
    first : FIRST
        The number of a submission, or a file.
    second : SECOND
        The number of a submission, or a file.
    dry_run
        Print what it costs, and compare nothing.
    """
    _check_header(header, ids)
    if dry_run:
        price = holdout.price()
        common.print_result({"price": price}, price)
        return

    def model(stated: str) -> Any:
        if stated.isdecimal():
            return int(stated)
        return _predictions(holdout, Path(stated), None, header, ids)

    common.print_result(holdout.compare(model(first), model(second), confidence=confidence))


@options.on_ladder()
def history(
    holdout: LadderHoldout,
    *,
    last: Annotated[int, {"min": 1}] = 50,
    after: Annotated[int | None, {"min": 0}] = None,
) -> None:
    """Show the submissions, what was released after each, and when.

    A submission's own score is known where it became the incumbent, and a dash elsewhere;
    "released" is the score of the incumbent after it. No raw score is shown.

    Parameters
    ----------
    last
        How many to show at most, the latest.
    after
        Show those that follow this number instead.
    """
    several = len(holdout.metrics) > 1
    shown = {metric: holdout[metric] if several else holdout for metric in holdout.metrics}
    by_metric = {metric: _history(ladder, last, after) for metric, ladder in shown.items()}
    if common.as_json():
        common.print_json(by_metric if several else next(iter(by_metric.values())))
        return
    out = common.console()
    for metric, page in by_metric.items():
        if several:
            out.print(f"{metric}:")
        if page.submissions:
            out.print(_chosen(_HISTORY, _FITS, _entries(page.submissions), out.width))
        out.print(f"{page.total} submissions in all")
    block = open_ladder.ladder_of(holdout, several=True).facts.block
    if block > 1:
        earlier = fold.block_name(fold.parted_name(holdout.name)[0], block - 1)
        out.print(f"of block {block}; those of the block before it: history {earlier}")


def _history(holdout: LadderHoldout, last: int, after: int | None) -> commands.Page:
    """Return the submissions that are shown, and how many a ladder has."""
    state = open_ladder.ladder_of(holdout, several=True).execute(commands.State())
    start = max(0, state.submissions - last) if after is None else after
    lines = tuple(holdout.history(after=start, limit=last))
    return commands.Page(lines, state.submissions, state.incumbent)


@options.on_ladder(scoring=False, server=False, single=True)
def withdraw(holdout: LadderHoldout, number: int, *, reason: str) -> None:
    """Withdraw a submission that was an accident, on record.

    What its release revealed stays counted in all certificates.

    Parameters
    ----------
    number
        The submission's number, as in the history.
    reason
        What happened, for those who read the record.
    """
    print_shown(holdout.owner.withdraw(number, reason=reason))


def retire(
    name: options.Name,
    *,
    forget: bool = False,
    ledger: str | None = None,
    yes: bool = False,
) -> None:
    """Close a holdout: no ladder on it takes another submission.

    Parameters
    ----------
    forget
        Take back the registration instead, of a holdout that was never queried; its name and its
        rows are free again.
    """
    store = Ledger(resolve_url(ledger))
    with store.read() as tx:
        record = opening.named(tx, name)
    if not yes and (forget or record.retired is None):
        gone = (
            f"The {record.n} rows of {name!r} will be known no more."
            if forget
            else f"{name!r} will take no more submissions, through any ladder, permanently. Its "
            "history, status and audit stay."
        )
        common.confirm(gone, "Forget it?" if forget else "Retire it?")
    if forget:
        for path in store.transact(lambda tx: tx.forget(record.id)):
            vaults.remove(path)
        line = f"{name} is forgotten: its rows can be registered again"
        common.print_result({"holdout": name, "forgotten": True}, line)
        return
    closed = store.transact(lambda tx: tx.retire(record.id))
    line = f"{name} is retired since {closed.retired:%Y-%m-%d %H:%M} UTC"
    common.print_result({"holdout": name, "retired": closed.retired}, line)


def print_shown(what: Status | Release | Withdrawn) -> None:
    """Print a status, a release or a withdrawal, one fact a line."""
    if common.as_json():
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
                    "mechanism": rules.rule_shown(stated),
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
    differing = printing.varied(latest)
    for submission in latest:
        texts = printing.cells(submission, differing)
        yield {**texts, "from": Text(texts["from"], no_wrap=True, overflow="ellipsis")}


def _chosen(
    columns: Sequence[str],
    least: Mapping[str, int],
    rows: Iterable[Mapping[str, str | Text]],
    width: int,
) -> Table:
    """Lay out the columns that a terminal of this width has space for."""
    fitting = [column for column in columns if width >= least.get(column, 0)]
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
