"""Attack the time of a rejection by its rank correlation with the raw score, and the server's grid.

The gate names the functions that a decision calls, and gives the grid a clock of its own. The
nightly tests read the clock: they take 10,000 times, and on a busy machine these alone see no
complex logarithm.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
from ladderholdout.server import grid
from ladderholdout.server.app import create_app
from ladderholdout.server.grid import Alarms, OnGrid, due
from ladderholdout.server.settings import ServerSettings
from tests.support.ledgers import set_clock
from tests.support.server import registered, rows, serving, token_of

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


def test_the_probability_is_that_of_draws() -> None:
    """Of 100,000 weightings, drawn with NumPy alone: within 5 standard deviations, 6e-7 each."""
    rng = np.random.default_rng(1)
    d = np.column_stack([differences(kind, rng) for kind in KINDS])
    wins = np.concatenate([rng.standard_exponential((10_000, 120)) @ d < 0 for _ in range(10)])
    found = np.array([resampling.probability_below_zero(one) for one in d.T])
    error = np.sqrt(np.maximum(found * (1 - found), 1e-9) / len(wins))
    off = np.abs(wins.mean(axis=0) - found) > 5 * error
    assert [kind for kind, wrong in zip(KINDS, off, strict=True) if wrong] == []


def test_the_product_is_that_of_its_logarithms() -> None:
    """At each end of a chunk, against complex logarithms."""
    t = np.linspace(0.0, 20.0, 160)
    for n in (2, 7, 8, 9, 407, 408, 409, 2000):
        d = np.random.default_rng(n).normal(size=n)
        s = 0.01 + 1j * np.sinh(t) / math.sqrt(n)
        product, exponents = resampling._product(s, d)
        logs = np.log(1.0 - np.multiply.outer(s, d)).sum(axis=1)
        found = np.log(product) + exponents * math.log(2.0)
        np.testing.assert_allclose(found.real, logs.real, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(np.exp(1j * (found.imag - logs.imag)), 1.0, atol=1e-8)
        assert (np.abs(product) <= 1.5).all() and (np.abs(product) >= 0.5).all(), n


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


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc"])
def test_the_time_on_record_is_that_of_the_arrival(
    scoring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history shows it, and would show how long the decision took."""
    rng, decided, moment = np.random.default_rng(3), [], datetime(2026, 1, 1, tzinfo=UTC)
    step = LadderRules.step

    def tick() -> datetime:
        nonlocal moment
        moment += timedelta(seconds=1)
        return moment

    def noted(*given: Any) -> Any:
        decided.append(tick())
        return step(*given)

    y = rng.integers(0, 2, 60)
    holdout = LadderHoldout(rng.normal(size=(60, 2)), y, scoring=scoring, ledger="memory")
    set_clock(monkeypatch, tick)
    monkeypatch.setattr(LadderRules, "step", noted)
    arrived = []
    for _ in range(5):
        arrived.append(tick())
        holdout.submit(rng.integers(0, 2, 60) if scoring == "accuracy" else rng.random(60))
    times = [entry.time for entry in holdout.history()]
    assert len(times) == len(decided) == 5
    assert all(a < b < c for a, b, c in zip(arrived, times, decided, strict=True))


# -- the grid of the server ---------------------------------------------------------------


def test_a_moment_of_the_grid_is_after_the_work() -> None:
    for step in (0.001, 0.025, 1.0):
        for taken in (0.0, 0.4, 0.999, 1.0, 1.3, 17.2):
            moment = due(50.0, 50.0 + taken * step, step)
            assert -1e-9 <= moment - (50.0 + taken * step) <= step * (1 + 1e-6)
            steps = (moment - 50.0) / step
            assert steps == pytest.approx(round(steps), abs=1e-6)


class Clock:
    """A clock for the grid that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


async def answer(application: Any, scope: Any, receive: Any) -> list[Any]:
    """Ask an application, and return all that it sends."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return sent


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(grid, "time", found)
    return found


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    """The moments for which the grid sets an alarm; each rings at once, and it is then."""
    found: list[float] = []

    async def at(_: Alarms, moment: float) -> None:
        assert moment > clock.now
        found.append(moment)
        clock.now = moment

    monkeypatch.setattr(Alarms, "at", at)
    return found


def on_grid(
    clock: Clock, work: float, status: int = 200, pauses: tuple[float, ...] = (0.0,)
) -> Any:
    """Ask an application that works so long, on a grid of 20 ms; the request comes in parts."""
    left = list(pauses)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        clock.now += work
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    async def receive() -> Any:
        clock.now += left.pop(0)
        return {"type": "http.request", "body": b"x", "more_body": bool(left)}

    return asyncio.run(answer(OnGrid(app, 20), {"type": "http"}, receive))


@pytest.mark.parametrize(
    ("work", "steps"),
    [(0.0, 1), (0.0009, 1), (0.005, 1), (0.0199, 1), (0.021, 2), (0.039, 2), (0.045, 3)],
)
def test_an_answer_waits_for_the_grid(
    clock: Clock, alarms: list[float], work: float, steps: int
) -> None:
    """All work that ends within a step is answered at the same moment."""
    clock.now = 7.0
    sent = on_grid(clock, work)
    assert alarms == [pytest.approx(7.0 + 0.02 * steps, abs=1e-9)]
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]


def test_a_refusal_waits_for_the_grid_as_well(clock: Clock, alarms: list[float]) -> None:
    statuses = [204, 303, 401, 404, 409, 422, 429, 500]
    for status in statuses:
        clock.now = 0.0
        assert on_grid(clock, 0.001, status)[0]["status"] == status
    assert alarms == pytest.approx([0.02] * len(statuses))


def test_the_grid_begins_with_the_last_part_of_a_request(clock: Clock, alarms: list[float]) -> None:
    """Else who sends it chooses where in the grid the work ends."""
    on_grid(clock, 0.0, pauses=(0.007, 0.007, 0.007))
    assert alarms == [pytest.approx(0.021 + 0.02)]


def test_answers_wait_in_order_and_without_a_thread_each(clock: Clock) -> None:
    async def run() -> None:
        alarms, rung = Alarms(), []

        async def wait(moment: float) -> None:
            await alarms.at(moment)
            rung.append(moment)

        async def until(moment: float) -> None:
            clock.now = moment
            with alarms._changed:
                alarms._changed.notify()

        before = set(threading.enumerate())
        waiting = [asyncio.ensure_future(wait(1000.0 * (1 + at % 2))) for at in range(500)]
        await asyncio.sleep(0)
        assert len(set(threading.enumerate()) - before) == 1 and rung == []
        await until(1000.0)
        await asyncio.gather(*waiting[::2])
        assert rung == [1000.0] * 250
        await until(2000.0)
        await asyncio.gather(*waiting)
        assert rung == [1000.0] * 250 + [2000.0] * 250

    asyncio.run(run())


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

    def taken(work: float) -> float:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            end = time.monotonic() + work
            await asyncio.to_thread(
                lambda: [None for _ in iter(lambda: time.monotonic() < end, False)]
            )
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def run() -> float:
            begun = time.monotonic()
            await answer(OnGrid(app, 10), {"type": "http"}, None)
            return time.monotonic() - begun

        return asyncio.run(run())

    rng = np.random.default_rng(4)
    work = rng.uniform(0.0, 0.0009, 600)
    times = [taken(float(one)) for one in work]
    assert abs(stats.spearmanr(work, times).statistic) * math.sqrt(599) < ALARM


@pytest.mark.parametrize("given", [0, -1, 10_001])
def test_a_grid_that_is_none_is_refused(given: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="time-grid"):
        ServerSettings(ledger=str(tmp_path / "ledger.db"), time_grid=given)


# Method, path, whether with a token, the body, the status of the answer.
ASKED: list[tuple[str, str, bool, Any, int]] = [
    ("GET", "/healthz", False, None, 200),
    ("GET", "/sign-in", False, None, 200),
    ("GET", "/v1/holdouts", False, None, 401),
    ("POST", "/v1/holdouts/churn/status", True, None, 200),
    ("POST", "/v1/holdouts/nobodys/describe", True, None, 404),
    ("POST", "/v1/holdouts/churn/submit", True, slice(None), 200),
    ("POST", "/v1/holdouts/churn/submit", True, slice(None), 200),
    ("POST", "/v1/holdouts/churn/submit", True, slice(1, None), 422),
    ("POST", "/v1/holdouts/churn/submit", True, "x", 422),
]


def body_of(what: Any) -> bytes:
    if what is None:
        return b""
    given = rows()[1][what].tolist() if isinstance(what, slice) else what
    return json.dumps({"predictions": given}).encode()


def test_each_answer_of_a_server_sets_one_alarm_on_its_grid(
    tmp_path: Path, alarms: list[float]
) -> None:
    """The clock stands still but for the alarms: each is one step after the last."""
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    app = create_app(ServerSettings(str(ledger), time_grid=150))

    async def ask(method: str, path: str, known: bool, body: bytes) -> int:
        kept = [{"type": "http.request", "body": body, "more_body": False}]
        headers = [(b"host", b"a"), (b"content-type", b"application/json")]
        headers += [(b"authorization", f"Bearer {token}".encode())] * known
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
            "headers": headers,
        }  # fmt: skip

        async def receive() -> Any:
            return kept.pop() if kept else await asyncio.Event().wait()

        return int((await answer(app, scope, receive))[0]["status"])

    with asyncio.Runner() as runner:
        for method, path, known, what, status in ASKED:
            assert (runner.run(ask(method, path, known, body_of(what))), path) == (status, path)
    assert alarms == pytest.approx(0.15 * np.arange(1, len(ASKED) + 1))


@pytest.mark.nightly
def test_each_answer_of_a_server_is_on_its_grid(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(ledger, tmp_path, "--time-grid", "150") as server:
        for method, path, known, what, status in ASKED:
            found = server.ask(
                method, path, token if known else None, data=body_of(what),
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
            assert (found.status_code, path) == (status, path), found.text
            assert found.elapsed.total_seconds() >= 0.149, path
