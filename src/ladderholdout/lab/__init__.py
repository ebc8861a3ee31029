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

from ladderholdout.lab.analyst import Analyst, Answers, CoinFlips, Play, Problem, Seen, Submissions
from ladderholdout.lab.bits import Bits, Tally
from ladderholdout.lab.engine import Course, attack, play, simulate
from ladderholdout.lab.honest import ForwardSelection, KnobClimb, RandomSearch
from ladderholdout.lab.probing import Averaging, Enumeration, HillClimb, LogLossOracle, TwoAccounts
from ladderholdout.lab.screening import Freedman, StepForward
from ladderholdout.lab.voting import (
    Boosting,
    ManyAccounts,
    RowByRow,
    ScoreSum,
    ShiftedMajority,
    WeightedVote,
)

__all__ = [
    "ANALYSTS",
    "Analyst",
    "Answers",
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
    "Submissions",
    "Tally",
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
