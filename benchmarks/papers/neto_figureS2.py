"""Neto et al. 2016, Figure S2: the Ladder under the step-forward attack, random splits.

As Figure 4, with 100 random splits.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS2", __doc__, "random", LADDERS, argv)


if __name__ == "__main__":
    main()
