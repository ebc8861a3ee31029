"""Neto et al. 2016, Figure S7: Ladder and LadderBoot, Freedman's attack, random splits.

All three levels with all three bootstrap sizes, 1,000 repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_freedman import run
from _neto_ladders import BOOTS, LADDERS


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS7", __doc__, "random", LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
