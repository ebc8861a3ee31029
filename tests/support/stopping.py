"""Data for early stopping, and what has to hold of every model that it returns."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import LadderHoldout, Release
from ladderholdout.holdout import LadderStopping
from tests.support.holdouts import assert_replays
from tests.support.ledgers import Entry, entries_of, record
from tests.support.mlflow_stores import new_store

N_TRAIN, N_HOLDOUT = 300, 200


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows to train on and rows held out."""

    X: Any
    y: NDArray[Any]
    X_holdout: Any
    y_holdout: NDArray[Any]
    kind: str = ""

    def holdout(self, scoring: str = "neg_log_loss", **settings: Any) -> LadderHoldout:
        return LadderHoldout(self.X_holdout, self.y_holdout, scoring=scoring, **settings)


def parts(kind: str, seed: int = 0) -> Parts:
    """Noisy data of a kind: binary, text, three (classes), values, counts, positive."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_TRAIN + N_HOLDOUT, 4))
    signal = X[:, 0] + X[:, 1] * X[:, 2]
    noisy = signal + rng.standard_normal(len(X))
    y = {
        "binary": (noisy > 0).astype(int),
        "text": np.where(noisy > 0, "yes", "no"),
        "three": np.digitize(noisy, [-1, 1]),
        "values": noisy,
        "counts": rng.poisson(np.exp(signal / 3)).astype(float),
        "positive": np.exp(noisy / 3),
    }[kind]
    # Copies: LightGBM warns of slices.
    at = [N_TRAIN]
    (train, held), (known, labels) = np.split(X.copy(), at), np.split(y, at)
    return Parts(train.copy(), known.copy(), held.copy(), labels.copy(), kind)


def one_class(data: Parts) -> LadderHoldout:
    """A holdout of the second of two classes alone."""
    ones = data.y_holdout == 1
    settings: dict[str, Any] = {"scoring": "neg_log_loss", "classes": [0, 1]}
    return LadderHoldout(data.X_holdout[ones], data.y_holdout[ones], **settings)


def rounds_of(holdout: LadderHoldout) -> dict[str, list[Entry]]:
    """The rounds that the ledger holds, by the id of their fit."""
    found: dict[str, list[Entry]] = {}
    for entry in entries_of(holdout):
        if "fit" in entry.context:
            found.setdefault(entry.context["fit"], []).append(entry)
    return found


def assert_kept(holdout: LadderHoldout, stopping: LadderStopping, release: Release) -> None:
    """The model whose release this is, the last in the history, is the ledger's best round."""
    history = entries_of(holdout)
    last, rounds = history[-1], list(rounds_of(holdout).values())[-1]
    assert [one.context["round"] for one in rounds] == list(range(1, stopping.rounds + 1))
    assert [one.submission for one in stopping.releases] == [one.number for one in rounds]
    assert len({one.batch for one in rounds} - {None}) == 1
    first_of = [one.repeat_of or one.number for one in rounds]
    held = [at for at in first_of if history[at - 1].improved]
    best = first_of.index(max(held)) + 1 if held else stopping.rounds
    assert stopping.best_round == best
    assert last.repeat_of is not None
    assert last.digest == rounds[best - 1].digest
    kept = stopping.releases[best - 1]
    assert (release.submission, release.score) == (last.number, kept.score)
    assert (release.improved, release.repeat_of) == (False, first_of[best - 1])
    assert release.is_incumbent is (release.repeat_of == holdout.status().incumbent)
    assert (release.has_held, release.improvements) == (kept.has_held, kept.improvements)
    assert release.has_held is stopping.improved is bool(held)
    assert_replays(holdout)


def assert_one_batch(holdout: LadderHoldout, rounds: int) -> None:
    """The rounds of the only fit stand in the ledger in their order, as one batch."""
    entries = holdout.history()
    assert [one.context["round"] for one in entries] == list(range(1, rounds + 1))
    assert len({(one.batch, one.context["fit"]) for one in entries}) == 1
    assert entries[0].batch is not None


def assert_stopped_early(stopping: LadderStopping, patience: int, most: int) -> None:
    """The rule stopped it, and some round before the last was the best."""
    assert stopping.stopped
    assert stopping.rounds < most
    assert stopping.best_round == stopping.rounds - patience


def sequence(stopping: LadderStopping) -> tuple[Any, ...]:
    """What a fit amounts to: the same for the same rounds, repeats or not.

    A repeat is answered with what is released when it is asked.
    """
    steps = [one.improvements if one.has_held else None for one in stopping.releases]
    return stopping.rounds, stopping.best_round, stopping.stopped, stopping.improved, steps


# -- what a library may log ----------------------------------------------------------------

_AUTOLOGGED = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, mlflow, TOOL
from ladderholdout import LadderHoldout
from ladderholdout.integrations.MODULE import ladder_stopping
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment(experiment_id=mlflow.create_experiment("e", artifact_location=sys.argv[2]))
holdout = LadderHoldout.open("watched")
rows = np.load(sys.argv[3])
X, y, X_valid, y_valid = (rows[name] for name in ("X", "y", "X_valid", "y_valid"))
"""


def autologged(
    module: str, program: str, folder: Path, scoring: str = "neg_log_loss"
) -> tuple[LadderHoldout, bytes]:
    """Run a program under MLflow's autologging; return all that was printed and stored.

    The holdout has weights of its own, so that no raw score is one by chance.
    """
    data = parts("binary")
    weights = np.random.default_rng(5).uniform(0.5, 1.5, N_HOLDOUT)
    holdout = data.holdout(scoring, name="watched", sample_weight=weights)
    half = N_TRAIN // 2
    np.savez(
        folder / "rows.npz",
        X=data.X[:half], y=data.y[:half], X_valid=data.X[half:], y_valid=data.y[half:],
    )  # fmt: skip
    place = (folder / "artifacts").as_uri()
    tool = "sklearn" if module == "staged" else module
    text = _AUTOLOGGED.replace("MODULE", module).replace("TOOL", tool) + program
    command = [sys.executable, "-c", text, new_store(folder / "store"), place]
    done = subprocess.run(
        [*command, str(folder / "rows.npz")], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    files = [path for path in folder.rglob("*") if path.is_file() and "vault" not in path.parts]
    stored = [path.read_bytes() for path in files if not path.name.startswith("ledger")]
    return holdout, b"\n".join([done.stdout, done.stderr, *stored])


def raw_scores_in(holdout: LadderHoldout, seen: bytes) -> list[int]:
    """Tell which submissions' raw scores or risks stand there, in text or in binary."""
    _, _, entries = record(holdout)
    found = []
    for one in entries:
        score = holdout.metric.to_score(one.raw_risk)
        binary = [struct.pack(order, value) for order in ("<d", ">d") for value in (score, -score)]
        text = rf"{abs(score):.5f}(?!\d)|{abs(score):.6f}"
        if any(form in seen for form in binary) or re.search(text.encode(), seen):
            found.append(one.entry.number)
    return found
