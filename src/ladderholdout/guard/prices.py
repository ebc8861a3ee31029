"""How used up a holdout is: the width of its certificate, now and with further use."""

from __future__ import annotations

import math
from dataclasses import replace

from ladderholdout.arguments import whole, within
from ladderholdout.certificates.codes import event_length
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.certificate import Health
from ladderholdout.guard.of_metrics import together
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.metrics.arrays import LARGEST
from ladderholdout.planning.course import MOST_MORE, Course


def health_of(ladder: OpenLadder, more: int = 5, spent_at: float | None = None) -> Health:
    """Return how wide the certificate of a ladder is, and forecasts of that.

    What the status and the history show of it is all that goes in, so it depends on labels through
    releases alone.

    Parameters
    ----------
    ladder : OpenLadder
    more : int, default=5
        After how many more improvements a width is forecast.
    spent_at : float, optional
        The width from which on the owner takes the rows for used up, in the metric's own units; by
        default the one on record, if there is one.

    Raises
    ------
    InvalidArgument
        An argument is refused.
    """
    more = whole("more", more, most=MOST_MORE)
    if spent_at is not None:
        spent_at = within("spent_at", spent_at, LARGEST)
    if ladder.by_metric:
        ladders = ladder.by_metric.items()
        return together({name: health_of(one, more, spent_at) for name, one in ladders})
    status = ladder.execute(commands.Status())
    certificate, score = status.certificate, status.score
    spent_at = status.spent_at if spent_at is None else spent_at
    health = Health(
        *(status.name, status.block, status.n_ladder, status.submissions, status.releases),
        *(None, None, more, None, spent_at),
        reason=certificate.missing or "",
    )
    low, high, price = certificate.low, certificate.high, certificate.log_count
    if low is None or high is None or price is None:
        return health
    width = high - low
    if not math.isfinite(width):
        return replace(health, reason="its certificate has one end alone")
    risk = first_risk = None
    if ladder.metric.counts and ladder.facts.estimand is None and score is not None:
        first = next(iter(ladder.execute(commands.History(limit=1)).submissions), None)
        risk = ladder.metric.to_risk(score)
        if first is not None and first.score is not None:
            first_risk = ladder.metric.to_risk(first.score)
    course = Course(
        width=width,
        price=price,
        confidence=certificate.confidence,
        n=status.n_ladder,
        queries=max(status.queries, 1),
        improvements=max(status.releases, 1),
        risk=risk,
        first_risk=first_risk,
    )
    health = replace(
        health,
        width=width,
        price=course.price,
        width_after=course.width_after(more),
        reason="" if course.improvements > 1 else "it takes two improvements to forecast others",
    )
    if spent_at is None:
        return health
    return replace(
        health,
        spent=width > spent_at,
        queries_left=course.queries_until(spent_at),
        fresh_rows=course.fresh_rows(spent_at),
        rows_for_such_use=course.rows_for_such_use(spent_at),
    )


def price_of(ladder: OpenLadder, what: str) -> str:
    """Return about how wide the next certificate becomes; see `LadderHoldout.price`."""
    status = ladder.execute(commands.Status())
    n, found = status.n_ladder, status.certificate
    nats = {"compare": math.log(n) + 2.0, "reveal": math.log(n), "certificate": 9.0}.get(what)
    if nats is None:
        raise InvalidArgument("what", '"compare", "reveal" or "certificate"', what)
    known = found.low is not None and found.high is not None and found.log_count is not None
    if (what == "certificate" and known) or (what == "reveal" and status.score is not None):
        return "It costs nothing: it was shown before, or follows from what was."
    if not known and status.releases:
        return f"It costs about {nats:.0f} nats; there is no certificate yet whose width is known."
    counts, score = ladder.metric.counts, status.score
    errors = round(n * (ladder.metric.to_risk(score) if counts and score is not None else 0.1))
    before = event_length(1) if found.log_count is None else found.log_count
    levels = [math.log((1.0 - found.confidence) / 2.0) - L for L in (before, before + nats)]
    here, there = (exact_upper(errors, n, at) - exact_lower(errors, n, at) for at in levels)
    times, now = there / here, (found.high or 0.0) - (found.low or 0.0) if known else here
    if not math.isfinite(now) or not (known or counts):
        return (
            f"The next certificate becomes about {times:.1f} times as wide ({nats:.0f} nats more)."
        )
    of = "" if known else ", for a model that errs on a tenth of the rows"
    return (
        f"The next certificate becomes about {now * times:.2g} wide instead of {now:.2g} "
        f"({nats:.0f} nats more{of})."
    )
