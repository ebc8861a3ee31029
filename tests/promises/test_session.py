"""A whole session with a fixed secret and clock: what the ledger holds afterwards, to the byte.

The record of it in ``data/session.sql`` is what a change of the library's inner structure must
leave as it is. Where behaviour changes on purpose, ``python -m tests.promises.test_session``
writes it anew.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout, LadderStopping
from ladderholdout.guard.certificate import ScoreCertificate, interval
from ladderholdout.guard.printing import Submissions
from ladderholdout.guard.views import Status
from ladderholdout.mechanisms import ShakyLadder
from tests.support.ledgers import rows_dumped

RECORD = Path(__file__).parent / "data" / "session.sql"
N = 120


class Clock(datetime):
    """Tells one second later each time it is asked."""

    ticks = 0

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        cls.ticks += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=cls.ticks)


@contextmanager
def fixed() -> Iterator[None]:
    """Draw secrets and names from a seed, and let the clock tick with each question."""
    Clock.ticks = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", random.Random(12).randbytes)
        for name, module in list(sys.modules.items()):
            if name.startswith("ladderholdout") and getattr(module, "datetime", None) is datetime:
                patch.setattr(module, "datetime", Clock)
        yield


def recorded(answer: Any) -> str:
    """Return an answer as the record has it, which is older than the texts of today.

    A certificate has more digits there, in one line, a status does not state what is needed to
    improve, and a history is a plain tuple.
    """
    if isinstance(answer, Submissions):
        return repr(tuple(answer))
    if isinstance(answer, Status):
        found = answer.certificate
        text = str(answer).replace(found.ends(), f"{found.low:.4g} to {found.high:.4g}")
        return text.replace(f"{'to improve':<18}{answer.next_release}\n", "")
    if not isinstance(answer, ScoreCertificate):
        return str(answer)
    first, second, *rest = str(answer).splitlines()
    first = first.replace(
        f"is in {answer.ends()}", f"lies in {answer.low:.6g} to {answer.high:.6g}"
    )
    text = "\n".join([f"{first} {second}", *rest])
    for name, low, high in answer.instead:
        text = text.replace(f"{name}: {interval(low, high)}", f"{name}: {low:.4g} to {high:.4g}")
    return text


class Share(ClassifierMixin, BaseEstimator):
    """Right on this share of the rows, whose index is their feature."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def fit(self, X: Any, y: Any) -> Share:
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Any:
        at = np.asarray(X)[:, 0].astype(int)
        return np.where((at * 37) % 100 < 100 * self.share, at % 2, 1 - at % 2)


def examples(n: int = N, start: int = 0) -> tuple[Any, Any]:
    at = np.arange(start, start + n)
    return np.column_stack([at, at**2 % 11]).astype(float), at % 2


def session(folder: Path) -> list[str]:
    """Use the library as a person would, and return each answer."""
    ledger, said = folder / "ledger.db", []
    X, y = examples()
    train = examples(60, start=1000)

    def opened(name: str, y: Any = y, shift: float = 0.0, **settings: Any) -> LadderHoldout:
        chosen = {"scoring": "accuracy", "vault": False} | settings
        return LadderHoldout(X + shift, y, name=name, ledger=ledger, **chosen)

    # A grid, and a submission by hand that repeats its winner.
    coins = opened("coins")
    grid = {"share": [0.5, 0.7, 0.6, 0.9, 0.8]}
    asked = {"scoring": coins, "cv": coins.split(), "refit": coins.select}
    search = GridSearchCV(Share(), grid, **asked).fit(*train)
    said += [search.best_params_, search.cv_results_["mean_test_score"].tolist()]
    said += [coins.submit(search.predict(X)), coins.submit(1 - y, context={"by": "hand"})]
    said.append(coins.certificate())

    # A second account, whose ladder has noise and a budget.
    ada = opened("coins", account="ada", mechanism=ShakyLadder(step=0.05, noise=0.01), budget=2)
    said += [ada.submit(Share(share).predict(X)) for share in (0.5, 0.8, 0.7, 0.95)]
    said.append(ada.certificate())

    # A study.
    sampler = optuna.samplers.GridSampler({"share": [0.55, 0.65, 0.75]}, seed=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(
        ada.optuna.objective(lambda trial: Share(trial.suggest_float("share", 0, 1)).fit(*train)),
        n_trials=3,
    )
    said.append([trial.value for trial in study.trials])

    # Early stopping on measured targets, with a reserve.
    steps = opened("steps", y=np.arange(N) * 0.5, shift=5000.0, scoring="neg_mean_absolute_error",
                   loss_range=(0, 60), reserve=0.25)  # fmt: skip
    stopping = LadderStopping(steps, patience=2).start()
    for error in (40.0, 20.0, 8.0, 4.0, 4.5, 5.0, 5.5):
        if stopping.update(np.arange(N) * 0.5 + error):
            break
    said += [stopping.best_round, steps.certificate(), steps.reserve_certificate()]

    # An accident, an audit, and what can still be said.
    said.append(coins.owner.withdraw(coins.status().incumbent, reason="trained on these rows"))
    said += [
        ada.owner.audit().status,
        ada.status(),
        steps.status(),
        coins.history(),
        steps.history(),
    ]
    return [recorded(one).replace(str(folder), "~") for one in said]


def record(folder: Path) -> str:
    with fixed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = session(folder)
    dump = [line.replace(str(folder), "~") for line in rows_dumped(folder / "ledger.db")]
    answers = [f"-- {line}" for one in said for line in one.splitlines()]
    return "\n".join([*answers, *dump]) + "\n"


def test_a_session_leaves_the_same_ledger_and_the_same_answers(tmp_path: Path) -> None:
    assert record(tmp_path) == RECORD.read_text()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        RECORD.write_text(record(Path(folder)))
