"""What a challenge costs in rows: boards of 10, 100 and 1,000 teams per team and per rank.

    python benchmarks/challenge.py

Teams improve: the model of a submission errs a little less than the team's best one, or a little
more. Half of the rows are as hard for all models, so that these agree as those of a contest do.
Each line is one board, with a ledger in memory. The figures are in docs/background/challenges.md.
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations
from typing import Any

import numpy as np

from ladderholdout.leaderboard import Leaderboard, Standings

SETTINGS: dict[str, dict[str, Any]] = {
    "per team": {},
    "per rank": {"per": "rank"},
}
HEAD = [
    "teams",
    "rows",
    "settings",
    "submissions",
    "releases",
    "leader",
    "below",
    "width",
    "rank",
    "apart",
    "seconds",
]


def contest(settings: dict[str, Any], n: int, teams: int, each: int, seed: int) -> Standings:
    """Run a challenge, and return its board."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 1)), rng.integers(0, 2, n)
    hard, is_shared = rng.random(n), rng.random(n) < 0.5
    board = Leaderboard(X, y, scoring="accuracy", ledger="memory", **settings)
    best = rng.uniform(0.15, 0.3, teams)
    for _ in range(each):
        for team in rng.permutation(teams):
            risk = best[team] * rng.uniform(0.85, 1.1)
            wrong = np.where(is_shared, hard, rng.random(n)) < risk
            board.submit(f"team {team}", np.where(wrong, 1 - y, y))
            best[team] = min(best[team], risk)
    return board.standings()


def apart(board: Standings) -> int:
    """Count the pairs of accounts whose intervals do not overlap."""
    ends = [(row.low, row.high) for row in board]
    return sum(a[0] > b[1] or b[0] > a[1] for a, b in combinations(ends, 2))


def line(named: str, n: int, teams: int, each: int, seed: int) -> list[str]:
    """Return a line of the table."""
    began = time.perf_counter()
    board = contest(SETTINGS[named], n, teams, each, seed)
    first = board[0]
    assert first.low is not None and first.high is not None
    pairs = len(board) * (len(board) - 1) // 2
    return [
        f"{teams:,}",
        f"{n:,}",
        named,
        f"{board.submissions:,}",
        f"{board.releases:,}",
        f"{first.score:.3f}",
        f"{first.score - first.low:.3f}",
        f"{first.high - first.low:.3f}",
        f"{first.best_rank} to {first.worst_rank}",
        f"{apart(board):,} of {pairs:,}",
        f"{time.perf_counter() - began:.0f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teams", type=int, nargs="*", default=[10, 100, 1_000])
    asked = parser.parse_args()
    print(" | ".join(HEAD))
    for named, n, teams, each in (
        (named, n, teams, each)
        for teams, each, sizes in (
            (10, 20, (1_000, 5_000, 20_000)),
            (100, 10, (1_000, 5_000, 20_000)),
            (1_000, 5, (5_000,)),
        )
        if teams in asked.teams
        for n in sizes
        for named in SETTINGS
    ):
        print(" | ".join(line(named, n, teams, each, asked.seed)), flush=True)


if __name__ == "__main__":
    main()
