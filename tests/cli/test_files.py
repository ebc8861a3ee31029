"""Files as people have them: right by scikit-learn's own score, or refused with what to do."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument, KnownHoldoutWarning
from ladderholdout.mechanisms import FullDisclosure
from ladderholdout.metrics import get_metric
from ladderholdout.remote.tables import Form
from ladderholdout.remote.wire import ARROW, CSV
from ladderholdout.server.bodies import Space, upload_media
from tests.support.commands import CliRunner
from tests.support.server import submission_in

N = 120
SPACE = Space(N, 2, 1)
RULE = ("--mechanism", "FullDisclosure()")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, words, catch_exceptions=False)
    return found.exit_code, found.stdout, found.stderr


def register(file: str, target: str, scoring: str, *more: str) -> str:
    """Register a file, and return what was warned of."""
    code, _, said = call(
        "register", file, "--target", target, "--scoring", scoring, "--name", "h", *RULE, *more
    )
    assert code == 0, said
    return said


def score(file: str, *more: str) -> float:
    code, shown, said = call("submit", "h", file, *more, "--json")
    assert code == 0, said
    return float(json.loads(shown)["score"])


def refused(*words: str) -> str:
    code, shown, said = call(*words)
    assert (code, shown) == (1, ""), shown
    assert said.startswith("Error: ") and said.count("\n") == 1
    return said


def write(file: str, lines: Sequence[str], end: str = "\n", encoding: str = "utf-8") -> str:
    Path(file).write_bytes((end.join(lines) + end).encode(encoding))
    return file


drawn = np.random.default_rng(0)
X = drawn.normal(size=(N, 2)).round(3)
Y = (X[:, 0] + drawn.normal(size=N) > 0).astype(int)
GUESS = (X[:, 1] > 0).astype(int)
T = (10 + 3 * X[:, 0] + drawn.normal(size=N)).round(2)
Q = (10 + 3 * X[:, 0]).round(2)
P = (1 / (1 + np.exp(-X[:, 0]))).round(3)


def table(target: Sequence[Any], name: str = "h.csv", **options: Any) -> str:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "t": target})
    frame.to_csv(name, **{"index": False, **options})
    return name


def predictions(values: Sequence[Any], name: str = "p.csv") -> str:
    return write(name, ["p", *map(str, values)])


# -- ragged files -----------------------------------------------------------------------------

RAGGED: dict[str, tuple[list[str], str]] = {
    "a delimiter at each line's end": ([f"{v}," for v in GUESS], "line 2.*one more delimiter"),
    "a delimiter in one line": (
        [f"{v}" + "," * (at == 6) for at, v in enumerate(GUESS)],
        "2 in line 8.*delimiter",
    ),
    "a column without a name": ([f"{v},7" for v in P], "2 in line 2.*header lacks a name"),
    "decimal commas": ([f"{v:.2f}".replace(".", ",") for v in P], "line 2.*decimal commas"),
    "some decimal commas": (
        [f"{v:.2f}".replace(".", ",") if at > 3 else "0" for at, v in enumerate(P)],
        "line 6.*decimal commas",
    ),
    "a line break without quotes": (["0", "1", "", *map(str, GUESS[3:])], "blank line: line 4"),
    "a blank line": ([*map(str, GUESS[:9]), "", *map(str, GUESS[10:])], "blank line: line 11"),
    "spaces alone": ([*map(str, GUESS[:9]), "  ", *map(str, GUESS[10:])], "blank line: line 11"),
    "a quote that stays open": (["0", '"1', *map(str, GUESS[2:])], "quote in the row of line 3"),
}


@pytest.mark.parametrize("kind", RAGGED)
def test_ragged_predictions_are_refused_with_line_and_cause(kind: str) -> None:
    lines, said = RAGGED[kind]
    metric = get_metric("accuracy" if kind[0] != "s" else "roc_auc")
    register(table(Y), "t", metric.name)
    assert re.search(said, refused("submit", "h", write("p.csv", ["p", *lines])))
    body = "\n".join(["p", *lines, ""]).encode()
    form = Form(metric, N, np.array([0, 1]))
    for read in (
        lambda: submission_in(body, CSV, lambda: form, SPACE),
        lambda: submission_in(body, upload_media(body), lambda: form, SPACE),
    ):
        with pytest.raises(InvalidArgument, match=said):
            read()
    # The remedy, followed.
    write("p.csv", ["p", *(P if metric.name == "roc_auc" else GUESS).astype(str)])
    right = roc_auc_score(Y, P) if metric.name == "roc_auc" else accuracy_score(Y, GUESS)
    assert score("p.csv") == pytest.approx(right)


def test_a_delimiter_at_each_lines_end_registers_no_other_column() -> None:
    lines = [f"{X[at, 0]},{Y[at]},{GUESS[at]}" for at in range(N)]
    write("trail.csv", ["a,t,b", *(f"{line}," for line in lines)])
    words = ("register", "trail.csv", "--target", "t", "--scoring", "accuracy", "--name", "h")
    assert "line 2: it ends with one more delimiter" in refused(*words)
    # Either half of the remedy.
    write("ended.csv", ["a,t,b,", *(f"{line}," for line in lines)])
    register("ended.csv", "t", "accuracy")
    assert score(predictions(GUESS)) == pytest.approx(accuracy_score(Y, GUESS))
    holdout = LadderHoldout.open("h")
    assert list(holdout.__ladder__.guard().rows.X.columns) == ["a", "b"]


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("first", [0, 1, 400])
def test_row_names_of_r_stay_readable(quote: str, first: int) -> None:
    names = [f"{quote}{first + at}{quote}" for at in range(N)]
    lines = [f"{name},{X[at, 0]},{Y[at]}" for at, name in enumerate(names)]
    write("r.csv", [f"{quote}a{quote},{quote}t{quote}", *lines])
    if first == 400 and not quote:  # as likely numbers with decimal commas
        assert "2" in refused("register", "r.csv", "--target", "t", "--scoring", "accuracy")
        return
    register("r.csv", "t", "accuracy")
    write("p.csv", [f"{quote}p{quote}", *(f"{n},{v}" for n, v in zip(names, GUESS, strict=True))])
    assert score("p.csv") == pytest.approx(accuracy_score(Y, GUESS))


def test_row_names_in_another_order_are_aligned_or_refused(rng: np.random.Generator) -> None:
    names = [f"patient {at}" for at in range(N)]
    write("r.csv", ["a,t", *(f"{n},{a},{y}" for n, a, y in zip(names, X[:, 0], Y, strict=True))])
    register("r.csv", "t", "accuracy")
    order = rng.permutation(N)
    write("p.csv", ["p", *(f"{names[at]},{GUESS[at]}" for at in order)])
    assert score("p.csv") == pytest.approx(accuracy_score(Y, GUESS))
    write("q.csv", ["p", *(f"{names[at]}!,{GUESS[at]}" for at in order)])
    assert "index of other rows" in refused("submit", "h", "q.csv")


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "windows": lambda lines: "\r\n".join([*lines, ""]).encode(),
    "windows, twice": lambda lines: "\r\r\n".join([*lines, ""]).encode(),
    "old macs": lambda lines: "\r".join([*lines, ""]).encode(),
    "a mark": lambda lines: b"\xef\xbb\xbf" + "\n".join(lines).encode(),
    "UTF-16": lambda lines: "\n".join([*lines, ""]).encode("utf-16"),
    "UTF-16, the other end first": lambda lines: b"\xfe\xff" + "\n".join(lines).encode("utf-16-be"),
    "a line for spreadsheets": lambda lines: "\n".join(["sep=,", *lines]).encode(),
    "blank lines at both ends": lambda lines: "\n".join(["", *lines, "", "", ""]).encode(),
    "quotes": lambda lines: "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) for line in lines
    ).encode(),
    "tabs": lambda lines: "\n".join(lines).replace(",", "\t").encode(),
    "semicolons": lambda lines: "\n".join(lines).replace(",", ";").encode(),
    "sep=;": lambda lines: "\n".join(["sep=;", *lines]).replace(",", ";").encode(),
}


@pytest.mark.parametrize("kind", FORMS)
def test_csv_of_every_make_is_read(kind: str) -> None:
    text = Path(table(Y)).read_text().splitlines()
    Path("other.csv").write_bytes(FORMS[kind](text))
    register("other.csv", "t", "accuracy")
    Path("p.csv").write_bytes(FORMS[kind](["p", *map(str, GUESS)]))
    assert score("p.csv") == pytest.approx(accuracy_score(Y, GUESS))
    held = LadderHoldout.open("h").__ladder__.guard().rows
    assert np.array_equal(held.X.to_numpy(), X) and np.array_equal(held.y, Y)
    shares = ["0,1", *(f"{1 - p:.3f},{p}" for p in P)]
    form = Form(get_metric("neg_log_loss"), N, np.array([0, 1]))
    read = submission_in(FORMS[kind](shares), CSV, lambda: form, SPACE).predictions
    assert np.allclose(read, np.column_stack([1 - P, P]))


def test_a_line_break_in_quotes_is_no_row() -> None:
    texts = [f'"a note\nof {at}",{y}' for at, y in enumerate(Y)]
    write("notes.csv", ["text,t", *texts])
    register("notes.csv", "t", "accuracy")
    assert score(predictions(GUESS)) == pytest.approx(accuracy_score(Y, GUESS))
    write("ragged.csv", ["text,t", *texts[:5], "x,1,2"])
    words = ("register", "ragged.csv", "--target", "t", "--scoring", "accuracy")
    assert "with 3 in line 12" in refused(*words)


# -- types ------------------------------------------------------------------------------------

SPELLED: dict[str, tuple[list[str], dict[str, str]]] = {
    "leading zeros": (["007", "7", "12"], {"007": "7"}),
    "exponents": (["1e2", "100", "3e1"], {"1e2": "100"}),
    "versions": (["1.10", "1.1", "2.0"], {"1.10": "1.1"}),
    "one and 1.0": (["1", "1.0", "2"], {"1.0": "1"}),
    "signs": (["+1", "1", "-1"], {"+1": "1"}),
    "underscores": (["1_000", "1000", "5"], {"1_000": "1000"}),
    "hexadecimal": (["0x10", "16", "3"], {"0x10": "16"}),
    "spaces": ([" 1", "1", "2"], {" 1": "1"}),
    "with a letter": (["007", "7", "X"], {"007": "7"}),
    "truth and numbers": (["True", "1", "0"], {"True": "1"}),
    "large": (["9007199254740993", "9007199254740992", "5"], {"9007199254740993": "5"}),
    "larger": (["18446744073709551617", "18446744073709551616", "x"], {}),
    "NA": (["NA", "EU", "AS"], {"AS": "EU"}),
    "None": (["None", "Mild", "Severe"], {"Mild": "None"}),
    "null": (["null", "alt"], {"alt": "null"}),
    "nan": (["nan", "roti"], {}),
    "n/a": (["n/a", "no"], {"no": "n/a"}),
    "numbers and NA": (["1", "2", "NA"], {"1": "2"}),
    "commas": (["1,5", "15", "2"], {"1,5": "15"}),
    "truth": (["True", "False"], {}),
    "truth of R": (["TRUE", "FALSE"], {}),
    "floats": (["0.5", "1.5"], {}),
}


@pytest.mark.parametrize("kind", SPELLED)
def test_classes_are_what_their_texts_are(kind: str, rng: np.random.Generator) -> None:
    names, instead = SPELLED[kind]
    labels = np.array(names, dtype=object)[rng.integers(0, len(names), N)]
    guess = np.array([instead.get(one, one) for one in labels], dtype=object)
    flip = rng.random(N) < 0.2
    guess[flip] = names[0]
    if kind == "floats":  # which are no classes, as in Python
        words = ("register", table(labels), "--target", "t", "--scoring", "accuracy")
        assert "fractions" in refused(*words)
        return
    register(table(labels), "t", "accuracy")
    pd.DataFrame({"p": guess}).to_csv("p.csv", index=False)
    right = accuracy_score(labels.astype(str), guess.astype(str))
    assert score("p.csv") == pytest.approx(right)
    pd.DataFrame({"p": guess.astype(str)}).to_parquet("p.parquet")
    assert score("p.parquet") == pytest.approx(right)
    record = LadderHoldout.open("h").__ladder__.facts
    form = Form(get_metric("accuracy"), N, record.classes)
    read = submission_in(Path("p.csv").read_bytes(), CSV, lambda: form, SPACE).predictions
    LadderHoldout.open("h").submit(read)
    assert LadderHoldout.open("h").history()[-1].score == pytest.approx(right)


@pytest.mark.parametrize("kind", ["target 1, guess 1.0", "target 1.0, guess 1"])
def test_plain_numbers_are_compared_by_value(kind: str) -> None:
    as_floats, as_numbers = Y.astype(float), Y
    target, guess = (as_numbers, GUESS * 1.0) if "guess 1.0" in kind else (as_floats, GUESS)
    register(table(target), "t", "accuracy")
    assert score(predictions(guess)) == pytest.approx(accuracy_score(Y, GUESS))


@pytest.mark.parametrize("wrong", ["01", "1e0", "+1", "1.00", "0x1", "1_0", "yes", "1;", "NA"])
def test_another_spelling_of_a_label_is_refused_with_its_line(wrong: str) -> None:
    register(table(Y), "t", "accuracy")
    cells = [wrong if at == 4 else str(v) for at, v in enumerate(GUESS)]
    said = refused("submit", "h", write("p.csv", ["p", *cells]))
    assert "the first in line 6" in said and "labels" in said


def test_a_missing_target_is_refused_with_its_line_and_so_is_what_is_named_so() -> None:
    labels = np.where(Y == 1, "NA", "EU").astype(object)
    place = int(np.flatnonzero(labels == "NA")[0])
    words = ("register", table(labels), "--target", "t", "--scoring", "accuracy", "--missing", "NA")
    assert f"the first in line {place + 2}" in refused(*words)
    labels[7] = ""
    words = ("register", table(labels), "--target", "t", "--scoring", "accuracy")
    assert "missing in 1 rows, the first in line 9" in refused(*words)
    frame = pd.DataFrame({"a": X[:, 0], "t": pd.array([None, *Y[1:]], dtype="Int64")})
    frame.to_parquet("h.parquet")
    words = ("register", "h.parquet", "--target", "t", "--scoring", "accuracy")
    assert "the first in row 1" in refused(*words)


NUMBERS: dict[str, tuple[Callable[[float], str], str]] = {
    "thousands": (lambda v: f'"{1000 + v:,.0f}"', "comma between thousands"),
    "percent": (lambda v: f"{v:.0f}%", "percent sign"),
    "a currency": (lambda v: f"${v:.2f}", "currency"),
    "missing": (lambda v: "NA", "missing value"),
    "decimal commas": (lambda v: f'"{v:.2f}"'.replace(".", ","), "decimal comma"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_target_that_is_no_number_says_why_and_the_remedy_works(kind: str) -> None:
    spell, said = NUMBERS[kind]
    write("h.csv", ["a,t", *(f"{a},{spell(t)}" for a, t in zip(X[:, 0], T, strict=True))])
    told = refused("register", "h.csv", "--target", "t", "--scoring", "r2", "--name", "h")
    assert said in told and "line 2" in told
    write("h.csv", ["a,t", *(f"{a},{t:.2f}" for a, t in zip(X[:, 0], T, strict=True))])
    register("h.csv", "t", "r2")
    assert score(predictions([f"{v:.2f}" for v in Q])) == pytest.approx(r2_score(T, Q))
    told = refused("submit", "h", write("p.csv", ["p", *map(spell, Q)]))
    assert "line 2" in told


def test_numbers_of_a_regression_may_be_spelled_in_any_way() -> None:
    write("h.csv", ["a,t", *(f"{a},{t:.4f}" for a, t in zip(X[:, 0], T, strict=True))])
    register("h.csv", "t", "r2")
    assert score(predictions([f"{v:e}" for v in Q])) == pytest.approx(r2_score(T, Q))
    # And once more without the metric, which the ladder knows.
    code, _, said = call("register", "h.csv", "--target", "t", "--name", "h")
    assert code == 0, said


def test_ids_are_texts_unless_all_are_plain_and_large_ones_are_exact() -> None:
    for ids in (
        [f"{at:03d}" for at in range(N // 2)] + [f"{at:04d}" for at in range(N // 2)],
        [str(2**53 + at) for at in range(N)],
        [str(2**64 + at) for at in range(N)],
    ):
        frame = pd.DataFrame({"id": ids, "a": X[:, 0] + len(ids[0]), "t": Y})
        frame.to_csv("h.csv", index=False)
        place = ("--ledger", f"{ids[0]}.db")
        register("h.csv", "t", "accuracy", "--ids", "id", *place)
        shuffled = pd.DataFrame({"p": GUESS, "id": ids}).sample(frac=1, random_state=0)
        shuffled.to_csv("p.csv", index=False)
        right = accuracy_score(Y, GUESS)
        assert score("p.csv", "--ids", "id", *place) == pytest.approx(right)


def test_a_repeated_or_missing_id_is_refused_with_its_line() -> None:
    ids = [f"r{at}" for at in range(N)]
    words = ("register", "h.csv", "--target", "t", "--ids", "id", "--scoring", "accuracy")

    def changed(to: str) -> list[str]:
        return [to if at == 5 else one for at, one in enumerate(ids)]

    pd.DataFrame({"id": changed(""), "a": X[:, 0], "t": Y}).to_csv("h.csv", index=False)
    assert "missing in line 7" in refused(*words)
    pd.DataFrame({"id": ids, "a": X[:, 0], "t": Y}).to_csv("h.csv", index=False)
    register("h.csv", "t", "accuracy", "--ids", "id")
    pd.DataFrame({"id": changed("r2"), "p": GUESS}).to_csv("p.csv", index=False)
    assert "line 4 and line 7" in refused("submit", "h", "p.csv", "--ids", "id")


# -- an index ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_an_index_in_another_order_is_aligned(kind: str, rng: np.random.Generator) -> None:
    index = rng.permutation(np.arange(1000, 1000 + N))
    frame = pd.DataFrame({"a": X[:, 0], "t": Y}, index=index)
    guess = pd.DataFrame({"p": GUESS}, index=index)

    def put(one: pd.DataFrame, name: str) -> str:
        if kind == "csv":
            one.to_csv(f"{name}.csv")
        elif kind == "parquet":
            one.to_parquet(f"{name}.parquet")
        else:
            arrow = pa.Table.from_pandas(one)
            with pa.OSFile(f"{name}.arrow", "wb") as file, pa.ipc.new_file(file, arrow.schema) as s:
                s.write_table(arrow)
        return f"{name}.{kind}"

    register(put(frame, "h"), "t", "accuracy")
    right = accuracy_score(Y, GUESS)
    assert score(put(guess, "same")) == pytest.approx(right)
    assert score(put(guess.sort_index(), "sorted")) == pytest.approx(right)
    assert score(put(guess.reset_index(drop=True), "plain")) == pytest.approx(right)
    other = guess.set_axis(np.arange(5000, 5000 + N), axis=0)
    assert "index of other rows" in refused("submit", "h", put(other, "other"))
    # A model is given the features alone.
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(frame[["a"]], Y)
    shown = LadderHoldout.open("h").submit(model).score
    assert shown == pytest.approx(model.score(frame[["a"]], Y))


@pytest.mark.parametrize("kind", ["reversed", "permuted", "sorted again"])
def test_an_index_of_counts_in_another_order_is_refused(kind: str) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "t": Y})
    guess = pd.DataFrame({"p": GUESS})
    if kind == "sorted again":  # the rows have the other order
        frame = frame.sample(frac=1, random_state=0)
    elif kind == "reversed":
        guess = guess[::-1]
    else:
        guess = guess.sample(frac=1, random_state=0)
    frame.to_parquet("h.parquet")
    register("h.parquet", "t", "accuracy")
    guess.to_parquet("p.parquet")
    if kind == "sorted again":
        guess = pd.DataFrame({"p": GUESS[frame.index]}, index=frame.index)
        guess.sort_index().to_csv("p.csv")
        assert "another order" in refused("submit", "h", "p.csv")
        guess.to_parquet("p.parquet", index=False)
    else:
        assert "another order" in refused("submit", "h", "p.parquet")
        guess.sort_index().to_parquet("p.parquet", index=False)  # the remedy
    assert score("p.parquet") == pytest.approx(accuracy_score(Y, GUESS))


def test_the_file_of_labels_is_aligned_on_its_own(rng: np.random.Generator) -> None:
    index = [f"k{at}" for at in rng.permutation(N)]
    pd.DataFrame({"a": X[:, 0], "t": Y}, index=index).to_parquet("h.parquet")
    words = ("--scoring", "accuracy", "--scoring", "roc_auc", "--name", "h")
    code, _, said = call("register", "h.parquet", "--target", "t", *words, *RULE)
    assert code == 0, said
    pd.DataFrame({"p": P}, index=index).to_parquet("p.parquet")
    labels = pd.DataFrame({"p": GUESS}, index=index).sort_index()
    labels.to_parquet("l.parquet")
    code, shown, said = call("submit", "h", "p.parquet", "--labels", "l.parquet", "--json")
    assert code == 0, said
    found = json.loads(shown)["by_metric"]
    assert found["accuracy"]["score"] == pytest.approx(accuracy_score(Y, GUESS))
    assert found["roc_auc"]["score"] == pytest.approx(roc_auc_score(Y, P))


def test_tables_of_polars_and_dictionaries_are_read() -> None:
    labels = np.where(Y == 1, "yes", "no")
    guess = np.where(GUESS == 1, "yes", "no")
    pl.DataFrame({"a": X[:, 0], "t": pl.Series(labels, dtype=pl.Categorical)}).write_parquet(
        "h.parquet"
    )
    register("h.parquet", "t", "accuracy")
    coded = pa.table({"p": pa.array(guess.tolist()).dictionary_encode()})
    parquet.write_table(coded, "p.parquet")
    assert score("p.parquet") == pytest.approx(accuracy_score(labels, guess))


def test_two_columns_of_the_name_of_the_target_are_refused() -> None:
    write("h.csv", ["a,t,t", *(f"{a},{y},{1 - y}" for a, y in zip(X[:, 0], Y, strict=True))])
    words = ("register", "h.csv", "--target", "t", "--scoring", "accuracy")
    assert "2 columns have" in refused(*words)


# -- ids and the order of the first registration ------------------------------------------------


def with_ids() -> pd.DataFrame:
    return pd.DataFrame({"id": [f"p{at}" for at in range(N)], "a": X[:, 0], "t": Y})


def test_ids_put_a_file_in_order_and_the_refusal_names_them() -> None:
    frame = with_ids()
    frame.to_csv("h.csv", index=False)
    register("h.csv", "t", "accuracy", "--ids", "id")
    guess = pd.DataFrame({"id": frame["id"], "answer": GUESS}).sample(frac=1, random_state=0)
    guess.to_csv("p.csv", index=False)
    assert "--ids" in refused("submit", "h", "p.csv")
    assert score("p.csv", "--ids", "id") == pytest.approx(accuracy_score(Y, GUESS))
    guess[["answer", "id"]].to_parquet("p.parquet")
    assert score("p.parquet", "--ids", "id") == pytest.approx(accuracy_score(Y, GUESS))
    for change, said in (
        (guess.assign(id=guess["id"].where(guess["id"] != "p5", "p6")), "the same in line"),
        (guess.assign(id=guess["id"].where(guess["id"] != "p5", "new")), "1 others, the first in"),
        (guess.assign(id=guess["id"].where(guess["id"] != "p5", None)), "missing in line"),
    ):
        change.to_csv("q.csv", index=False)
        assert said in refused("submit", "h", "q.csv", "--ids", "id")
    assert "one of the 2 columns" in refused("submit", "h", "p.csv", "--ids", "name")


def test_a_column_of_ids_where_none_are_registered_is_refused_with_what_helps() -> None:
    register(table(Y), "t", "accuracy")
    write("p.csv", ["id,answer", *(f"{at},{v}" for at, v in enumerate(GUESS))])
    assert "leave that column out" in refused("submit", "h", "p.csv")
    assert score(predictions(GUESS)) == pytest.approx(accuracy_score(Y, GUESS))


def test_ids_of_python_are_found_by_files_of_either_type() -> None:
    guess = pd.DataFrame({"id": range(N), "p": GUESS}).sample(frac=1, random_state=0)
    guess.to_csv("p.csv", index=False)
    for kind, ids in (("numbers", list(range(N))), ("texts", [str(at) for at in range(N)])):
        LadderHoldout(
            X, Y, ids=ids, scoring="accuracy", name="h", mechanism=FullDisclosure(),
            ledger=f"{kind}.db",
        )  # fmt: skip
        found = score("p.csv", "--ids", "id", "--ledger", f"{kind}.db")
        assert found == pytest.approx(accuracy_score(Y, GUESS))


@pytest.mark.parametrize("features", ["other", "the same"])
def test_files_stay_in_the_order_of_the_first_registration(features: str) -> None:
    frame = with_ids()
    frame.to_csv("monday.csv", index=False)
    register("monday.csv", "t", "accuracy", "--ids", "id")
    predictions(GUESS)
    right = accuracy_score(Y, GUESS)
    assert score("p.csv") == pytest.approx(right)
    later = frame.assign(b=X[:, 1]) if features == "other" else frame
    later = later.sample(frac=1, random_state=0)
    later.to_csv("tuesday.csv", index=False)
    words = ("register", "tuesday.csv", "--target", "t", "--ids", "id", "--name", "h")
    code, _, said = call(*words)
    assert code == 0 and "order of the first registration" in said
    better = np.where(np.arange(N) % 3 == 0, 1 - Y, Y)
    assert score("p.csv") == pytest.approx(right)
    assert score(predictions(better, "q.csv")) == pytest.approx(accuracy_score(Y, better))
    pd.DataFrame({"id": later["id"], "p": GUESS[later.index]}).to_csv("p.csv", index=False)
    assert score("p.csv", "--ids", "id") == pytest.approx(right)
    # Who registered the second view from Python goes on in the order given there.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KnownHoldoutWarning)
        holdout = LadderHoldout(
            later.drop(columns=["t", "id"]), later["t"], ids=later["id"].tolist(), name="h"
        )
    assert holdout.submit(GUESS[later.index]).score == pytest.approx(right)
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    model.fit(later.drop(columns=["t", "id"]), later["t"])
    expected = model.score(later.drop(columns=["t", "id"]), later["t"])
    assert holdout.submit(model).score == pytest.approx(expected)


def test_a_batch_takes_ids(rng: np.random.Generator) -> None:
    frame = with_ids()
    holdout = LadderHoldout(
        X, Y, ids=frame["id"].tolist(), scoring="accuracy", mechanism=FullDisclosure()
    )
    order = rng.permutation(N)
    with holdout.batch() as batch:
        batch.submit(GUESS[order], ids=frame["id"].to_numpy()[order])
        batch.submit(Y)
    scores = [one.score for one in batch.releases]
    assert scores == pytest.approx([accuracy_score(Y, GUESS), 1.0])


# -- remedies ---------------------------------------------------------------------------------


def test_a_saved_index_is_no_feature() -> None:
    table(Y, "h.csv", index=True)
    pd.read_csv("h.csv").to_csv("again.csv", index=False)  # the column is now "Unnamed: 0"
    register("again.csv", "t", "accuracy")
    model = DecisionTreeClassifier(max_depth=2, random_state=0)
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert LadderHoldout.open("h").submit(model.fit(frame, Y)).score == pytest.approx(
        accuracy_score(Y, model.predict(frame))
    )


@pytest.mark.parametrize("option", ["t", " t"])
def test_spaces_after_commas_are_no_part_of_names_and_labels(option: str) -> None:
    labels, guess = np.where(Y == 1, "yes", "no"), np.where(GUESS == 1, "yes", "no")
    write("h.csv", ["a, t", *(f"{a}, {t}" for a, t in zip(X[:, 0], labels, strict=True))])
    register("h.csv", option, "accuracy")
    right = accuracy_score(labels, guess)
    assert score(write("p.csv", ["p", *guess])) == pytest.approx(right)
    assert score(write("q.csv", ["p", *(f" {one} " for one in guess)])) == pytest.approx(right)


def test_no_header_is_advised_only_where_it_helps() -> None:
    register(table(Y), "t", "accuracy")
    write("p.csv", map(str, GUESS))  # type: ignore[arg-type]
    assert "--no-header" in refused("submit", "h", "p.csv")
    assert score("p.csv", "--no-header") == pytest.approx(accuracy_score(Y, GUESS))
    write("q.csv", ["p", *map(str, GUESS[1:])])
    assert "--no-header" not in refused("submit", "h", "q.csv")
    assert "leave out --no-header" in refused("submit", "h", predictions(GUESS), "--no-header")


def test_features_with_decimal_commas_are_refused_and_not_made_texts() -> None:
    table(Y, "h.csv", sep=";", decimal=",")
    words = ("register", "h.csv", "--target", "t", "--scoring", "accuracy", "--name", "h")
    assert "decimal comma, or a comma between thousands in line 2" in refused(*words)
    table(Y, "h.csv", sep=";")
    register("h.csv", "t", "accuracy")
    assert score(predictions(GUESS)) == pytest.approx(accuracy_score(Y, GUESS))


def test_safe_reads_its_file_as_register_does() -> None:
    labels = np.where(Y == 1, "007", "7")
    words = ("--scoring", "accuracy", "--rows", "40", "--threshold", "0.2", "--repetitions", "2")
    code, _, said = call("safe", table(labels), "--target", "t", *words)
    assert code == 0, said
    write("ragged.csv", ["a,t", *(f"{a},{y}," for a, y in zip(X[:, 0], Y, strict=True))])
    assert "line 2" in refused("safe", "ragged.csv", "--target", "t", *words)


def test_arrow_bodies_are_read_by_the_same_rules() -> None:
    arrow = pa.table({"p": ["7" if v else "007" for v in GUESS]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    data = sink.getvalue().to_pybytes()
    form = Form(get_metric("accuracy"), N, np.array(["007", "7"]))
    read = submission_in(data, ARROW, lambda: form, SPACE).predictions
    assert read.tolist() == ["7" if v else "007" for v in GUESS]
    with pytest.raises(InvalidArgument, match="another spelling"):
        submission_in(data, ARROW, lambda: Form(get_metric("accuracy"), N, np.array([0, 7])), SPACE)


@pytest.mark.long
def test_a_large_file_of_mixed_codes_takes_few_calls_a_row(
    rng: np.random.Generator,
) -> None:
    n, calls = 30_000, 0  # more bytes than pandas reads at a time
    codes = rng.integers(1, 4, n).astype(str).astype(object)
    codes[-40:] = "X"
    pd.DataFrame({"a": rng.normal(size=n), "code": codes}).to_csv("h.csv", index=False)
    guess = codes.copy()
    guess[: n // 4] = "1"
    pd.DataFrame({"p": guess}).to_csv("p.csv", index=False)

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        register("h.csv", "code", "accuracy")
        found = score("p.csv")
    finally:
        sys.setprofile(before)
    assert found == pytest.approx(accuracy_score(codes.astype(str), guess.astype(str)))
    # 12 for each row, and 50,000 of what a command takes for any: one a pair would be 450 million.
    assert calls < 20 * n + 200_000
