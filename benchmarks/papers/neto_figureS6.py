"""Neto et al. 2016, Figure S6: Ladder and LadderBoot, Freedman's attack, permuted responses.

All three levels with all three bootstrap sizes, 1,000 repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_freedman import run
from _neto_ladders import BOOTS, LADDERS


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS6", __doc__, "permuted", LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
