"""Neto et al. 2016, Figure S4: public MSE under the step-forward attack, permuted responses.

The experiment of Figure 6: 1 means that nothing was overfitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from _neto_ladders import BOOTS, LADDERS
from _neto_step_forward import run


def main(argv: Sequence[str] | None = None) -> None:
    run("neto_figureS4", __doc__, "permuted", LADDERS | BOOTS, argv, public=True)


if __name__ == "__main__":
    main()
