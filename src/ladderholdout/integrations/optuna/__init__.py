"""Optuna: objectives that see only ladder feedback, and winners picked by the ledger."""

from __future__ import annotations

from ladderholdout.integrations.optuna.loops import AskTell, Objective, inner_score_steps
from ladderholdout.integrations.optuna.studies import Studies
from ladderholdout.integrations.optuna.trials import Candidate
from ladderholdout.integrations.optuna.winners import ErrorEvaluator, Gate, best_trial, finalists

__all__ = [
    "AskTell",
    "Candidate",
    "ErrorEvaluator",
    "Gate",
    "Objective",
    "Studies",
    "best_trial",
    "finalists",
    "inner_score_steps",
]
