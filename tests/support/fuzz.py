"""Objects that no argument is meant to be, and public calls with one or two of them in place."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pandas as pd
from scipy import sparse
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

import ladderholdout.mechanisms as mechanisms
import ladderholdout.planning as planning
from ladderholdout import LadderHoldout, LadderHoldoutError, LadderStopping, Metric, SearchStopped
from ladderholdout.cli import app
from ladderholdout.feedback import capped, feedback_of
from ladderholdout.lab import rehearsal
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.metrics import Evaluation, get_metric
from ladderholdout.metrics.scores import squared
from tests.support.commands import CliRunner

N = 24
X = np.random.default_rng(5).normal(size=(N, 2))
y = np.arange(N) % 2
TRAIN = np.random.default_rng(6).normal(size=(40, 2)), np.arange(40) % 2

_METHODS = (
    "__repr__", "__str__", "__len__", "__float__", "__int__", "__index__", "__array__", "__iter__",
    "__getitem__", "__eq__", "__hash__", "__bool__", "__lt__", "__fspath__", "__getattr__",
    "__contains__", "__call__", "__neg__", "__sub__", "__format__", "keys", "predict", "get_params",
)  # fmt: skip


class Hostile(Exception):
    """What the methods of a hostile object raise: nobody may expect it."""


def _raises(*_: Any, **__: Any) -> Any:
    raise Hostile("0.123456789")


def hostile(*methods: str) -> Any:
    """Return an object whose methods of these names raise."""
    return type("Odd", (), dict.fromkeys(methods, _raises))()


def _recursive() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def _recursive_mapping() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["itself"] = found
    return found


def _deep() -> Any:
    found: Any = 1
    for _ in range(5000):
        found = [found]
    return found


class OddInt(int):
    __repr__ = __str__ = _raises


class OddText(str):
    __repr__ = __str__ = _raises


ODD: tuple[Callable[[], Any], ...] = (
    *(lambda value=value: value for value in (
        None, True, False, 0, 1, 3, -1, 2**31, 2**63, -(2**63) - 1, 10**400, -(10**400), 0.0, 0.5,
        1.0, -0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf"), "", " ", "odd",
        "accuracy", "0", "a" * 9999, "\ud800", "\x1b[2J", "a\nb", "\0", b"", b"bytes", 2j,
        Decimal("0.5"), Decimal("NaN"), Fraction(1, 3), datetime.datetime(2026, 1, 1),
        datetime.timedelta(1), (), (1,), (0, 1), (1, 0), (0, 10**400), (None, None), ("a", "b"),
        range(5), object, int, len, Ellipsis, NotImplemented, frozenset({1}), slice(3),
    )),
    list, dict, set, object, _recursive, _recursive_mapping, _deep,
    lambda: [[]], lambda: [[1, 2], [3]], lambda: [[[1]], [[2]]], lambda: [None] * N,
    lambda: ["a", 1], lambda: [0] * N, lambda: [0.5] * N, lambda: list("ab" * (N // 2)),
    lambda: [[0.5, 0.5]] * N, lambda: [10**400] * N, lambda: [hostile("__float__")] * N,
    lambda: {"a": {1, 2}}, lambda: {"a": float("nan")}, lambda: {1: 2}, lambda: {"a": "\ud800"},
    lambda: {"estimator": [1], "parameters": 3}, lambda: {(1, 2): 3}, lambda: {"a": "b" * 20_000},
    lambda: (one for one in (1, 2)), lambda: iter(()), lambda: OddInt(3), lambda: OddText("odd"),
    lambda: np.array(3), lambda: np.array("a"), lambda: np.array(None), lambda: np.zeros((2, 3, 4)),
    lambda: np.zeros(0), lambda: np.zeros((0, 2)), lambda: np.zeros((N, 0)), lambda: np.zeros(N),
    lambda: np.full(N, np.nan), lambda: np.full(N, 1e308), lambda: np.full(N, 5e-324),
    lambda: np.full(N, -1.0), lambda: np.ones((N, 2)), lambda: np.array(["a", "b"] * (N // 2)),
    lambda: np.array([None] * N), lambda: np.array([hostile("__repr__", "__eq__")] * N),
    lambda: np.zeros(N, dtype=[("a", int), ("b", float)]), lambda: np.zeros(N, dtype=complex),
    lambda: np.zeros(N, dtype="datetime64[s]"), lambda: np.ma.masked_array(np.zeros(N), mask=True),
    lambda: np.zeros(N, dtype="V3"), lambda: np.zeros(N, dtype=np.uint8), lambda: np.arange(N),
    lambda: np.float32(0.5), lambda: np.int8(-3), lambda: np.bool_(True),
    lambda: np.datetime64("NaT", "s"),
    lambda: np.str_("odd"), lambda: memoryview(b"abc"), lambda: bytearray(b"abc"),
    lambda: sparse.csr_matrix((N, 2)), lambda: sparse.csr_matrix((N, 1)), pd.DataFrame, pd.Series,
    lambda: pd.DataFrame({"a": [1] * N}), lambda: pd.DataFrame({"a": range(N), "b": ["x"] * N}),
    lambda: pd.Series([0, 1] * (N // 2), index=range(N, 0, -1)), lambda: pd.Series([pd.NA] * N),
    lambda: pd.Categorical(["a"] * N), lambda: pd.date_range("2026", periods=N),
    lambda: SimpleNamespace(shape=None), lambda: SimpleNamespace(shape=("a",)),
    lambda: SimpleNamespace(predict=lambda X: None), lambda: SimpleNamespace(predict=3),
    lambda: SimpleNamespace(predict=lambda X: _raises()), lambda: DummyClassifier(),
    lambda: SimpleNamespace(predict=lambda X: "odd", classes_=hostile("__iter__", "__array__")),
    lambda: SimpleNamespace(get_params=lambda deep: 3, predict=lambda X: [0] * N),
    lambda: DecisionTreeClassifier(max_depth=2).fit(*TRAIN), lambda: DecisionTreeClassifier,
    lambda: DecisionTreeClassifier(max_depth=hostile("__repr__")), optuna.create_study,
    lambda: optuna.create_study(directions=["maximize", "minimize"]), lambda: _raises,
    lambda: (lambda *_: None), lambda: (lambda *_: [0] * N), lambda: (lambda *_: 10**400),
    lambda: mechanisms.Ladder(0.01), lambda: mechanisms.PricedLadder(),
    lambda: mechanisms.Thresholdout(), lambda: mechanisms.RankLadder(0.1, 2),
    lambda: mechanisms.Mechanism,
    lambda: mechanisms.Ladder, lambda: np.random.default_rng(0), lambda: get_metric("roc_auc"),
    lambda: Evaluation.from_losses([0, 1]), lambda: Path("odd"), lambda: Path("/dev/null/odd"),
    *(lambda method=method: hostile(method) for method in _METHODS),
    lambda: hostile(*_METHODS), lambda: hostile("__repr__", "__str__", "__getattr__", "__eq__"),
)  # fmt: skip


@dataclass(slots=True)
class Call:
    """A public function with arguments that it takes, any of which may be replaced."""

    name: str
    run: Callable[..., Any]
    given: Mapping[str, Any]
    # What an argument may never be replaced by, as it would take a machine of its own.
    only: tuple[str, ...] = ()


@dataclass(slots=True)
class Fuzzed:
    """What came of the calls."""

    calls: int = 0
    worked: int = 0
    refused: int = 0
    # What the caller's own model or function raised when it was called.
    own: int = 0
    raw: list[str] = field(default_factory=list)


def _study(holdout: LadderHoldout) -> optuna.Study:
    study = optuna.create_study(direction="maximize")
    study.optimize(holdout.optuna.objective(_build), n_trials=2)
    return study


def _build(trial: Any) -> Any:
    depth = trial.suggest_int("depth", 1, 3)
    return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(*TRAIN)


def _optimised(objective: Any) -> None:
    optuna.create_study(direction="maximize").optimize(objective, n_trials=1)


def _command(*parts: Any) -> Any:
    """Run a command of the CLI: it ends with a status, not with a traceback."""
    texts = [str.__str__(part) for part in parts if isinstance(part, str)]
    result = CliRunner().invoke(app, texts)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result


def holdout_calls(folder: Path) -> tuple[LadderHoldout, list[Call]]:
    """Return a holdout on disk, and calls of everything that it can do."""
    place = folder / "ledger.db"
    fixed: dict[str, Any] = {"ledger": place, "overlap": "ignore"}
    holdout = LadderHoldout(X, y, scoring="accuracy", name="fuzzed", reserve=0.25, **fixed)
    areas = LadderHoldout(X, y, scoring="roc_auc", ladder="areas", **fixed)
    losses = LadderHoldout(
        X, y, scoring="neg_log_loss", ladder="losses", loss_range=(0, 5), **fixed
    )
    values = LadderHoldout(
        X + 1,
        X[:, 0],
        scoring="neg_root_mean_squared_error",
        name="values",
        loss_range=(0, 9),
        **fixed,
    )
    bits = LadderHoldout(
        X,
        y,
        scoring="accuracy",
        ladder="bits",
        mechanism=mechanisms.PairedTestLadder(0.3),
        show="improvements",
        **fixed,
    )
    study, tree = _study(holdout), DecisionTreeClassifier(max_depth=1).fit(*TRAIN)
    board = Leaderboard(X, y, scoring="accuracy", **fixed)
    calls = [
        Call(
            "LadderHoldout",
            lambda **given: LadderHoldout(**given),
            {
                "X": X,
                "y": y,
                "scoring": "accuracy",
                "name": "another",
                "mechanism": None,
                "account": "default",
                "ladder": "main",
                "budget": None,
                "sample_weight": None,
                "classes": None,
                "loss_range": None,
                "feedback": "auto",
                "overlap": "ignore",
                "ledger": "memory",
                "vault": None,
                "reserve": None,
            },
        ),
        Call(
            "LadderHoldout(ranged)",
            lambda **given: LadderHoldout(X, X[:, 0], ledger="memory", **given),
            {
                "scoring": "neg_mean_squared_error",
                "loss_range": (0, 4),
                "mechanism": None,
                "sample_weight": None,
                "reserve": 0.25,
                "budget": 3,
            },
        ),
        Call(
            "open",
            LadderHoldout.open,
            {
                "name": "fuzzed",
                "scoring": None,
                "account": "default",
                "ladder": "main",
                "feedback": "auto",
                "overlap": "auto",
                "ledger": place,
            },
        ),
        Call("submit(estimator)", holdout.submit, {"predictions": tree, "context": None}),
        Call("score", holdout, {"estimator": tree, "X": X, "y": y, "sample_weight": None}),
        Call("history", holdout.history, {"after": 0, "limit": 3}),
        Call("withdraw", holdout.owner.withdraw, {"number": 1, "reason": "a slip"}),
        Call("certificate", holdout.certificate, {"confidence": 0.95}),
        Call("reserve_certificate", holdout.reserve_certificate, {"confidence": 0.95}),
        Call("select", holdout.select, {"cv_results": {"params": [{"max_depth": 1}]}}),
        Call("select(params)", lambda params: holdout.select({"params": params}), {"params": [{}]}),
        Call(
            "split",
            lambda **given: list(holdout.split(**given).split(*TRAIN)),
            {"inner": 2, "guarded": True},
        ),
        Call("set_score_request", holdout.set_score_request, {"sample_weight": None}),
        Call(
            "objective",
            lambda **given: _optimised(holdout.optuna.objective(**given)),
            {"build": _build, "inner": None, "train": TRAIN, "feedback": "auto", "guarded": 0},
        ),
        Call(
            "ask_tell",
            lambda **given: holdout.optuna.ask_tell(**given).ask(),
            {"study": study, "feedback": "auto", "guarded": 0},
        ),
        Call("gate", holdout.optuna.gate, {"build": _build, "patience": 3, "stop": False}),
        Call("finalists", holdout.finalists, {"models": [tree]}),
        Call(
            "finalists(study)",
            holdout.optuna.finalists,
            {"study": study, "build": _build, "k": 1},
        ),
        Call("best_trial", holdout.optuna.best_trial, {"study": study}),
        Call("best_params", holdout.optuna.best_params, {"study": study}),
        Call(
            "LadderStopping",
            LadderStopping,
            {"holdout": holdout, "patience": 3, "min_rounds": 1, "context": None},
        ),
        Call(
            "update",
            lambda predictions, note: LadderStopping(holdout).start(note=note).update(predictions),
            {"predictions": y, "note": 1},
        ),
        Call(
            "stopping.evaluate",
            lambda estimator: LadderStopping(holdout).start().evaluate(estimator),
            {"estimator": tree},
        ),
        Call(
            "Leaderboard",
            Leaderboard,
            {
                "X": X,
                "y": y,
                "scoring": "accuracy",
                "name": None,
                "per": "team",
                "mechanism": None,
                "budget": None,
                "ladder": "board",
                "sample_weight": None,
                "classes": None,
                "loss_range": None,
                "ledger": "memory",
                "vault": None,
                "reserve": None,
            },
        ),
        Call(
            "Leaderboard.open",
            Leaderboard.open,
            {"name": board.name, "scoring": None, "ladder": "leaderboard", "ledger": place},
        ),
        Call("board.submit", board.submit, {"account": "Ada", "predictions": y, "context": None}),
        Call("board.standings", board.standings, {"confidence": 0.95}),
        Call("board.certificate", board.certificate, {"account": None, "confidence": 0.95}),
        Call(
            "audit",
            lambda **given: bits.owner.audit(**given),
            {"fresh": None, "model": None, "confidence": 0.95},
        ),
        Call(
            "audit(fresh)",
            lambda **given: values.owner.audit(**given),
            {"fresh": (X + 3, X[:, 0]), "model": np.zeros(N), "confidence": 0.95},
        ),
    ]
    for one, predictions in (
        (holdout, y),
        (areas, X[:, 0]),
        (losses, np.full(N, 0.5)),
        (values, np.zeros(N)),
        (bits, y),
    ):
        given = {"predictions": predictions, "context": None}
        calls.append(Call(f"submit({one.metric.name})", one.submit, given))
    return holdout, calls


def pure_calls() -> list[Call]:
    """Return calls of what needs no ledger: metrics, mechanisms, planning, certificates."""
    losses, rng = np.zeros((3, 8)), np.random.default_rng(0)
    calls = [
        Call("get_metric", get_metric, {"scoring": "accuracy"}),
        Call(
            "Metric",
            Metric,
            {
                "name": "own",
                "response": "values",
                "loss": squared,
                "score": None,
                "loss_range": (0, 4),
                "offset": 0.0,
                "root": False,
                "in_units_of_y": False,
                "clip": False,
                "binary": False,
                "multioutput": False,
                "support": None,
                "two_class_range": None,
            },
        ),
        Call("with_range", get_metric("neg_log_loss").with_range, {"loss_range": (0, 3)}),
        Call("classes_of", get_metric("accuracy").classes_of, {"y": y, "classes": None}),
        Call("targets", get_metric("accuracy").targets, {"y": y, "classes": np.array([0, 1])}),
        Call("targets(values)", get_metric("r2").targets, {"y": X[:, 0], "classes": None}),
        Call("from_losses", Evaluation.from_losses, {"losses": [0, 1]}),
        Call("risk_under", Evaluation.from_losses([0, 1]).risk_under, {"weights": [1, 2]}),
        Call("risks_under", Evaluation.from_losses([0, 1]).risks_under, {"weights": [[1, 2]]}),
        Call("with_inner_score", Evaluation.from_losses([0, 1]).with_inner_score, {"risk": 0.5}),
        Call("scaled", Evaluation.from_losses([0, 1]).scaled, {"factor": 0.5}),
        Call(
            "evaluate(own)",
            get_metric("accuracy").evaluate,
            {"targets": y, "predictions": y, "weights": None},
        ),
        Call(
            "run",
            mechanisms.run,
            {"mechanism": mechanisms.Ladder(0.1), "losses": losses, "rng": rng},
        ),
        Call(
            "LadderRules",
            mechanisms.LadderRules,
            {"mechanism": mechanisms.Ladder(0.1), "budget": 3, "unit": 1.0},
        ),
        Call("LadderRules.start", mechanisms.LadderRules(mechanisms.Ladder(0.1)).start, {"n": 5}),
        Call(
            "mechanism_from",
            mechanisms.mechanism_from,
            {"name": "Ladder", "settings": {"step": 0.1}},
        ),
        Call(
            "feedback_of",
            feedback_of,
            {
                "policy": "auto",
                "released": 0.5,
                "improved": True,
                "margin": 0.1,
                "inner_score": 0.5,
            },
        ),
        Call("capped", capped, {"released": 0.5, "inner_score": 0.5, "margin": 0.1}),
        Call(
            "fixed_width",
            planning.fixed_width,
            {"n": 100, "submissions": 5, "risk": 0.1, "confidence": 0.95},
        ),
        Call(
            "learning_width",
            planning.learning_width,
            {
                "n": 100,
                "submissions": 5,
                "risk": 0.1,
                "mechanism": mechanisms.PricedLadder(),
                "budget": 3,
                "confidence": 0.95,
            },
        ),
        Call(
            "reserve_width", planning.reserve_width, {"rows": 50, "risk": 0.1, "confidence": 0.95}
        ),
        Call(
            "plan",
            planning.plan,
            {
                "n": 60,
                "submissions": 4,
                "width": None,
                "risk": 0.1,
                "confidence": 0.95,
                "improvements": 2,
            },
        ),
        Call("rows_needed", planning.rows_needed, {"width_at": lambda n: 1 / n, "width": 0.1}),
        Call(
            "safe_submissions",
            rehearsal.safe_submissions,
            {
                "X": TRAIN[0],
                "y": TRAIN[1],
                "metric": "accuracy",
                "mechanism": mechanisms.Ladder(0.1),
                "n": 15,
                "threshold": 0.3,
                "n_train": 20,
                "share": 0.5,
                "repetitions": 1,
                "seed": 0,
            },
        ),
    ]
    settings: dict[str, dict[str, Any]] = {
        "BayesBootLadder": {"odds": 2.0, "n_posterior": 100, "step": 0.1},
        "BayesBootLadderBoot": {"odds": 2.0, "n_posterior": 100, "n_bootstrap": 50, "half_life": 3},
        "GateLadder": {"alpha": 0.1, "horizon": 9, "margin": 0.1},
        "GaussianLadder": {"step": 0.1, "noise": 0.1},
        "Ladder": {"step": 0.1},
        "LadderBoot": {"alpha": 0.1, "n_bootstrap": 50, "half_life": 3},
        "PairedTestLadder": {"alpha": 0.1},
        "PricedLadder": {"weight": 0.5},
        "RankLadder": {"step": 0.1, "places": 3},
        "RoundedDisclosure": {"step": 0.1},
        "ShakyLadder": {"step": 0.1, "noise": 0.1},
        "SimplifiedLadder": {"step": 0.1},
        "Thresholdout": {"threshold": 0.1, "noise": 0.1, "budget": 3},
    }
    calls += [Call(name, getattr(mechanisms, name), given) for name, given in settings.items()]
    return calls


def command_calls(folder: Path) -> list[Call]:
    """Return commands of the CLI with their arguments."""
    table, place = folder / "rows.csv", str(folder / "ledger.db")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(target=y)
    frame.to_csv(table, index=False)
    frame[["target"]].to_csv(folder / "predictions.csv", index=False)
    guesses = str(folder / "predictions.csv")

    def command(*parts: str, **options: str) -> Call:
        named = {f"--{name}": text for name, text in options.items()}
        places = {str(at): part for at, part in enumerate(parts[1:])}

        def run(**given: Any) -> Any:
            told = [part for name in named for part in (name, given[name])]
            return _command(parts[0], *(given[at] for at in places), *told)

        return Call(f"cli {parts[0]}", run, places | named)

    return [
        command("status", "fuzzed", account="default", ladder="main", ledger=place),
        command("history", "fuzzed", last="5", after="0", ledger=place),
        command("certificate", "fuzzed", confidence="0.95", ledger=place),
        command("status", ledger=place),
        command("submit", "fuzzed", guesses, ledger=place, context="a=b"),
        command("verify", "fuzzed", ledger=place),
        command("plan", n="60", submissions="4", risk="0.1", improvements="2"),
        command(
            "register",
            str(table),
            target="target",
            scoring="accuracy",
            name="cli",
            budget="3",
            reserve="0.2",
            overlap="ignore",
            ledger=place,
        ),
    ]


# Where the library calls a model or a function of the caller's, whose errors are theirs.
_CALLS_OUT = {
    "responses.py": {"answer_of"},
    "batches.py": {"read_submission"},  # the guard takes out the frames of what it calls
    "loops.py": {"_built", "candidate", "inner_score"},
    "trials.py": {"built_again"},
    "winners.py": {"_built"},
    "widths.py": {"rows_needed"},
    "measuring.py": {"run"},
}


def _callers_own(error: BaseException) -> bool:
    """Tell whether the last frame of the library is one that calls the caller's own code."""
    last = deepest = None
    at = error.__traceback__
    while at is not None:
        deepest = code = at.tb_frame.f_code
        if f"{os.sep}ladderholdout{os.sep}" in code.co_filename:
            last = code
        at = at.tb_next
    if last is None:  # the guard takes its own frames out, and leaves those of the model
        return deepest is not None and deepest.co_name not in ("fuzz", "<lambda>")
    return last.co_name in _CALLS_OUT.get(os.path.basename(last.co_filename), set())


def fuzz(calls: list[Call], count: int, seed: int) -> Iterator[tuple[int, Fuzzed]]:
    """Make so many calls with wrong objects, and yield after each how it went."""
    rng, found = np.random.default_rng(seed), Fuzzed()
    for at in range(count):
        call = calls[at % len(calls)]
        names = list(call.given)
        wrong = rng.choice(names, size=min(len(names), rng.integers(1, 3)), replace=False)
        odd = {str(name): int(rng.integers(len(ODD))) for name in wrong}
        arguments = dict(call.given) | {name: ODD[number]() for name, number in odd.items()}
        found.calls += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call.run(**arguments)
            found.worked += 1
        except (LadderHoldoutError, SearchStopped) as error:
            found.refused += 1
            if "0.123456789" in str(error):
                found.raw.append(f"{call.name}({odd}): quotes what a value's own method raised")
        except BaseException as error:
            if _callers_own(error):
                found.own += 1
                yield at, found
                continue
            found.raw.append(f"{call.name}({odd}): {type(error).__name__}: {str(error)[:80]}")
            if isinstance(error, KeyboardInterrupt):
                raise
        yield at, found
