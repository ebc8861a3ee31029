"""Zheng: the theorem with M accounts, the precision argument, and two accounts that see ranks.

    python benchmarks/papers/zheng_theorem.py [--quick]

The theorem: at the step eta = eta(n, k, M) all accounts' scores are within eta of the truth, so
scores that differ by more than 2 eta are in the right order. Shown by M: that step, how far the
best score of 19 in 20 boosting attacks with M accounts on the simplified Ladder lies from one
half, at this step and at 1/sqrt(n), and what the best model is fitted by. Labels are coin flips.

The paper says that a precision of 0.1 takes 10^3 rows and one of 0.01 takes 10^6: the theorem's
steps at these sizes, with its constants, and the rows that it asks for.

The precision argument: of accounts whose models truly differ, the share of pairs in the wrong
order, by how many steps apart their scores are shown; more than two steps apart there should
be none at the theorem's step.

Two accounts that see ranks alone, where ranks are as exact as a step of 1/n, and where ties
are shown as ties (a step of 0.01, of 0.1): the leader's score after n + 1 submissions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import _common as common
import numpy as np
from _bounds import zheng

from ladderholdout.lab import (
    Analyst,
    Boosting,
    Course,
    Play,
    Seen,
    Submissions,
    TwoAccounts,
    simulate,
)
from ladderholdout.mechanisms import SimplifiedLadder
from ladderholdout.planning import rows_needed

N, GUESSES = 4_000, 400
ACCOUNTS = (1, 4, 20, 100, 400)
TEAMS, MODELS = 100, 20  # of the competition that shows the precision
STEPS = (1 / N, 0.005, 0.02, 0.1)
RANKED = 1_000
REPETITIONS, QUICK = 40, 6
PROMISED = ((1_000, 0.1), (1_000_000, 0.01))
LOOKS = 1_000  # submissions behind the promises


@dataclass(frozen=True, slots=True)
class Shared(Analyst):
    """The boosting attack, whose guesses come from several accounts in turn.

    A guess counts if it improved its account and its released risk is no worse than chance.
    """

    inner: Boosting
    many: int

    @property
    def accounts(self) -> int:
        return self.many

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        playing, turn = self.inner.play(seen, rng), 0
        submission: Submissions = next(playing)
        while True:
            answers = yield submission._replace(account=turn % self.many)
            turn += 1
            good = answers.improved & (answers.risk <= 0.5)
            try:
                submission = playing.send(replace(answers, improved=good))
            except StopIteration as end:
                return end.value


def lead(accounts: int, seed: np.random.SeedSequence, repetitions: int) -> tuple[float, ...]:
    """Return the theorem's step, and error and overfitting at it and at 1/sqrt(n)."""
    attack = Shared(Boosting(GUESSES, improvers=True), accounts)
    theory = zheng(N, GUESSES + 1, accounts)
    entropy = int(seed.generate_state(1)[0])
    found = []
    for step in (theory, 1 / math.sqrt(N)):
        course = simulate(attack, SimplifiedLadder(step), N, repetitions, seed=entropy)
        found.append(float(np.quantile(np.abs(0.5 - course.believed), 0.95)))
        found.append(float(0.5 - course.empirical.mean()))
    return theory, *found


def promises() -> None:
    """Print the theorem's step at the sizes that the paper names, and the sizes it asks for."""
    for n, precision in PROMISED:
        enough = rows_needed(lambda rows: zheng(rows, LOOKS), precision)
        print(
            f"n = {n}, {LOOKS} submissions, one account: eta = {zheng(n, LOOKS):.3f};"
            f" {precision} takes {enough:,} rows"
        )


def inversions(seed: np.random.SeedSequence) -> np.ndarray:
    """Return wrong and all pairs, by step and by how far apart they are shown (0 to 3 and on)."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.70, 0.80, TEAMS)
    hits = rng.binomial(N, true[:, None], (TEAMS, MODELS)) / N
    best = hits.max(axis=1)
    one, other = np.triu_indices(TEAMS, 1)
    found = np.zeros((len(STEPS), 2, 4))
    for place, step in enumerate(STEPS):
        shown = np.round(best / step).astype(int)
        apart = shown[one] - shown[other]
        wrong = np.where(apart == 0, False, (true[one] - true[other]) * apart < 0)
        far = np.minimum(np.abs(apart), 3)
        found[place] = [np.bincount(far[wrong], minlength=4), np.bincount(far, minlength=4)]
    return found


def ranked(step: float, seed: np.random.SeedSequence, repetitions: int) -> Course:
    entropy = int(seed.generate_state(1)[0])
    rule = SimplifiedLadder(step)
    return simulate(TwoAccounts(RANKED + 1), rule, RANKED, repetitions, seed=entropy)


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    found = common.mapped(partial(lead, repetitions=repetitions), ACCOUNTS, asked)
    print(f"n = {N}, {GUESSES} guesses and their vote, {repetitions} repetitions")
    heads = ("accounts", "eta", "error at eta", "fitted", "error at 1/sqrt(n)", "fitted")
    common.table(heads, [(many, *each) for many, each in zip(ACCOUNTS, found, strict=True)])
    promises()

    wrong, pairs = np.sum(common.repeated(inversions, repetitions, asked), axis=0).swapaxes(0, 1)
    print(f"\n{TEAMS} teams, true accuracies 0.70 to 0.80, {MODELS} models each: pairs in the")
    print("wrong order, by how many steps apart they are shown; pairs shown as tied")
    with np.errstate(invalid="ignore"):
        shares = wrong / pairs
    rows = [
        (f"{step:g}", tied / all_.sum(), *share[1:])
        for step, tied, all_, share in zip(STEPS, pairs[:, 0], pairs, shares, strict=True)
    ]
    common.table(("step", "tied", "1 step", "2 steps", "3 or more"), rows)

    steps = (1 / RANKED, 0.01, 0.1)
    courses = common.mapped(partial(ranked, repetitions=min(repetitions, 10)), steps, asked)
    print(f"\nTwo accounts that see ranks, n = {RANKED}: the leader after {RANKED + 1} submissions")
    rows = [
        (f"{step:g}", 1 - course.empirical.mean(), 1 - course.empirical.max())
        for step, course in zip(steps, courses, strict=True)
    ]
    common.table(("step", "mean score", "least"), rows)
    draw(np.array(found), asked)


def draw(found: np.ndarray, asked: Any) -> None:
    figure, (ax,) = common.panels()
    names = ("eta of the theorem", "error at eta", "fitted", "error at 1/sqrt(n)")
    for colour, name, values in zip(common.COLOURS, names, found.T, strict=False):
        ax.plot(ACCOUNTS, values, "o-", ms=4, color=colour, label=name)
    ax.set(xscale="log", xlabel="accounts", ylabel="distance from one half")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "zheng_theorem")


if __name__ == "__main__":
    main()
