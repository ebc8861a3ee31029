"""Playing an analyst against a real holdout, which writes every look into its ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ladderholdout.analysts.base import Analyst, Seen, Submission, Told
from ladderholdout.analysts.bits import Bits
from ladderholdout.errors import InvalidArgument
from ladderholdout.holdout import LadderHoldout, Release


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
        What he was told, one for each submission.

    Raises
    ------
    InvalidArgument
        If he plays more than one repetition, or has more accounts than there are handles.

    Examples
    --------
    >>> from ladderholdout.analysts import Boosting
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
    standing = np.full(len(handles), math.inf)
    generator, releases = analyst.play(seen, rng), []
    try:
        submission = next(generator)
        while True:
            handle = handles[submission.account]
            release = handle.submit(_predictions(submission))
            releases.append(release)
            risk = math.nan if release.score is None else handle.metric.to_risk(release.score)
            standing[submission.account] = np.fmin(standing[submission.account], risk)
            rank = 1 + int((standing < standing[submission.account]).sum())
            told = Told(np.array([risk]), np.array([release.improved]), np.array([rank]))
            submission = generator.send(told)
    except StopIteration:
        return tuple(releases)


def _predictions(submission: Submission) -> Any:
    rows = submission.predictions
    return (rows.unpack() if isinstance(rows, Bits) else rows)[0]
