"""Neto et al. 2016, Figure S8: full disclosure of concordances under Freedman's attack.

Permuted responses and random splits, 100 repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_concordance import FULL, run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS8", __doc__, ("permuted", "random"), FULL, argv)


if __name__ == "__main__":
    main()
