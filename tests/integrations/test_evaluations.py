"""Attacks answers of evaluations on their way to a holdout: ids, epochs, labels in errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidSubmission, KnownHoldoutWarning
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.integrations.evaluation_logs import answers_in
from ladderholdout.integrations.evaluations import Answer, Reading, submission_of
from ladderholdout.mechanisms import GateLadder
from ladderholdout.metrics import metric_of_items
from tests.support.commands import CliRunner
from tests.support.holdouts import is_repeat

# No answer and no id has these letters.
LABELS = ["xenon", "yttrium", "zinc"]
ITEMS = [f"q{number}" for number in range(12)]
TRUTH = [LABELS[number % 3] for number in range(12)]


def held(**wish: Any) -> LadderHoldout:
    stated = {"scoring": "accuracy", "ids": ITEMS, "name": "metals", "ledger": "memory"}
    return LadderHoldout(ITEMS, TRUTH, **stated | wish)


def submitted(holdout: LadderHoldout, answers: list[Answer], **reading: Any) -> Any:
    return holdout.submit(submission_of(ladder_of(holdout), answers, Reading(**reading)))


def answered(texts: list[str], epoch: int = 1) -> list[Answer]:
    return [Answer(item, epoch, text) for item, text in zip(ITEMS, texts, strict=True)]


def test_answers_come_in_any_order_and_are_matched_by_ids() -> None:
    right = answered([f" {label}\n" for label in TRUTH])
    assert submitted(held(), right[::-1]).score == 1
    said = answered([f"It may be zinc. The metal is {label}!" for label in TRUTH])
    assert submitted(held(), said, pattern=r"is (\w+)").score == 1


def test_an_answer_that_is_no_class_is_refused_or_counts_as_the_class_for_it() -> None:
    texts = [*TRUTH[:9], "I refuse", "", "Xenon?"]
    with pytest.raises(InvalidSubmission, match="others in 3 of 12, the first to 'q9'") as refused:
        submitted(held(), answered(texts))
    assert not any(label in str(refused.value) for label in LABELS)
    with pytest.raises(InvalidArgument, match="one class more"):
        submitted(held(), answered(texts), otherwise="none")
    wider = held(classes=[*LABELS, "none"])
    assert submitted(wider, answered(texts), otherwise="none").score == 0.75


@pytest.mark.parametrize("labels", [[0, 1], [False, True], [10, 20]])
def test_labels_that_are_no_texts_are_read(labels: list[Any]) -> None:
    truth = [labels[number % 2] for number in range(12)]
    holdout = LadderHoldout(ITEMS, truth, scoring="accuracy", ids=ITEMS, ledger="memory")
    assert submitted(holdout, answered([str(label) for label in truth])).score == 1
    with pytest.raises(InvalidSubmission, match="others in 12 of 12"):
        submitted(holdout, answered(["7"] * 12))


def test_numbers_and_judged_items() -> None:
    ages = np.arange(12.0)
    holdout = LadderHoldout(
        ITEMS,
        ages,
        scoring="neg_mean_absolute_error",
        loss_range=(0, 12),
        ids=ITEMS,
        ledger="memory",
    )
    assert submitted(holdout, answered([f"{age:.1f}" for age in ages])).score == 0
    with pytest.raises(InvalidSubmission, match=r"numbers, but is others in 1 of 12.*'q0'"):
        submitted(holdout, answered(["old", *map(str, ages[1:])]))
    exact = metric_of_items("exact", lambda reference, answer: reference == answer)
    items = LadderHoldout(ITEMS, TRUTH, scoring=exact, ids=ITEMS, ledger="memory")
    assert submitted(items, answered(["", *TRUTH[1:]])).score == pytest.approx(11 / 12)


def test_a_holdout_that_takes_no_answers_is_refused() -> None:
    no_ids = LadderHoldout(ITEMS, TRUTH, scoring="accuracy", ledger="memory")
    with pytest.raises(InvalidArgument, match=r"ids of the items here.*ID/EPOCH"):
        submitted(no_ids, answered(TRUTH))
    areas = held(scoring="roc_auc_ovr")
    with pytest.raises(InvalidArgument, match="which takes probabilities"):
        submitted(areas, answered(TRUTH))


def test_answers_that_are_missing_doubled_or_of_other_items_are_refused() -> None:
    right = answered(TRUTH)
    wrong = {
        "one to each of the 12 rows, but is 11": right[1:],
        "two to the item 'q3'": [*right[:3], right[3], *right[3:-1]],
        "without 1 of them, and with 1 others, the first in row 12": [
            *right[:-1],
            Answer("q99", 1, "zinc"),
        ],
        "one to each of the 12 rows, but is 24": right + answered(TRUTH, epoch=2),
    }
    for message, answers in wrong.items():
        holdout = held()
        with pytest.raises(InvalidArgument, match=message) as refused:
            submitted(holdout, answers)
        assert not any(label in str(refused.value) for label in LABELS)
        assert holdout.status().submissions == 0
    with pytest.raises(InvalidArgument, match="two to the item 'q0' in epoch 2"):
        submitted(held(), right[:10] + answered(TRUTH, epoch=2)[:1] * 2)


def test_epochs_are_rows_whose_groups_are_the_items() -> None:
    item = np.repeat(ITEMS, 3)
    epoch = np.tile([1, 2, 3], 12)
    ids = [f"{name}/{number}" for name, number in zip(item, epoch, strict=True)]
    holdout = LadderHoldout(
        ids, np.repeat(TRUTH, 3), scoring="accuracy", ids=ids, groups=item, ledger="memory"
    )
    answers = [
        answer
        for number in (2, 3, 1)
        for answer in answered([LABELS[0]] * 12 if number == 3 else TRUTH, epoch=number)
    ]
    assert submitted(holdout, answers).score == pytest.approx((12 + 12 + 4) / 36)
    assert "groups" in holdout.certificate().line()


def test_a_pattern_has_to_be_a_regular_expression() -> None:
    with pytest.raises(InvalidArgument, match="pattern must be a regular expression"):
        Reading(pattern="(")


# Samples of lm_eval, as its --log_samples writes them; targets are there, and are not read.


def generated(number: int, text: Any, kept: str = "none", target: str = "") -> dict[str, Any]:
    return {
        "doc_id": number,
        "doc": {"qid": ITEMS[number], "question": "Which metal?", "answer": TRUTH[number]},
        "target": target or TRUTH[number],
        "arguments": {"gen_args_0": {"arg_0": "Which metal?", "arg_1": {"until": ["\n"]}}},
        "resps": [[text] if isinstance(text, str) else text],
        "filtered_resps": [text],
        "filter": kept,
        "metrics": ["exact_match"],
        "doc_hash": "52be",
        "prompt_hash": "b75d",
        "target_hash": "5fec",
        "exact_match": 1.0,
    }


def chosen(number: int, likelihoods: list[float], *, without: bool = False) -> dict[str, Any]:
    asked = [("Which metal?", f" {label}") for label in LABELS]
    asked += [("", f" {label}") for label in LABELS] if without else []
    likelihoods = likelihoods + ([0.0, -9.0, -9.0] if without else [])
    return generated(number, "") | {
        "arguments": {
            f"gen_args_{place}": {"arg_0": context, "arg_1": text}
            for place, (context, text) in enumerate(asked)
        },
        "resps": [[[str(value), "False"]] for value in likelihoods],
        "filtered_resps": [[str(value), "False"] for value in likelihoods],
        "metrics": ["acc"],
    }


def lines(path: Path, samples: list[Any]) -> Path:
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples), "utf-8")
    return path


def test_samples_of_the_harness_are_read_and_their_targets_are_not(tmp_path: Path) -> None:
    texts = [TRUTH[number] if number < 9 else "none" for number in range(12)]
    files = []
    for target in ("", "zinc"):
        samples = [generated(number, texts[number], target=target) for number in range(12)]
        files.append(lines(tmp_path / f"samples_metals_{target or 'true'}.jsonl", samples))
    read = [answers_in(file, ids="qid") for file in files]
    assert read[0] == read[1] == answered(texts)
    assert [answer.item for answer in answers_in(files[0])] == list(range(12))


def test_the_answer_to_a_multiple_choice_is_the_place_of_the_most_likely(tmp_path: Path) -> None:
    samples = [chosen(0, [-3, -1, -2]), chosen(1, [-1, -3, -2]), chosen(2, [-9, -3, -2])]
    file = lines(tmp_path / "samples.jsonl", samples)
    assert [answer.text for answer in answers_in(file)] == ["1", "0", "2"]
    # Likelihoods without the question come after the others, and are left out.
    file = lines(tmp_path / "samples.jsonl", [chosen(0, [-3, -1, -2], without=True)])
    assert [answer.text for answer in answers_in(file)] == ["1"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, -float("inf")])
def test_a_choice_without_a_most_likely_one_is_refused(value: float, tmp_path: Path) -> None:
    asked = [-1.0, -1.0, value] if value == -1 else [value] * 3 if value < -1 else [-3, value, -2]
    file = lines(tmp_path / "samples.jsonl", [chosen(0, [-3, -1, -2]), chosen(7, asked)])
    with pytest.raises(InvalidArgument, match=r"a number for the likelihood.*for the item 7"):
        answers_in(file)
    # An impossible choice is none, and no reason to refuse the others.
    file = lines(tmp_path / "samples.jsonl", [chosen(0, [-float("inf"), -1, -2])])
    assert [answer.text for answer in answers_in(file)] == ["1"]


def asked_about(number: int, place: int) -> dict[str, Any]:
    sample = generated(number, TRUTH[number])
    sample["doc"]["question"] = f"Question {number}: which metal?"
    return sample | {"doc_id": place}


def test_the_place_of_a_document_in_a_run_is_not_taken_for_its_id(tmp_path: Path) -> None:
    texts = [f"Question {number}: which metal?" for number in range(12)]
    numbers = np.arange(12)
    wish = {"scoring": "accuracy", "ids": numbers, "ledger": "memory"}
    holdout = LadderHoldout(np.array(texts)[::-1], TRUTH[::-1], **wish | {"ids": numbers[::-1]})
    right = [asked_about(number, number) for number in (*range(6, 12), *range(6))]
    assert submitted(holdout, answers_in(lines(tmp_path / "right.jsonl", right))).score == 1
    wrong = [asked_about(number, (number + 1) % 12) for number in range(12)]
    file = lines(tmp_path / "wrong.jsonl", wrong)
    assert is_repeat(holdout, submitted(holdout, answers_in(file)))
    assert not is_repeat(holdout, submitted(holdout, answers_in(file, ids="doc_id")))
    # Rows that tell nothing of the items, or do not tell them apart.
    alike = np.column_stack([["which metal?"] * 12, numbers]).astype(object)
    for X in (numbers.reshape(-1, 1) + 0.5, alike):
        blind = LadderHoldout(X, TRUTH, **wish, overlap="ignore")
        with pytest.raises(InvalidArgument, match="--ids FIELD; or --ids doc_id"):
            submitted(blind, answers_in(tmp_path / "right.jsonl"))
        assert submitted(blind, answers_in(tmp_path / "right.jsonl", ids="doc_id")).score == 1


def test_filters_and_repeats_of_the_harness(tmp_path: Path) -> None:
    samples = [
        generated(number, f"{kept} {number}", kept)
        for kept in ("strict", "all")
        for number in (0, 1)
    ]
    file = lines(tmp_path / "samples.jsonl", samples)
    with pytest.raises(InvalidArgument, match="one of strict, all, but is left out"):
        answers_in(file)
    with pytest.raises(InvalidArgument, match="one of strict, all, but is 'lax'"):
        answers_in(file, kept="lax")
    assert [answer.text for answer in answers_in(file, kept="all")] == ["all 0", "all 1"]
    file = lines(tmp_path / "samples.jsonl", [generated(4, ["a", "b"])])
    assert answers_in(file) == [Answer(4, 1, "a"), Answer(4, 2, "b")]


BROKEN: dict[str, tuple[str, str]] = {
    "no JSON": ("zinc\n", "in line 1"),
    "no sample": ('{"target": "zinc"}\n', "doc_id, arguments and filtered_resps"),
    "one likelihood": (json.dumps(chosen(0, [-1.0]) | {"filtered_resps": [["-1"]]}), "in line 1"),
    "an item that is none": (json.dumps(generated(0, "a") | {"doc_id": ["zinc"]}), "none in line"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_with_the_line_and_without_its_text(
    what: str, tmp_path: Path
) -> None:
    text, message = BROKEN[what]
    (tmp_path / "samples.jsonl").write_text(text)
    with pytest.raises(InvalidArgument, match=message) as refused:
        answers_in(tmp_path / "samples.jsonl")
    assert not any(label in str(refused.value) for label in LABELS)


def test_results_without_samples_name_the_way(tmp_path: Path) -> None:
    file = tmp_path / "results_2026.json"
    file.write_text(json.dumps({"results": {"metals": {"acc,none": 0.5}}, "configs": {}}))
    with pytest.raises(InvalidArgument, match="--log_samples") as refused:
        answers_in(file)
    assert "0.5" not in str(refused.value)
    # Deeper than Python reads.
    for name in ("deep.json", "deep.jsonl"):
        (tmp_path / name).write_text("[" * 100_000)
        with pytest.raises(InvalidArgument, match="the file must be"):
            answers_in(tmp_path / name)
    with pytest.raises(InvalidArgument, match="No such file"):
        answers_in(tmp_path / "samples.jsonl")


# The command line


def command(ledger: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--ledger", str(ledger)])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    wish: dict[str, Any] = {"classes": [*LABELS, "none"], "ledger": tmp_path / "ledger.db"}
    held(**wish)
    with pytest.warns(KnownHoldoutWarning):
        held(**wish, ladder="gate", mechanism=GateLadder(horizon=3))
    return tmp_path / "ledger.db"


def test_samples_are_submitted_from_the_command_line(ledger: Path, tmp_path: Path) -> None:
    said = [f"The metal is {label}." for label in TRUTH[:9]] + ["Who knows?"] * 3
    file = lines(tmp_path / "samples.jsonl", [generated(*pair) for pair in enumerate(said)])
    words = ["--ids", "qid", "--pattern", r"is (\w+)", "--otherwise", "none"]
    told = command(ledger, "submit", "metals", str(file), *words, "--json")
    assert told.exit_code == 0 and json.loads(told.output)["score"] == 0.75
    decided = command(ledger, "gate", "metals", str(file), *words, "--ladder", "gate", "--baseline")
    assert decided.exit_code == 0, "the baseline"
    # Nothing of the file but the predictions is kept: no target, no score of the harness.
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*"))
    assert b"target_hash" not in kept and b"exact_match" not in kept and b"Who knows" not in kept
    refused = command(ledger, "submit", "metals", str(file), "--ids", "qid", "--json")
    assert refused.exit_code == 1 and "others in 12 of 12" in refused.output


def test_options_of_logs_are_refused_for_tables(ledger: Path, tmp_path: Path) -> None:
    table = tmp_path / "answers.csv"
    table.write_text("id,metal\n" + "\n".join(map(",".join, zip(ITEMS, TRUTH, strict=True))))
    refused = command(ledger, "submit", "metals", str(table), "--ids", "id", "--pattern", "x")
    assert refused.exit_code == 1 and "no log of an evaluation" in " ".join(refused.output.split())
    assert command(ledger, "submit", "metals", str(table), "--ids", "id").exit_code == 0
