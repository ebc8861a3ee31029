"""Registering rows and going on with them: what `LadderHoldout` is given in, a ladder out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from ladderholdout.arguments import text, whole
from ladderholdout.errors import UnknownHoldout
from ladderholdout.guard import opening
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.ladder import LocalLadder, joined, opened_as, with_rows
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.rows import given_rows
from ladderholdout.guard.settings import BETWEEN, HoldoutSettings, metrics_of
from ladderholdout.ledger.place import Access, resolve_url
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric


def register(X: Any, y: ArrayLike, stated: HoldoutSettings) -> LocalLadder:
    """Find these rows and the stated ladders in the ledger, or start what is missing."""
    with without_frames:
        wishes, given = stated.ladders(), given_rows(X, y, stated)
        store = Ledger(resolve_url(stated.ledger), create=True)
        opened = opening.open_rows(store, given, stated, wishes)
        return with_rows(store, opened, stated, _metrics_in(stated))


def _metrics_in(stated: HoldoutSettings) -> dict[str, str | Metric]:
    """Return the metrics by their names, if several are stated."""
    return metrics_of(stated.scoring) if stated.several else {}


def reopen(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with the ladders of a registered holdout, by what `LadderHoldout.open` takes."""
    name, scoring = text("name", stated.name), stated.scoring

    def look(tx: Transaction) -> tuple[str, ...]:
        """Return the metrics under the name of the ladder; none where that is of one."""
        holdout = opening.named(tx, name)
        there = opening.ladders_named(tx, holdout, stated.account, stated.ladder)
        return () if None in there else tuple(filter(None, there))

    with without_frames:
        known = Ledger(resolve_url(stated.ledger)).transact(look, Access.READ)
    metrics = _metrics_in(stated)
    if not metrics and not known:
        return reopen_ladder(stated, view)
    if isinstance(scoring, str | Metric):
        metrics = {scoring if isinstance(scoring, str) else scoring.name: scoring}
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise UnknownHoldout(
            f"The ladder {stated.ladder!r} of account {stated.account!r} on {name!r} has no "
            f"metric {', '.join(map(repr, unknown))}. "
            f"It has: {', '.join(map(repr, known)) or 'one'}."
        )
    ladders = {}
    for metric in metrics or known:
        # By its name here, which may not be the metric's own.
        own = None if metrics.get(metric) == metric else metrics.get(metric)
        ladder = f"{stated.ladder}{BETWEEN}{metric}"
        ladders[metric] = reopen_ladder(replace(stated, scoring=own, ladder=ladder), view)
    return next(iter(ladders.values())) if isinstance(scoring, str | Metric) else joined(ladders)


def reopen_ladder(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with the ladder of one metric, by what `LadderHoldout.open` takes."""
    name, store = text("name", stated.name), Ledger.opened(resolve_url(stated.ledger))
    (wish,), number = stated.ladders(), None if view is None else whole("view", view)
    with without_frames:
        holdout, record, seen = store.transact(
            lambda tx: opening.find(tx, name, stated.account, wish.ladder, number), Access.READ
        )
    metric = opening.going_on(holdout, record, wish).for_classes(holdout.classes)
    return opened_as(store.url, holdout, record, metric, stated, seen.number)


def by_first_order(ladder: OpenLadder) -> None:
    """Take predictions in the order of the first registration, as all files have them."""
    for local in (ladder, *ladder.by_metric.values()):
        if isinstance(local, LocalLadder):
            local.first_order = True
