"""Three years of one holdout, with fresh rows each month.

A team queries one holdout 50 times a month for three years. 200 freshly labelled rows arrive each
month. With `replenish` they take the place of those before, so each month's certificate pays for
that month alone. The other way the first 200 rows are kept: then each certificate pays for all that
was released of them, and soon no model can improve on a score that is too good by chance. Both
teams try models that are better or worse than the one in use by chance, and go on with what
improves; the model in use is submitted first each month.

    python gallery/three_years.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout

ROWS, MONTHS, A_MONTH = 200, 36, 50


class Rows:
    """The rows of a month; a model is right on those that are easy enough for it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.X, self.y = rng.normal(size=(ROWS, 2)), rng.integers(0, 2, ROWS)
        self.difficulty = rng.random(ROWS)

    def predictions(self, skill: float, rng: np.random.Generator) -> np.ndarray:
        difficulty = np.where(rng.random(ROWS) < 0.7, self.difficulty, rng.random(ROWS))
        return np.where(difficulty < skill, self.y, 1 - self.y)


def replay(fresh: bool) -> tuple[np.ndarray, LadderHoldout]:
    """Return released score, true score and certificate of each month, and the holdout."""
    rng = np.random.default_rng(36)
    rows, months, in_use = Rows(rng), [], 0.65
    holdout = LadderHoldout(rows.X, rows.y, scoring="accuracy", name="churn", ledger="memory")
    for month in range(1, MONTHS + 1):
        if month > 1 and fresh:
            rows = Rows(rng)
            holdout = holdout.replenish(rows.X, rows.y)
        tried = [in_use, *np.clip(in_use + rng.normal(0.0, 0.012, A_MONTH - 1), 0.0, 0.97)]
        for skill in tried:
            if holdout.submit(rows.predictions(skill, rng), context={"month": month}).improved:
                in_use = skill
        found = holdout.certificate()
        months.append((month, holdout.status().score, in_use, found.low, found.high))
    return np.array(months).T, holdout


def main() -> None:
    (month, released, true, low, high), holdout = replay(fresh=True)
    (_, _, true_kept, low_kept, high_kept), kept = replay(fresh=False)
    holds = (low <= true) & (true <= high)
    print(f"{MONTHS} blocks of {ROWS} rows, {A_MONTH} queries each")
    style.table(
        ("month", "released", "true", "certified from", "to", "width", "width on the first rows"),
        [
            (
                int(month[i]),
                *map(float, (released[i], true[i], low[i], high[i], high[i] - low[i])),
                float(high_kept[i] - low_kept[i]),
            )
            for i in (0, 5, 11, 23, 35)
        ],
    )
    checked = verify_holdout(holdout.ledger, "churn")
    print(f"months in which the certificate holds the truth: {holds.sum()} of {MONTHS}")
    print(
        f"true score in use after {MONTHS} months: {true[-1]:.3f}, and {true_kept[-1]:.3f} where "
        "the first rows were kept"
    )
    print(f"verified: {checked.blocks} blocks, {checked.submissions} submissions, as written")
    assert not checked.findings
    print("the holdout that kept its first rows:")
    print(kept.health(spent_at=0.2))

    figure, (scores, widths) = style.panels(2)
    scores.fill_between(month, low, high, color=style.BLUE, alpha=0.15, lw=0, step="mid")
    scores.step(month, released, where="mid", color=style.BLUE, lw=2, label="released score")
    scores.step(
        month, true, where="mid", color=style.QUIET, ls="--", lw=1.5, label="true score in use"
    )
    scores.set(xlabel="month", ylabel="accuracy", title="Fresh rows each month")
    scores.legend(loc="lower right")
    widths.step(
        month, high_kept - low_kept, where="mid", color=style.ORANGE, label="the first 200 rows"
    )
    widths.step(month, high - low, where="mid", color=style.BLUE, label="200 fresh rows each month")
    widths.set(xlabel="month", ylabel="width of the certificate", title="Width", ylim=(0, None))
    widths.legend()
    style.counts(scores)
    style.counts(widths)
    style.show(
        figure,
        "Two panels over 36 months. On the left the released score and its certificate on fresh "
        "rows each month, around the true score. On the right the width of the certificate: with "
        "fresh rows it goes up and down around one level; on the first rows it has grown by the "
        "ninth month and stays, for nothing improves any more.",
    )


if __name__ == "__main__":
    main()
