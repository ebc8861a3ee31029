"""Neto et al. 2016, Figure S1: Freedman's attack on random splits.

As Figure 2, with 1,000 random splits of the data instead of permuted responses.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_freedman import run
from _neto_ladders import FULL, LADDERS


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS1", __doc__, "random", FULL | LADDERS, argv)


if __name__ == "__main__":
    main()
