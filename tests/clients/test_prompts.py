"""Searches for prompts, with a scripted stand-in for the model: breast cancer, in words."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import OverlapError
from ladderholdout.integrations.prompts import (
    GuardedCompiler,
    GuardedGepa,
    GuardedPromptOptimizer,
)
from ladderholdout.metrics import metric_of_items
from tests.clients.support import numbers, page_of, recipe, refusal, secrets
from tests.support.holdouts import assert_replays
from tests.support.ledgers import entries_of

TEMPLATE = "Say malignant where the radius is above {limit}. Else say benign. Cell: {{{{cell}}}}"


@pytest.fixture
def cells() -> Any:
    """Training items and a holdout of 211: cells in words, and what they turned out to be."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    items = [f"radius {X[at, 0]:.2f}, texture {X[at, 1]:.2f}, case {at}" for at in order]
    found = ["benign" if y[at] else "malignant" for at in order]
    exact = metric_of_items("exact_match", lambda reference, answer: reference == answer)
    holdout = LadderHoldout(items[:211], found[:211], scoring=exact, name="cells")
    return SimpleNamespace(holdout=holdout, items=items, found=found)


def stand_in(prompt: str) -> str:
    """The model: it does what the prompt says."""
    limit = re.search(r"radius is above ([\d.]+\d)", prompt)
    radius = re.findall(r"radius ([\d.]+\d),", prompt)
    assert limit is not None and radius
    return "malignant" if float(radius[-1]) > float(limit[1]) else "benign"


def check(cells: Any, guarded: Any, most: int) -> str:
    """The finalists alone queried the holdout, in one batch; return the incumbent's limit."""
    holdout, history = cells.holdout, cells.holdout.history()
    assert 1 <= len(history) == len(guarded.finalists_) <= most
    assert len({one.batch for one in history} - {None}) == 1
    assert sum(one.is_incumbent for one in guarded.finalists_) == 1
    assert holdout.certificate().missing is None and holdout.estimate().reason is None
    assert_replays(holdout)
    return str(history[holdout.status().incumbent - 1].context["prompts"])


# -- MLflow -----------------------------------------------------------------------------------


class Proposing:
    """An optimiser that tries limits, as one would that reflects on failures."""

    def __init__(self, limits: list[float]) -> None:
        self.limits = limits

    def optimize(
        self, eval_fn: Any, train_data: Any, target_prompts: Any, enable_tracking: bool = True
    ) -> Any:
        from mlflow.genai.optimize.types import PromptOptimizerOutput

        tried = []
        for limit in self.limits:
            prompts = {name: TEMPLATE.format(limit=limit) for name in target_prompts}
            scores = [one.score for one in eval_fn(prompts, train_data)]
            tried.append((float(np.mean(scores)), limit, prompts))
        best = max(tried, key=lambda one: one[0])
        return PromptOptimizerOutput(
            best[2], initial_eval_score=tried[0][0], final_eval_score=best[0]
        )


@pytest.fixture
def optimize(cells: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    import mlflow
    from mlflow.genai.scorers import scorer

    monkeypatch.setenv("MLFLOW_GENAI_EVAL_MAX_WORKERS", "2")
    # It would write a trace of each answer into its store, a tenth of a second each.
    monkeypatch.setenv("MLFLOW_TRACE_SAMPLING_RATIO", "0")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    prompt = mlflow.genai.register_prompt("cells", TEMPLATE.format(limit="12.0"))

    def predict(cell: str) -> str:
        return stand_in(mlflow.genai.load_prompt(prompt.uri).format(cell=cell))

    @scorer
    def exact(outputs: Any, expectations: Any) -> bool:
        return bool(outputs == expectations["expected_response"])

    def run(optimizer: Any, begin: int = 211, scorers: Any = (exact,)) -> Any:
        pairs = list(zip(cells.items, cells.found, strict=True))[begin : begin + 40]
        data = [
            {"inputs": {"cell": item}, "expectations": {"expected_response": found}}
            for item, found in pairs
        ]
        return mlflow.genai.optimize_prompts(
            predict_fn=predict,
            train_data=data,
            prompt_uris=[prompt.uri],
            optimizer=optimizer,
            scorers=list(scorers),
        )

    return run


def inputs(item: str) -> dict[str, str]:
    return {"cell": item}


LIMITS = [12.0, 14.0, 15.0, 16.0, 17.0]


@pytest.mark.row(
    "MLflow optimize_prompts", "optimizer=GuardedPromptOptimizer(optimizer, holdout, ...)", "mlflow"
)
def test_prompts_of_mlflow(cells: Any, optimize: Any, tmp_path: Any) -> None:
    guarded = GuardedPromptOptimizer(Proposing(LIMITS), cells.holdout, inputs=inputs, finalists=3)
    result = optimize(guarded)
    winner = check(cells, guarded, 3)
    [registered] = result.optimized_prompts
    assert registered.template in winner and "radius is above" in registered.template
    answers = [stand_in(registered.template.replace("{{cell}}", one)) for one in cells.items[:211]]
    release = cells.holdout.submit(answers)
    assert (
        entries_of(cells.holdout)[release.submission - 1].repeat_of
        == cells.holdout.status().incumbent
    )
    assert result.final_eval_score == cells.holdout.status().score
    assert result.final_eval_score_per_scorer == {}
    # Neither the run nor the artifacts hold a raw score.
    hidden = secrets(cells.holdout)
    assert hidden and not {one for one in numbers(vars(result))} & hidden
    import mlflow

    for run in mlflow.search_runs(search_all_experiments=True, output_format="list"):
        assert not set(run.data.metrics.values()) & hidden


@pytest.mark.row("MLflow optimize_prompts", "train_data with items of the holdout", "mlflow")
def test_items_of_the_holdout_are_refused_for_training(
    cells: Any, optimize: Any, note: Any
) -> None:
    guarded = GuardedPromptOptimizer(Proposing(LIMITS), cells.holdout, inputs=inputs)
    text = refusal(lambda: optimize(guarded, begin=200), note, OverlapError)
    assert "11 of the training items" in text and "its finalists alone query" in text
    assert cells.holdout.status().submissions == 0


def test_a_scorer_that_needs_a_reference_is_named(cells: Any, optimize: Any) -> None:
    from mlflow.genai.scorers import scorer

    @scorer
    def strict(outputs: Any, expectations: Any) -> float:
        return float(expectations["expected_response"].startswith(outputs[:3]))

    guarded = GuardedPromptOptimizer(Proposing(LIMITS), cells.holdout, inputs=inputs)
    with pytest.raises(InvalidArgument, match="Return 0 there"):
        optimize(guarded, scorers=[strict])
    assert cells.holdout.status().submissions == 0


# -- DSPy -------------------------------------------------------------------------------------


def model() -> Any:
    import dspy

    class StandIn(dspy.BaseLM):
        """Answers by the nearest example in the prompt, else by the limit that it states."""

        def __init__(self) -> None:
            super().__init__(model="stand-in", cache=False)
            self.proposed = 0

        def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            texts = [str(one["content"]) for one in messages or [{"content": prompt}]]
            if "proposed_instruction" in texts[0]:
                contents = []
                for _ in range(kwargs.get("n") or 1):
                    self.proposed += 1
                    limit = 12.5 + self.proposed / 2
                    contents.append(
                        "[[ ## proposed_instruction ## ]]\n"
                        f"Say malignant where the radius is above {limit}.\n\n"
                        "[[ ## proposed_prefix_for_output_field ## ]]\nAnswer:\n\n"
                        "[[ ## completed ## ]]"
                    )
            else:
                contents = [f"[[ ## answer ## ]]\n{self.answer(texts)}\n\n[[ ## completed ## ]]"]
            choices = [
                SimpleNamespace(message=SimpleNamespace(content=one), finish_reason="stop")
                for one in contents
            ]
            return SimpleNamespace(choices=choices, usage={}, model="stand-in")

        @staticmethod
        def answer(texts: list[str]) -> str:
            radius = [re.search(r"radius ([\d.]+\d),", one) for one in texts[1:]]
            shown = [
                (float(one[1]), texts[at + 2])
                for at, one in enumerate(radius[:-1])
                if one is not None
            ]
            mine = float(radius[-1][1])  # type: ignore[index]
            if shown:
                nearest = min(shown, key=lambda one: abs(one[0] - mine))[1]
                return "malignant" if "malignant" in nearest else "benign"
            stated = re.search(r"radius is above ([\d.]+\d)", texts[0])
            return "malignant" if mine > float(stated[1] if stated else "12") else "benign"

    return StandIn()


@pytest.fixture
def program(cells: Any) -> Any:
    import dspy

    signature = dspy.Signature("cell -> answer", "Say malignant where the radius is above 12.5.")
    examples = [
        dspy.Example(cell=item, answer=found).with_inputs("cell")
        for item, found in zip(cells.items[211:], cells.found[211:], strict=True)
    ]
    with dspy.context(lm=model()):
        yield dspy.Predict(signature), examples


def metric(example: Any, prediction: Any, trace: Any = None) -> bool:
    return bool(example.answer == prediction.answer)


def optimisers() -> dict[str, Any]:
    import dspy

    return {
        "BootstrapFewShotWithRandomSearch": (
            dspy.BootstrapFewShotWithRandomSearch(
                metric,
                max_bootstrapped_demos=3,
                max_labeled_demos=4,
                num_candidate_programs=4,
                num_threads=1,
            ),
            {},
        ),
        "COPRO": (
            dspy.COPRO(metric=metric, breadth=4, depth=2, prompt_model=model()),
            {"eval_kwargs": {"num_threads": 1, "display_progress": False}},
        ),
    }


@pytest.mark.parametrize("kind", ["BootstrapFewShotWithRandomSearch", "COPRO"])
@pytest.mark.row(
    "DSPy", "GuardedCompiler(optimizer, holdout, ...).compile(program, trainset=...)", "dspy"
)
def test_programs_of_dspy(cells: Any, program: Any, kind: str) -> None:
    student, examples = program
    optimizer, more = optimisers()[kind]
    guarded = GuardedCompiler(
        optimizer, cells.holdout, inputs=inputs, output=lambda one: one.answer, finalists=4
    )
    winner = guarded.compile(student, trainset=examples[:30], **more)
    check(cells, guarded, 4)
    assert len(guarded.finalists_) >= 2
    release = cells.holdout.submit([winner(cell=one).answer for one in cells.items[:211]])
    assert (
        entries_of(cells.holdout)[release.submission - 1].repeat_of
        == cells.holdout.status().incumbent
    )
    hidden = secrets(cells.holdout)
    kept = [one["score"] / 100 for one in getattr(winner, "candidate_programs", [])]
    assert not set(kept) & hidden


@pytest.mark.row("DSPy", "trainset with items of the holdout", "dspy")
def test_examples_of_the_holdout_are_refused(cells: Any, program: Any, note: Any) -> None:
    import dspy

    student, examples = program
    mine = dspy.Example(cell=cells.items[0], answer=cells.found[0]).with_inputs("cell")
    optimizer, _ = optimisers()["BootstrapFewShotWithRandomSearch"]
    guarded = GuardedCompiler(
        optimizer, cells.holdout, inputs=inputs, output=lambda one: one.answer
    )
    for given in ({"trainset": [mine]}, {"trainset": examples[:5], "valset": [mine]}):
        refusal(lambda given=given: guarded.compile(student, **given), note, OverlapError, "1 of")
    assert cells.holdout.status().submissions == 0


def test_the_blocks_of_the_page_run() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for title in ("Items", "MLflow", "DSPy", "GEPA"):
        recipe("prompts", title, names)
    text = page_of("prompts").read_text("utf-8")
    assert "[0.1, 1.0]" in text and names["holdout"].certificate().line() in text


# -- GEPA -------------------------------------------------------------------------------------


class Silent:
    """GEPA's logger, which prints hundreds of lines."""

    def log(self, message: str) -> None: ...


class Adapter:
    """What GEPA runs: the stand-in answers, and limits are proposed one after the other."""

    def __init__(self, limits: list[float]) -> None:
        self.limits, self.asked = iter(limits), 0
        self.seen: set[str] = set()

    def evaluate(self, batch: Any, candidate: Any, capture_traces: bool = False) -> Any:
        from gepa import EvaluationBatch

        self.seen.update(example["input"] for example in batch)
        outputs = [stand_in(candidate["prompt"].format(cell=one["input"])) for one in batch]
        scores = [float(o == one["answer"]) for o, one in zip(outputs, batch, strict=True)]
        return EvaluationBatch(outputs, scores, outputs if capture_traces else None)

    def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components: Any) -> Any:
        return {name: [{"Feedback": "try another limit"}] for name in components}

    def propose_new_texts(self, candidate: Any, dataset: Any, components: Any) -> dict[str, str]:
        self.asked += 1
        return {name: GEPA_TEMPLATE.format(limit=next(self.limits, 30.0)) for name in components}


GEPA_TEMPLATE = "Say malignant where the radius is above {limit}. Else say benign. Cell: {{cell}}"


def examples_of(cells: Any, first: int, last: int) -> list[dict[str, str]]:
    return [
        {"input": item, "answer": found}
        for item, found in zip(cells.items[first:last], cells.found[first:last], strict=True)
    ]


def evolving(cells: Any, finalists: int = 3) -> GuardedGepa:
    return GuardedGepa(
        cells.holdout,
        answer=lambda candidate, item: stand_in(candidate["prompt"].format(cell=item)),
        inputs=lambda item: {"input": item},
        finalists=finalists,
    )


@pytest.mark.row("GEPA", "GuardedGepa(holdout, answer=..., inputs=...).optimize(...)", "gepa")
def test_candidates_of_gepa(cells: Any) -> None:
    adapter, guarded = Adapter([11.0, 20.0, 13.5, 15.0, 14.5, 25.0, 9.0]), evolving(cells)
    winner = guarded.optimize(
        {"prompt": GEPA_TEMPLATE.format(limit=8.0)},
        examples_of(cells, 211, 300),
        examples_of(cells, 300, 400),
        adapter=adapter,
        max_metric_calls=1500,
        reflection_minibatch_size=20,
        skip_perfect_score=False,
        acceptance_criterion="improvement_or_equal",
        logger=Silent(),
    )
    prompts = check(cells, guarded, 3)
    assert prompts == str(winner) and adapter.asked >= 7
    assert len(guarded.result_.candidates) > 3
    (held,) = (one for one in guarded.finalists_ if one.is_incumbent)
    assert guarded.result_.candidates[held.candidate] == winner
    assert guarded.result_.val_aggregate_scores[held.candidate] == held.inner_score
    # The best limits by GEPA's own items, and not one that those of the holdout would choose.
    assert re.search(r"above (13.5|14.5|15.0)", winner["prompt"])
    assert not adapter.seen & set(cells.items[:211])
    # No raw score is in what GEPA keeps: its scores are of its own items.
    assert not secrets(cells.holdout) & set(numbers(guarded.result_.to_dict()))


@pytest.mark.row("GEPA", "examples with items of the holdout", "gepa")
def test_items_of_the_holdout_are_refused_by_gepa(cells: Any) -> None:
    given: Any = {"adapter": Adapter([]), "max_metric_calls": 10}
    for examples in ([examples_of(cells, 205, 240)], [examples_of(cells, 211, 240)] * 2):
        examples[-1] = [*examples[-1], *examples_of(cells, 0, 1)]
        with pytest.raises(OverlapError, match="of the training items are items of the holdout"):
            evolving(cells).optimize(
                {"prompt": GEPA_TEMPLATE.format(limit=8.0)}, *examples, **given
            )
    assert cells.holdout.status().submissions == 0


def test_a_climb_on_coins_is_believed_no_more_than_it_is_worth(tmp_path: Any) -> None:
    """Labels are coins: GEPA on the items themselves believes much more, and guarded it does not.

    Each candidate is a table of answers in words; a proposal turns some of them.
    """
    from gepa import EvaluationBatch, optimize

    rng, n = np.random.default_rng(0), 60
    items, coins = [f"item {number}" for number in range(2 * n)], rng.integers(0, 2, 2 * n)

    class Tables:
        def evaluate(self, batch: Any, candidate: Any, capture_traces: bool = False) -> Any:
            table = candidate["table"]
            outputs = [table[int(one["input"].split()[1]) % n] for one in batch]
            scores = [float(o == one["answer"]) for o, one in zip(outputs, batch, strict=True)]
            return EvaluationBatch(outputs, scores, outputs if capture_traces else None)

        def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components: Any) -> Any:
            return {name: [{"Feedback": "turn some"}] for name in components}

        def propose_new_texts(self, candidate: Any, data: Any, components: Any) -> dict[str, str]:
            turned = rng.choice(n, 6, replace=False)
            table = [
                str(1 - int(c)) if at in turned else c for at, c in enumerate(candidate["table"])
            ]
            return {"table": "".join(table)}

    examples = [
        {"input": item, "answer": str(coin)} for item, coin in zip(items, coins, strict=True)
    ]
    seed = {"table": "".join(map(str, rng.integers(0, 2, n)))}
    given: Any = {
        "adapter": Tables(),
        "max_metric_calls": 60 * n,
        "reflection_minibatch_size": 30,
        "skip_perfect_score": False,
        "acceptance_criterion": "improvement_or_equal",
        "logger": Silent(),
    }
    naive = optimize(seed_candidate=seed, trainset=examples[:n], valset=examples[:n], **given)
    assert max(naive.val_aggregate_scores) - 0.5 >= 0.15
    exact = metric_of_items("exact_match", lambda reference, answer: reference == answer)
    held, labels = items[:n], [str(coin) for coin in coins[:n]]
    # 40 more items of coins each, so that chance among finalists is small.
    more = [f"item {number}" for number in range(10_000, 10_000 + 40 * n)]
    drawn = [str(coin) for coin in rng.integers(0, 2, len(more))]
    holdout = LadderHoldout(
        held + more, labels + drawn, scoring=exact, show="improvements", name="coins"
    )
    guarded = GuardedGepa(
        holdout,
        answer=lambda candidate, item: candidate["table"][int(item.split()[1]) % n],
        inputs=lambda item: {"input": item},
    )
    guarded.optimize(seed, examples[n:], examples[n:], **given)
    believed = holdout.reveal()
    assert believed is not None and believed - 0.5 <= 0.05
