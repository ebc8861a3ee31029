"""Neto et al. 2016, Figure 2: Freedman's attack on permuted responses.

Full disclosure beside the Ladder at three levels, 1,000 permutations. The paper's images are
replaced by a simulation of the same size and by the breast cancer data.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_freedman import run
from _neto_ladders import FULL, LADDERS


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figure2", __doc__, "permuted", FULL | LADDERS, argv)


if __name__ == "__main__":
    main()
