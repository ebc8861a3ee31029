"""Attack the time of a rejection by its rank correlation with the raw score, and the server's grid.

The quick tests name what a decision calls, and fail where a logarithm comes back. The slow ones
take 10,000 times: on a busy machine these alone see no complex logarithm.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    matthews_corrcoef,
    roc_auc_score,
)

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import BayesBootLadder, GateLadder, LadderRules, fresh_rng, resampling
from ladderholdout.metrics import get_metric
from ladderholdout.server.grid import Alarms, OnGrid, due
from ladderholdout.server.settings import ServerSettings

SCORES: dict[str, Callable[..., float]] = {
    "f1": f1_score,
    "roc_auc": roc_auc_score,
    "matthews_corrcoef": matthews_corrcoef,
    "balanced_accuracy": balanced_accuracy_score,
    "average_precision": average_precision_score,
}
# Functions whose time depends on their arguments: glibc's take other ways near 1, where a number
# is negative, and where the result is smaller than the normal numbers.
UNEVEN = ("any", "all", "exp", "extract", "log", "log1p", "nonzero", "power", "sort", "unique")


class Counted:
    """NumPy with a note of which of these functions is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in UNEVEN:
            self.asked.append(name)
        return getattr(np, name)


def differences(kind: str, rng: np.random.Generator) -> NDArray[Any]:
    """What a decision weighs: of losses, of one size, with zeros, of one sign, nothing."""
    values = rng.normal(size=120)
    return {
        "any": values,
        "one size": np.sign(values),
        "with zeros": np.where(values > 1, 0.0, values),
        "gains": -np.abs(values),
        "costs": np.abs(values),
        "zeros": np.zeros(120),
        "far apart": values * 10.0 ** rng.integers(-9, 3, 120),
    }[kind]


KINDS = ("any", "one size", "with zeros", "gains", "costs", "zeros", "far apart")


@pytest.mark.parametrize("kind", KINDS)
def test_a_probability_is_worked_out_by_even_functions(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    monkeypatch.setattr(resampling, "np", counted)
    resampling.probability_below_zero(differences(kind, np.random.default_rng(0)))
    assert counted.asked == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_probability_is_that_of_draws(kind: str) -> None:
    """Of 200,000 weightings, drawn with NumPy alone: within 5 standard deviations, 6e-7 each."""
    rng = np.random.default_rng(1)
    d = differences(kind, rng)
    wins = np.concatenate([rng.standard_exponential((10_000, 120)) @ d < 0 for _ in range(20)])
    found = resampling.probability_below_zero(d)
    assert abs(wins.mean() - found) <= 5 * math.sqrt(max(found * (1 - found), 1e-9) / len(wins))


@pytest.mark.parametrize("rows", [2, 7, 8, 9, 407, 408, 409, 5000])
def test_the_product_is_that_of_its_logarithms(rows: int) -> None:
    """At each end of a chunk, against complex logarithms."""
    rng = np.random.default_rng(rows)
    d, t = rng.normal(size=rows), np.linspace(0.0, 20.0, 160)
    s = 0.01 + 1j * np.sinh(t) / math.sqrt(rows)
    product, exponents = resampling._product(s, d)
    logs = np.log(1.0 - np.multiply.outer(s, d)).sum(axis=1)
    found = np.log(product) + exponents * math.log(2.0)
    np.testing.assert_allclose(found.real, logs.real, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(np.exp(1j * (found.imag - logs.imag)), 1.0, atol=1e-8)
    assert (np.abs(product) <= 1.5).all() and (np.abs(product) >= 0.5).all()


# -- the rank correlation of time and raw score -------------------------------------------

# Under independence the rank correlation of N pairs has mean 0 and variance 1 / (N - 1) exactly, as
# the raw scores come in random order. Of 10,000 pairs it lies beyond 4.5 standard deviations with
# a probability of 7e-6.
REJECTIONS, ALARM = 10_000, 4.5


def deviations(name: str, count: int, n: int = 400) -> float:
    """Return the rank correlation of the time of a decision with its raw score, in deviations.

    Of three measurements of a decision, each in another order, the shortest counts: what else the
    machine does only takes longer.
    """
    rng, metric = np.random.default_rng(7), get_metric(name)
    y = rng.permutation(np.arange(n) % 2)

    def drawn() -> NDArray[Any]:
        if metric.response == "labels":
            return rng.permutation(np.arange(n) % 2).astype(np.int32)
        return rng.normal(size=n)

    # Few draws: the rest of a decision is what is told from noise here.
    rules = LadderRules(BayesBootLadder(99, n_posterior=20, step=0.05))
    first = min((drawn() for _ in range(9)), key=lambda one: metric.evaluate(y, one).risk)
    state, _ = rules.step(rules.start(n), metric.evaluate(y, first), fresh_rng(b"s", 1, 0))
    tried = [drawn() for _ in range(count)]
    raw = np.array([SCORES[name](y, one) for one in tried])
    times, rejected = np.full((3, count), np.nan), np.zeros(count, bool)
    for row in times:
        for at in rng.permutation(count):
            evaluation, draws = metric.evaluate(y, tried[at]), fresh_rng(b"s", 1, int(at) + 1)
            begun = time.thread_time_ns()
            _, outcome = rules.step(state, evaluation, draws)
            row[at] = time.thread_time_ns() - begun
            rejected[at] = not outcome.improved
    assert rejected.sum() > 0.95 * count
    best = times.min(axis=0)[rejected]
    found = stats.spearmanr(best, raw[rejected]).statistic
    return float(found * math.sqrt(rejected.sum() - 1))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*SCORES])
def test_the_time_of_a_rejection_has_no_rank_correlation_with_its_score(name: str) -> None:
    assert abs(deviations(name, REJECTIONS)) < ALARM


@pytest.mark.nightly
@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_the_time_of_a_gates_refusal_has_no_rank_correlation_with_the_gain(margin: float) -> None:
    """With a margin what was worse was refused early: 600 candidates that turn 40 rows of 1,000."""
    rng, metric, n, count = np.random.default_rng(8), get_metric("accuracy"), 1000, 600
    y, base = rng.integers(0, 2, n), rng.integers(0, 2, n)
    rules = LadderRules(GateLadder(margin=margin))
    state, _ = rules.step(rules.start(n), metric.evaluate(y, base), fresh_rng(b"s", 1, 0))
    tried = []
    for _ in range(count):
        turned = base.copy()
        turned[rng.choice(n, 40, replace=False)] ^= 1
        tried.append(metric.evaluate(y, turned))
    times, refused = np.full((3, count), np.nan), np.zeros(count, bool)
    for row in times:
        for at in rng.permutation(count):
            begun = time.thread_time_ns()
            _, outcome = rules.step(state, tried[at], fresh_rng(b"s", 1, 1))
            row[at] = time.thread_time_ns() - begun
            refused[at] = not outcome.improved
    best, risks = times.min(axis=0)[refused], np.array([one.risk for one in tried])[refused]
    assert refused.sum() > 0.95 * count
    assert abs(stats.spearmanr(best, risks).statistic) * math.sqrt(len(best) - 1) < ALARM


def with_logarithms(d: NDArray[Any], saddle: float) -> float:
    """What the integral was: the same numbers, by complex logarithms of products of eight."""
    ratios = d / (1.0 - saddle * d)
    second = float((ratios**2).sum()) + saddle**-2
    third = 2.0 * (float((ratios**3).sum()) - saddle**-3)
    width = second**-0.5
    bend = min(max(width * third / (3.0 * second), -1.0), 1.0)
    t = np.arange(0.0, 24.0, 0.15)
    s = saddle + width * (1j * np.sinh(t) + bend * (np.cosh(t) - 1.0))
    slope = width * (1j * np.cosh(t) + bend * np.sinh(t))
    rows = np.pad(d, (0, -len(d) % 8)).reshape(8, -1)
    product = (1.0 - np.multiply.outer(s, rows)).prod(axis=1)
    values = (np.exp(-np.log(product).sum(axis=1)) / s * slope).imag
    return float(values.sum() - values[0] / 2) * 0.15 / math.pi


def test_the_integral_is_what_it_was_by_logarithms() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        d = rng.normal(-0.05, 1.0, 300)
        d = -d if d.sum() > 0 else d
        d /= np.abs(d).max()
        saddle = resampling._saddle(d)
        assert resampling._tail(d, saddle) == pytest.approx(with_logarithms(d, saddle), abs=1e-11)


# -- the record ---------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["accuracy", "f1", "roc_auc", "neg_log_loss"])
def test_the_time_on_record_is_that_of_the_arrival(
    scoring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history shows it, and would show how long the decision took."""
    rng, decided = np.random.default_rng(3), []
    step = LadderRules.step

    def noted(*given: Any) -> Any:
        decided.append(datetime.now(UTC))
        return step(*given)

    monkeypatch.setattr(LadderRules, "step", noted)
    y = rng.integers(0, 2, 60)
    holdout = LadderHoldout(rng.normal(size=(60, 2)), y, scoring=scoring, ledger="memory")
    labels = scoring in ("accuracy", "f1")
    begun = datetime.now(UTC)
    for _ in range(5):
        holdout.submit(rng.integers(0, 2, 60) if labels else rng.random(60))
    times = [entry.time for entry in holdout.history()]
    assert len(times) == len(decided) == 5 and begun <= times[0] and times == sorted(times)
    assert all(time < moment for time, moment in zip(times, decided, strict=True))


# -- the grid of the server ---------------------------------------------------------------


def test_a_moment_of_the_grid_is_after_the_work() -> None:
    for step in (0.001, 0.025, 1.0):
        for taken in (0.0, 0.4, 0.999, 1.0, 1.3, 17.2):
            moment = due(50.0, 50.0 + taken * step, step)
            assert -1e-9 <= moment - (50.0 + taken * step) <= step * (1 + 1e-6)
            steps = (moment - 50.0) / step
            assert steps == pytest.approx(round(steps), abs=1e-6)


def answered(
    work: float, status: int = 200, step: int = 20, parts: int = 1, pause: float = 0.0
) -> tuple[float, list[Any]]:
    """Ask an application on the grid; return the seconds from the last part to its answer."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        end = time.monotonic() + work
        await asyncio.to_thread(lambda: [None for _ in iter(lambda: time.monotonic() < end, False)])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    async def run() -> tuple[float, list[Any]]:
        left, sent, moments = parts, [], [0.0, 0.0]

        async def receive() -> Any:
            nonlocal left
            left -= 1
            if pause:
                await asyncio.sleep(pause)
            moments[0] = time.monotonic()
            return {"type": "http.request", "body": b"x", "more_body": left > 0}

        async def send(message: Any) -> None:
            if not sent:
                moments[1] = time.monotonic()
            sent.append(message)

        await OnGrid(app, step)({"type": "http"}, receive, send)
        return moments[1] - moments[0], sent

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("work", "least"), [(0.0, 0.02), (0.005, 0.02), (0.015, 0.02), (0.025, 0.04), (0.045, 0.06)]
)
def test_an_answer_waits_for_the_grid(work: float, least: float) -> None:
    taken, sent = answered(work)
    assert taken >= least
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]


@pytest.mark.parametrize("status", [204, 303, 401, 404, 409, 422, 429, 500])
def test_a_refusal_waits_for_the_grid_as_well(status: int) -> None:
    taken, sent = answered(0.001, status)
    assert taken >= 0.02 and sent[0]["status"] == status


def test_the_grid_begins_with_the_last_part_of_a_request() -> None:
    """Else who sends it chooses where in the grid the work ends."""
    taken, _ = answered(0.0, parts=3, pause=0.007)
    assert taken >= 0.02


def test_answers_wait_without_a_thread_each() -> None:
    async def run() -> float:
        alarms, begun = Alarms(), time.monotonic()
        await asyncio.gather(*(alarms.at(begun + 0.05) for _ in range(500)))
        return time.monotonic() - begun

    # One after the other they would take 25 seconds.
    assert 0.05 <= asyncio.run(run()) < 10


def test_a_wait_that_is_cancelled_disturbs_no_other() -> None:
    async def run() -> None:
        alarms, now = Alarms(), time.monotonic()
        gone = asyncio.ensure_future(alarms.at(now + 0.01))
        stays = asyncio.ensure_future(alarms.at(now + 0.02))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        await alarms.at(time.monotonic() + 0.01)

    asyncio.run(run())


@pytest.mark.nightly
def test_the_time_of_an_answer_has_no_rank_correlation_with_its_work() -> None:
    """Work of 0 to .9 ms: a loop's own timer, which counts whole milliseconds from the moment at
    which it is set, would end as much later. 600 answers, as above.
    """
    rng = np.random.default_rng(4)
    work = rng.uniform(0.0, 0.0009, 600)
    taken = [answered(float(one), step=10)[0] for one in work]
    assert abs(stats.spearmanr(work, taken).statistic) * math.sqrt(599) < ALARM


@pytest.mark.parametrize("given", [0, -1, 10_001])
def test_a_grid_that_is_none_is_refused(given: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="time-grid"):
        ServerSettings(ledger=str(tmp_path / "ledger.db"), time_grid=given)


@pytest.mark.processes
def test_each_answer_of_a_server_is_on_its_grid(tmp_path: Path) -> None:
    from tests.support.server import registered, rows, serving, token_of

    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token, labels = token_of(ledger, "ada"), rows()[1].tolist()
    with serving(ledger, tmp_path, "--time-grid", "150") as server:
        name = requests_name(server, token)
        place = f"/v1/holdouts/{name}"
        asked: list[tuple[str, str, str | None, Any, int]] = [
            ("GET", "/healthz", None, None, 200),
            ("GET", "/sign-in", None, None, 200),
            ("GET", "/v1/holdouts", None, None, 401),
            ("GET", f"{place}/status", token, None, 200),
            ("GET", "/v1/holdouts/nobodys", token, None, 404),
            ("POST", f"{place}/submissions", token, labels, 200),
            ("POST", f"{place}/submissions", token, labels, 200),
            ("POST", f"{place}/submissions", token, labels[1:], 422),
            ("POST", f"{place}/submissions", token, {"predictions": "x"}, 422),
        ]
        for method, path, holder, body, status in asked:
            sent = {} if body is None else {"data": json.dumps(wrapped(body))}
            answer = server.ask(
                method, path, holder, headers={"Content-Type": "application/json"}, **sent
            )
            assert (answer.status_code, path) == (status, path), answer.text
            assert answer.elapsed.total_seconds() >= 0.149, path


def wrapped(body: Any) -> Any:
    return body if isinstance(body, dict) else {"predictions": body}


def requests_name(server: Any, token: str) -> str:
    return str(server.ask("GET", "/v1/holdouts", token).json()["holdouts"][0]["name"])
