"""Analysts: attacks and honest searchers that play against mechanisms.

Each is a frozen dataclass of settings with a generator (`Analyst.play`), which yields
submissions and is sent what is released. `simulate` plays many repetitions in step;
`attack` plays one against a real holdout.

>>> from ladderholdout.mechanisms import ParameterFreeLadder
>>> course = simulate(Boosting(400, improvers=True), ParameterFreeLadder(), 4000, repetitions=10)
>>> round(float(course.believed.mean()), 2)
0.48
"""

from __future__ import annotations

from ladderholdout.analysts.against import attack
from ladderholdout.analysts.areas import RowByRow, ScoreSum
from ladderholdout.analysts.asking import Averaging, LogLossOracle
from ladderholdout.analysts.base import (
    Analyst,
    CoinFlips,
    Play,
    Problem,
    Seen,
    Submission,
    Told,
)
from ladderholdout.analysts.bits import Bits, Tally
from ladderholdout.analysts.climbing import Enumeration, HillClimb, TwoAccounts
from ladderholdout.analysts.engine import Course, play, simulate
from ladderholdout.analysts.freedman import Freedman, StepForward
from ladderholdout.analysts.honest import ForwardSelection, KnobClimb, RandomSearch
from ladderholdout.analysts.voting import (
    Boosting,
    ManyAccounts,
    ShiftedMajority,
    WeightedVote,
)

__all__ = [
    "ANALYSTS",
    "Analyst",
    "Averaging",
    "Bits",
    "Boosting",
    "CoinFlips",
    "Course",
    "Enumeration",
    "ForwardSelection",
    "Freedman",
    "HillClimb",
    "KnobClimb",
    "LogLossOracle",
    "ManyAccounts",
    "Play",
    "Problem",
    "RandomSearch",
    "RowByRow",
    "ScoreSum",
    "Seen",
    "ShiftedMajority",
    "StepForward",
    "Submission",
    "Tally",
    "Told",
    "TwoAccounts",
    "WeightedVote",
    "attack",
    "play",
    "simulate",
]

ANALYSTS: dict[str, type[Analyst]] = {
    analyst.__name__: analyst
    for analyst in (
        Boosting,
        WeightedVote,
        ManyAccounts,
        ShiftedMajority,
        Enumeration,
        HillClimb,
        TwoAccounts,
        Averaging,
        LogLossOracle,
        Freedman,
        StepForward,
        ScoreSum,
        RowByRow,
        RandomSearch,
        KnobClimb,
        ForwardSelection,
    )
}
