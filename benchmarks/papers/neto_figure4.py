"""Neto et al. 2016, Figure 4: the Ladder under the step-forward attack, permuted responses.

The gap between public and final MSE after 2 to 5 rounds, at three levels; 100 permutations.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figure4", __doc__, "permuted", LADDERS, argv)


if __name__ == "__main__":
    main()
