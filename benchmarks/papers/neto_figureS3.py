"""Neto et al. 2016, Figure S3: Ladder and LadderBoot under the step-forward attack, splits.

As Figure 6, with 100 random splits.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import BOOTS, LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS3", __doc__, "random", LADDERS | BOOTS, argv)


if __name__ == "__main__":
    main()
