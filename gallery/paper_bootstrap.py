"""LadderBoot under the step-forward attack.

After Figure 5 of Neto et al. (2016). The responses are permuted, so that no feature means
anything. The attacker submits one feature after the other, ten rounds of it, and keeps the feature
at which the released error jumped last. Released errors fall with the plain ladder's exact
releases. With few bootstrap draws (b = 10) releases are noisy, jumps are hard to find, and the
attack gains less.

    python gallery/paper_bootstrap.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import neto_figure5 as figure_5
import numpy as np

SHOWN = ("Ladder", "LadderBoot, b = 100", "LadderBoot, b = 10")
RUNS = 4


def main() -> None:
    children = np.random.SeedSequence(0).spawn(RUNS)
    found = [dict(zip(figure_5.RULES, figure_5.once(seed), strict=True)) for seed in children]
    rows = []
    figure, axes = style.panels(3, sharey=True)
    for ax, name, colour in zip(axes, SHOWN, style.COLOURS[:3], strict=True):
        ends = np.array([one[name].errors[-1] for one in found])
        rows.append((name, float(ends[:, 0].mean()), float(ends[:, 1].mean())))
        releases = np.concatenate(found[0][name].releases)
        ax.plot(np.arange(1, len(releases) + 1), releases, color=colour, lw=0.9)
        style.truth(ax, 1.0, "")
        ax.set(title=name, xlabel="submission")
        style.counts(ax)
        ax.locator_params(axis="x", nbins=3)
    axes[0].set_ylabel("released squared error")
    style.table((f"squared error after 10 rounds, {RUNS} runs", "holdout", "final rows"), rows)
    style.show(
        figure,
        "Released squared errors of one step-forward attack under the Ladder and under LadderBoot "
        "with 100 and 10 draws: the Ladder's fall in clear jumps, those of ten draws are noisy.",
    )


if __name__ == "__main__":
    main()
