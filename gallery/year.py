"""A year of one holdout.

A team keeps one holdout of 800 rows for a year and queries it five times a week: 260 queries of a
model that gets better as they learn. The released score follows the true one, and the certificate
says week by week what may be believed, however the answers steered the work. It becomes wider with
what was released, and narrower where the model errs less. A ledger on disk would remember all of
it between the weeks.

    python gallery/year.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout import LadderHoldout

ROWS, WEEKS, A_WEEK = 800, 52, 5


def main() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(ROWS, 2)), rng.integers(0, 2, ROWS)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", vault=False)
    # A row is right where its own draw lies below the model's skill: better models are right on
    # most rows that worse ones are right on, as in life.
    difficulty = rng.random(ROWS)
    skill, course, incumbent = 0.70, [], 0.0
    for week in range(1, WEEKS + 1):
        for _ in range(A_WEEK):
            tried = skill + rng.normal(scale=0.01)
            own = np.where(rng.random(ROWS) < 0.8, difficulty, rng.random(ROWS))
            guess = np.where(own < tried, y, 1 - y)
            if holdout.submit(guess, context={"week": week}).improved:
                incumbent = tried
        certificate = holdout.certificate()
        course.append((week, holdout.status().score, incumbent, certificate.low, certificate.high))
        skill += rng.exponential(0.004)  # what a week of work brings
    week, released, true, low, high = np.array(course).T

    status = holdout.status()
    print(f"{status.submissions} queries, {status.releases} scores released")
    style.table(
        ("week", "released", "true", "certified from", "to"),
        [
            (int(week[i]), *map(float, (released[i], true[i], low[i], high[i])))
            for i in (0, 12, 25, 38, 51)
        ],
    )
    print(
        f"weeks in which the certificate holds the truth: {np.sum((low <= true) & (true <= high))}"
    )
    figure, ax = style.panels()
    ax.fill_between(
        week, low, high, color=style.BLUE, alpha=0.15, lw=0, step="post", label="certificate, 95 %"
    )
    ax.step(week, released, where="post", color=style.BLUE, lw=2, label="released score")
    ax.step(
        week,
        true,
        where="post",
        color=style.QUIET,
        ls="--",
        lw=1.5,
        label="true score of the incumbent",
    )
    ax.set(xlabel="week", ylabel="accuracy")
    style.counts(ax)
    ax.legend(loc="lower right")
    style.show(
        figure,
        "Released score, true score and certificate of one holdout over 52 weeks: the released "
        "score rises in steps beside the true one, and the band holds both.",
    )


if __name__ == "__main__":
    main()
