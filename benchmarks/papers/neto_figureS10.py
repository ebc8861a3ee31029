"""Neto et al. 2016, Figure S10: the Bayesian ladders under Freedman's attack, random splits.

As Figure S9, with 100 random splits.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_concordance import BOOTS, LADDERS, run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS10", __doc__, ("random",), LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
