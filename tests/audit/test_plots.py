"""Attacks the pictures: wrong points, covered data, colours that fade, raw where it must not be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.audit import Audit, Record, plots, record_of
from ladderholdout.errors import OpenedWarning

DRAW = {
    "scores": plots.scores,
    "optimism": plots.optimism,
    "raw_against_fresh": plots.raw_against_fresh,
    "disagreement": plots.disagreement,
    "gains": plots.gains,
}


def new_axes() -> Axes:
    return Figure(figsize=(4.4, 3.3), layout="constrained").subplots()


@pytest.fixture(scope="module")
def both() -> tuple[Audit, Record]:
    """An audit with everything in it: repeats, fresh scores, submissions after the opening."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    fresh, truth = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", name="pictures")
    models = {}
    for k, luck in enumerate(np.linspace(0.45, 0.8, 40)):
        guess = np.where(rng.random(300) < luck, y, 1 - y)
        release = holdout.submit(guess)
        models[release.submission] = np.where(rng.random(200) < luck, truth, 1 - truth)
        if k % 10 == 9:
            holdout.submit(guess)
    holdout.owner.audit()
    with pytest.warns(OpenedWarning):
        for _ in range(3):
            holdout.submit(rng.integers(0, 2, 300))
    return holdout.owner.audit(fresh=(fresh, truth), model=models), record_of(holdout)


def line(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = (one for one in ax.get_lines() if one.get_label() == label)
    return list(found.get_xdata()), list(found.get_ydata())


def labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_scores_are_where_they_belong(both: tuple[Audit, Record]) -> None:
    audit, _ = both
    ax = new_axes()
    assert plots.scores(audit, ax=ax) is ax
    assert line(ax, "raw") == (
        [one.number for one in audit.distinct],
        [one.raw for one in audit.distinct],
    )
    known = [one for one in audit.distinct if one.fresh is not None]
    assert line(ax, "on fresh rows") == (
        [one.number for one in known],
        [one.fresh for one in known],
    )
    releases = audit.releases
    assert line(ax, "release")[0] == [one.number for one in releases]
    x, y = line(ax, "released")
    assert (x[-1], y[-1]) == (audit.submissions[-1].number, audit.released)
    opened, _ = line(ax, "raw scores opened")
    assert opened[0] == len(audit.submissions) - audit.after_opening + 0.5


def test_a_record_is_drawn_without_anything_raw(both: tuple[Audit, Record]) -> None:
    audit, record = both
    released = {one.score for one in record.history}
    ax = plots.scores(record, ax=new_axes())
    assert labels(ax)[-1] == "raw scores opened"
    assert {float(y) for one in ax.get_lines()[:-1] for y in one.get_ydata()} <= released
    assert len({one.raw for one in audit.distinct} - released) > 20
    scores = plots.scores(record, ax=new_axes(), band=())
    # Not even the limits of the axis tell of more than releases.
    low, high = scores.get_ylim()
    margin = 0.05 * (max(released) - min(released))
    assert (low, high) == pytest.approx((min(released) - margin, max(released) + margin))


def test_optimism_is_the_difference_of_what_stands(both: tuple[Audit, Record]) -> None:
    audit, _ = both
    ax = plots.optimism(audit, ax=new_axes())
    best, expected, against = -np.inf, [], []
    fresh_of_best = np.nan
    for one in audit.distinct:
        if one.raw > best:
            best, fresh_of_best = one.raw, np.nan if one.fresh is None else one.fresh
        expected.append(best - one.incumbent_score)
        against.append(best - fresh_of_best)
    assert line(ax, "best raw - released")[1] == pytest.approx(expected)
    assert line(ax, "best raw - fresh")[1] == pytest.approx(against, nan_ok=True)
    behind, standing = {}, None
    for one in audit.distinct:
        standing = one if one.is_release else standing
        behind[one.number] = one.incumbent_score - standing.fresh
    assert line(ax, "released - fresh")[1] == pytest.approx(list(behind.values()))


def test_raw_against_fresh_has_the_pairs(both: tuple[Audit, Record]) -> None:
    audit, _ = both
    ax = plots.raw_against_fresh(audit, ax=new_axes())
    known = [one for one in audit.distinct if one.fresh is not None]
    assert line(ax, "raw") == ([one.fresh for one in known], [one.raw for one in known])
    interval = audit.fresh.released
    assert line(ax, "95 % interval, fresh")[0] == [interval.low, interval.high]
    x, y = line(ax, "equal")
    assert x == y
    with pytest.raises(InvalidArgument, match="audit must be one with fresh rows"):
        plots.raw_against_fresh(_without_fresh(audit), ax=new_axes())


def _without_fresh(audit: Audit) -> Audit:
    from dataclasses import replace

    return replace(audit, fresh=None)


def test_disagreement_shows_repeats_and_batches(tmp_path: Path, binary: Any) -> None:
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    holdout = LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger=tmp_path / "l.db"
    )
    for _ in range(2):
        GridSearchCV(
            DecisionTreeClassifier(random_state=0),
            {"max_depth": [1, 2, 3]},
            scoring=holdout,
            cv=holdout.split(),
            refit=False,
        ).fit(binary.X_train, binary.y_train)
    ax = plots.disagreement(holdout.owner.audit(), ax=new_axes())
    assert line(ax, "repeat")[0] == [4, 5, 6]
    shaded = [patch.get_extents().transformed(ax.transData.inverted()) for patch in ax.patches]
    assert [x for box in shaded for x in (box.x0, box.x1)] == pytest.approx([0.5, 3.5, 3.5, 6.5])
    assert len({patch.get_alpha() for patch in ax.patches}) == 2
    assert labels(ax).count("batch") == 1
    assert "share of rows" in ax.get_ylabel()


def test_a_band_is_drawn_where_one_is_given(both: tuple[Audit, Record]) -> None:
    audit, record = both
    for shown in (audit, record):
        ax = plots.scores(shown, ax=new_axes(), band=[(1, 0.4, 0.6), (20, 0.5, 0.7)])
        (band,) = ax.collections
        corners = band.get_paths()[0].vertices
        assert (corners[:, 0].min(), corners[:, 0].max()) == (1, len(audit.submissions))
        assert (corners[:, 1].min(), corners[:, 1].max()) == (0.4, 0.7)
        assert "certificate" in labels(ax)


@pytest.mark.parametrize("name", DRAW)
def test_a_picture_has_named_axes_and_a_legend_off_the_data(
    both: tuple[Audit, Record], name: str
) -> None:
    ax = DRAW[name](both[0], ax=new_axes())
    figure = ax.figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for label in (ax.get_xlabel(), ax.get_ylabel()):
        assert "(" in label  # the unit
    box = ax.get_window_extent()
    legend = ax.get_legend().get_window_extent()
    assert legend.y0 >= box.y1 - 1
    # Nothing sticks out of the figure.
    for part in (legend, ax.get_tightbbox()):
        assert part.x0 >= 0
        assert part.y0 >= 0
        assert part.x1 <= figure.bbox.width + 1
        assert part.y1 <= figure.bbox.height + 1


@pytest.mark.parametrize("name", DRAW)
def test_what_a_picture_tells_apart_is_told_apart_without_colour(
    both: tuple[Audit, Record], name: str
) -> None:
    ax = DRAW[name](both[0], ax=new_axes())
    styles = [_style(one) for one in ax.get_lines() if not one.get_label().startswith("_")]
    assert len(styles) >= 2
    assert len(set(styles)) == len(styles)


def _style(one: Line2D) -> tuple[object, ...]:
    line_style = one.get_linestyle() if one.get_marker() in ("None", None) else "points"
    hollow = one.get_markerfacecolor() == "none"
    return line_style, str(one.get_marker()), hollow


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def lightness(colour: str) -> float:
    """CIE L*, 0 to 100."""
    return float(116 * np.cbrt(luminance(colour)) - 16)


# Linear RGB as people without red, green or blue cones see it (Machado et al. 2009).
CONES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def test_the_colours_survive_greyscale_and_colour_blindness() -> None:
    colours = (plots.RELEASED, plots.RAW, plots.FRESH)
    for one, other in itertools.combinations(colours, 2):
        assert abs(lightness(one) - lightness(other)) >= 12
        for matrix in CONES.values():
            seen = [
                np.clip(np.array(matrix) @ np.array(to_rgb(c)) ** 2.2, 0, 1) for c in (one, other)
            ]
            assert np.abs(seen[0] - seen[1]).max() > 0.1
    for colour in (*colours, plots.QUIET):
        # On white: 3 to 1 is what WCAG 2 asks of graphics.
        assert 1.05 / (luminance(colour) + 0.05) >= 3


@pytest.fixture
def pyplot() -> Iterator[Any]:
    import matplotlib.pyplot as plt

    with mpl.rc_context({"backend": "agg"}):
        plt.switch_backend("agg")
        plt.close("all")  # what other tests, and sessions of pages, left open
        yield plt
        plt.close("all")


def test_without_axes_a_new_figure_is_made(both: tuple[Audit, Record], pyplot: Any) -> None:
    first, second = plots.scores(both[1]), plots.optimism(both[0])
    assert first.figure is not second.figure
    assert pyplot.get_fignums() == [1, 2]


def test_before_the_first_submission_there_is_an_empty_picture() -> None:
    holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    audit = holdout.owner.audit()
    for shown in (audit, record_of(holdout)):
        assert plots.scores(shown, ax=new_axes()).get_legend() is None
    plots.optimism(audit, ax=new_axes())
    plots.gains(audit, ax=new_axes())
    assert plots.disagreement(audit, ax=new_axes()).get_legend() is None
