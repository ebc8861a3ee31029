"""Attacks the feedback to a search: ties with the incumbent, swallowed margins, bad numbers."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ladderholdout.errors import InvalidArgument
from ladderholdout.feedback import POLICIES, capped, feedback_of, incumbent, penalised

pytestmark = pytest.mark.quick

LARGEST = sys.float_info.max
scores = st.floats(allow_nan=False, allow_infinity=False)
margins = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
inner_scores = st.floats(allow_nan=False)


@given(released=scores, margin=margins)
@example(released=1e300, margin=5e-324)
@example(released=LARGEST, margin=0.01)
@example(released=-LARGEST, margin=0.01)
@example(released=0.0, margin=5e-324)
def test_penalised_is_strictly_below_the_standing_score(released: float, margin: float) -> None:
    assert penalised(released, margin) < released


@given(released=scores, margin=margins, inner_score=inner_scores)
def test_capped_is_the_inner_score_wherever_it_is_low_enough(
    released: float, margin: float, inner_score: float
) -> None:
    answer = capped(released, margin, inner_score)
    assert answer < released
    if inner_score <= penalised(released, margin):
        assert answer == inner_score
    else:
        assert answer == penalised(released, margin)


FROM_RELEASES = tuple(policy for policy in POLICIES if policy not in ("auto", "inner"))


@given(
    policy=st.sampled_from(FROM_RELEASES), release=scores, margin=margins, inner_score=inner_scores
)
def test_feedback_on_an_improver_is_its_release_unless_it_is_the_inner_score(
    policy: str, release: float, margin: float, inner_score: float
) -> None:
    assert feedback_of(policy, release, True, margin, inner_score) == release


def test_each_policy_answers_a_model_that_did_not_improve() -> None:
    answers = {policy: feedback_of(policy, 0.9, False, 0.1, inner_score=0.6) for policy in POLICIES}
    assert answers == {
        "auto": 0.6,
        "inner": 0.6,
        "capped": 0.6,
        "penalised": 0.8,
        "incumbent": 0.9,
    }


@given(release=scores, improved=st.booleans(), margin=margins, inner_score=inner_scores)
def test_with_an_inner_score_auto_is_nothing_but_the_inner_score(
    release: float, improved: bool, margin: float, inner_score: float
) -> None:
    assert feedback_of("auto", release, improved, margin, inner_score) == inner_score
    assert feedback_of("inner", release, improved, margin, inner_score) == inner_score


def test_auto_without_an_inner_score_is_penalised() -> None:
    assert feedback_of("auto", 0.9, False, 0.1) == penalised(0.9, 0.1) == 0.8


@pytest.mark.parametrize("policy", ["inner", "capped"])
def test_a_policy_that_needs_an_inner_score_is_refused_without_one(policy: str) -> None:
    with pytest.raises(InvalidArgument, match="inner_score must be given"):
        feedback_of(policy, 0.9, False, 0.1)


def test_a_minimised_error_works_as_a_negative_score() -> None:
    assert capped(-10.0, 1.0, inner_score=-30.0) == -30.0
    assert capped(-10.0, 1.0, inner_score=-5.0) == -11.0


@pytest.mark.parametrize("margin", [0, 0.0, -0.1, math.nan, math.inf, True, "0.1", None])
def test_a_margin_that_keeps_no_distance_is_refused(margin: object) -> None:
    for improved in (True, False):
        with pytest.raises(InvalidArgument, match=r"margin must be a number in \(0, inf\)"):
            feedback_of("penalised", 0.9, improved, margin)  # type: ignore[arg-type]


@pytest.mark.parametrize("inner_score", [math.nan, "0.5", True])
def test_an_inner_score_that_is_no_number_is_refused(inner_score: object) -> None:
    with pytest.raises(InvalidArgument, match="inner_score must be a number"):
        feedback_of("auto", 0.9, False, 0.1, inner_score)  # type: ignore[arg-type]


@pytest.mark.parametrize("released", [math.nan, math.inf, -math.inf, None, True])
def test_a_released_score_that_is_not_finite_is_refused(released: object) -> None:
    for policy in FROM_RELEASES:
        with pytest.raises(InvalidArgument, match="released must be a finite number"):
            feedback_of(policy, released, False, 0.1, inner_score=0.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        incumbent(released)  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="feedback must be one of 'auto', 'inner', 'capped'"):
        feedback_of("best", 0.9, True, 0.1)
