"""Widths and misses of certificates of grouped rows, beside what ignores the groups.

``python benchmarks/groups.py`` prints the table of docs/background/groups.md: for numbers of
groups, their sizes and the correlation of errors within a group, the width and the misses of both
sides together, of 95 % after one improvement. It takes about a minute.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from ladderholdout.certificates.group_limits import Groups, share_of_groups
from ladderholdout.limits.intervals import exact_lower, exact_upper

RISK = 0.2
SIZES = {"20 each": (20, 21), "1 to 40": (1, 41)}
CORRELATIONS = (0.0, 0.2, 0.5, 0.8, 1.0)
# Each side of 95 %, after the first event of a holdout.
LEVEL = math.log(0.025) - math.log(1.25)


def errors_of(
    rng: np.random.Generator, n_groups: int, sizes: tuple[int, int], correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of all rows, and the group of each."""
    members = rng.integers(*sizes, n_groups)
    if correlation == 0.0:
        chances = np.full(n_groups, RISK)
    elif correlation == 1.0:
        chances = (rng.random(n_groups) < RISK) * 1.0
    else:
        spread = (1.0 - correlation) / correlation
        chances = rng.beta(RISK * spread, (1.0 - RISK) * spread, n_groups)
    errors = rng.random(members.sum()) < np.repeat(chances, members)
    return errors * 1.0, np.repeat(np.arange(n_groups), members)


def intervals(errors: np.ndarray, names: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return both ends by rows, by one row of each group, and by groups for each mean."""
    by_rows = Groups.of(names, "rows")
    alone = errors[by_rows.one_of_each(rng)]
    ends = [
        (exact_lower(int(one.sum()), len(one), LEVEL), exact_upper(int(one.sum()), len(one), LEVEL))
        for one in (errors, alone)
    ]
    for groups in (by_rows, Groups.of(names, "groups")):
        found = share_of_groups(errors, np.ones(len(errors)), groups, LEVEL, rng=rng)
        ends.append((found.low, found.high))
    return np.array(ends)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    columns = "".join(f"{name:>16}" for name in ("ignored", "one row", "rows", "groups"))
    print(f"groups  sizes    correlation{columns}   (width, misses in %)")
    for n_groups in (30, 150, 500):
        for name, sizes in SIZES.items():
            for correlation in CORRELATIONS:
                found = np.zeros((draws, 4, 2))
                for seed in range(draws):
                    rng = np.random.default_rng(seed)
                    found[seed] = intervals(*errors_of(rng, n_groups, sizes, correlation), rng)
                low, high = found[..., 0], found[..., 1]
                widths = (high - low).mean(axis=0)
                misses = 100.0 * ((low > RISK) | (high < RISK)).mean(axis=0)
                cells = "".join(
                    f"{width:>10.3f}{miss:>6.1f}"
                    for width, miss in zip(widths, misses, strict=True)
                )
                print(f"{n_groups:>6}  {name:8} {correlation:>11}{cells}", flush=True)


if __name__ == "__main__":
    main()
