"""Attacks holdouts behind a server: searches that differ from local ones, tokens that travel,
servers that are killed, restarted, gone."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mlflow
import numpy as np
import optuna
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, LadderStopping
from ladderholdout.cli import app
from ladderholdout.errors import (
    AccessDenied,
    DailyLimit,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    LadderHoldoutError,
    LadderHoldoutWarning,
    LedgerUnreachable,
    SearchStopped,
    UnknownHoldout,
)
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.integrations.lightgbm import ladder_stopping
from ladderholdout.mechanisms import PairedTestLadder
from ladderholdout.remote.connection import _pool
from tests.support.commands import CliRunner
from tests.support.ledgers import entries_of, names, replayed
from tests.support.processes import at_once, elsewhere
from tests.support.server import N, Running, free_port, registered, rows, serving, start, token_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::ladderholdout.errors.NotIncumbentWarning"),
]
GRID = {"max_depth": [1, 2, 3, 5, 8], "min_samples_leaf": [1, 20]}
TREE = DecisionTreeClassifier(random_state=0)


def train() -> tuple[np.ndarray, np.ndarray]:
    return rows(seed=7)


@dataclass(frozen=True, slots=True)
class Both:
    """The same holdout behind a server and on a ledger of this process."""

    server: Running
    folder: Path

    def remote(self, name: str = "churn", **stated: Any) -> LadderHoldout:
        """A ladder behind the server on which nothing was submitted."""
        account = f"account {time.monotonic_ns()}"
        token = token_of(self.folder / "served.db", account, holdout=name)
        url = f"{self.server.url}/holdouts/{quote(name)}"
        return LadderHoldout.connect(url, token, timeout=30, **stated)

    def local(self, name: str = "churn", seed: int = 0, **stated: Any) -> LadderHoldout:
        """One on a new ledger."""
        ledger = self.folder / f"local-{time.monotonic_ns()}.db"
        return registered(ledger, name, seed, **stated)


@contextmanager
def served(folder: Path) -> Iterator[Both]:
    ledger = folder / "served.db"
    registered(ledger)
    registered(ledger, "bits", seed=1, mechanism=PairedTestLadder(alpha=0.05), show="improvements")
    registered(ledger, "shares", seed=2, scoring="neg_log_loss")
    # Each for one test: certificates count all accounts.
    for seed, name in enumerate(("guarded", "by hand", "not refitted"), start=11):
        registered(ledger, name, seed)
    flags = ("churn", "shares", "guarded", "by hand", "not refitted")
    shared = [word for name in flags for word in ("--share-rows", name)]
    with serving(
        ledger, folder, *shared, "--allow-estimates", "*", "--allow-reveals", "*"
    ) as server:
        yield Both(server, folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with served(tmp_path_factory.mktemp("both")) as found:
        yield found


def scores(results: dict[str, Any]) -> dict[str, str]:
    return {
        name: repr(np.asarray(values).tolist())
        for name, values in results.items()
        if "time" not in name and not name.startswith("param")
    }


def search(holdout: LadderHoldout, n_jobs: int = 1) -> GridSearchCV:
    found = GridSearchCV(
        TREE, GRID, scoring=holdout, cv=holdout.split(inner=2), refit=holdout.select, n_jobs=n_jobs
    )
    return found.fit(*train())


# -- the same as beside the ledger ------------------------------------------------------


def test_a_search_is_the_same_as_a_local_one(both: Both) -> None:
    remote, local = search(both.remote()), search(both.local())
    assert scores(remote.cv_results_) == scores(local.cv_results_)
    assert remote.best_params_ == local.best_params_


@pytest.mark.parametrize("rows_of_caller", ["as registered", "shuffled", "a frame"])
def test_a_search_on_rows_of_the_caller_is_the_same(both: Both, rows_of_caller: str) -> None:
    X, _ = rows()
    order = np.random.default_rng(4).permutation(N)
    given: Any = X if rows_of_caller == "as registered" else X[order]
    if rows_of_caller == "a frame":
        given = pd.DataFrame(given, index=order)
    remote, local = both.remote(X=given), both.local()
    warnings.filterwarnings("ignore", "X has feature names", UserWarning)
    assert scores(search(remote).cv_results_) == scores(search(local).cv_results_)
    guess = np.random.default_rng(5).integers(0, 2, N)
    mine = guess if rows_of_caller == "as registered" else guess[order]
    assert remote.submit(mine) == local.submit(guess)


def test_workers_in_processes_ask_the_same_server(both: Both) -> None:
    holdout = both.remote()
    found = search(holdout, n_jobs=2)
    assert holdout.status().submissions == 10
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_guarded_searches_are_the_same_and_one_batch(both: Both) -> None:
    def guarded(holdout: LadderHoldout) -> Any:
        return holdout.guard(GridSearchCV(TREE, GRID, cv=3), finalists=3).fit(*train())

    here, there = both.local("guarded", 11), both.remote("guarded")
    local, remote = guarded(here), guarded(there)
    assert remote.finalists_ == local.finalists_
    assert remote.certificate_ == local.certificate_
    assert scores(remote.cv_results_) == scores(local.cv_results_)
    assert remote.is_incumbent_ and there.estimate().score is not None
    assert (there.estimate().submissions, here.estimate().submissions) == (3, 3)
    again = pickle.loads(pickle.dumps(remote))
    assert np.array_equal(again.predict(train()[0]), remote.predict(train()[0]))


def test_no_model_is_fitted_on_rows_whose_labels_are_on_a_server(both: Both) -> None:
    remote = both.remote("not refitted")
    guarded = remote.guard(GridSearchCV(TREE, GRID, cv=3), finalists=1).fit(*train())
    with pytest.raises(HoldoutConflict, match="labels of this holdout are on the server"):
        guarded.refit_all(*train())
    assert remote.status().retired is None


def test_studies_are_the_same(both: Both) -> None:
    def values(holdout: LadderHoldout) -> tuple[list[Any], dict[str, Any]]:
        def build(trial: optuna.Trial) -> Any:
            depth = trial.suggest_int("max_depth", 1, 9)
            return DecisionTreeClassifier(max_depth=depth, random_state=0)

        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=3)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        objective = holdout.optuna.objective(build, inner=2, train=train(), feedback="penalised")
        study.optimize(objective, n_trials=8)
        final = holdout.optuna.finalists(study, objective, k=2)
        return [one.value for one in study.trials] + [one.release.score for one in final], (
            holdout.optuna.best_params(study)
        )

    assert values(both.remote()) == values(both.local())


def some_trials(url: str, token: str, storage: str, seed: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    holdout, sampler = LadderHoldout.connect(url, token), optuna.samplers.RandomSampler(seed=seed)

    def build(trial: optuna.Trial) -> Any:
        leaf = trial.suggest_int("min_samples_leaf", 1, 10**6) % 60 + 1
        return DecisionTreeClassifier(min_samples_leaf=leaf, random_state=seed)

    study = optuna.load_study(study_name="shared", storage=storage, sampler=sampler)
    study.optimize(holdout.optuna.objective(build, train=train()), n_trials=8)


def test_workers_share_a_study(both: Both, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(study_name="shared", storage=storage, direction="maximize")
    holdout, url = both.remote(), f"{both.server.url}/holdouts/churn"
    token = holdout.__ladder__.connection.token.read()  # type: ignore[attr-defined]
    at_once([(some_trials, url, token, storage, seed) for seed in range(2)])
    values = [one.value for one in study.trials]
    assert len(values) == holdout.status().submissions == 16 and np.isfinite(values).all()
    assert sorted(one.number for one in holdout.history()) == list(range(1, 17))
    best = next(one for one in holdout.history() if one.number == holdout.status().incumbent)
    assert holdout.optuna.best_params(study).items() <= best.context["parameters"].items()
    assert token.encode() not in (tmp_path / "study.db").read_bytes()


def test_early_stopping_is_the_same(both: Both) -> None:
    def stopped(holdout: LadderHoldout) -> tuple[Any, ...]:
        model = LGBMClassifier(n_estimators=60, verbosity=-1, random_state=0, n_jobs=1)
        model.fit(*train(), callbacks=[ladder_stopping(holdout, patience=5)])
        rule = LadderStopping(holdout, patience=2)
        forest = RandomForestClassifier(5, random_state=0).fit(*train())
        rule.start()
        for tree in forest.estimators_:
            if rule.update(forest.classes_[tree.predict(rule.X).astype(int)]):
                break
        return model.best_iteration_, rule.best_round, rule.rounds, rule.releases

    assert stopped(both.remote()) == stopped(both.local())


@pytest.mark.parametrize(
    ("name", "seed", "stated"),
    [
        ("by hand", 12, {}),
        ("bits", 1, {"mechanism": PairedTestLadder(alpha=0.05), "show": "improvements"}),
        ("shares", 2, {"scoring": "neg_log_loss"}),
    ],
    ids=["churn", "bits", "shares"],
)
def test_by_hand_it_is_the_same(both: Both, name: str, seed: int, stated: dict[str, Any]) -> None:
    X, _ = rows(seed)
    remote = both.remote(name, X=X)
    local = both.local(name, seed, **stated)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*train())
    tables = np.random.default_rng(0).dirichlet((1, 1), (3, N))
    given = tables if name == "shares" else tables.argmax(axis=2)
    for holdout in (remote, local):
        with holdout.batch() as batch:
            batch.submit(given[0], context={"idea": "first"})
            batch.submit(model)
        holdout.submit(given[1])
        holdout.submit(model)
        assert len(batch.releases) == 2
    ours, theirs = remote.history(), local.history()
    for one, other in zip(ours, theirs, strict=True):
        assert (one.score, one.improved, one.context) == (
            other.score,
            other.improved,
            other.context,
        )
    assert remote.history(after=1, limit=2) == ours[1:3]
    assert str(remote.certificate()) == str(local.certificate())
    assert str(remote.estimate()) == str(local.estimate())
    if name == "bits":
        assert remote.status().score is None
        assert remote.reveal() == local.reveal() == remote.status().score
    assert remote.status().releases == local.status().releases
    assert remote.metric == local.metric and remote.rules == local.rules
    assert remote.status().fingerprint == local.status().fingerprint


def test_releases_are_tracked_in_mlflow_and_raw_scores_are_not(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    holdout, place = both.remote(), f"sqlite:///{tmp_path / 'mlflow.db'}"
    guesses = np.random.default_rng(3).integers(0, 2, (12, N))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    with holdout.track(tracking_uri=place, raw="sealed") as tracking:
        releases = [holdout.submit(one) for one in guesses]
    client = mlflow.MlflowClient(place)
    held = client.get_metric_history(tracking.run_id, "ladder_released")
    assert [one.value for one in sorted(held, key=lambda one: one.step)] == [
        one.score for one in releases
    ]
    names = {one.name for one in client.search_experiments()}
    assert not any("audit" in name for name in names)


def test_the_command_line_asks_a_server(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*words: str) -> Any:
        found = CliRunner().invoke(app, [*words, "--server", both.server.url, "--json"])
        return json.loads(found.stdout) if found.exit_code == 0 else found.stderr

    file = tmp_path / "guess.csv"
    file.write_text("label\n" + "1\n" * N)
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(tmp_path / "none.db"))
    assert "There is no token here" in call("status", "churn")
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", token_of(both.folder / "served.db", "by command"))
    release = call("submit", "churn", str(file), "--context", "idea=ones")
    assert release["improved"] is True
    assert call("status", "churn")["account"] == "by command"
    assert call("history", "churn")["submissions"][0]["context"] == {"idea": "ones"}
    assert call("certificate", "churn")["submission"] == 1
    assert "nothing here" in call("status", "nobody")
    assert "--server" in call("status", "churn", "--account", "ada")
    assert not (tmp_path / "none.db").exists()


def test_classes_in_text_and_probabilities_by_their_names(tmp_path: Path) -> None:
    ledger, (X, y) = tmp_path / "ledger.db", rows()
    classes = np.array(["maybe", "no", "yes"])
    rng = np.random.default_rng(0)
    labels = classes[(y + rng.integers(0, 2, N)) % 3]
    stated: dict[str, Any] = {"scoring": "neg_log_loss", "name": "churn"}
    LadderHoldout(X, labels, ledger=ledger, **stated)
    local = LadderHoldout(X, labels, ledger=tmp_path / "local.db", **stated)
    token = token_of(ledger, "ada")
    shares = rng.dirichlet((1, 1, 1), N)
    frame = pd.DataFrame(shares[:, [2, 0, 1]], columns=classes[[2, 0, 1]])
    with serving(ledger, tmp_path) as server:
        remote = LadderHoldout.connect(server.url, token)
        assert remote.submit(frame) == local.submit(frame)
        two = X[labels != "maybe"], labels[labels != "maybe"]
        remote = LadderHoldout.connect(server.url, token, X=X)
        model = DecisionTreeClassifier(max_depth=2).fit(*two)  # lacks a class
        assert remote.submit(model) == local.submit(model)


# -- tokens -----------------------------------------------------------------------------


def test_what_is_sent_keeps_its_precision_and_its_names(both: Both) -> None:
    """As of two classes by a network in single precision: some are 0 and 1 by rounding."""
    second = np.random.default_rng(5).choice(np.float32([0.0, 0.3, 1.0]), N)
    table = np.column_stack([1 - second, second])
    sent = pd.DataFrame(table[:, ::-1], columns=["1", "0"])
    remote, local = both.remote("shares"), both.local(seed=2, scoring="neg_log_loss")
    double = both.local(seed=2, scoring="neg_log_loss")
    shown = remote.submit(sent).score
    assert shown == local.submit(table).score
    assert shown > 1 + double.submit(table.astype(np.float64)).score


def test_a_token_is_in_no_pickle_repr_or_result(both: Both, tmp_path: Path) -> None:
    token = token_of(both.folder / "served.db", "secretive")
    holdout = LadderHoldout.connect(f"{both.server.url}/holdouts/churn", token)
    found = search(holdout)
    secret = token[20:]  # there may be a "_" in it
    for text in (repr(holdout), repr(found), str(found.cv_results_), str(vars(found))):
        assert secret not in text
    guarded = holdout.guard(GridSearchCV(TREE, GRID, cv=2), finalists=1).fit(*train())
    for one in (holdout, found, guarded, holdout.__ladder__.connection):  # type: ignore[attr-defined]
        assert secret.encode() not in pickle.dumps(one)
    assert len(pickle.dumps(holdout)) < 3000
    log = both.server.log.read_text()
    assert secret not in log


def submit_elsewhere(sent: bytes) -> Any:
    return pickle.loads(sent).submit(np.zeros(N, dtype=int)).improved


def test_another_process_finds_the_token(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, url = both.folder / "served.db", f"{both.server.url}/holdouts/churn"
    given = token_of(ledger, "given")
    assert elsewhere(submit_elsewhere, pickle.dumps(LadderHoldout.connect(url, given)))
    file = tmp_path / "token"
    file.write_text(token_of(ledger, "in a file") + "\n")
    file.chmod(0o644)
    with pytest.raises(AccessDenied, match="chmod 600"):
        LadderHoldout.connect(url, file)
    file.chmod(0o600)
    assert elsewhere(submit_elsewhere, pickle.dumps(LadderHoldout.connect(url, file)))
    with pytest.raises(AccessDenied, match="LADDERHOLDOUT_TOKEN"):
        LadderHoldout.connect(url)
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN_FILE", str(file))
    assert LadderHoldout.connect(url).status().account == "in a file"
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", given)
    assert LadderHoldout.connect(url).status().account == "given"
    assert LadderHoldout.connect(both.server.url).name == "churn"


# -- refusals ---------------------------------------------------------------------------


def refused(kind: type[LadderHoldoutError], use: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        use()
    assert type(caught.value) is kind
    return str(caught.value)


def test_refusals_are_those_of_a_local_holdout(both: Both) -> None:
    remote, local = both.remote(), both.local()
    for wrong in ([0] * 3, [7] * N, np.full(N, np.nan), "abc", [[0.5, 0.5]] * N):
        texts = {refused(InvalidSubmission, lambda: one.submit(wrong)) for one in (remote, local)}  # noqa: B023
        assert len(texts) == 1
    url, connect = both.server.url, LadderHoldout.connect
    refused(AccessDenied, lambda: connect(url, "lh_wrong"))
    refused(AccessDenied, lambda: connect(url, "with\nnewline"))
    token = remote.__ladder__.connection.token.read()  # type: ignore[attr-defined]
    assert "nothing here" in refused(UnknownHoldout, lambda: connect(f"{url}/holdouts/x", token))
    assert "400 rows" in refused(InvalidArgument, lambda: connect(url, token, X=rows(5)[0]))
    for wrong in ("host", "ftp://host/holdouts/a", "https://ada:secret@host/", "https://h/?a=b", 7):
        text = refused(InvalidArgument, lambda: connect(wrong, token))  # noqa: B023
        assert "secret" not in text
    refused(InvalidArgument, lambda: connect(url, token, timeout=0))
    for use in (
        remote.owner.retire,
        remote.owner.audit,
        remote.reserve_certificate,
        lambda: remote.owner.withdraw(1, reason="an accident"),
    ):
        assert "where the ledger is" in refused(HoldoutConflict, use)
    refused(InvalidArgument, lambda: remote.certificate(0.5))
    hidden = both.remote("bits")
    assert "does not share" in refused(InvalidArgument, lambda: hidden.submit(TREE))
    guarded = hidden.guard(GridSearchCV(TREE, GRID, cv=3))
    assert "does not share" in refused(InvalidArgument, lambda: guarded.fit(*train()))
    assert not hasattr(guarded, "search_")  # before the first fit
    build = partial(hidden.optuna.objective, lambda trial: TREE, inner=2, train=train())
    assert "does not share" in refused(InvalidArgument, build)
    with pytest.raises(SearchStopped, match="labels are on the server"):
        remote(TREE, *rows())


def test_a_limit_of_a_day_stops_a_search(both: Both) -> None:
    token = token_of(both.folder / "served.db", "few", per_day=3)
    holdout = LadderHoldout.connect(f"{both.server.url}/holdouts/churn", token)
    with pytest.raises(SearchStopped, match="3 submissions of today"):
        search(holdout)
    refused(DailyLimit, lambda: holdout.submit([1] * N))
    assert holdout.status().submissions == 3


def test_a_token_in_the_clear_is_warned_of() -> None:
    with (
        pytest.warns(LadderHoldoutWarning, match="in the clear"),
        pytest.raises(LedgerUnreachable),
    ):
        LadderHoldout.connect("http://host.invalid/holdouts/a", "lh_", timeout=0.1)


# -- servers that die ---------------------------------------------------------------------


def test_a_server_that_is_gone_stops_a_search(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(ledger, tmp_path, "--share-rows", "*") as server:
        holdout = LadderHoldout.connect(server.url, token, timeout=1)
        assert holdout.submit(TREE.fit(*train())).improved
        server.kill()
        refused(LedgerUnreachable, lambda: holdout.submit([0] * N))
        with pytest.raises(SearchStopped, match="did not answer"):
            search(holdout)
        text = refused(LedgerUnreachable, holdout.status)
        assert token not in text


@pytest.mark.parametrize(
    ("clients", "each", "kills"),
    [
        pytest.param(2, 40, 2, id="few"),
        pytest.param(3, 120, 5, id="many", marks=pytest.mark.nightly),
    ],
)
def test_retries_are_repeats_whenever_the_server_is_killed(
    tmp_path: Path, clients: int, each: int, kills: int
) -> None:
    ledger, port = tmp_path / "ledger.db", free_port()
    registered(ledger)
    tokens = [token_of(ledger, f"client {at}") for at in range(clients)]
    server = start(ledger, tmp_path, port)
    answers: dict[int, list[Any]] = {at: [] for at in range(clients)}

    def work(at: int) -> None:
        holdout = LadderHoldout.connect(server.url, tokens[at], timeout=120)
        guesses = np.random.default_rng(at).integers(0, 2, (each, N))
        for turn, one in enumerate(guesses):
            release = holdout.__ladder__.submit(one, Origin(key=f"turn {turn}"))
            answers[at].append((release.score, release.improved))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(clients)]
    for one in threads:
        one.start()
    # By the count of answers, not by a clock: so that each kill meets queries that are under way.
    due = [clients * each * (kill + 1) // (kills + 1) for kill in range(kills)]
    try:
        while any(one.is_alive() for one in threads):
            time.sleep(0.001)
            if due and sum(map(len, answers.values())) >= due[0]:
                server.kill()
                server, _ = start(ledger, tmp_path, port), due.pop(0)
    finally:
        for one in threads:
            one.join(120)
        server.process.terminate()
        server.process.wait(60)
    assert due == []
    assert names(ledger) == ["churn"]
    for at in range(clients):
        holdout = LadderHoldout.open("churn", account=f"client {at}", ledger=ledger)
        queries = [one for one in entries_of(holdout) if one.repeat_of is None]
        assert len(queries) == each == len(answers[at])  # each attempt once, in its order
        metric = holdout.metric
        released = [(metric.to_score(one.risk or 0.0), one.improved) for one in queries]
        assert released == answers[at]
        assert all(one.agrees for one in replayed(holdout))


def several_clients(ledger: Any, folder: Path) -> None:
    """Submit from several threads to several processes, and compare the numbers."""
    registered(ledger)
    tokens = [token_of(ledger, f"client {at}") for at in range(4)]
    with serving(ledger, folder, "--workers", "2") as server:
        numbers: list[list[int]] = [[] for _ in tokens]

        def work(at: int) -> None:
            holdout = LadderHoldout.connect(server.url, tokens[at])
            guesses = np.random.default_rng(at).integers(0, 2, (10, N))
            numbers[at] += [holdout.submit(one).submission for one in guesses]

        threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
    assert numbers == [[*range(1, 11)]] * 4
    assert "error" not in server.log.read_text()


def test_several_processes_serve_one_file(tmp_path: Path) -> None:
    several_clients(tmp_path / "ledger.db", tmp_path)


def test_several_processes_serve_a_ledger_on_postgresql(database: str, tmp_path: Path) -> None:
    several_clients(database, tmp_path)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    warnings.filterwarnings("ignore", "Unverified HTTPS")
    with serving(ledger, tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        with pytest.raises(LedgerUnreachable, match="REQUESTS_CA_BUNDLE"):
            LadderHoldout.connect(server.url, token)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert))
        assert LadderHoldout.connect(server.url, token).submit([0] * N).improved
        _pool(server.url).clear()  # a server waits half a minute for a client to end its TLS


def test_the_package_imports_neither_the_server_nor_the_client() -> None:
    program = (
        "import sys, ladderholdout, ladderholdout.server.accounts\n"
        "print(sorted({'fastapi', 'uvicorn', 'requests', 'urllib3', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
