"""A session with every part that leans on another library; a program for other environments.

``python tests/support/smoke.py grid study`` runs these parts with what is installed, on a ledger of
their own, and fails where one of them does not do what it is for. It imports no test.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from joblib import parallel_config
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped

X, Y = make_classification(400, 6, flip_y=0.1, random_state=0)
TRAIN, KEPT = slice(0, 200), slice(200, None)
DEPTHS = {"max_depth": [1, 2, 3, 5]}
TREE = DecisionTreeClassifier(random_state=0)


def holdout(**chosen: Any) -> LadderHoldout:
    """A ladder of its own on the rows that all parts share."""
    return LadderHoldout(X[KEPT], Y[KEPT], scoring="accuracy", name="smoke", **chosen)


def batches(one: LadderHoldout) -> list[str | None]:
    return [entry.batch for entry in one.history()]


def grid() -> None:
    """Workers submit the candidates of one batch, each in its place."""
    one = holdout(ladder="grid")
    chosen = {"scoring": one, "cv": one.split(inner=2), "refit": one.select, "n_jobs": 2}
    with parallel_config("loky"):
        search = GridSearchCV(TREE, DEPTHS, **chosen).fit(X[TRAIN], Y[TRAIN])
    assert len(set(batches(one))) == 1 and batches(one)[0] and len(batches(one)) == 4
    assert search.cv_results_["is_incumbent"].sum() >= 1
    assert one.certificate().low < one.status().score


def scorers() -> None:
    """Two scorers of one search, of which one is the holdout."""
    one = holdout(ladder="scorers")
    chosen = {"scoring": {"plain": one, "again": one}, "cv": one.split(), "refit": one.select}
    GridSearchCV(TREE, DEPTHS, **chosen).fit(X[TRAIN], Y[TRAIN])
    assert len(set(batches(one))) == 1 and len(batches(one)) == 8


def pipelines() -> None:
    """A search as a step of a pipeline sees the holdout scaled; inside another tool it stops."""
    from sklearn.ensemble import BaggingClassifier
    from sklearn.linear_model import RidgeClassifierCV

    one = holdout(ladder="pipelines")
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, scoring=one, cv=one.split())
    make_pipeline(StandardScaler(), search).fit(X[TRAIN], Y[TRAIN])
    assert one.history()[0].context["after"] == ["StandardScaler"]
    try:
        BaggingClassifier(search, n_estimators=2, max_features=0.5).fit(X[TRAIN], Y[TRAIN])
    except SearchStopped:
        pass
    else:
        raise AssertionError("bagging was not refused")
    one = holdout(ladder="ridge")
    RidgeClassifierCV((0.1, 1), scoring=one, cv=one.split()).fit(X[TRAIN], Y[TRAIN])
    assert len(batches(one)) == 2


def build(trial: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=trial.suggest_int("max_depth", 1, 5), random_state=0)


def study() -> None:
    """A study that is fed inner scores is one batch; its finalists are another."""
    one = holdout(ladder="study")
    trials = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(0), storage="sqlite://"
    )
    objective = one.optuna.objective(build, inner=2, train=(X[TRAIN], Y[TRAIN]))
    trials.optimize(objective, n_trials=4)
    assert len(set(batches(one))) == 1 and batches(one)[0]
    assert len(one.optuna.finalists(trials, objective, k=2)) == 2
    assert one.optuna.best_trial(trials).number >= 0
    loop = one.optuna.ask_tell(trials)
    loop.tell(loop.ask(), build(optuna.trial.FixedTrial({"max_depth": 2})).fit(X[TRAIN], Y[TRAIN]))


def search_cv() -> None:
    """OptunaSearchCV notes its submissions on its trials."""
    from optuna_integration import OptunaSearchCV

    one = holdout(ladder="search_cv")
    space = {"max_depth": optuna.distributions.IntDistribution(1, 5)}
    chosen = {"scoring": one, "cv": one.split(), "n_trials": 3, "random_state": 0}
    search = OptunaSearchCV(TREE, space, **chosen).fit(X[TRAIN], Y[TRAIN])
    assert len(batches(one)) == 3
    assert [trial.user_attrs["ladder_submission"] for trial in search.trials_] == [1, 2, 3]


def _stopped(library: str, **settings: Any) -> None:
    adapter = importlib.import_module(f"ladderholdout.integrations.{library}")
    one = holdout(ladder=" ".join((library, *map(str, settings.values()))))
    rule = adapter.ladder_stopping(one, patience=3)
    if library == "staged":
        rule.fit(HistGradientBoostingClassifier(max_iter=20, **settings), X[TRAIN], Y[TRAIN])
    elif library == "xgboost":
        from xgboost import XGBClassifier

        XGBClassifier(n_estimators=20, callbacks=[rule], **settings).fit(X[TRAIN], Y[TRAIN])
    elif library == "lightgbm":
        from lightgbm import LGBMClassifier

        LGBMClassifier(n_estimators=20, verbose=-1).fit(X[TRAIN], Y[TRAIN], callbacks=[rule])
    else:
        from catboost import CatBoostClassifier

        model = CatBoostClassifier(iterations=20, verbose=False, allow_writing_files=False)
        rule.fit(model, X[TRAIN], Y[TRAIN])
    assert 1 <= rule.stopping.best_round <= rule.stopping.rounds <= 20
    assert one.status().submissions == rule.stopping.rounds


def staged() -> None:
    """scikit-learn's gradient boosting stops by the ladder."""
    _stopped("staged")


def lightgbm() -> None:
    """LightGBM does."""
    _stopped("lightgbm")


def xgboost() -> None:
    """XGBoost does, and its other boosters."""
    _stopped("xgboost")
    _stopped("xgboost", booster="dart")


def catboost() -> None:
    """CatBoost does."""
    _stopped("catboost")


def tracked() -> None:
    """What is released goes into MLflow, whose autologging sees nothing else."""
    import mlflow

    from ladderholdout.integrations.mlflow import anchors, export

    folder = tempfile.mkdtemp()
    uri = f"sqlite:///{folder}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    one = holdout(ladder="tracked")
    with one.track():
        for depth in DEPTHS["max_depth"]:
            one.submit(DecisionTreeClassifier(max_depth=depth).fit(X[TRAIN], Y[TRAIN]))
    runs = {kind.kind: kind for kind in export(one)}
    assert {kind: run.entries for kind, run in runs.items()} == {"analyst": 4, "audit": 4}
    client = mlflow.MlflowClient()
    held = client.get_metric_history(runs["audit"].run_id, "ladder_raw")
    assert len(held) == 4 and len(anchors(one)) == 2


def frames() -> None:
    """Rows in frames are written, read and known again."""
    import pandas as pd
    import polars as pl

    for seed, kind in enumerate((pd.DataFrame, pl.DataFrame)):
        name = kind.__module__.partition(".")[0]
        X, y = make_classification(200, 6, random_state=seed)
        rows = kind({f"f{at}": column for at, column in enumerate(X.T)})
        one = LadderHoldout(rows, y, scoring="accuracy", name=name)
        model = DecisionTreeClassifier(max_depth=2).fit(rows, y)
        assert one.submit(model).score == LadderHoldout.open(name).submit(model).score


def report() -> None:
    """An audit and its page."""
    from ladderholdout.audit import record_of, write_report

    one = holdout(ladder="report")
    one.submit(np.zeros(len(Y[KEPT]), dtype=int))
    one.owner.audit()
    page = Path(tempfile.mkdtemp()) / "report.html"
    write_report(record_of(one), page)
    assert "<svg" in page.read_text("utf-8")


def attacks() -> None:
    """An attack that finds change points."""
    from ladderholdout.lab import StepForward, simulate
    from ladderholdout.mechanisms import LadderBoot

    simulate(StepForward(20, change_points=True), LadderBoot(0.5), n=20, repetitions=2)


def dask() -> None:
    """Workers of Dask."""
    from dask.distributed import Client

    one = holdout(ladder="dask")
    chosen = {"scoring": one, "cv": one.split(), "refit": one.select}
    with (
        Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None),
        parallel_config("dask"),
    ):
        GridSearchCV(TREE, DEPTHS, **chosen).fit(X[TRAIN], Y[TRAIN])
    assert len(set(batches(one))) == 1


def console() -> None:
    """The command line."""
    from ladderholdout.cli import app

    holdout(ladder="console").submit(Y[KEPT])
    for words in (
        ["verify", "smoke"],
        ["history", "smoke", "--ladder", "console"],
        ["verify", "--installation"],
    ):
        try:
            app(words)
        except SystemExit as end:
            assert not end.code, words


def helps() -> None:
    """Each command says how it is used."""
    from ladderholdout.cli import COMMANDS, app

    for name in (one for panel in COMMANDS.values() for one in panel):
        try:
            app([name, "--help"])
        except SystemExit as end:
            assert not end.code, name


def drawn() -> None:
    """A study has a picture."""
    from ladderholdout.integrations.optuna.plots import plot_ladder

    one = holdout(ladder="drawn")
    trials = optuna.create_study(direction="maximize", storage="sqlite://")
    trials.optimize(one.optuna.objective(build, inner=2, train=(X[TRAIN], Y[TRAIN])), n_trials=3)
    assert len(plot_ladder(one, trials).lines) >= 2


PROGRAM = "import sys; from ladderholdout.cli import app; app()"


def started(*words: str, **chosen: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *words]
    return subprocess.Popen(command, text=True, **chosen)


@contextmanager
def waited(words: tuple[str, ...], answered: Callable[[str], Any]) -> Iterator[Any]:
    """Start a command that serves, and yield what its output answered first."""
    log = Path(tempfile.mkdtemp()) / "log"
    with log.open("w") as opened:
        process = started(*words, stdout=opened, stderr=opened)
    try:
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            if found := answered(log.read_text("utf-8")):
                yield found
                break
            time.sleep(0.1)
        else:
            raise AssertionError(log.read_text("utf-8"))
    finally:
        process.terminate()
        process.wait(60)


def fetched(url: str) -> int:
    import urllib3

    try:
        return int(urllib3.request("GET", url, retries=False, timeout=10.0).status)
    except urllib3.exceptions.HTTPError:
        return 0


def server() -> None:
    """The server: an account, a client, its pages, and the tools for agents; the owner's pages."""
    from ladderholdout.server.accounts import add_account

    rows, labels = make_classification(200, 6, random_state=5)
    LadderHoldout(rows, labels, scoring="accuracy", name="served")
    ledger = os.environ["LADDERHOLDOUT_LEDGER"]
    token = add_account(ledger, "served", "ada", "analyst").token
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    words = ("serve", "--ledger", ledger, "--port", port)
    with waited(words, lambda _: fetched(f"{url}/healthz") == 200):
        one = LadderHoldout.connect(f"{url}/holdouts/served", token)
        assert one.submit(labels).improved and one.status().submissions == 1
        assert one.certificate().low > 0.5
        assert fetched(f"{url}/sign-in") == 200 and fetched(f"{url}/v1/holdouts") == 401
        known = agent(f"{url}/holdouts/served", token)
        assert known["submissions"] == 1, known
    shown = re.compile(r"http://\S+/enter\S+")
    pages = ("ui", "--ledger", ledger, "--no-browser")
    with waited(pages, lambda log: shown.search(log)) as found:
        assert fetched(found[0]) == 200


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def agent(url: str, token: str) -> dict[str, Any]:
    """Return what the tool `status` answers, to a client of MCP's own."""
    import asyncio

    from mcp import Client, StdioServerParameters, stdio_client

    command = ["-W", "ignore", "-c", PROGRAM, "mcp", "--server", url]
    stated = {**os.environ, "LADDERHOLDOUT_TOKEN": token}
    parameters = StdioServerParameters(command=sys.executable, args=command, env=stated)

    async def asked() -> Any:
        async with Client(stdio_client(parameters)) as client:
            return (await client.call_tool("status", {})).content[0].text

    return dict(json.loads(asyncio.run(asked())))


PARTS = (grid, scorers, pipelines, study, search_cv, staged, lightgbm, xgboost, catboost)
PARTS += (tracked, frames, report, attacks, dask, console, helps, drawn, server)

if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    os.environ.setdefault("LADDERHOLDOUT_LEDGER", str(Path(tempfile.mkdtemp()) / "ledger.db"))
    for part in PARTS:
        if part.__name__ in sys.argv[1:] or not sys.argv[1:]:
            part()
            print("done:", part.__name__, flush=True)
