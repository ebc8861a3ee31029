"""Pictures of a ladder: each function draws one on an axes; and all of them as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ladderholdout import pictures
from ladderholdout.audit.records import Audit, Record
from ladderholdout.audit.submissions import NONE, Array, AuditedSubmissions
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import METRICS

if TYPE_CHECKING:
    from ladderholdout.pictures import Axes


RELEASED, RAW, FRESH, QUIET = pictures.BLUE, pictures.ORANGE, pictures.GREEN, pictures.GREY
"""Colours of what was released, what is raw, what fresh rows show, and of help lines."""

_DISTANCES = {"labels": "share of rows", "probabilities": "mean probability"}


def scores(
    shown: Audit | Record,
    *,
    ax: Axes | None = None,
    band: Sequence[tuple[int, float, float]] | None = None,
) -> Axes:
    """Draw the released score over the submissions, and of an audit the raw ones.

    Parameters
    ----------
    shown : Audit or Record
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure.
    band : sequence of (number, low, high), optional
        A confidence band, each step from the submission of that number on; by default the
        certificate of the incumbent, where there is one.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> from matplotlib.figure import Figure
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> for guess in ([0, 0, 1], [0, 1, 1], [0, 1, 0]):
    ...     release = holdout.submit(guess)
    >>> scores(holdout.owner.audit(), ax=Figure().subplots()).get_xlabel()
    'submission (number)'
    """
    ax = pictures.axes_or_new(ax)
    last = int(shown.history["number"][-1]) if len(shown.history) else 0
    interval = shown.status.certificate
    if band is None and None not in (interval.submission, interval.low, interval.high):
        band = [(interval.submission, interval.low, interval.high)]  # type: ignore[list-item]
    if band:
        x, low, high = zip(*[*band, (max(last, band[-1][0]), *band[-1][1:])], strict=True)
        pictures.banded(ax, x, low, high)
    if isinstance(shown, Audit):
        distinct = shown.distinct
        _points(ax, distinct["number"], distinct["raw"], "raw")
        known = distinct[~np.isnan(distinct["fresh"])]
        _points(ax, known["number"], known["fresh"], "fresh")
    _draw_ladder(ax, shown, last)
    _mark_opening(ax, shown)
    return _finished(ax, "submission (number)", _score_label(shown, "score"))


def optimism(audit: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw by how much a search on raw scores would have believed more than was released.

    Parameters
    ----------
    audit : Audit
        The audit; where it knows fresh scores, the errors of both against them are drawn as well.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> from matplotlib.figure import Figure
    >>> optimism(holdout.owner.audit(), ax=Figure().subplots()).get_xlabel()
    'submission (number)'
    """
    ax = pictures.axes_or_new(ax)
    distinct = audit.distinct
    numbers, best = distinct["number"], np.maximum.accumulate(distinct["raw"])
    ax.axhline(0, color=QUIET, lw=0.8)
    over = best - distinct["incumbent_score"]
    _steps(ax, numbers, over, color=RAW, label="best raw - released")
    if audit.fresh is not None:
        # Columns of millions are not held longer than they are needed, so two are read again.
        raw, released, fresh = (distinct[column] for column in ("raw", "incumbent_score", "fresh"))
        # The fresh score of the model behind each at that time; nan where it was not given.
        before = np.append(-np.inf, best)[: len(raw)]
        picked = fresh[_last_true(raw > before)]
        if not np.isnan(picked).all():
            _steps(ax, numbers, best - picked, color=FRESH, ls="--", label="best raw - fresh")
        behind = fresh[_last_true(distinct.is_release)]
        if not np.isnan(behind).all():
            look = {"color": RELEASED, "ls": ":", "lw": 2, "label": "released - fresh"}
            _steps(ax, numbers, released - behind, **look)
    _mark_opening(ax, audit)
    return _finished(ax, "submission (number)", _score_label(audit, "difference"))


def raw_against_fresh(audit: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw the raw and the released scores against those on fresh rows.

    Parameters
    ----------
    audit : Audit
        An audit with fresh scores of some models.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidArgument
        The audit knows no fresh score.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> X = np.arange(120)[:, None]
    >>> y = (X[:, 0] > 50).astype(int)
    >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
    >>> tree = DecisionTreeClassifier(random_state=0).fit(X[1::3], y[1::3])
    >>> release = holdout.submit(tree)
    >>> audit = holdout.owner.audit(fresh=(X[2::3], y[2::3]), model=tree)
    >>> from matplotlib.figure import Figure
    >>> raw_against_fresh(audit, ax=Figure().subplots()).get_xlabel()
    'score on 40 fresh rows (accuracy)'
    """
    if audit.fresh is None:
        raise InvalidArgument("audit", "one with fresh rows", "one without", "See fresh=.")
    ax = pictures.axes_or_new(ax)
    known = audit.distinct[~np.isnan(audit.distinct["fresh"])]
    releases = known[known.is_release]
    _points(ax, known["fresh"], known["raw"], "raw")
    _points(ax, releases["fresh"], releases["incumbent_score"], "release")
    span, released = audit.fresh.released, float(audit.status.score or 0.0)
    ax.plot([span.low, span.high], [released] * 2, color=RELEASED, lw=1.2,
            label=f"{100 * span.confidence:.4g} % interval, fresh")  # fmt: skip
    shown = np.concatenate([known["fresh"], known["raw"], [span.low, span.high]])
    ends = [float(shown.min()), float(shown.max())]
    ax.plot(ends, ends, color=QUIET, lw=0.8, ls="--", label="equal")
    fresh_label = f"score on {audit.fresh.n} fresh rows ({audit.metric})"
    return _finished(ax, fresh_label, _score_label(audit, "score on the holdout"))


def disagreement(audit: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw how far each submission was from the incumbent, and which came in batches.

    Parameters
    ----------
    audit : Audit
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> from matplotlib.figure import Figure
    >>> disagreement(holdout.owner.audit(), ax=Figure().subplots()).get_xlabel()
    'submission (number)'
    """
    ax = pictures.axes_or_new(ax)
    for place, (first, last) in enumerate(_batches(audit.submissions)):
        # Two shades, so that neighbouring batches can be distinguished; one of them is explained.
        ax.axvspan(first - 0.5, last + 0.5, color=QUIET, alpha=(0.12, 0.24)[place % 2], lw=0,
                   label=None if place else "batch")  # fmt: skip
    every = audit.submissions[~np.isnan(audit.submissions["disagreement"])]
    kinds = {"release": every.is_release, "repeat": every.is_repeat}
    kinds["other"] = ~(kinds["release"] | kinds["repeat"])
    for kind, members in kinds.items():
        _points(ax, every["number"][members], every["disagreement"][members], kind)
    _mark_opening(ax, audit)
    return _finished(ax, "submission (number)", _distance_label(audit))


def gains(audit: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw the raw gain over the incumbent against the distance from it.

    A gain is worth little where models differ much: for the accuracy the curve is one
    standard error of the difference, which `ParameterFreeLadder` asks for.

    Parameters
    ----------
    audit : Audit
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> from matplotlib.figure import Figure
    >>> gains(holdout.owner.audit(), ax=Figure().subplots()).get_ylabel()
    'raw gain (accuracy)'
    """
    ax = pictures.axes_or_new(ax)
    distinct = audit.distinct
    known = distinct[~np.isnan(distinct["gain"]) & ~np.isnan(distinct["disagreement"])]
    for chosen, kind in ((~known.is_release, "other"), (known.is_release, "release")):
        _points(ax, known["disagreement"][chosen], known["gain"][chosen], kind)
    ax.axhline(0, color=QUIET, lw=0.8)
    if len(known) and audit.metric == "accuracy":
        reach = np.linspace(0, known["disagreement"].max(), 100)
        ax.plot(reach, np.sqrt(reach / audit.status.n_ladder), color=QUIET, ls="--",
                label="one standard error")  # fmt: skip
    return _finished(ax, _distance_label(audit), _score_label(audit, "raw gain"))


_MARKS: dict[str, dict[str, Any]] = {
    "raw": {"marker": "o", "mfc": "none", "color": RAW, "ms": 4, "label": "raw"},
    "fresh": {"marker": "^", "color": FRESH, "ms": 4.5, "label": "on fresh rows"},
    "release": {"marker": "D", "color": RELEASED, "ms": 5, "label": "release"},
    "repeat": {"marker": "x", "color": QUIET, "ms": 4.5, "label": "repeat"},
    "other": {"marker": "o", "mfc": "none", "color": RAW, "ms": 4, "label": "no release"},
}


def _points(ax: Axes, x: Array, y: Array, kind: str) -> None:
    if len(x):
        chosen = pictures.thinned(x, y)
        ax.plot(x[chosen], y[chosen], ls="none", **_MARKS[kind])


def _steps(ax: Axes, x: Array, y: Array, **look: Any) -> None:
    chosen = pictures.thinned(x, y)
    ax.plot(x[chosen], y[chosen], drawstyle="steps-post", **look)


def _draw_ladder(ax: Axes, shown: Audit | Record, last: int) -> None:
    """Draw the released score as a step line with a mark at each release."""
    releases = shown.history[shown.history["improved"]]
    if not len(releases):
        return
    known = releases[~np.isnan(releases["score"])]
    numbers, values = known["number"], known["score"]
    # Between values that were not asked for there is no line to draw.
    if len(known) == len(releases):
        ends = np.append(numbers, last), np.append(values, values[-1])
        _steps(ax, *ends, color=RELEASED, lw=1.5, label="released")
    _points(ax, numbers, values, "release")


def _mark_opening(ax: Axes, shown: Audit | Record) -> None:
    opened = shown.status.opened
    if opened is None:
        return
    moment = np.datetime64(opened.astimezone(UTC).replace(tzinfo=None), "us")
    later = np.flatnonzero(shown.history["time"] > moment)
    if len(later):
        first = shown.history["number"][later[0]]
        ax.axvline(first - 0.5, color=QUIET, ls="-.", lw=1, label="raw scores opened")


def _finished(ax: Axes, x: str, y: str) -> Axes:
    """Name the axes, and put the legend where no data is: above them."""
    ax.set(xlabel=x, ylabel=y)
    if x.startswith("submission"):
        pictures.count_along(ax)
    ax.grid(color=QUIET, alpha=0.25, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize="small"
        )
    return ax


def _last_true(marks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each place the latest place up to it that is marked; 0 before the first."""
    return np.maximum.accumulate(np.where(marks, np.arange(len(marks)), 0))


def _batches(submissions: AuditedSubmissions) -> list[tuple[int, int]]:
    """Return the first and last numbers of the runs of submissions of one batch.

    Where there are thousands, those are joined between which no gap would show.
    """
    codes, numbers = submissions["batch"], submissions["number"]
    starts = np.flatnonzero(np.diff(codes, prepend=NONE - 1))
    ends = np.append(starts[1:], len(codes)) - 1
    inside = codes[starts] != NONE
    firsts, lasts = numbers[starts[inside]], numbers[ends[inside]]
    if len(firsts) > MOST_RUNS:
        gaps = firsts[1:] - lasts[:-1]
        apart = gaps > (numbers[-1] - numbers[0]) / MOST_RUNS
        joined = np.flatnonzero(np.append(True, apart))
        firsts, lasts = firsts[joined], lasts[np.append(joined[1:], len(lasts)) - 1]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


MOST_RUNS = 1000
"""Shades of batches in one picture."""


def _score_label(shown: Audit | Record, what: str) -> str:
    return f"{what} ({shown.status.metric})"


def _distance_label(shown: Audit | Record) -> str:
    known = METRICS.get(shown.status.metric)
    unit = _DISTANCES.get(known.response if known else "", "mean difference")
    return f"distance ({unit})"


COLOURS = {"released": RELEASED, "raw": RAW, "fresh": FRESH, "quiet": QUIET}


def figures_of(shown: Audit | Record) -> list[tuple[str, str, str]]:
    """Return the pictures that a report can show of this.

    Parameters
    ----------
    shown : Audit or Record
        What to draw; a `Record` has nothing raw.

    Returns
    -------
    list of (title, caption, svg)
        None before the first submission.

    Raises
    ------
    MissingExtra
        Matplotlib is missing.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> figures_of(holdout.owner.audit())[0][:2]
    ('Scores', 'Raw scores, and what was released of them.')
    """
    chosen = enumerate(_chosen(shown) if len(shown.history) else ())
    return [
        (title, caption, pictures.inline_svg(partial(draw, shown), f"figure{place}-", COLOURS))
        for place, (title, caption, draw) in chosen
    ]


def _chosen(shown: Audit | Record) -> Iterator[tuple[str, str, Callable[..., Axes]]]:
    if not isinstance(shown, Audit):
        yield "Scores", "What was released, over the submissions.", scores
        return
    yield "Scores", "Raw scores, and what was released of them.", scores
    yield "Optimism", "How much too good the best raw score was, at any time.", optimism
    if shown.fresh is not None:
        caption = "On the holdout, and on rows that steered nothing."
        yield "Raw against fresh", caption, raw_against_fresh
    yield "Disagreement", "How far each submission was from the incumbent before it.", disagreement
    if not np.isnan(shown.submissions["gain"]).all():
        caption = "What a submission gained over the incumbent: far from it, chance gains much."
        yield "Gains", caption, gains
