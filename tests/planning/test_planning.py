"""Attacks the planner: bounds that a search breaks, inversions that miss."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from benchmarks.papers._bounds import compare
from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.group_limits import Groups, share_of_groups
from ladderholdout.certificates.reserve_intervals import reserve_log_count
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.batches import ranked
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import (
    FINALISTS,
    GateLadder,
    Ladder,
    LadderRules,
    PairedTestLadder,
    ParameterFreeLadder,
    ShakyLadder,
    default_mechanism,
)
from ladderholdout.mechanisms.base import State, takes_groups
from ladderholdout.metrics import Evaluation, get_metric
from ladderholdout.planning import (
    Plan,
    fixed_width,
    learning_width,
    plan,
    plan_decisions,
    plot,
    reserve_width,
    rows_needed,
)
from tests.support.beyond_plain import needs_matplotlib
from tests.support.commands import CliRunner

N, SUBMISSIONS = 500, 100


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(n=N, submissions=SUBMISSIONS, width=0.06)


# -- widths that are proved ---------------------------------------------------------------


def test_groups_are_planned_for_the_rows_that_they_are_worth() -> None:
    """Widths that were measured on groups are near those of as many independent rows."""
    grouped = plan(n=3000, submissions=50, width=0.05, groups=150, correlation=0.2)
    alone = plan(n=625, submissions=50, width=0.05)
    assert grouped.independent == 625 and grouped.n == 3000
    assert grouped.finalists.width == alone.finalists.width
    assert grouped.finalists.rows_needed == math.ceil(alone.finalists.rows_needed * 4.8)
    assert "In 150 groups they are worth 625 independent rows" in str(grouped)
    assert "State groups=groups." in str(grouped)
    # Rules that compare single rows are refused with groups, and so never recommended.
    assert all(takes_groups(type(way.mechanism)) for way in grouped.ways)
    # A group is worth a row at least, and rows that are alike in nothing are worth themselves.
    for correlation, worth in ((1.0, 150), (0.0, 3000)):
        asked = {"n": 3000, "submissions": 9, "groups": 150}
        assert plan(**asked, correlation=correlation).independent == worth
    generator = np.random.default_rng(0)
    groups = Groups.of(np.repeat(np.arange(150), 20), "rows")
    rates = generator.beta(0.9 * 4, 0.1 * 4, (40, 150))  # a correlation of 1/(1 + 4)
    widths = []
    for rate in rates:
        hits = generator.random(3000) < np.repeat(rate, 20)
        level = math.log(0.025)
        limits = share_of_groups(hits * 1.0, np.ones(3000), groups, level, rng=generator)
        widths.append((limits.high - limits.low) / 2)
    assert 0.9 < np.mean(widths) / (1.96 * math.sqrt(0.09 / 625)) < 1.25


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"groups": 1}, "groups must be a whole number from 2 to the number of rows, 300"),
        ({"groups": 301}, "groups must be"),
        ({"groups": 30, "correlation": 1.5}, "correlation must be"),
        ({"groups": 30, "correlation": -0.1}, "correlation must be"),
    ],
)
def test_groups_that_cannot_be_are_refused(stated: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        plan(n=300, submissions=10, **stated)


def test_the_widths_are_those_of_the_certificates_table() -> None:
    table = {row.name: row.width for row in compare(5000, 1000, 8, 0.05)}
    assert fixed_width(5000, 1000, 0.05) == table["a grid of 1000"]
    # The ninth release pays for eight before it.
    assert learning_width(5000, 1000, 0.05, Ladder(0.01), 9) == table["1000 adaptive, step 0.01"]
    free = learning_width(5000, 1000, 0.05, ParameterFreeLadder(), 9)
    assert free == table["1000 adaptive, step 1/n"]
    rule = PairedTestLadder(0.05), 9
    assert (
        learning_width(5000, 1000, 0.05, *rule, show="improvements")
        == table["1000 adaptive, improvements"]
    )


def test_a_first_submission_pays_for_nothing_but_its_place() -> None:
    alone = certify(0.1, 1000, Transcript.alone()).high - 0.1
    assert fixed_width(1000, 1, 0.1, announced=True) == alone
    batch = certify(0.1, 1000, Transcript(0, 1, (), event=1)).high - 0.1
    assert fixed_width(1000, 1, 0.1) == batch
    assert learning_width(1000, 1, 0.1, ParameterFreeLadder(), 5) == alone
    assert learning_width(1000, 50, 0.1, ParameterFreeLadder(), 1) == alone


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_transcript_within_the_budget_is_wider_than_what_was_proved(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([50, 1000, 20_000]))
    step = data.draw(st.sampled_from([0.01, 0.05, 0.1]))
    submissions = data.draw(st.integers(2, 200))
    place = data.draw(st.integers(2, submissions))
    count = data.draw(st.integers(1, min(place - 1, 10)))
    later = st.integers(2, max(place - 1, 2))
    improved = sorted(data.draw(st.sets(later, min_size=count - 1, max_size=count - 1)) | {1})
    values = st.integers(0, round(1 / step))
    told = sorted(data.draw(st.sets(values, min_size=count, max_size=count)), reverse=True)
    ladder = LadderTranscript(place - 1, tuple(improved), tuple(told), round(1 / step) + 1)
    happened = certify(0.1, n, Transcript.alone(ladder), rounding=step)
    proved = learning_width(n, submissions, 0.1, Ladder(step), count + 1)
    assert happened.high - 0.1 <= proved + 1e-12


def test_a_look_at_the_reserve_pays_for_being_the_first() -> None:
    log_level = math.log(0.05 / 2) - reserve_log_count(1)
    assert reserve_width(300, 0.1) == exact_upper(30, 300, log_level) - 0.1


def test_more_releases_submissions_and_confidence_prove_less() -> None:
    def width(submissions: int = 100, budget: int = 5, confidence: float = 0.95) -> float:
        return learning_width(2000, submissions, 0.1, Ladder(0.01), budget, confidence)

    assert width() < min(width(budget=6), width(submissions=101), width(confidence=0.96))
    assert fixed_width(2000, 100, 0.1) < fixed_width(2000, 101, 0.1) < width()
    assert reserve_width(2000, 0.1) < fixed_width(2000, 1, 0.1) < reserve_width(1000, 0.1)


@pytest.mark.parametrize("width", [0.3, 0.03, 0.003])
@pytest.mark.parametrize("risk", [0.01, 0.1, 0.5])
def test_the_rows_needed_are_enough_and_hardly_more(risk: float, width: float) -> None:
    for width_at in (
        lambda n: fixed_width(n, 200, risk),
        lambda n: learning_width(n, 200, risk, ParameterFreeLadder(), 7),
        lambda n: reserve_width(n, risk),
    ):
        rows = rows_needed(width_at, width)
        assert rows is not None
        assert width_at(rows) <= width
        # One whole error more or less is the grain of all of them.
        assert width_at(math.floor(0.95 * rows) - 2) > width - 2 / rows


def test_no_number_of_rows_helps_against_a_step_that_is_too_large() -> None:
    assert rows_needed(lambda n: learning_width(n, 100, 0.1, Ladder(0.1), 3), 0.04) is None


def test_a_ladder_with_noise_proves_nothing_here() -> None:
    with pytest.raises(InvalidArgument, match="mechanism must be a ladder without noise"):
        learning_width(N, 10, 0.1, ShakyLadder(0.1, 0.01), 3)


# -- plans ----------------------------------------------------------------------------------


def test_a_plan_is_what_the_bounds_say(planned: Plan) -> None:
    learning = planned.learning
    assert planned.fixed.width == fixed_width(N, SUBMISSIONS, 0.1)
    assert planned.finalists.width == fixed_width(N, FINALISTS, 0.1, announced=True)
    assert learning.width == min(
        learning_width(N, SUBMISSIONS, 0.1, learning.mechanism, 5, show=show)
        for show in ("scores", "improvements")
    )
    rows = round(planned.reserved.reserve * N)
    assert planned.reserved.width == reserve_width(rows, 0.1)
    for way in planned.ways:
        assert way.within(way.width)
        assert way.within(planned.width or 1.0) == ((way.rows_needed or 0) <= N)


def test_the_limits_of_a_plan_are_sharp(planned: Plan) -> None:
    most, least = planned.most_releases, planned.least_reserve
    assert most is not None and most > 0 and least is not None
    rule, show = planned.learning.mechanism, planned.learning.show
    assert learning_width(N, SUBMISSIONS, 0.1, rule, most, show=show) <= 0.06
    assert learning_width(N, SUBMISSIONS, 0.1, rule, most + 1, show=show) > 0.06
    assert reserve_width(round(least * N), 0.1) <= 0.06
    assert reserve_width(round((least - 0.01) * N), 0.1) > 0.06


def test_where_nothing_proves_the_width_the_plan_says_so() -> None:
    found = plan(n=50, submissions=30, width=0.01)
    assert (found.most_releases, found.least_reserve) == (0, None)
    assert "nothing on so few rows" in str(found)
    assert all((way.rows_needed or 0) > 50 for way in found.ways)


def test_without_a_width_nothing_is_said_of_one() -> None:
    found = plan(n=300, submissions=30)
    assert found.most_releases is found.least_reserve is None
    assert all(way.rows_needed is None for way in found.ways)
    assert "rows   state" not in str(found) and "within" not in str(found)


def test_the_better_way_to_learn_is_named(planned: Plan) -> None:
    learning, reserved = planned.learning, planned.reserved
    best = reserved if reserved.width < learning.width else learning
    assert planned.adaptive == best


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "submissions"), [(2, 1), (3, 5), (40, 3), (1000, 1), (10**6, 50), (200, 20_000)]
)
def test_any_size_has_a_plan_that_can_be_typed(n: int, submissions: int) -> None:
    found = plan(n=n, submissions=submissions, width=0.05)
    assert max(map(len, str(found).splitlines())) < 100
    for way in found.ways:
        assert way.settings() in str(found)
        default = default_mechanism(get_metric("accuracy"), way.rows, reserved=way.reserve > 0)
        assert way.mechanism == default
        assert LadderRules(way.mechanism, None).start(n).releases == 0
        assert math.isfinite(way.width)


def test_the_width_of_a_search_that_learns_is_for_the_improvements_that_are_stated() -> None:
    found = {k: plan(n=N, submissions=50, improvements=k) for k in (1, 2, 9, 50, 60)}
    widths = [found[k].learning.width for k in (1, 2, 9)]
    assert sorted(set(widths)) == widths
    assert found[60] == found[50]  # no more of them than submissions
    assert "9 improvements at most" in str(found[9])
    assert found[1].fixed == found[9].fixed and found[1].reserved == found[9].reserved


def test_a_ladder_that_tells_no_values_is_planned_with_its_last_one(planned: Plan) -> None:
    """It wins here: the same search as under a paired test, and less that is paid for."""
    assert planned.learning.show == "improvements" and planned.reserved.show == "scores"
    assert "show='improvements'; reveal()" in str(planned)


def test_what_a_plan_recommends_is_what_the_class_does_by_itself(planned: Plan) -> None:
    """Where nothing is stated but the reserve, a holdout takes the planned rule."""
    X, y = np.arange(float(N))[:, None], np.arange(N) % 2
    for way in planned.ways:
        reserve = way.reserve or None
        holdout = LadderHoldout(X, y, scoring="accuracy", reserve=reserve, ledger="memory")
        assert holdout.rules.mechanism == way.mechanism
    assert planned.finalists.settings() == planned.fixed.settings() == ""
    assert planned.reserved.settings() == f"reserve={planned.reserved.reserve:g}"


def test_guard_is_recommended_first(planned: Plan) -> None:
    lines = str(planned).splitlines()
    first = next(line for line in lines if f" {planned.ways[0].width:.3f} " in line)
    assert first.startswith("finalists") and "guard(search)" in first
    assert planned.ways[0] == planned.finalists
    assert planned.finalists.width < min(planned.fixed.width, planned.learning.width)


def test_as_many_finalists_are_planned_as_guard_takes() -> None:
    assert ranked(np.zeros(100), np.random.default_rng(0).standard_normal((100, 5)))[1] == FINALISTS


def test_what_is_typed_for_guard_confirms_its_finalists() -> None:
    """The certificate of a plan is that of a real batch with the same releases."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(N, 1)), rng.integers(0, 2, N)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    errors = [60, 50, 40, 55]
    with holdout.batch() as batch:
        for count in errors:
            batch.submit(np.where(rng.permutation(N) < count, 1 - y, y))
    place = 1 + max(at for at, release in enumerate(batch.releases) if release.improved)
    told = Transcript(0, place, (), size=len(errors), event=1)
    risk = errors[place - 1] / N
    expected = certify(risk, N, told, rounding=holdout.rules.mechanism.resolution(N))
    # As the holdout's announced batch is certified, so are the plan's finalists.
    assert holdout.certificate().low == pytest.approx(1 - expected.high, abs=1e-12)
    assert expected.high - risk == pytest.approx(
        fixed_width(N, len(errors), risk, announced=True), abs=1e-12
    )


def test_plans_are_the_same_for_the_same_question(planned: Plan) -> None:
    assert plan(n=N, submissions=SUBMISSIONS, width=0.06) == planned


@pytest.mark.parametrize(
    "asked",
    [
        {"n": 1},
        {"n": 10.0},
        {"n": True},
        {"submissions": 0},
        {"width": 0},
        {"width": 1.0},
        {"width": math.nan},
        {"width": "wide"},
        {"risk": 0.0},
        {"risk": 1.0},
        {"confidence": 1.0},
        {"confidence": None},
        {"improvements": 0},
        {"improvements": 0.5},
    ],
    ids=str,
)
def test_a_question_without_sense_is_refused(asked: dict[str, object]) -> None:
    (name,) = asked
    with pytest.raises(InvalidArgument, match=rf"^{name} must be"):
        plan(**({"n": 50, "submissions": 5} | asked))  # type: ignore[arg-type]


# -- the picture and the command --------------------------------------------------------------


@needs_matplotlib
def test_the_picture_shows_the_widths_that_are_proved(planned: Plan) -> None:
    from matplotlib.figure import Figure

    ax = plot(planned, budgets=(2, 9), ax=Figure().subplots())
    lines = {str(one.get_label()): one for one in ax.get_lines()}
    share, rule = planned.reserved.reserve, planned.learning.mechanism
    bits = {"show": "improvements"}
    expected = {
        "learning, 2 releases": lambda n: learning_width(n, SUBMISSIONS, 0.1, rule, 2, **bits),
        "learning, 9 releases": lambda n: learning_width(n, SUBMISSIONS, 0.1, rule, 9, **bits),
        "fixed in advance": lambda n: fixed_width(n, SUBMISSIONS, 0.1),
        "3 finalists": lambda n: fixed_width(n, 3, 0.1, announced=True),
        f"reserve of {share:g}": lambda n: reserve_width(math.floor(n * share + 0.5), 0.1),
    }
    for label, width_at in expected.items():
        rows, widths = lines[label].get_xdata(), lines[label].get_ydata()
        assert list(widths) == [width_at(int(n)) for n in rows]
        assert min(rows) < N < max(rows)
    marks = [tuple(one.get_xdata()) for one in ax.get_lines()]
    assert (N, N) in marks


@needs_matplotlib
@pytest.mark.parametrize("budgets", [(), (1, 2, 3, 4, 5, 6), (0,)])
def test_a_picture_of_other_budgets_is_refused(planned: Plan, budgets: tuple[int, ...]) -> None:
    from matplotlib.figure import Figure

    with pytest.raises(InvalidArgument, match=r"^budgets must be"):
        plot(planned, budgets=budgets, ax=Figure().subplots())


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ("plan", *words), catch_exceptions=False)


ASKED = ("--rows", "500", "--submissions", "100", "--width", "0.06")


def test_the_command_prints_the_plan(planned: Plan) -> None:
    result = call(*ASKED)
    assert result.exit_code == 0
    assert result.stdout == f"{planned}\n"


def test_the_command_prints_json(planned: Plan) -> None:
    found = json.loads(call(*ASKED, "--json").stdout)
    assert found["width"] == 0.06
    assert found["learning"]["mechanism"] == repr(planned.learning.mechanism)
    assert found["finalists"]["width"] == planned.finalists.width
    assert found["reserved"]["width"] == planned.reserved.width
    assert set(found) == set(Plan.__dataclass_fields__)


@needs_matplotlib
def test_the_command_draws(tmp_path: Path) -> None:
    assert call(*ASKED, "--plot", str(tmp_path / "plan.svg")).exit_code == 0
    assert (tmp_path / "plan.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", "0", "--submissions", "3"), "--rows must be"),
        (("--rows", "9", "--submissions", "3", "--width", "nan"), "width must be"),
        (("--rows", "9", "--submissions", "3", "--plot", "plan.gif"), "--plot must be"),
        (("--rows", "9", "--submissions", "3", "--plot", "no/such/plan.png"), "--plot must be"),
    ],
)
def test_the_command_refuses_in_a_sentence(words: tuple[str, ...], said: str) -> None:
    result = call(*words)
    assert result.exit_code == 1
    assert not result.stdout
    assert result.stderr.startswith(f"Error: {said}")


def test_the_rows_of_a_gate_do_what_is_planned() -> None:
    """Simulated with the gate itself: at a true power of .8 it fails once in 10,000 times."""
    planned = plan_decisions(gain=0.1, horizon=50, discordance=0.2)
    assert planned.rows is not None and planned.rows_of_one is not None
    assert planned.rows_of_one < planned.rows
    rng, runs, accepted = np.random.default_rng(34), 400, 0
    for _ in range(runs):
        drawn = rng.random(planned.rows)
        # Better on .15 of the rows, worse on .05, and alike on the others.
        old, new = (drawn < 0.15) * 1.0, ((drawn >= 0.15) & (drawn < 0.2)) * 1.0
        rule = GateLadder(horizon=50)
        before = State(planned.rows, old.mean(), Evaluation.from_losses(old), candidates=49)
        p_null = rule.measure(before, Evaluation.from_losses(new), rng).p_null
        assert p_null is not None
        accepted += p_null <= rule.level(before)
    assert binomtest(accepted, runs, 0.8, alternative="less").pvalue > 1e-4
    # The run above would find fewer rows out.
    fewer = plan_decisions(gain=0.1, horizon=50, discordance=0.2, n=planned.rows * 3 // 4)
    assert fewer.chance is not None and fewer.chance < 0.7


def test_a_gate_is_planned_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 patients with 6 alike visits each are 50 rows, whose exact sign test bets cannot beat."""
    monkeypatch.setattr("ladderholdout.planning.decisions._DRAWS", 40)
    words = ["--gain", "0.2", "--discordance", "0.3", "--horizon", "5", "--rows", "300"]
    found = json.loads(call(*words, "--groups", "50", "--json").output)
    drawn = np.random.default_rng(1).choice([1, -1, 0], (2000, 50), p=[0.25, 0.05, 0.7])
    won, lost = (drawn > 0).sum(axis=1), (drawn < 0).sum(axis=1)
    exact = np.mean(binom.sf(won - 1, won + lost, 0.5) <= found["level"])
    assert found["groups"] == 50 and 0 < found["chance"] <= exact + 0.1 < 0.7
    rows = plan_decisions(gain=0.2, discordance=0.3, horizon=5, n=300)
    assert rows.chance is not None and rows.chance > 0.99
    assert rows.rows is not None and found["rows"] > 5 * rows.rows
    refused = call(*words, "--groups", "301")
    assert refused.exit_code == 1 and "groups" in refused.stderr


def test_a_plan_of_decisions_on_the_command_line() -> None:
    shown = call("--gain", "0.05", "--horizon", "200", "--rows", "1000", "--json")
    assert shown.exit_code == 0
    found = json.loads(shown.output)
    assert (found["rows"], found["n"], round(found["chance"], 3)) == (1190, 1000, 0.677)
    for words, named in (
        (["--gain", "0.05"], "--gain"),
        (["--horizon", "200"], "--gain"),
        (["--gain", "0.05", "--horizon", "200", "--discordance", "0.04"], "discordance"),
        (["--gain", "2", "--horizon", "200"], "gain"),
        (["--gain", "0.05", "--horizon", "0"], "horizon"),
        (["--rows", "100"], "--submissions"),
        (["--submissions", "100"], "--rows"),
    ):
        refused = call(*words)
        assert refused.exit_code == 1 and named in refused.stderr, words
    assert "more than" in str(plan_decisions(gain=1e-4, horizon=100_000))
