"""Evaluations of language models, scripted ones: Inspect and its logs, samples of lm_eval."""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inspect_ai import Task, eval, score
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, read_eval_log, recompute_metrics
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import exact

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.integrations import inspect_ai
from ladderholdout.integrations.evaluation_logs import answers_in
from ladderholdout.integrations.evaluations import Answer
from ladderholdout.integrations.inspect_ai import by_name, held_out
from ladderholdout.mechanisms import GateLadder
from ladderholdout.metrics import metric_of_items
from ladderholdout.server.accounts import add_account
from tests.clients.support import assert_nothing_raw, numbers, recipe, secrets
from tests.support.commands import CliRunner
from tests.support.holdouts import assert_replays
from tests.support.server import serving

# Answers are small numbers, references are these: a log that has one of them leaked it. They are
# long, since four letters come up in the thousands of random identifiers of a log.
WORDS = ["bismuth", "rhenium", "yttrium", "zirconium", "wolfram"]
N = 101
ITEMS = [f"q{number}" for number in range(N)]
TRUTH = [WORDS[number % 5] for number in range(N)]


def judge(reference: str, answer: str) -> bool:
    return answer.isdigit() and WORDS[int(answer)] == reference


def held(**wish: Any) -> LadderHoldout:
    stated = {"scoring": metric_of_items("metal", judge), "ids": ITEMS, "name": "metals"}
    return LadderHoldout(ITEMS, TRUTH, **stated | wish)


def model(right: float, seed: int = 0) -> Model:
    """A model that knows a share of the answers, and says each in a sentence."""
    rng = np.random.default_rng(seed)
    known = rng.random(N) < right

    def answer(messages: Any, *_: Any) -> ModelOutput:
        number = int(messages[-1].text[1:])
        output = ModelOutput.from_content(
            "mockllm/model",
            f"Of 5 it is number {number % 5 if known[number] else (number + 1) % 5}",
        )
        output.usage = ModelUsage()  # else it would load a tokenizer
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def dataset(**more: Any) -> list[Sample]:
    return [Sample(id=item, input=item, **more) for item in ITEMS]


def run(task: Task, model: Model, **wish: Any) -> EvalLog:
    [log] = eval(task, model=model, display="none", log_dir="logs", **wish)
    return log


def of(log: EvalLog) -> dict[str, float]:
    assert log.status == "success" and log.results is not None, log.error
    [found] = [one for one in log.results.scores if one.scorer == "holdout"]
    return {name: metric.value for name, metric in found.metrics.items()}


def text_of(log: EvalLog) -> str:
    """All that a log in JSON holds."""
    return Path(log.location.removeprefix("file://")).read_text("utf-8")


LINE = "Task(dataset=..., scorer=held_out(holdout))"
PATTERN = r"number (\d)"


@pytest.mark.row("Inspect", LINE, "inspect-ai")
def test_an_evaluation_is_one_submission() -> None:
    holdout = held()
    task = Task(dataset=dataset(), scorer=held_out(holdout, pattern=PATTERN))
    released = []
    for seed, share in enumerate((0.5, 0.3, 0.52, 0.48, 0.9, 0.6)):
        log = run(task, model(share, seed), log_format="json", score_display=True)
        released.append(of(log))
        recompute_metrics(log)  # as Inspect does for its display, and after the edit of a score
        history = holdout.history()
        assert len(history) == seed + 1 == released[-1]["submission"]
        assert history[-1].context["estimator"] == "mockllm/model"
        assert released[-1]["released"] == history[-1].score
        assert released[-1]["improved"] == history[-1].improved
        assert not any(word in text_of(log) for word in WORDS)
        hidden = secrets(holdout)
        assert not hidden & set(numbers(json.loads(text_of(log))["results"]))
    assert [one["improved"] for one in released] == [1, 0, released[2]["improved"], 0, 1, 0]
    assert released[4]["released"] == released[5]["released"] > 0.8
    assert_nothing_raw(holdout, [one["released"] for one in released], released)
    assert_replays(holdout)


def test_an_incomplete_evaluation_submits_nothing() -> None:
    holdout = held()
    scorer = held_out(holdout, pattern=PATTERN)
    log = run(Task(dataset=dataset(), scorer=scorer), model(0.5), limit=90)
    assert of(log) == {"missing": 11} and holdout.status().submissions == 0
    others = Task(dataset=[*dataset()[1:], Sample(id="other", input="q0")], scorer=scorer)
    failed = run(others, model(0.5))
    assert failed.status == "error" and failed.error is not None
    assert "without 1 of them, and with 1 others" in failed.error.message
    assert holdout.status().submissions == 0
    # A log of an evaluation that failed at the end still has the answers.
    assert len(answers_in(Path(failed.location.removeprefix("file://")))) == N


def test_epochs_are_rows_of_one_group() -> None:
    ids = [f"{item}/{epoch}" for item in ITEMS for epoch in (1, 2)]
    holdout = LadderHoldout(
        ids,
        np.repeat(TRUTH, 2).tolist(),
        scoring=metric_of_items("metal", judge),
        ids=ids,
        groups=np.repeat(ITEMS, 2),
        name="trials",
    )
    task = Task(dataset=dataset(), scorer=held_out(holdout, pattern=PATTERN))
    log = run(task, model(0.7), epochs=2)
    assert of(log)["released"] == holdout.status().score and len(holdout.history()) == 1
    assert "groups" in holdout.certificate().line()
    # The same once more, from the log.
    file = Path(log.location.removeprefix("file://"))
    assert {answer.epoch for answer in answers_in(file)} == {1, 2}


def test_a_gate_decides_over_evaluations() -> None:
    holdout = held(mechanism=GateLadder(horizon=5))
    task = Task(dataset=dataset(), scorer=held_out(holdout, pattern=PATTERN))
    decided = [of(run(task, model(share, seed))) for seed, share in enumerate((0.5, 0.5, 0.9))]
    # The first is compared with nothing.
    assert [one["accepted"] for one in decided] == [0, 0, 1]
    assert all(set(one) == {"accepted", "submission"} for one in decided)
    assert holdout.status().incumbent == 3


def test_a_task_is_scored_by_a_holdout_behind_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "served.db"
    LadderHoldout(
        ITEMS,
        [str(number % 5) for number in range(N)],
        scoring="accuracy",
        classes=[*"01234", "none"],
        ids=ITEMS,
        name="metals",
        ledger=ledger,
    )
    monkeypatch.setenv(
        "LADDERHOLDOUT_TOKEN", add_account(str(ledger), "metals", "agent", "analyst").token
    )
    with serving(ledger, tmp_path) as server:
        scorer = by_name("metals", server=server.url, pattern=PATTERN, otherwise="none")
        log = run(Task(dataset=dataset(), scorer=scorer), model(0.7), log_format="json")
        status = LadderHoldout.connect(f"{server.url}/holdouts/metals").status()
    assert status.submissions == 1 and of(log)["released"] == status.score
    assert "LADDERHOLDOUT_TOKEN" not in text_of(log)


def with_targets(share: float = 0.7, **wish: Any) -> Path:
    """The log of somebody who ran first, with targets of their own that are all wrong."""
    task = Task(dataset=dataset(target="nonsense"), scorer=exact())
    return Path(run(task, model(share), **wish).location.removeprefix("file://"))


@pytest.mark.row("Inspect", "inspect score log.eval --scorer ladderholdout/holdout", "inspect-ai")
def test_a_log_is_scored_later() -> None:
    holdout = held(ledger="memory")
    file = with_targets()
    log = score(read_eval_log(file.as_posix()), held_out(holdout, pattern=PATTERN), display="none")
    assert of(log)["released"] == holdout.status().score > 0.6
    assert len(holdout.history()) == 1
    # By the name of the scorer, in a process that knows nothing of it but its installation.
    numbered = [str(number % 5) for number in range(N)]
    served = LadderHoldout(ITEMS, numbered, scoring="accuracy", ids=ITEMS, name="numbers")
    words = ["score", file.as_posix(), "--action", "append", "--overwrite"]
    words += ["--scorer", "ladderholdout/holdout", "-S", "name=numbers", "-S", f"pattern={PATTERN}"]
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert of(read_eval_log(file.as_posix()))["released"] == served.status().score
    assert len(served.history()) == 1


@pytest.mark.row("Inspect", "ladder-holdout submit NAME log.eval", "inspect-ai")
@pytest.mark.parametrize("kind", ["eval", "json"])
def test_a_log_is_submitted_from_the_command_line(kind: str) -> None:
    numbered = [str(number % 5) for number in range(N)]
    LadderHoldout(ITEMS, numbered, scoring="accuracy", ids=ITEMS, name="numbers")
    file = with_targets(log_format=kind)
    assert file.suffix == f".{kind}"
    words = ["submit", "numbers", str(file), "--pattern", PATTERN, "--json"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert 0.6 < json.loads(told.output)["score"] < 0.8
    kept = b"".join(path.read_bytes() for path in Path().glob("ledger.db*"))
    assert kept and b"nonsense" not in kept
    told = CliRunner().invoke(app, words[:3])
    assert told.exit_code == 1 and "others in 101 of 101, the first to 'q0'" in told.output


def test_a_log_with_a_sample_that_failed_is_refused(tmp_path: Path) -> None:
    def fails(messages: Any, *_: Any) -> ModelOutput:
        if messages[-1].text == "q7":
            raise ValueError("nonsense")
        output = ModelOutput.from_content("mockllm/model", "Of 5 it is number 1")
        output.usage = ModelUsage()
        return output

    broken = get_model("mockllm/model", custom_outputs=fails, memoize=False)
    holdout = held()
    task = Task(dataset=dataset(), scorer=held_out(holdout, pattern=PATTERN))
    log = run(task, broken, fail_on_error=False)
    assert of(log) == {"missing": 1} and holdout.status().submissions == 0
    with pytest.raises(InvalidArgument, match="an error for 'q7' in epoch 1"):
        answers_in(Path(log.location.removeprefix("file://")))
    (tmp_path / "no.eval").write_bytes(b"rhenium")
    with pytest.raises(InvalidArgument, match="reads as a log of Inspect") as refused:
        answers_in(tmp_path / "no.eval")
    assert "rhenium" not in str(refused.value)


def test_a_climb_on_coins_is_believed_no_more_than_it_is_worth() -> None:
    """Labels are coins, and half of the first answers are right, as on other items.

    The agent turns one part of its answers after the other, and keeps what was better. The gate
    accepts a worthless change in at most 5 of 100 runs; the coins are fixed.
    """
    n, parts, rng = 100, 20, np.random.default_rng(0)
    items, first = [f"q{number}" for number in range(n)], rng.integers(0, 2, n)
    labels = [str(coin) for coin in first ^ (rng.permutation(n) % 2)]

    def climb(scorer: Any, better: Any, dataset: list[Sample]) -> None:
        task, table = Task(dataset=dataset, scorer=scorer), first.copy()
        for part in range(-1, parts):
            turned = table.copy()
            if part >= 0:
                turned[part::parts] ^= 1

            def answer(messages: Any, *_: Any, turned: Any = turned) -> ModelOutput:
                text = str(turned[int(messages[-1].text[1:])])
                output = ModelOutput.from_content("mockllm/model", text)
                output.usage = ModelUsage()
                return output

            coin = get_model("mockllm/model", custom_outputs=answer, memoize=False)
            if better(run(task, coin, log_samples=False)):
                table = turned

    best = [0.0]

    def scores_better(log: EvalLog) -> bool:
        best.append(log.results.scores[0].metrics["mean"].value)  # type: ignore[union-attr]
        return best[-1] > max(best[:-1])

    climb(
        exact(),
        scores_better,
        [Sample(id=q, input=q, target=coin) for q, coin in zip(items, labels, strict=True)],
    )
    assert max(best) - 0.5 >= 0.15
    wish: dict[str, Any] = {"scoring": "accuracy", "ids": items, "name": "coins"}
    holdout = LadderHoldout(items, labels, mechanism=GateLadder(horizon=parts), **wish)
    bare = [Sample(id=item, input=item) for item in items]
    climb(held_out(holdout), lambda log: of(log)["accepted"] == 1, bare)
    assert holdout.status().submissions == parts + 1
    believed = holdout.reveal()
    assert believed is not None and believed - 0.5 <= 0.05


TASK = """
import os
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.solver import solver
from ladderholdout.integrations.inspect_ai import by_name

@solver
def answering():
    async def solve(state, generate):
        if state.sample_id in os.environ["FAILS"].split():
            raise RuntimeError("no answer")
        number = int(state.sample_id[1:]) % 5
        state.output = ModelOutput.from_content("mockllm/model", str(number))
        return state
    return solve

@task
def numbers():
    samples = [Sample(id=f"q{number}", input="Which?") for number in range(101)]
    return Task(dataset=samples, solver=answering(), scorer=by_name("numbers"))
"""


def test_a_retry_submits_the_answers_of_both_runs(tmp_path: Path) -> None:
    numbered = [str(number % 5) for number in range(N)]
    holdout = LadderHoldout(ITEMS, numbered, scoring="accuracy", ids=ITEMS, name="numbers")
    (tmp_path / "task.py").write_text(TASK)
    logs: list[EvalLog] = []
    for words, fails in (
        (["eval", "task.py", "--model", "mockllm/model", "--no-fail-on-error"], "q7 q8"),
        (["eval-retry"], ""),
    ):
        words = [*words, *(log.location for log in logs), "--log-dir", str(tmp_path / "logs")]
        done = subprocess.run(
            [sys.executable, "-m", "inspect_ai", *words],
            env=os.environ | {"FAILS": fails},
            capture_output=True,
            text=True,
            check=False,
        )
        newest = max((tmp_path / "logs").iterdir(), key=lambda path: path.stat().st_mtime)
        logs = [read_eval_log(str(newest))]
        assert of(logs[0]) == (
            {"missing": 2} if fails else {"released": 1, "improved": 1, "submission": 1}
        ), done.stdout + done.stderr
    assert len(holdout.history()) == 1


# lm_eval


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Samples that lm_eval wrote of three tasks, of a model that is right in three of four."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Scripted(LM):  # type: ignore[misc]
        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            return [(self.likelihood(*one.args), False) for one in requests]

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> Any:
            return [f"It is {known(int(one.args[0][1:]))}." for one in requests]

        @staticmethod
        def likelihood(question: str, choice: str) -> float:
            return -1.0 if choice.strip() == str(known(int(question[1:]))) else -5.0

    docs = [
        {"qid": item, "answer": str(number % 5), "gold": number % 5}
        for number, item in enumerate(ITEMS)
    ]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, docs)))
    shared = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "docs.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{qid}}",
    }
    generation = {
        "output_type": "generate_until",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"]},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    found = {"function": "regex", "regex_pattern": r"(\d+)"}
    tasks: dict[str, Any] = {
        "words": generation
        | {
            "filter_list": [
                {"name": "digits", "filter": [found, {"function": "take_first"}]},
                {"name": "all", "filter": [{"function": "take_first"}]},
            ]
        },
        "trials": generation
        | {
            "repeats": 2,
            "filter_list": [{"name": "each", "filter": [{"function": "take_first_k", "k": 2}]}],
        },
        "choices": {
            "output_type": "multiple_choice",
            "doc_to_target": "{{gold}}",
            "doc_to_choice": [*"01234"],
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        },
    }
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name, task in tasks.items():
        (folder / f"{name}.yaml").write_text(json.dumps({"task": name} | shared | task))
    tracker = EvaluationTracker(output_path=str(tmp_path / "out"))
    results = lm_eval.simple_evaluate(
        model=Scripted(),
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(folder)),
        log_samples=True,
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for name, listed in samples.items():
        tracker.save_results_samples(name, listed)
    written = {"results": next((tmp_path / "out").rglob("results_*.json"))}
    return written | {name: next((tmp_path / "out").rglob(f"samples_{name}_*")) for name in tasks}


def known(number: int) -> int:
    return number % 5 if number % 4 else (number + 1) % 5


@pytest.mark.row("lm_eval", "ladder-holdout submit NAME samples_TASK.jsonl", "lm_eval")
def test_samples_of_the_harness_are_submitted(harness: dict[str, Path]) -> None:
    numbered = [str(number % 5) for number in range(N)]
    holdout = LadderHoldout(ITEMS, numbered, scoring="accuracy", ids=ITEMS, name="numbers")
    score = 1 - len(range(0, N, 4)) / N
    ways = (
        ("words", ["--filter", "digits"]),
        ("words", ["--filter", "all", "--pattern", r"\d"]),
        ("choices", []),
    )
    for name, words in ways:
        told = CliRunner().invoke(
            app, ["submit", "numbers", str(harness[name]), "--ids", "qid", "--json", *words]
        )
        assert told.exit_code == 0, told.output
        assert json.loads(told.output)["score"] == pytest.approx(score, abs=1e-6)
    assert [one.repeat_of for one in holdout.history()] == [None, 1, 1]
    refused = CliRunner().invoke(app, ["submit", "numbers", str(harness["words"])])
    assert refused.exit_code == 1 and "one of digits, all" in refused.output
    refused = CliRunner().invoke(app, ["submit", "numbers", str(harness["results"])])
    assert refused.exit_code == 1 and "--log_samples" in refused.output
    twice = answers_in(harness["trials"], ids="qid")
    assert twice[:2] == [Answer("q0", 1, "It is 1."), Answer("q0", 2, "It is 1.")]
    assert len(twice) == 2 * N and re.fullmatch(r"It is \d\.", twice[-1].text)


def test_a_climb_through_samples_of_the_harness_is_believed_no_more_than_it_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: the agent reads the harness's own accuracy, or what the gate decided."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    n, parts, rng = 100, 20, np.random.default_rng(0)
    items, first = [f"q{number}" for number in range(n)], rng.integers(0, 2, n)
    labels = [str(coin) for coin in first ^ (rng.permutation(n) % 2)]

    class Table(LM):  # type: ignore[misc]
        def __init__(self, answers: Any) -> None:
            super().__init__()
            self.answers = answers

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> Any:
            return [str(self.answers[int(one.args[0][1:])]) for one in requests]

    def manager_of(targets: list[str], name: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        docs = [{"qid": q, "answer": t} for q, t in zip(items, targets, strict=True)]
        (folder / "docs.jsonl").write_text("\n".join(map(json.dumps, docs)))
        metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / "docs.jsonl")}},
            "test_split": "test",
            "doc_to_text": "{{qid}}",
            "doc_to_target": "{{answer}}",
            "output_type": "generate_until",
            "generation_kwargs": {"until": ["\n"]},
            "metric_list": [metric],
        }
        (folder / f"{name}.yaml").write_text(json.dumps(task))
        return TaskManager(include_path=str(folder))

    def climb(name: str, targets: list[str], better: Any) -> None:
        manager, table = manager_of(targets, name), first.copy()
        for part in range(-1, parts):
            turned = table.copy()
            if part >= 0:
                turned[part::parts] ^= 1
            out = tmp_path / name / str(part)
            tracker = EvaluationTracker(output_path=str(out))
            results = lm_eval.simple_evaluate(
                model=Table(turned),
                tasks=[name],
                task_manager=manager,
                log_samples=True,
                evaluation_tracker=tracker,
                bootstrap_iters=0,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            tracker.save_results_samples(name, samples[name])
            if better(results["results"][name], next(out.rglob("samples_*.jsonl"))):
                table = turned

    best = [0.0]

    def scores_better(result: dict[str, float], file: Path) -> bool:
        best.append(result["exact_match,none"])
        return best[-1] > max(best[:-1])

    climb("open", labels, scores_better)
    assert max(best) - 0.5 >= 0.15
    wish: dict[str, Any] = {"scoring": "accuracy", "ids": items, "name": "coins"}
    holdout = LadderHoldout(items, labels, mechanism=GateLadder(horizon=parts), **wish)
    shown: list[str] = []

    def accepted(result: dict[str, float], file: Path) -> bool:
        words = ["submit", "coins", str(file), "--ids", "qid", "--json"]
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code == 0, answer.output
        shown.append(answer.output)
        return bool(json.loads(answer.output)["improved"])

    climb("guarded", ["unknown"] * n, accepted)
    assert holdout.status().submissions == parts + 1 == len(shown)
    believed = holdout.reveal()
    assert believed is not None and believed - 0.5 <= 0.05


def test_the_examples_in_the_docstrings_run() -> None:
    failed, tried = doctest.testmod(inspect_ai)
    assert failed == 0 < tried


def test_the_blocks_of_the_page_run() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for part in (1, 2):
        recipe("evaluations", "A task without targets", names, part)
    recipe("evaluations", "Epochs", names)

    def answer(messages: Any, *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", f"It is {messages[-1].text[8:11]}!")
        output.usage = ModelUsage()
        return output

    sums = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    assert of(run(names["task"], sums)) == {"released": 0, "improved": 1, "submission": 1}
