"""What finals and rounds of a leaderboard show: a real history, attacks, sizes.

    python benchmarks/finals.py history          # 30 published models of CIFAR-10, 200 draws
    python benchmarks/finals.py attacks          # accounts that work together on coin labels
    python benchmarks/finals.py size             # 1,000 teams with 10,000 submissions
    python benchmarks/finals.py attacks --picture rounds.svg

Each part prints a table in Markdown, which docs/background/finals.md has. `--quick` is for tests.

History: rows are drawn from the 10,000 that all models were measured on, half of them are the
reserve, and the accuracies on all 10,000 are the truth. Attacks: labels are fair coins, so that
every true score is 1/2. In `vote` (Blum & Hardt 2015, Section 4.3) accounts guess, and the guesses
are summed up with the weights that their releases show; in `climb` each account changes a tenth of
its best predictions and keeps what improved; in `turns` (Zheng 2015, Section 2.2) accounts take
turns in changing a few rows of the best of all. Each is answered at once, or by ten rounds, in ten
runs with other labels.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from external.histories import load
from numpy.typing import NDArray

from ladderholdout.leaderboard import Finals, Leaderboard
from ladderholdout.server.accounts import add_account

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.server import Visitor, serving

Ints = NDArray[np.int64]
ROUNDS, MADE, RUNS = 10, 1000, 10


def table(head: list[str], rows: Iterator[list[str]]) -> None:
    """Print a table in Markdown, a row as soon as it is there."""
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


# -- a real history -------------------------------------------------------------------


def wrong_in(finals: Finals, truth: dict[str, float]) -> tuple[int, bool, bool]:
    """Count wrong orders; return whether all sets of ranks hold, and all intervals."""
    orders = sum(
        truth[one.account] <= truth[other.account]
        for place, one in enumerate(finals)
        for other in finals[place + 1 :]
        if other.account not in one.ties
    )
    ranks = all(
        row.best_rank <= 1 + sum(t > truth[row.account] for t in truth.values())
        and len(truth) - sum(t < truth[row.account] for t in truth.values()) <= row.worst_rank
        for row in finals
    )
    ends = ((row.low, truth[row.account], row.high) for row in finals)
    inside = all(
        low is not None and high is not None and low <= true <= high for low, true, high in ends
    )
    return orders, ranks, inside


def history(draws: int) -> None:
    """Hold finals of 30 published models on draws of CIFAR-10's test rows."""
    correct = load("cifar10")[0].correct
    truth = {f"model {number}": float(right.mean()) for number, right in enumerate(correct)}

    def row(n: int) -> list[str]:
        separated, bare, orders, ranks, ends = [], [], 0, 0, 0
        for seed in range(draws):
            chosen = np.random.default_rng(seed).choice(correct.shape[1], n, replace=False)
            X, y = chosen.reshape(-1, 1), np.zeros(n, dtype=int)
            y[::2] = 1
            board = Leaderboard(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
            for number, right in enumerate(correct[:, chosen]):
                board.submit(f"model {number}", np.where(right, y, 1 - y))
            if seed < 5:
                rows = board.standings().rows
                bare.append(sum(len(rows) - r.worst_rank for r in rows if r.worst_rank))
            finals = board.finals()
            wrong, held, inside = wrong_in(finals, truth)
            separated.append(finals.separated)
            orders, ranks, ends = orders + (wrong == 0), ranks + held, ends + inside
        low, high = min(separated), max(separated)
        parts = [f"{n:,}", f"{np.mean(bare):.1f}", f"{np.mean(separated):.1f} ({low} to {high})"]
        return [*parts, *(f"{count} of {draws}" for count in (orders, ranks, ends))]

    head = ["rows", "pairs that the board separates", "that finals separate, of 435"]
    head += ["no wrong order", "all sets of ranks hold", "all intervals hold"]
    table(head, (row(n) for n in (1000, 3000)))


# -- attacks ---------------------------------------------------------------------------


class Attacker:
    """Accounts that share all that they are answered, on rows whose labels are coins."""

    def __init__(self, way: str, accounts: int, n: int, seed: int) -> None:
        self.way, self.rng = way, np.random.default_rng(seed)
        self.names = [f"account {number}" for number in range(accounts)]
        self.best: dict[str, tuple[float, Ints]] = {}
        self.votes = np.zeros(n)

    def next(self, name: str) -> Ints:
        """Return what an account submits."""
        n, rng = len(self.votes), self.rng
        if self.way == "vote" or name not in self.best:
            return rng.integers(0, 2, n)
        _, known = self.best[name]
        if self.way == "turns":
            _, known = max(self.best.values(), key=lambda pair: pair[0])
        share = 0.1 if self.way == "climb" else 0.02
        return np.where(rng.random(n) < share, 1 - known, known)

    def learn(self, name: str, sent: Ints, score: float, improved: bool) -> None:
        """Take note of an answer."""
        if improved:
            self.best[name] = score, sent
        # What did not improve is known to be no better than the account's best one.
        weight = score - 0.5 if improved else -0.01
        self.votes += weight * (2 * sent - 1)

    def final(self) -> Ints:
        """Return what all that was learned comes to."""
        if self.way == "vote":
            return (self.votes > 0).astype(np.int64)
        return max(self.best.values(), key=lambda pair: pair[0])[1]


def attacked(
    way: str, accounts: int, n: int, made: int, rounds: bool, seed: int = 0
) -> tuple[Leaderboard, list[tuple[int, float]]]:
    """Attack a board; return it, and what the attacker reached after so many submissions."""
    rng = np.random.default_rng(seed + 1)
    X, y = np.arange(2 * n).reshape(-1, 1), rng.integers(0, 2, 2 * n)
    board = Leaderboard(
        X, y, scoring="accuracy", reserve=0.5, rounds=rounds, name="coins", ledger="memory"
    )
    attacker = Attacker(way, accounts, 2 * n, seed)
    part, course = board._home.guard().labelled.part, []
    order = board._home.guard().order
    measured = np.zeros(2 * n, dtype=bool)
    measured[order] = part.chosen
    done = 0
    while done < made:
        step = made // ROUNDS if rounds else 1
        names = [attacker.names[(done + place) % accounts] for place in range(step)]
        sent = [attacker.next(name) for name in names]
        answers: list[Any] = [
            board.submit(name, one) for name, one in zip(names, sent, strict=True)
        ]
        if rounds:
            closed = board.close_round()
            assert closed is not None
            answers = [release for _, release in closed.releases]
        for name, one, release in zip(names, sent, answers, strict=True):
            attacker.learn(name, one, release.score, release.improved)
        done += step
        if done % (made // ROUNDS) == 0:
            course.append((done, float((attacker.final() == y)[measured].mean())))
    board.submit("winner", attacker.final())
    if rounds:
        board.close_round()
    return board, course


def attacks(made: int, runs: int, picture: Path | None) -> None:
    """Attack boards by 10 and 100 accounts, at once and by rounds, each so many times."""
    courses: dict[tuple[str, int, bool], list[tuple[int, float]]] = {}

    def row(way: str, accounts: int, rounds: bool) -> list[str]:
        found = [attack(way, accounts, made, rounds, seed) for seed in range(runs)]
        reached = np.array([[value for _, value in each.course] for each in found])
        places = [done for done, _ in found[0].course]
        courses[way, accounts, rounds] = list(zip(places, reached.mean(axis=0), strict=True))
        error = reached[:, -1].std(ddof=1) / np.sqrt(runs)
        return [
            way,
            str(accounts),
            f"{ROUNDS} rounds" if rounds else "at once",
            f"{reached[:, -1].mean():.3f} ± {error:.3f}",
            f"{np.mean([each.released for each in found]):.3f}",
            f"{sum(each.held for each in found)} of {sum(each.certificates for each in found)}",
            f"{sum(each.all_held for each in found)} of {runs}",
            f"{np.mean([each.best for each in found]):.3f}",
            f"{sum(each.separated for each in found)}",
            f"{sum(each.fine for each in found)} of {runs}",
        ]

    head = ["attack", "accounts", "answered", "reached on the board's rows", "released"]
    head += ["certificates with 1/2", "boards where all have it", "best in the finals"]
    head += ["pairs separated", "finals whose intervals all have 1/2"]
    cases = [
        (way, accounts, rounds)
        for way in ("vote", "climb", "turns")
        for accounts in (10, 100)
        for rounds in (False, True)
    ]
    table(head, (row(*case) for case in cases))
    if picture is not None:
        draw(courses, picture)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What came of one attack."""

    course: list[tuple[int, float]]
    released: float
    held: int
    certificates: int
    best: float
    separated: int
    fine: bool

    @property
    def all_held(self) -> bool:
        return self.held == self.certificates


def attack(way: str, accounts: int, made: int, rounds: bool, seed: int) -> Attacked:
    """Attack a board once."""
    board, course = attacked(way, accounts, 1000, made, rounds, seed)
    standings, finals = board.standings(), board.finals()
    return Attacked(
        course=course,
        released=standings[0].score,
        held=sum(r.low is not None and r.low <= 0.5 <= (r.high or 1.0) for r in standings),
        certificates=len(standings),
        best=max(row.score or 0.0 for row in finals),
        separated=finals.separated,
        fine=all(row.low is not None and row.low <= 0.5 <= (row.high or 1.0) for row in finals),
    )


def draw(courses: dict[tuple[str, int, bool], list[tuple[int, float]]], file: Path) -> None:
    """Draw what attackers reached, answered at once and by rounds."""
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "ladderholdout"
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for panel, way in zip(panels, ("vote", "climb", "turns"), strict=True):
        for accounts, width in ((10, 1.2), (100, 2.4)):
            for rounds, style in ((False, "-"), (True, "--")):
                x, y = zip(*courses[way, accounts, rounds], strict=True)
                what = f"{accounts} accounts, {'by rounds' if rounds else 'at once'}"
                colour = "#007a62" if rounds else "#b3261e"
                panel.plot(x, y, style, color=colour, linewidth=width, label=what)
        panel.axhline(0.5, color="#6b7280", linewidth=0.8)
        panel.set_title(way)
        panel.set_xlabel("submissions")
    panels[0].set_ylabel("accuracy on the board's rows")
    panels[-1].legend(fontsize=7)
    figure.savefig(file, metadata={"Date": None})


# -- sizes -----------------------------------------------------------------------------


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    done = call()
    return time.perf_counter() - start, done


def size(teams: int, each: int) -> None:
    """Time a large board: its standings, finals of a hundred teams, and its pages on a server."""
    rng, n = np.random.default_rng(0), 10_000
    X, y = rng.random((n, 2)), rng.integers(0, 2, n)

    def filled(folder: Path, rounds: bool) -> tuple[Leaderboard, float]:
        board = Leaderboard(
            X, y, scoring="accuracy", reserve=0.5, rounds=rounds, name="large", ledger=folder / "l"
        )
        begun = time.perf_counter()
        for turn in range(each):
            for team in range(teams):
                right = 0.55 + 0.3 * team / teams + 0.01 * turn
                board.submit(f"team {team}", np.where(rng.random(n) < right, y, 1 - y))
            if rounds:
                board.close_round()
        return board, (time.perf_counter() - begun) / (teams * each)

    def row(rounds: bool) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            board, submitted = filled(Path(place), rounds)
            first, standings = timed(board.standings)
            again, _ = timed(board.standings)
            held, finals = timed(lambda: board.finals(min(teams, 100)))
            read, _ = timed(board.finals)
            token = add_account(board.ledger, "large", "owner", "owner").token
            with serving(Path(place) / "l", Path(place)) as server:
                visitor = Visitor(server, token)
                asked = {"headers": {"Authorization": f"Bearer {token}"}}
                page = [timed(lambda: visitor.get("/holdouts/large/leaderboard")) for _ in range(3)]
                url = "/v1/holdouts/large/leaderboard"
                lines = [
                    timed(lambda: visitor.session.post(server.url + url, timeout=60, **asked))
                    for _ in range(3)
                ]
                assert all(answer.status_code == 200 for _, answer in (*page, *lines))
        pairs = f"{finals.separated:,} of {finals.pairs:,}"
        return [
            "by rounds" if rounds else "at once",
            f"{standings.submissions:,} of {teams:,}",
            f"{1000 * submitted:.1f}",
            f"{first:.2f}, {again:.2f}",
            f"{held:.2f}, {read:.2f}",
            pairs,
            ", ".join(f"{seconds:.2f}" for seconds, _ in page),
            ", ".join(f"{seconds:.2f}" for seconds, _ in lines),
        ]

    head = ["answers", "submissions of teams", "each (ms)", "standings, again (s)"]
    head += [f"finals of {min(teams, 100)}, again (s)", "pairs separated"]
    table([*head, "page over HTTP (s)", "JSON over HTTP (s)"], map(row, (True, False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["history", "attacks", "size"])
    parser.add_argument("--picture", type=Path, help="Draw the attacks into this file.")
    parser.add_argument("--quick", action="store_true")
    stated = parser.parse_args()
    warnings.simplefilter("ignore")
    if stated.part == "history":
        history(3 if stated.quick else 200)
    elif stated.part == "attacks":
        attacks(*((100, 2) if stated.quick else (MADE, RUNS)), stated.picture)
    else:
        size(*((20, 2) if stated.quick else (1000, 10)))


if __name__ == "__main__":
    main()
