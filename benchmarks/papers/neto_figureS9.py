"""Neto et al. 2016, Figure S9: the Bayesian ladders under Freedman's attack, permuted.

Lin's concordance, posterior odds of 99, 5.67 and 1; 100 permutations of the responses.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_concordance import BOOTS, LADDERS, run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS9", __doc__, ("permuted",), LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
