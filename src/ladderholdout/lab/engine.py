"""Playing an analyst against a mechanism in many repetitions, and against a real holdout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import choice, seed_sequence, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.holdout import LadderHoldout, Release
from ladderholdout.lab.analyst import Analyst, Answers, Floats, Problem, Seen, Submissions
from ladderholdout.lab.bits import Bits, Flags, Ints
from ladderholdout.lab.lockstep import Ladders, Losses, Shared, below, ladders, losses_of
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.rules import SHOWN

# Labels that are played at once: half a megabyte of bits, which stays in a cache, and 32
# megabytes of numbers. An analyst that holds more than that about a row may have as much in all.
LABELS, KEPT = 2**22, 2**28


@dataclass(frozen=True, slots=True)
class Course:
    """What an analyst came to, in each of R repetitions.

    Parameters
    ----------
    submissions : int
        How many there were.
    releases : ndarray of int of shape (R,)
        How many releases were given, on all accounts.
    believed : ndarray of shape (R,)
        The risk that is believed in the end: the released one of the best account, unless the
        analyst knows better.
    empirical : ndarray of shape (R,)
        The risk of the incumbent on the holdout. Where nothing was released, the first
        submission counts as the incumbent.
    true : ndarray of shape (R,)
        Its risk on rows that nobody has seen.
    trace : ndarray of shape (submissions, R), optional
        The best released risk after each submission.
    """

    submissions: int
    releases: Ints
    believed: Floats
    empirical: Floats
    true: Floats
    trace: Floats | None = None

    @property
    def bias(self) -> Floats:
        """The true risk minus the believed one, of shape (R,)."""
        return self.true - self.believed


def simulate(
    analyst: Analyst,
    mechanism: Mechanism,
    n: int,
    repetitions: int,
    seed: int = 0,
    *,
    trace: bool = False,
    show: str = SHOWN[0],
) -> Course:
    """Play an analyst on problems of his own kind.

    The repetitions are played in portions, so that memory stays bounded. With the same seed
    the labels, and the guesses of an analyst, are the same for every mechanism.

    Parameters
    ----------
    analyst : Analyst
    mechanism : Mechanism
    n : int
        Rows of the holdout.
    repetitions : int
        How many holdouts.
    seed : int, default=0
        Seed of labels, guesses and noise.
    trace : bool, default=False
        Whether to record the best released risk after each submission.
    show : {"scores", "improvements"}, default="scores"
        What answers have, as for `LadderHoldout`.

    Returns
    -------
    Course

    Raises
    ------
    InvalidArgument
        If a number is refused, or mechanism and problem do not fit.

    Examples
    --------
    >>> from ladderholdout.lab import Boosting
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> attack = Boosting(guesses=100, improvers=True)
    >>> course = simulate(attack, ParameterFreeLadder(), n=1000, repetitions=20)
    >>> course.submissions, bool(course.bias.mean() < 0.05)
    (101, True)
    """
    n, left = whole("n", n), whole("repetitions", repetitions)
    portion = _portion(analyst, n)
    courses = []
    for child in seed_sequence(seed).spawn(-(-left // portion)):
        count = min(portion, left)
        hidden, guessing, noise = map(np.random.default_rng, child.spawn(3))
        problem = analyst.problem(n, count, hidden)
        courses.append(play(analyst, mechanism, problem, guessing, noise, trace=trace, show=show))
        left -= count
    return _joined(courses)


def play(
    analyst: Analyst,
    mechanism: Mechanism,
    problem: Problem,
    guessing: np.random.Generator,
    noise: np.random.Generator,
    *,
    trace: bool = False,
    show: str = SHOWN[0],
) -> Course:
    """Play an analyst on one problem, all of its repetitions in step.

    Parameters
    ----------
    analyst : Analyst
    mechanism : Mechanism
        The same in each repetition and for each account.
    problem : Problem
        The holdouts.
    guessing, noise : numpy.random.Generator
        Sources of the analyst's guesses and of the mechanism's noise.
    trace : bool, default=False
        Whether to record the best released risk after each submission.
    show : {"scores", "improvements"}, default="scores"
        What answers have, as for `LadderHoldout`.

    Returns
    -------
    Course

    Examples
    --------
    >>> from ladderholdout.lab import Boosting
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> attack, rng = Boosting(guesses=3), np.random.default_rng(0)
    >>> course = play(attack, FullDisclosure(), attack.problem(9, 2, rng), rng, rng, trace=True)
    >>> course.trace.shape
    (4, 2)
    """
    board = _Board(mechanism, problem, choice("show", show, SHOWN))
    traced = []
    generator = analyst.play(problem.seen, guessing)
    believed = None
    try:
        submission = next(generator)
        while True:
            answers = board.submit(submission, noise, ranked=analyst.sees_ranks)
            if trace:
                traced.append(board.released().min(axis=0))
            submission = generator.send(answers)
    except StopIteration as end:
        believed = end.value
    course = board.course(believed)
    return replace(course, trace=np.array(traced)) if trace else course


class _Account:
    """The ladders of one account, and how good its incumbents are."""

    def __init__(self, mechanism: Mechanism, losses: Losses, true: Floats) -> None:
        self.ladders: Ladders = ladders(mechanism, losses)
        self.empirical, self.true = losses.risks, true

    def take(self, improved: Flags, losses: Losses, true: Floats) -> None:
        self.empirical = np.where(improved, losses.risks, self.empirical)
        self.true = np.where(improved, true, self.true)


class _Board:
    """The ladders of all accounts on the holdouts of one problem."""

    def __init__(self, mechanism: Mechanism, problem: Problem, show: str) -> None:
        self.mechanism, self.problem, self.show = mechanism, problem, show
        self.accounts: dict[int, _Account] = {}
        self.submissions = 0

    def submit(self, submission: Submissions, rng: np.random.Generator, *, ranked: bool) -> Answers:
        self.submissions += 1
        losses = losses_of(self.problem.losses(submission))
        # A training set as large as one likes would show the true risk.
        inner = self.problem.true_risk(submission) if self.mechanism.needs_inner_score else None
        account = self.accounts.get(submission.account)
        if account is None:
            account = _Account(self.mechanism, losses, self.problem.true_risk(submission))
            if isinstance(account.ladders, Shared) and self.accounts:
                account.ladders.join(next(iter(self.accounts.values())).ladders, submission.account)
            self.accounts[submission.account] = account
        risks, improved = account.ladders.advance(losses, inner, rng)
        if improved.any():
            account.take(improved, losses, self.problem.true_risk(submission))
        shown = risks if self.show == SHOWN[0] else np.full_like(risks, np.nan)
        if not ranked:
            return Answers(shown, improved)
        released = self.released()
        ahead = below(released, np.broadcast_to(account.ladders.released, released.shape))
        return Answers(shown, improved, 1 + ahead.sum(axis=0))

    def released(self) -> Floats:
        return np.array([account.ladders.released for account in self.accounts.values()])

    def course(self, believed: Floats | None) -> Course:
        accounts, released = self.accounts.values(), self.released()
        # Of the account that is best in each repetition.
        best = released.argmin(axis=0), np.arange(released.shape[1])
        return Course(
            self.submissions,
            np.sum([account.ladders.releases for account in accounts], axis=0),
            released[best] if believed is None else believed,
            np.array([account.empirical for account in accounts])[best],
            np.array([account.true for account in accounts])[best],
        )


def _portion(analyst: Analyst, n: int) -> int:
    """How many repetitions are played at once."""
    most = min(LABELS // n, KEPT // (n * analyst.bits_per_row))
    return max(1, most) if analyst.in_step else 1


def _joined(courses: list[Course]) -> Course:
    def all_of(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(course, name) for course in courses], axis=-1)

    longest = max(course.submissions for course in courses)
    traces = [  # those of shorter games go on with their last released risk
        np.pad(course.trace, ((0, longest - len(course.trace)), (0, 0)), mode="edge")
        for course in courses
        if course.trace is not None
    ]
    return Course(
        longest,
        **{name: all_of(name) for name in ("releases", "believed", "empirical", "true")},
        trace=np.concatenate(traces, axis=1) if traces else None,
    )


def attack(
    analyst: Analyst,
    holdouts: LadderHoldout | Sequence[LadderHoldout],
    seen: Seen,
    rng: np.random.Generator,
) -> tuple[Release, ...]:
    """Let an analyst submit to a real holdout.

    Parameters
    ----------
    analyst : Analyst
    holdouts : LadderHoldout or sequence of them
        The handle that he submits to; with several accounts one handle for each.
    seen : Seen
        What he knows, for one repetition.
    rng : numpy.random.Generator
        Source of his guesses.

    Returns
    -------
    tuple of Release
        One for each submission.

    Raises
    ------
    InvalidArgument
        If he plays more than one repetition, or has more accounts than there are handles.

    Examples
    --------
    >>> from ladderholdout.lab import Boosting
    >>> analyst, rng = Boosting(guesses=20, improvers=True), np.random.default_rng(0)
    >>> problem = analyst.problem(500, 1, rng)
    >>> holdout = LadderHoldout(np.arange(500)[:, None], problem.labels.unpack()[0],
    ...                         scoring="accuracy", ledger="memory")
    >>> releases = attack(analyst, holdout, problem.seen, rng)
    >>> len(releases), holdout.status().submissions
    (21, 21)
    """
    handles = [holdouts] if isinstance(holdouts, LadderHoldout) else list(holdouts)
    if seen.repetitions != 1:
        raise InvalidArgument("seen", "of one repetition", f"of {seen.repetitions}")
    if len(handles) < analyst.accounts:
        allowed = f"{analyst.accounts} handles, one for each account"
        raise InvalidArgument("holdouts", allowed, len(handles))
    released = np.full(len(handles), math.inf)
    generator, releases = analyst.play(seen, rng), []
    try:
        submission = next(generator)
        while True:
            handle = handles[submission.account]
            rows = submission.predictions
            release = handle.submit((rows.unpack() if isinstance(rows, Bits) else rows)[0])
            releases.append(release)
            risk = math.nan if release.score is None else handle.metric.to_risk(release.score)
            released[submission.account] = np.fmin(released[submission.account], risk)
            rank = 1 + int((released < released[submission.account]).sum())
            answers = Answers(np.array([risk]), np.array([release.improved]), np.array([rank]))
            submission = generator.send(answers)
    except StopIteration:
        return tuple(releases)
