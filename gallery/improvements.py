"""A holdout that shows improvements alone.

A climb needs to know whether a model improved, and not by how much. With `show="improvements"` the
answer is that bit; `holdout.reveal()` shows the score at the end, and is paid for. What is not
shown costs nothing, so that the certificate is narrower than after the same search with scores. A
model of breast cancer is tuned by random steps, on a holdout of 250 rows, eight times each way.

    python gallery/improvements.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import ParameterFreeLadder, PricedLadder

QUERIES, RUNS = 200, 8
RULES = {
    "parameter-free, scores": (ParameterFreeLadder(), "scores"),
    "priced, scores": (PricedLadder(), "scores"),
    "priced, improvements": (PricedLadder(), "improvements"),
}


def search(seed: int, rule: object, show: str) -> tuple[LadderHoldout, float]:
    """Tune a linear model by random steps; return the holdout and the true accuracy."""
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=60, random_state=seed)
    scaler = StandardScaler().fit(X_train)
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        scaler.transform(X_rest), y_rest, train_size=250, random_state=seed
    )
    holdout = LadderHoldout(
        X_held, y_held, scoring="accuracy", mechanism=rule, show=show, ledger="memory", vault=False
    )
    rng = np.random.default_rng(seed)
    best = LogisticRegression().fit(scaler.transform(X_train), y_train).coef_[0]
    best = best + rng.normal(scale=1.0, size=best.shape)  # a poor start
    holdout.submit((X_held @ best > 0).astype(int))
    for _ in range(QUERIES - 1):
        changed = best + rng.normal(scale=0.3, size=best.shape)
        if holdout.submit((X_held @ changed > 0).astype(int)).improved:
            best = changed
    return holdout, float(np.mean((X_fresh @ best > 0) == y_fresh))


def main() -> None:
    rows, lows, widths = [], {}, {}
    for name, (rule, show) in RULES.items():
        found = [search(seed, rule, show) for seed in range(RUNS)]
        for holdout, _ in found:
            holdout.reveal()  # where scores are shown, this changes nothing
        certified = [holdout.certificate() for holdout, _ in found]
        lows[name] = np.array([one.low for one in certified])
        widths[name] = np.array([one.high - one.low for one in certified])
        true = np.array([one for _, one in found])
        held = sum(c.low <= t <= c.high for c, t in zip(certified, true, strict=True))
        rows.append(
            (
                name,
                float(true.mean()),
                float(lows[name].mean()),
                float(widths[name].mean()),
                f"{held} of {RUNS}",
            )
        )
    style.table(("rule", "true", "certified at least", "width", "certificates that hold"), rows)
    figure, ax = style.panels()
    places = np.arange(len(RULES))
    for place, name in enumerate(RULES):
        spots = place + np.linspace(-0.12, 0.12, RUNS)
        ax.plot(spots, lows[name], "o", color=style.COLOURS[place], mfc="none")
        ax.hlines(lows[name].mean(), place - 0.25, place + 0.25, color=style.COLOURS[place], lw=2)
        true = rows[place][1]
        ax.hlines(true, place - 0.25, place + 0.25, color=style.QUIET, ls="--", lw=1.5,
                  label=None if place else "true accuracy")  # fmt: skip
    ax.set_xticks(places, list(RULES))
    ax.set_ylabel("accuracy, certified at least")
    ax.legend(loc="lower right")
    style.show(
        figure,
        "The lower ends of certificates after 200 queries in three ways, eight runs each, and "
        "the mean true accuracy: with improvements alone most is certified.",
    )


if __name__ == "__main__":
    main()
