"""Neto et al. 2016, Figure 6: Ladder and LadderBoot under the step-forward attack, permuted.

The gap between public and final MSE, all levels and bootstrap sizes; 100 permutations.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import BOOTS, LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figure6", __doc__, "permuted", LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
