"""Sessions through the public API, over all that a ledger holds, whose answers are kept.

A change of the record must not change an answer. ``python tests/golden/sessions.py`` names the
sessions that are equal to the bit and those that are not; ``--write`` writes the answers anew.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from numpy.typing import NDArray

from ladderholdout import LadderHoldout, LadderHoldoutError, LadderHoldoutWarning, Metric
from ladderholdout.guard import commands
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin, ladder_of
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import (
    BayesBootLadder,
    BayesBootLadderBoot,
    FullDisclosure,
    GateLadder,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RankLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)
from tests.golden.shown import Shown, differences, written
from tests.support.fixed_secrets import fixed_secrets

ANSWERS = Path(__file__).parent / "answers"
Ints = NDArray[np.int64]
Session = Callable[["Place"], dict[str, Any]]
SESSIONS: dict[str, Session] = {}
ON_A_SERVER = "on_postgresql"
"""The session that needs a server of PostgreSQL."""


@dataclass(frozen=True)
class Place:
    """Where a session has its ledger: in memory, or in a file of a folder of its own."""

    ledger: str
    folder: Path
    warned: list[str] = field(default_factory=list)

    @property
    def file(self) -> str:
        """Path of a ledger in a file."""
        return str(self.folder / "ledger.db")


def session(function: Session) -> Session:
    """Enter a session under the name of its function."""
    SESSIONS[function.__name__] = function
    return function


def answer_of(name: str, url: str | None = None) -> Any:
    """Run a session, in a place of its own or on a server, and return what it was answered."""
    # Noise and reserves are drawn by the secret of a holdout, which os.urandom draws.
    fixed = patch.object(os, "urandom", fixed_secrets(f"golden {name}"))
    with tempfile.TemporaryDirectory() as folder, fixed, warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        place = Place(url or f"memory:{uuid4().hex}", Path(folder))
        answer = SESSIONS[name](place)
        show = Shown({place.ledger: "LEDGER", folder: "FOLDER"})
        said = [
            f"{one.category.__name__}: {one.message}"
            for one in w
            if issubclass(one.category, LadderHoldoutWarning)
        ]
        found = show(answer | {"warnings": said})
        return json.loads(json.dumps(found | {"assumptions": dict(sorted(show.texts.items()))}))


def recorded(name: str) -> Any:
    """Read the answer of a session that was written before."""
    return json.loads((ANSWERS / f"{name}.json").read_text("utf-8"))


# What sessions share


@cache
def coins(n: int = 200, seed: int = 0) -> tuple[NDArray[np.float64], Ints]:
    """Rows with labels that nothing predicts."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)), rng.integers(0, 2, n)


@cache
def measured(n: int = 200, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows with targets in [0, 1] that the first feature tells."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.clip(X[:, 0] + 0.1 * rng.standard_normal(n), 0.0, 1.0)


def guesses(seed: Any, count: int, n: int = 200) -> Ints:
    """Predictions of models that know nothing."""
    return np.random.default_rng(seed).integers(0, 2, (count, n))


def right(y: Ints, count: int, seed: int = 0) -> Ints:
    """Predictions with so many labels right, which ones is drawn by the seed."""
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    return np.where(order < count, y, 1 - y)


def scores(y: Any, skill: float, seed: int) -> NDArray[np.float64]:
    """Probabilities of the second class; two decimals, so that no sum depends on its order."""
    rng = np.random.default_rng(seed)
    value = 1 / (1 + np.exp(-skill * (2 * np.asarray(y) - 1) - rng.standard_normal(len(y))))
    return np.asarray(np.clip(np.round(value, 2), 0.01, 0.99))


def refused(call: Callable[[], Any]) -> str:
    """Return the error that a call ends with."""
    try:
        call()
    except LadderHoldoutError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def registered(place: Place, X: Any = None, y: Any = None, **stated: Any) -> LadderHoldout:
    """Register rows, those of `coins` by default, as "golden"."""
    rows = coins() if X is None else (X, y)
    given = {"scoring": "accuracy", "name": "golden", "ledger": place.ledger} | stated
    return LadderHoldout(*rows, **given)


def end(holdout: LadderHoldout) -> dict[str, Any]:
    """Return all that a holdout shows at the end of a session."""
    verified = verify_holdout(holdout.ledger, holdout.name)
    found = {
        "status": holdout.status(),
        "history": holdout.history(),
        "health": holdout.health(),
        "verified": {
            "findings": [str(finding) for finding in verified.findings],
            "submissions": verified.submissions,
            "blocks": verified.blocks,
        },
    }
    return found if len(holdout.metrics) > 1 else found | {"health_line": str(holdout.health())}


def climb(holdout: LadderHoldout, y: Ints, counts: Any) -> list[Any]:
    """Submit predictions with these numbers of labels right, one after the other."""
    return [holdout.submit(right(y, count, seed)) for seed, count in enumerate(counts)]


def by_rule(place: Place, mechanism: Mechanism, **stated: Any) -> dict[str, Any]:
    """Answer guesses, a climb and repeats by a rule, then show the certificate and the record."""
    _, y = coins()
    holdout = registered(place, mechanism=mechanism, **stated)
    answers = [holdout.submit(guess) for guess in guesses(1, 6)]
    answers += climb(holdout, y, (110, 112, 118, 117, 130, 131, 150))
    answers += [holdout.submit(predictions) for predictions in (guesses(1, 2)[1], right(y, 130, 4))]
    certificate = holdout.certificate()
    answers += [holdout.submit(right(y, 170, 9)), holdout.submit(right(y, 190, 10))]
    return {
        "answers": answers,
        "certificate": certificate,
        "line": certificate.line(),
        "later": holdout.certificate(),
        "other_confidence": holdout.certificate(0.8),
        **end(holdout),
    }


# One rule each


@session
def the_default_rule(place: Place) -> dict[str, Any]:
    return by_rule(place, PricedLadder(), budget=None)


@session
def a_ladder_with_a_budget(place: Place) -> dict[str, Any]:
    return by_rule(place, Ladder(step=0.01), budget=5)


@session
def a_simplified_ladder(place: Place) -> dict[str, Any]:
    return by_rule(place, SimplifiedLadder(step=0.02), confidence=0.9)


@session
def without_parameters(place: Place) -> dict[str, Any]:
    return by_rule(place, ParameterFreeLadder())


@session
def full_disclosure(place: Place) -> dict[str, Any]:
    return by_rule(place, FullDisclosure())


@session
def rounded_disclosure(place: Place) -> dict[str, Any]:
    return by_rule(place, RoundedDisclosure(step=0.02), show="improvements")


@session
def paired_tests(place: Place) -> dict[str, Any]:
    return by_rule(place, PairedTestLadder(alpha=0.3))


@session
def shaky_noise(place: Place) -> dict[str, Any]:
    return by_rule(place, ShakyLadder(step=0.02, noise=0.02))


@session
def gaussian_noise(place: Place) -> dict[str, Any]:
    return by_rule(place, GaussianLadder(step=0.02, noise=0.02))


@session
def a_bootstrap(place: Place) -> dict[str, Any]:
    return by_rule(place, LadderBoot(alpha=0.3, n_bootstrap=50))


@session
def bayesian_bootstraps(place: Place) -> dict[str, Any]:
    both = BayesBootLadderBoot(odds=2.0, n_posterior=100, n_bootstrap=30)
    y, other = coins()[1], registered(place, mechanism=both, ladder="both")
    counts = (100, 120, 121, 150)
    return {
        "both": climb(other, y, counts),
        **by_rule(place, BayesBootLadder(odds=2.0, n_posterior=100)),
    }


# One verb of the holdout each


@session
def improvements_alone(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, show="improvements")
    first = climb(holdout, y, (100, 90, 120, 119))
    hidden = holdout.certificate()
    price = holdout.price("reveal")
    revealed = [holdout.reveal(), holdout.reveal()]
    certified = holdout.certificate()
    later = [holdout.submit(right(y, count, 20)) for count in (150, 151, 180)]
    return {
        "answers": first + later,
        "hidden": hidden,
        "price": price,
        "revealed": revealed,
        "certificate": certified,
        "without_a_request": holdout.certificate(),
        "revealed_later": {"revealed": holdout.reveal()},
        "with_it": holdout.certificate(),
        **end(holdout),
    }


@session
def batches(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, mechanism=SimplifiedLadder(step=0.01))
    with holdout.batch() as first:
        for place_in, count in enumerate((100, 120, 110, 130, 129)):
            first.submit(right(y, count, place_in), context={"place": place_in})
        first.submit(right(y, 120, 1))  # once more in the same batch
    estimate, certificate = holdout.estimate(), holdout.certificate()
    with holdout.batch() as second:
        second.submit(right(y, 100, 0))  # answered before
        second.submit(right(y, 150, 7))
    single = holdout.submit(right(y, 130, 3))
    return {
        "answers": [*first.releases, *second.releases, single],
        "estimate": estimate,
        "again": holdout.estimate(),
        "certificate": certificate,
        "later": holdout.certificate(),
        **end(holdout),
    }


@session
def finalists(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place)
    chosen = holdout.finalists([right(y, count, count) for count in (130, 140, 120, 139)])
    estimate = holdout.estimate()
    shown = [(one.release, one.is_incumbent) for one in chosen]
    certificate = holdout.certificate()
    climb(holdout, y, (160,))
    return {
        "finalists": shown,
        "estimate": estimate,
        "certificate": certificate,
        "later": holdout.certificate(),
        "no_estimate": holdout.estimate(),
        **end(holdout),
    }


@session
def comparisons(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place)
    climb(holdout, y, (110, 130, 129, 160))
    price = [holdout.price(what) for what in ("compare", "certificate", "reveal")]
    own, own_again = holdout.compare(4, 1), holdout.compare(1, 4)
    other = holdout.compare(2, right(y, 150, 30))
    wide = holdout.compare(4, 2, confidence=0.8)
    before = holdout.certificate()
    climb(holdout, y, (181, 182))
    brier = registered(place, scoring="neg_brier_score", ladder="brier")
    for seed, skill in enumerate((0.2, 0.6, 1.2)):
        brier.submit(scores(y, skill, seed))
    return {
        "price": price,
        "comparisons": [own, own_again, other, wide],
        "lines": [one.line() for one in (own, own_again, other, wide)],
        "brier": brier.compare(3, 1),
        "refused": refused(lambda: holdout.compare(1, 3)),
        "certificate": before,
        "later": holdout.certificate(),
        "of_brier": brier.certificate(),
        **end(holdout),
    }


@session
def withdrawals(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, mechanism=Ladder(step=0.01))
    answers = climb(holdout, y, (110, 130, 150, 149, 160))
    certificates = [holdout.certificate()]
    gone = [holdout.owner.withdraw(5, reason="trained on these rows")]
    gone += [holdout.owner.withdraw(2, reason="not the incumbent")]
    certificates += [holdout.certificate()]
    answers += [holdout.submit(right(y, 149, 3)), holdout.submit(right(y, 160, 4))]
    with holdout.batch() as batch:
        for seed, count in enumerate((161, 170, 180)):
            batch.submit(right(y, count, 40 + seed))
    gone += [holdout.owner.withdraw(10, reason="the last of a batch")]
    answers += [*batch.releases, holdout.submit(right(y, 185, 50))]
    certificates += [holdout.certificate()]
    gone += [holdout.owner.withdraw(1, reason="the first")]
    return {
        "answers": answers,
        "withdrawn": gone,
        "refused": [
            refused(lambda: holdout.owner.withdraw(2, reason="again")),
            refused(lambda: holdout.submit(right(y, 110, 0))),
        ],
        "certificates": certificates,
        **end(holdout),
    }


@session
def withdrawals_of_noise_and_of_improvements(place: Place) -> dict[str, Any]:
    _, y = coins()
    noisy = registered(place, mechanism=GaussianLadder(step=0.1, noise=0.05))
    quiet = registered(place, show="improvements", ladder="quiet")
    answers = climb(noisy, y, (90, 180, 95)) + climb(quiet, y, (100, 160, 150))
    revealed = quiet.reveal()
    gone = [holdout.owner.withdraw(2, reason="a leak") for holdout in (noisy, quiet)]
    answers += [noisy.submit(right(y, 95, 2)), quiet.submit(right(y, 150, 2))]
    return {
        "answers": answers,
        "revealed": revealed,
        "withdrawn": gone,
        "quiet": end(quiet),
        **end(noisy),
    }


@session
def retired(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, mechanism=SimplifiedLadder(step=0.01), reserve=0.3)
    climb(holdout, y, (110, 130, 160))
    holdout.owner.retire()
    return {
        "refused": [
            refused(lambda: holdout.submit(right(y, 170))),
            refused(lambda: holdout.reserve_certificate()),
            refused(lambda: holdout.compare(3, right(y, 120))),
            refused(lambda: holdout.owner.withdraw(3, reason="late")),
        ],
        "compared": holdout.compare(3, 1),
        "certificate": holdout.certificate(),
        **end(holdout),
    }


@session
def forgotten(place: Place) -> dict[str, Any]:
    _, y = coins()
    slip = registered(place)
    slip.owner.forget()
    holdout = registered(place, groups=np.arange(200) // 2)
    climb(holdout, y, (120, 140))
    return {
        "refused": [
            refused(lambda: holdout.owner.forget()),
            refused(lambda: slip.submit(right(y, 120))),
        ],
        "certificate": holdout.certificate(),
        **end(holdout),
    }


@session
def opened_again(place: Place) -> dict[str, Any]:
    X, y = coins()
    first = registered(place, ledger=place.file, budget=9)
    answers = climb(first, y, (110, 120))
    again = LadderHoldout.open("golden", ledger=place.file)
    answers += [again.submit(right(y, 130, 5), context={"notebook": 2})]
    carried = pickle.loads(pickle.dumps(again))
    answers += [carried.submit(right(y, 120, 1)), carried.submit(right(y, 140, 6))]
    renamed = LadderHoldout(X, y, name="another", ledger=place.file)
    other = LadderHoldout(X, y, scoring="accuracy", account="Ben", ledger=place.file)
    answers += [renamed.submit(right(y, 145, 7)), other.submit(right(y, 120, 1))]
    answers += [other.submit(right(y, 170, 8)), first.submit(right(y, 172, 9))]
    unknown = refused(lambda: LadderHoldout.open("nobody", ledger=place.file))
    conflict = refused(lambda: LadderHoldout(X, y, budget=3, ledger=place.file))
    return {
        "answers": answers,
        "refused": [unknown, conflict],
        "some": first.history(after=1, limit=2),
        "of_ben": end(other),
        **end(first),
    }


@session
def views(place: Place) -> dict[str, Any]:
    X, y = coins()
    first = registered(place, ledger=place.file)
    answers = climb(first, y, (110, 130))
    wider = LadderHoldout(np.column_stack([X, X[:, 0] * X[:, 1]]), y, ledger=place.file)
    order = np.random.default_rng(5).permutation(200)
    shuffled = LadderHoldout(X[order], y[order], ledger=place.file)
    answers += [wider.submit(right(y, 130, 1)), wider.submit(right(y, 150, 3))]
    answers += [shuffled.submit(right(y, 150, 3)[order]), shuffled.submit(right(y, 170, 4)[order])]
    second = LadderHoldout.open("golden", ledger=place.file, view=1)
    answers += [second.submit(right(y, 180, 5))]
    missing = refused(lambda: LadderHoldout.open("golden", ledger=place.file, view=9))
    return {"answers": answers, "refused": missing, "of_view": end(wider)["status"], **end(first)}


@session
def ids(place: Place) -> dict[str, Any]:
    X, y = coins()
    names = [f"row {number}" for number in range(200)]
    holdout = registered(place, ids=names, vault=False)
    order = np.random.default_rng(6).permutation(200)
    answers = climb(holdout, y, (110, 130))
    shuffled = [names[at] for at in order]
    answers += [
        holdout.submit(right(y, 130, 1)[order], ids=shuffled),
        holdout.submit(right(y, 160, 2)[order], ids=shuffled),
    ]
    corrected = np.where(np.arange(200) < 5, 1 - y, y)
    later = LadderHoldout(X + 1, corrected, ids=names, ledger=place.ledger)
    answers += [later.submit(right(y, 170, 3)), later.submit(right(y, 110, 0))]
    wrong = [
        refused(lambda: later.submit(y, ids=[*names[:-1], "nobody"])),
        refused(lambda: holdout.submit(right(y, 180, 4))),
    ]
    return {"answers": answers, "refused": wrong, "certificate": later.certificate(), **end(later)}


@session
def amended_labels(place: Place) -> dict[str, Any]:
    X, y = coins()
    corrected = np.where(np.arange(200) < 4, 1 - y, y)
    holdout = registered(place, ledger=place.file, mechanism=FullDisclosure())
    answers = climb(holdout, y, (110, 150))
    before = holdout.certificate()
    amended = LadderHoldout(X, corrected, ledger=place.file)
    answers += [amended.submit(right(y, 150, 1)), amended.submit(right(y, 170, 2))]
    fresh = LadderHoldout(X, corrected, scoring="accuracy", ladder="anew", ledger=place.file)
    answers += climb(fresh, y, (110, 150))
    return {
        "answers": answers,
        "before": before,
        "after": amended.certificate(),
        "anew": end(fresh),
        **end(amended),
    }


@session
def a_reserve(place: Place) -> dict[str, Any]:
    _, y = coins(400)
    holdout = registered(place, *coins(400), reserve=0.4, mechanism=SimplifiedLadder(step=0.01))
    answers = climb(holdout, y, (220, 260))
    queries = [holdout.reserve_certificate(), holdout.reserve_certificate()]
    answers += [holdout.submit(right(y, 320, 8))]
    queries += [holdout.reserve_certificate(), holdout.reserve_certificate(0.8)]
    brier = registered(place, *coins(400), scoring="neg_brier_score", ladder="brier")
    brier.submit(scores(y, 1.0, 1))
    queries += [brier.reserve_certificate(), brier.reserve_certificate(0.9)]
    area = registered(place, *coins(400), scoring="roc_auc", ladder="area", account="Ben")
    area.submit(scores(y, 0.7, 2))
    queries += [area.reserve_certificate()]
    return {
        "answers": answers,
        "queries": queries,
        "certificate": holdout.certificate(),
        "brier": end(brier),
        **end(holdout),
    }


@session
def groups(place: Place) -> dict[str, Any]:
    names = np.repeat(np.arange(50), 4)
    found: dict[str, Any] = {}
    for estimand in ("rows", "groups"):
        holdout = registered(place, *coins(200, 7), groups=names, estimand=estimand, name=estimand)
        labels = coins(200, 7)[1]
        answers = climb(holdout, labels, (110, 140, 150))
        found[estimand] = {
            "answers": answers,
            "certificate": holdout.certificate(),
            "compared": holdout.compare(2, 1),
            "other": holdout.certificate(0.9),
        }
        if estimand == "rows":
            found["record"] = end(holdout)
            place = Place(f"{place.ledger}-groups", place.folder)
    return found


@session
def weights(place: Place) -> dict[str, Any]:
    _, y = coins()
    weighted = registered(place, sample_weight=1 + np.arange(200) % 3)
    answers = climb(weighted, y, (110, 130, 129, 160))
    return {
        "answers": answers,
        "certificate": weighted.certificate(),
        "compared": refused(lambda: weighted.compare(4, 1)),
        **end(weighted),
    }


@session
def fresh_rows(place: Place) -> dict[str, Any]:
    X, y = coins()
    first = registered(place, ledger=place.file, budget=8, reserve=0.2)
    answers = climb(first, y, (110, 140, 160))
    asked = first.owner.spent_at(0.2)
    first.reserve_certificate()
    fresh, labels = coins(240, 11)
    overlap = refused(lambda: first.replenish(np.vstack([X[:3], fresh]), np.r_[y[:3], labels]))
    second = first.replenish(fresh, labels)
    answers += climb(second, labels, (130, 180))
    again = LadderHoldout.open("golden", ledger=place.file)
    third = again.replenish(*coins(220, 12))
    answers += climb(third, coins(220, 12)[1], (120,))
    return {
        "answers": answers,
        "health": asked,
        "refused": [
            overlap,
            refused(lambda: first.submit(y)),
            refused(lambda: second.owner.forget()),
        ],
        "blocks": [end(first), end(second), end(third)],
        "certificates": [one.certificate() for one in (first, second, third)],
        "reserve": third.reserve_certificate(),
    }


@session
def shared_rows(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    first = registered(place, X[:200], y[:200], mechanism=ParameterFreeLadder())
    other = registered(place, X[120:320], y[120:320], name="other", overlap="warn", reserve=0.3)
    third = registered(place, X[310:], y[310:], name="third", overlap="ignore")
    answers = climb(other, y[120:320], (110, 115, 140))
    answers += climb(first, y[:200], (120, 125))
    before = first.certificate()
    answers += climb(third, y[310:], (50, 60))
    answers += [other.submit(right(y[120:320], 170, 8)), first.submit(right(y[:200], 165, 9))]
    refusal = refused(lambda: registered(place, X[20:220], y[20:220], name="most"))
    return {
        "answers": answers,
        "refused": refusal,
        "before": before,
        "certificates": [one.certificate() for one in (first, other, third)],
        "reserve": other.reserve_certificate(),
        "records": [end(one) for one in (first, other, third)],
    }


# Metrics


@session
def several_metrics(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(
        place,
        scoring=["accuracy", "roc_auc", "neg_brier_score"],
        mechanism={
            "accuracy": ParameterFreeLadder(),
            "roc_auc": Ladder(step=0.02),
            "neg_brier_score": SimplifiedLadder(step=0.005),
        },
    )

    def both(skill: float, seed: int) -> dict[str, Any]:
        values = scores(y, skill, seed)
        return {"labels": (values > 0.5).astype(int), "probabilities": values}

    answers = [holdout.submit(both(skill, seed)) for seed, skill in enumerate((0.1, 0.3, 0.2))]
    with holdout.batch() as batch:
        for seed, skill in enumerate((0.5, 0.6, 0.4)):
            batch.submit(both(skill, 10 + seed))
    answers += [*batch.releases, holdout.submit(both(0.3, 1))]
    alone = holdout["roc_auc"].submit(scores(y, 1.5, 30))
    certificates = {name: holdout[name].certificate() for name in holdout.metrics}
    gone = holdout["roc_auc"].owner.withdraw(8, reason="a leak")
    answers += [holdout.submit(both(2.0, 31))]
    return {
        "answers": answers,
        "alone": alone,
        "certificates": certificates,
        "later": {name: holdout[name].certificate() for name in holdout.metrics},
        "withdrawn": gone,
        **end(holdout),
    }


@session
def areas(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, scoring="roc_auc", mechanism=Ladder(step=0.01))
    answers = [holdout.submit(scores(y, skill, seed)) for seed, skill in enumerate((0.2, 0.5, 0.4))]
    known = holdout.status().certificate
    first = holdout.certificate()
    answers += [holdout.submit(scores(y, 1.0, 7)), holdout.submit(scores(y, 1.4, 8))]
    precision = registered(place, scoring="average_precision", ladder="precision", pos_label=0)
    answers += [precision.submit(scores(1 - y, skill, 9)) for skill in (0.3, 0.9)]
    return {
        "answers": answers,
        "known": known,
        "certificates": [first, holdout.certificate(), precision.certificate()],
        "compared": holdout.compare(5, 1),
        "other": holdout.certificate(0.9),
        "precision": end(precision),
        **end(holdout),
    }


@session
def classes(place: Place) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((240, 2)), rng.integers(0, 3, 240)
    names = np.array(["ash", "birch", "cedar"])
    answers, records = [], {}
    for scoring in ("balanced_accuracy", "f1_macro", "matthews_corrcoef"):
        holdout = registered(
            place, X, names[y], scoring=scoring, mechanism=Ladder(step=0.01), ladder=scoring
        )
        for seed, share in enumerate((0.4, 0.6, 0.55, 0.8)):
            hit = np.random.default_rng(seed).random(240) < share
            answers.append(holdout.submit(names[np.where(hit, y, (y + 1) % 3)]))
        records[scoring] = {"certificate": holdout.certificate(), "status": holdout.status()}
    return {"answers": answers, "records": records, **end(holdout)}


@session
def regressions(place: Place) -> dict[str, Any]:
    X, y = measured()
    answers, records = [], {}
    for scoring, ranges in (
        ("r2", {"target_range": (0, 1)}),
        ("neg_root_mean_squared_error", {"loss_range": (0, 1)}),
        ("neg_mean_absolute_error", {"loss_range": (0, 0.5)}),
    ):
        holdout = registered(
            place, X, y, scoring=scoring, mechanism=Ladder(step=0.01), ladder=scoring, **ranges
        )
        for seed, noise in enumerate((0.5, 0.3, 0.4, 0.1)):
            errors = noise * np.random.default_rng(seed).standard_normal(200)
            answers.append(holdout.submit(np.round(y + errors, 2)))
        records[scoring] = {"certificate": holdout.certificate(), "status": holdout.status()}
    records["compared"] = holdout.compare(4, 1)
    return {"answers": answers, "records": records, **end(holdout)}


def _missed(y: Any, predicted: Any) -> Any:
    """Return the cost of each row: a missed second class costs three times as much."""
    return np.where(y == predicted, 0.0, np.where(y == 1, 3.0, 1.0))


@session
def metrics_of_ones_own(place: Place) -> dict[str, Any]:
    from sklearn.metrics import cohen_kappa_score

    _, y = coins()
    cost = Metric("cost", "labels", loss=_missed, loss_range=(0, 3))
    kappa = Metric("kappa", "labels", score=cohen_kappa_score, loss_range=(0, 2), offset=1)
    first = registered(place, scoring=cost, mechanism=Ladder(step=0.05))
    second = registered(place, scoring=kappa, ladder="kappa", mechanism=Ladder(step=0.05))
    answers = climb(first, y, (110, 130, 160)) + climb(second, y, (110, 130, 160))
    unknown = refused(lambda: LadderHoldout.open("golden", ledger=place.ledger).submit(y))
    again = LadderHoldout.open("golden", scoring=cost, ledger=place.ledger)
    answers += [again.submit(right(y, 180, 9))]
    return {
        "answers": answers,
        "refused": unknown,
        "certificates": [again.certificate(), second.certificate()],
        "compared": again.compare(4, 1),
        "kappa": end(second),
        **end(again),
    }


# Gates


@session
def a_gate(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    holdout = registered(place, X, y, mechanism=GateLadder(horizon=6))
    asked = ((250, None), (255, None), (320, 0.01), (320, 0.01), (320, 0.05), (250, None))
    decisions = [
        holdout.gate(np.where(np.arange(400) < count, y, 1 - y), margin=margin, baseline=True)
        for count, margin in asked
    ]
    for count in (321, 340, 395, 396, 397, 400):
        decisions.append(holdout.gate(np.where(np.arange(400) < count, y, 1 - y)))
    return {
        "decisions": decisions,
        "verdicts": [decision.verdict for decision in decisions],
        "submitted": holdout.submit(np.where(np.arange(400) < 399, y, 1 - y)),
        "certificate": holdout.certificate(),
        **end(holdout),
    }


@session
def retries_at_a_gate(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    holdout = registered(place, X, y, mechanism=GateLadder(0.1, horizon=5))

    def decided(key: str, count: int, margin: float | None = None) -> Any:
        origin = Origin(key=key, margin=margin, baseline=True)
        return ladder_of(holdout).decide(np.where(np.arange(400) < count, y, 1 - y), origin)

    asked: list[tuple[Any, ...]] = [("a", 240), ("b", 200), ("c", 300, 0.3), ("d", 320, 0.01)]
    decisions = [decided(*one) for one in (*asked, *asked, ("d", 395), ("d", 320, 0.2))]
    gone = holdout.owner.withdraw(4, reason="a leak")
    decisions += [decided("d", 320, 0.01), decided("e", 320, 0.01), decided("f", 330)]
    return {
        "decisions": decisions,
        "withdrawn": gone,
        "certificate": holdout.certificate(),
        **end(holdout),
    }


@session
def keys_and_searches(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, mechanism=ShakyLadder(step=0.02, noise=0.02))
    ladder = ladder_of(holdout)
    answers = [
        ladder.submit(right(y, count, seed), Origin(key=key, search=search, context={"t": seed}))
        for seed, (count, key, search) in enumerate(
            ((110, "1", "s"), (120, "2", "s"), (150, "2", "s"), (130, None, "s"), (120, "3", None))
        )
    ]
    for round_ in range(4):  # one training run, whose rounds are a batch
        origin = Origin(batch="fit", search="t", context={"round": round_})
        answers.append(ladder.submit(right(y, 140 + 9 * round_, 60 + round_), origin))
    for place_in in (3, 1, 2):  # candidates in the order in which workers bring them
        origin = Origin(batch="grid", place=place_in, search="u")
        answers.append(ladder.submit(right(y, 170 + place_in, 70 + place_in), origin))
    found = ladder.execute(commands.History(limit=commands.ALL, search="t")).submissions
    return {
        "answers": answers,
        "found": found,
        "certificate": holdout.certificate(),
        "estimate": holdout.estimate(),
        **end(holdout),
    }


# Boards and accounts


def record_of(board: Leaderboard, *accounts: str) -> dict[str, Any]:
    """Return all that a board shows, and the history of each account."""
    handles = [
        LadderHoldout.open(board.name, account=name, ladder=board.ladder, ledger=board.ledger)
        for name in accounts
    ]
    return {
        "standings": board.standings(),
        "certificates": {name: board.certificate(name) for name in accounts if name != "board"},
        "of_accounts": {name: end(one) for name, one in zip(accounts, handles, strict=True)},
    }


@session
def a_board_per_team(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    board = Leaderboard(X, y, scoring="accuracy", name="spring", ledger=place.ledger, budget=4)
    sent = (("Ada", 240), ("Ben", 260), ("Ada", 280), ("Cyd", 241), ("Ben", 261), ("Eve", 300))
    answers = [board.submit(who, right(y, count, count)) for who, count in sent]
    before = board.standings()
    board.merge("Ada", "Cyd")
    board.leave("Eve")
    answers += [board.submit("Cyd", right(y, 330, 9)), board.submit("Ada", right(y, 280, 280))]
    return {
        "answers": answers,
        "before": before,
        "at_another": board.standings(0.8),
        **record_of(board, "Ada", "Ben", "Cyd"),
    }


@session
def a_board_per_rank(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    board = Leaderboard(
        X, y, scoring="accuracy", name="ranks", per="rank", mechanism=RankLadder(0.02, places=3),
        ledger=place.ledger,
    )  # fmt: skip
    sent = (("Ada", 240), ("Ben", 260), ("Ada", 280), ("Cyd", 241), ("Ben", 290), ("Eve", 300))
    answers = [board.submit(who, right(y, count, count)) for who, count in sent]
    answers += [board.submit("Cyd", right(y, 280, 280)), board.submit("Ada", right(y, 330, 1))]
    board.merge("Ada", "Eve")
    board.leave("Ben")
    return {"answers": answers, **record_of(board, "board")}


@session
def rounds(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    board = Leaderboard(X, y, scoring="accuracy", name="spring", ledger=place.ledger, rounds=True)
    closed = []
    for sent in (
        (("Ada", 250), ("Ben", 280), ("Ada", 260)),
        (("Cyd", 350), ("Ben", 288), ("Eve", 399)),
        (("Ada", 320), ("Ben", 300), ("Cyd", 350)),
    ):
        waiting = [board.submit(who, right(y, count, count)) for who, count in sent]
        if sent[-1][0] == "Eve":
            board.take_out("Eve")
        round_ = board.close_round()
        assert round_ is not None
        closed.append([board.waiting(), waiting, round_.record, round_.releases])
    nothing = board.close_round()
    before = board.standings()
    return {
        "rounds": closed,
        "nothing": nothing,
        "on_record": board.rounds(),
        "before": before,
        **record_of(board, "Ada", "Cyd"),
    }


@session
def finals(place: Place) -> dict[str, Any]:
    X, y = coins(400)
    board = Leaderboard(X, y, scoring="accuracy", name="spring", ledger=place.ledger, reserve=0.5)
    for who, count in (("Ada", 300), ("Ben", 240), ("Ben", 310), ("Cyd", 360), ("Dan", 361)):
        board.submit(who, right(y, count, count))
    stated = board.finals({"Ada": 1, "Ben": [1, 2], "Cyd": None})
    same = board.finals()
    board.submit("Eve", right(y, 390, 5))
    again = board.finals(3, again=True)
    late = refused(lambda: board.finals({"Eve": 1, "Ada": 1}))
    last = board.replenish(*coins(300, 8), reserve=0.6)
    for who, count in (("Ada", 200), ("Ben", 250)):
        last.submit(who, right(coins(300, 8)[1], count, count))
    held = last.finals(confidence=0.9)
    return {
        "finals": [stated, same, again, held],
        "pairs": [one.pairs for one in (stated, again, held)],
        "refused": late,
        "held": [len(board.finals_held()), len(last.finals_held())],
        "last": record_of(last, "Ada"),
        **record_of(board, "Ada"),
    }


@session
def accounts_of_a_server(place: Place) -> dict[str, Any]:
    from ladderholdout.server import accounts
    from ladderholdout.server.settings import ServerSettings
    from ladderholdout.server.views import Served

    _, y = coins()
    registered(place, ledger=place.file, mechanism=SimplifiedLadder(step=0.01))
    served = Served(ServerSettings(ledger=place.file))
    issued = {
        name: accounts.add_account(place.file, "golden", name, role, **limits)
        for name, role, limits in (
            ("ada", "analyst", {"per_day": 3}),
            ("ben", "analyst", {"budget": 1}),
            ("cyd", "program", {}),
            ("dan", "reader", {}),
            ("eve", "owner", {}),
        )
    }
    held = {name: served.holder(one.token) for name, one in issued.items()}

    def submitted(name: str, count: int, number: int, **context: int) -> Any:
        command = commands.Submit(
            predictions=right(y, count, number), context=context or None, key=f"{name} {number}"
        )
        return served.view(held[name]).execute(command)

    answers: list[Any] = []
    for seed, count in enumerate((110, 130, 150, 160)):
        for name in ("ada", "ben", "cyd"):
            try:
                answers.append(submitted(name, count, seed, seed=seed))
            except LadderHoldoutError as error:
                answers.append(f"{type(error).__name__}: {name}")
    shown = {name: served.view(held[name]).execute(commands.Status()) for name in ("ada", "cyd")}
    retried = submitted("ada", 130, 1)
    accounts.limit_account(place.file, "golden", "ada", 9)
    rotated = accounts.rotate_token(place.file, "golden", "ben")
    revoked = accounts.revoke_token(place.file, "golden", "cyd")
    found = accounts.accounts_of(place.file, "golden")
    return {
        "answers": answers,
        "retried": retried,
        "refused": refused(lambda: accounts.add_account(place.file, "golden", "ada", "reader")),
        "status": shown,
        "changed": [rotated, revoked],
        "accounts": found,
        "valid": {one.name: one.valid for one in found},
        "of_ada": end(LadderHoldout.open("golden", account="ada", ledger=place.file)),
    }


# What others ask


@session
def searches(place: Place) -> dict[str, Any]:
    from sklearn.model_selection import GridSearchCV, GroupKFold
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(4)
    X = rng.standard_normal((360, 3)).round(2)
    y = (X[:, 0] + rng.standard_normal(360) > 0).astype(int)
    holdout = registered(place, X[:160], y[:160])
    tree, grid = DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 4]}
    by_itself = GridSearchCV(
        tree, grid, scoring=holdout, cv=holdout.split(), refit=holdout.select
    ).fit(X[160:], y[160:])
    guarded = holdout.guard(GridSearchCV(tree, grid, cv=3), finalists=2).fit(X[150:350], y[150:350])
    grouped = GridSearchCV(
        tree, {"max_depth": [3]}, scoring=holdout, cv=holdout.split(GroupKFold(2)), refit=False
    )
    with suppress(LadderHoldoutError):
        grouped.fit(X[160:], y[160:], groups=np.arange(200) // 2)
    notes = [refused(lambda: holdout.owner.withdraw_note("nobody", reason="none"))]
    doubts = holdout.certificate()
    holdout.owner.withdraw_note("groups of the fit", reason="rows are drawn one by one")
    return {
        "best": by_itself.best_params_,
        "results": {
            name: by_itself.cv_results_[name].tolist()
            for name in ("is_incumbent", "mean_test_score")
        },
        "finalists": [(one.release, one.is_incumbent) for one in guarded.finalists_],
        "of_search": guarded.certificate_,
        "notes": notes,
        "certificate": doubts,
        "later": holdout.certificate(),
        **end(holdout),
    }


@session
def audits(place: Place) -> dict[str, Any]:
    _, y = coins()
    holdout = registered(place, mechanism=ParameterFreeLadder(), reserve=0.2)
    climb(holdout, y, (110, 130, 129, 150))
    with holdout.batch() as batch:
        for seed in range(3):
            batch.submit(right(y, 140 + 10 * seed, seed))
    X, fresh = coins(300, 9)
    before = holdout.certificate()
    audit = holdout.owner.audit((X, fresh), right(fresh, 240, 3))
    later = holdout.submit(right(y, 180, 9))
    return {
        "audit": audit,
        "verdict": str(audit.verdict),
        "later": later,
        "before": before,
        "after": holdout.certificate(),
        "reserve": holdout.reserve_certificate(),
        **end(holdout),
    }


@session
def on_postgresql(place: Place) -> dict[str, Any]:
    X, y = coins()
    vault = place.folder / "vault"
    given = {"vault": vault, "mechanism": ShakyLadder(step=0.02, noise=0.02), "reserve": 0.3}
    holdout = registered(place, **given)
    answers = climb(holdout, y, (100, 130, 128, 150))
    with holdout.batch() as batch:
        for seed in range(3):
            batch.submit(right(y, 150 + 7 * seed, seed))
    gone = holdout.owner.withdraw(4, reason="a leak")
    board = Leaderboard(X, y, scoring="accuracy", ledger=place.ledger, vault=vault, rounds=True)
    waiting = [board.submit(who, right(y, 170, 3)) for who in ("Ada", "Ben")]
    round_ = board.close_round()
    assert round_ is not None
    second = holdout.replenish(*coins(200, 5))
    answers += climb(second, coins(200, 5)[1], (120, 150))
    return {
        "answers": [*answers, *batch.releases],
        "withdrawn": gone,
        "reserve": second.reserve_certificate(),
        "compared": second.compare(2, 1),
        "round": [waiting, round_.record, round_.releases],
        "record": end(holdout),
        **end(second),
    }


# The command


def compared(name: str, url: str | None = None) -> list[str]:
    """Return where the answer of a session is not the written one, to the bit."""
    return list(differences(recorded(name), answer_of(name, url), to_the_bit=True))


def write(name: str, url: str | None = None) -> None:
    """Write the answer of a session."""
    text = written(answer_of(name, url)) + "\n"
    (ANSWERS / f"{name}.json").write_text(text, encoding="utf-8")


@contextmanager
def databases(names: Sequence[str]) -> Iterator[Callable[[str], str | None]]:
    """Yield a function from a session's name to the URL of an empty database, if it needs one."""
    if ON_A_SERVER not in names:
        yield lambda name: None
        return
    from tests.support.postgres import server

    with server() as running:
        yield lambda name: running.database() if name == ON_A_SERVER else None


def main(*words: str) -> int:
    """Write the answers of all sessions or of those named, or say which are equal to the bit."""
    writing, chosen = "--write" in words, [word for word in words if word != "--write"]
    unequal, chosen = 0, chosen or list(SESSIONS)
    with databases(chosen) as url:
        for name in chosen:
            began = time.process_time()
            if writing:
                write(name, url(name))
            found = compared(name, url(name))
            unequal += bool(found)
            spent = time.process_time() - began
            print(f"{'DIFFERS' if found else 'equal':8} {name} ({spent:.2f} s)")
            for difference in found[:10]:
                print(f"         {difference}")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
