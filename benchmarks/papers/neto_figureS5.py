"""Neto et al. 2016, Figure S5: public MSE under the step-forward attack, random splits.

The experiment of Figure S3.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import BOOTS, LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS5", __doc__, "random", LADDERS | BOOTS, argv, public=True)


if __name__ == "__main__":
    main()
