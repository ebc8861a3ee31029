"""Attacks the examples: each is run as people run it, on a ledger of its own, and run again."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.extras import EXTRAS
from ladderholdout.mechanisms import GateLadder

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


HIDE = """
import importlib.util
import sys

HIDDEN, find_spec = {hidden!r}, importlib.util.find_spec

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def spec_of(name, package=None):  # whoever asks whether it is there gets no error
    return None if name.partition(".")[0] in HIDDEN else find_spec(name, package)

sys.meta_path.insert(0, Hidden())
importlib.util.find_spec = spec_of
"""
# What MLflow imports; the tests have all of it, and the plain installation its client alone.
BY_MLFLOW = {"fastapi", "jinja2", "markupsafe", "pandas", "pyarrow", "python_multipart", "uvicorn"}
OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def installs(script: Path) -> str:
    """Return what the first line of an example installs."""
    return script.read_text().splitlines()[0].removeprefix("# Install: ")


def not_installed(script: Path) -> set[str]:
    """Return the packages that an example's first line does not install."""
    named = set(re.findall(r"[a-z]+", "".join(re.findall(r"\[(.*?)\]", installs(script)))))
    assert named <= set(OPTIONAL), script
    brought = " ".join(one.lower() for extra in named for one in OPTIONAL[extra])
    brought += " markupsafe"  # by Alembic
    hidden = {package for package in EXTRAS if package.replace("_", "-") not in brought}
    kept = BY_MLFLOW if "mlflow" in script.read_text() else set()
    return (hidden | {"pytest", "hypothesis"}) - kept


def run(script: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    """Run a script in a fresh interpreter, in an empty folder, with what its first line installs.

    Its home is empty too; LADDERHOLDOUT_LEDGER is the test's own.
    """
    is_example = script.parent.name == "examples"
    with tempfile.TemporaryDirectory() as name:
        home, here, hide = (Path(name) / part for part in ("home", "here", "hide"))
        for folder in (home, here, hide):
            folder.mkdir()
        hidden = not_installed(script) if is_example else set()
        hidden -= {"psycopg"} if "--database" in words else set()
        (hide / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
        own = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        path = os.pathsep.join(filter(None, (str(hide), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script), *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=here,
            env=os.environ | own | {"PYTHONPATH": path} | (environment or {}),
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert not list(here.iterdir()), "it leaves something in the working folder"
    return done.stdout


def run_small(folder: Path, name: str, *words: str, **constants: int) -> str:
    """Run an example with smaller constants: what its page shows is compared by make nightly."""
    script = folder / f"small_{name}.py"
    settings = "".join(
        f"assert example.{one}\nexample.{one} = {constants[one]}\n" for one in constants
    )
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        f"import {name} as example\n{settings}example.main()\n"
    )
    return run(script, *words)


def test_there_are_examples_for_what_people_do_first() -> None:
    names = {script.stem for script in EXAMPLES}
    assert {"demo", "by_hand", "two_accounts", "own_metric"} <= names


def test_an_example_says_what_it_shows() -> None:
    failures = []
    for script in EXAMPLES:
        first, text = script.read_text().split("\n", 1)
        command = "python -m pytest" if "pytest" in first else "python"
        if not (
            re.fullmatch(r"# Install: pip install (\.|'\.\[[a-z,]+\]')( pytest)?", first)
            and text.startswith('"""')
            and f"{command} examples/{script.name}" in text.split('"""')[1]
        ):
            failures.append(script.name)
    assert failures == []


# Those whose holdout is in the user's ledger; PyTorch's is in the deep tier.
KEPT = (
    "by_hand",
    "early_stopping_lightgbm",
    "early_stopping_xgboost",
    "leaderboard",
    "mlflow_search",
    "team",
)


@pytest.mark.nightly
def test_each_example_has_a_holdout_and_rows_of_its_own(tmp_path: Path) -> None:
    """All of them share a ledger: one that went on with another's rows would warn, and fail."""
    ledger = tmp_path / "shared.db"
    names: list[str] = []
    for script in EXAMPLES:
        if script.stem not in ("early_stopping_torch", "own_mechanism_test", "demo"):
            words = ("--trials", "2") if script.stem == "team" else ()
            run(script, *words, environment={"LADDERHOLDOUT_LEDGER": str(ledger)})
            found = names(ledger) if ledger.exists() else []
            assert (len(found) > len(names)) == (script.stem in KEPT), script.stem
            names = found


def row(table: str, what: str) -> list[float]:
    """Return the numbers of one line of the demo's table, without standard errors."""
    line = next(line for line in table.splitlines() if what in line)
    return [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", re.sub(r"\(.*?\)", "", line))]


def test_the_demo_compares_three_ways_and_leaves_a_picture_alone(
    default_ledger: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "demo.svg"
    shown = run(ROOT / "examples" / "demo.py", "--splits", "2", "--picture", str(picture))
    believed, true, gap = (row(shown, what) for what in ("believed  ", "true  ", "too much"))
    assert len(believed) == len(true) == len(gap) == 3
    assert np.allclose(np.subtract(believed, true), gap, atol=0.0011)  # three digits are shown
    assert min(true) > 0.6 and believed[0] >= max(believed)
    assert "2 certified" in shown and "The truth is .500" in " ".join(shown.split())
    root = ElementTree.parse(picture).getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3 * 2
    assert str(picture) in shown.replace("\n", "")
    assert not default_ledger.exists(), "it writes nothing into the user's own ledger"


def rest(text: str) -> list[str]:
    """Return the words of all lines but the estimate's."""
    return [word for line in text.splitlines() if "estimate()" not in line for word in line.split()]


@pytest.mark.nightly
def test_a_page_shows_what_the_demo_prints(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    shown = run(ROOT / "examples" / "demo.py", "--picture", str(picture))
    printed = shown.split("Believed against true")[0]
    page = (ROOT / "docs" / "background" / "install.md").read_text(encoding="utf-8")
    quoted = next(one for one in re.findall(r"```text\n(.*?)```", page, re.S) if "trees" in one)
    # Its draws come from the holdouts' secrets, which are others each time.
    found, stated = (row(text, "error of estimate") for text in (printed, quoted))
    assert found == pytest.approx(stated, abs=0.004)
    assert rest(quoted) == rest(printed)
    assert (ROOT / "docs" / "assets" / "demo.svg").read_text() == picture.read_text()


def test_by_hand_the_second_run_repeats_the_first_and_changes_nothing() -> None:
    script = ROOT / "examples" / "by_hand.py"
    first, second = run(script), run(script)
    assert "improved" in first
    assert "no better" in first
    answers = [
        re.findall(r"(improved|no better|repeat of \d) +released score (.*)", one)
        for one in (first, second)
    ]
    assert len(answers[0]) == 5 and answers[0][0][0] == "improved"
    assert "repeat" not in first
    # Each is answered with the score that is released by then, which stays.
    last = answers[0][-1][1]
    assert answers[1] == [(f"repeat of {number}", last) for number in range(1, 6)]
    assert all(f"released score    {last} (submission" in shown for shown in (first, second))
    assert "submissions       10" in second
    ends = [re.findall(r"^incumbent .*", shown, re.MULTILINE) for shown in (first, second)]
    assert len(ends[0]) == 1 and ends[0] == ends[1]


def test_two_accounts_climb_apart_and_count_together() -> None:
    shown = run(ROOT / "examples" / "two_accounts.py")
    assert shown.count("warning: This opens ladder 'main' of account 'Ben'") == 1
    # Ben's first score is below what Ada reached: his answers do not build on hers.
    scores = {who: re.findall(rf"{who}: .* (0\.\d+)", shown) for who in ("Ada", "Ben")}
    assert float(scores["Ben"][0]) < float(scores["Ada"][-1])
    for account in ("Ada", "Ben"):
        assert f"ladder main of account {account}: 3 submissions" in shown


def test_a_crowd_gets_scores_from_ladders_per_team_and_none_from_full_ranks() -> None:
    script = ROOT / "examples" / "leaderboard.py"
    per_team, per_rank = (shown.strip() for shown in run(script).strip().split("\n\n"))
    assert per_team.endswith("Of 30 accounts with a guess each, 30 received a score.")
    assert per_rank.endswith("Of 30 accounts with a guess each, 0 received a score.")
    for shown in (per_team, per_rank):
        assert "10 submissions of 3 accounts" in shown
        rows = re.findall(r"^(\d)(=?) +(\w+) +(0\.\d+)", shown, re.MULTILINE)
        scores = [float(score) for *_, score in rows]
        assert {team for _, _, team, _ in rows} == {"Trees", "Neighbours", "Lines"}
        assert scores == sorted(scores, reverse=True) and scores[0] > 0.9
        assert [mark == "=" for _, mark, *_ in rows] == [scores.count(one) > 1 for one in scores]


@pytest.mark.nightly
def test_a_crowd_that_comes_again_repeats_itself() -> None:
    script = ROOT / "examples" / "leaderboard.py"
    run(script)
    # Run again all is repeats, and is as it was.
    assert run(script).count("50 submissions of 33 accounts") == 2


def test_a_metric_of_ones_own_goes_through_a_search_and_a_reopening() -> None:
    shown = run(ROOT / "examples" / "own_metric.py")
    assert "neg_cost" in shown
    assert "ParameterFreeLadder()" in shown
    assert "submission=8, releases_left" in shown


def test_the_audit_tells_a_signal_from_noise(tmp_path: Path) -> None:
    picture = tmp_path / "audit.png"
    shown = run(ROOT / "examples" / "audit.py", "--picture", str(picture))
    assert "real labels: Something was found. The released score holds." in shown
    assert "shuffled labels: Nothing was found." in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_a_study_shows_its_finalists_only() -> None:
    shown = run(ROOT / "examples" / "optuna_study.py")
    assert "40 trials, and 0 submissions before the end" in shown
    finalists = re.findall(r"^ *(\d+) +(0\.\d+) +(0\.\d+) +(0\.\d+)( +improved)?$", shown, re.M)
    assert len(finalists) == 3
    inner = [float(score) for _, score, *_ in finalists]
    assert inner == sorted(inner, reverse=True) and inner[-1] > 0.9
    assert len(re.findall(r"^trial \d+ of 40: best ", shown, re.M)) == 5
    winner = re.search(r"The incumbent is trial (\d+)", shown)
    assert winner and winner[1] in [number for number, *_, mark in finalists if mark]


@pytest.mark.nightly
def test_the_benchmark_of_feedback_compares_policies() -> None:
    words = ["--quick", "--problems", "smooth", "--samplers", "TPE", "--jobs", "2"]
    shown = run(ROOT / "benchmarks" / "feedback.py", *words)
    rows = {line.strip()[:47].strip() for line in shown.splitlines()}
    assert {
        "unguarded",
        "incumbent; all, parameter-free",
        "inner; finalists 3, parameter-free",
    } <= rows
    assert "smooth, 25 trials" in shown


# In the gate tests/integrations/test_mlflow.py tracks searches.
@pytest.mark.nightly
def test_a_tracked_search_is_in_mlflow_whole_and_raw_for_auditors_alone(
    default_ledger: Path,
) -> None:
    shown = run(ROOT / "examples" / "mlflow_search.py")
    assert "30 submissions are on record, 30 in MLflow" in shown
    # A repeat that is given its first answer once more has no place in the series of releases.
    (released,) = re.findall(r"the analyst's run holds (\d+) x ladder_released\n", shown)
    assert 1 <= int(released) <= 30
    assert f"the audit run holds 30 x ladder_raw, {released} x ladder_released\n" in shown
    assert "an export adds 0 submissions" in shown
    assert str(default_ledger.with_name("mlflow.db")) in shown


BOOSTERS = ("early_stopping_lightgbm.py", "early_stopping_xgboost.py")


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOOSTERS)
def test_early_stopping_repeats_when_run_again(name: str) -> None:
    first, second = run(ROOT / "examples" / name), run(ROOT / "examples" / name)
    submissions = int(re.search(r"^submissions +(\d+)", first, re.MULTILINE)[1])
    again = re.search(r"^submissions +(\d+)$", second, re.MULTILINE)
    assert int(again[1]) == 2 * submissions
    releases = [re.search(r"^releases +(\d+)", one, re.MULTILINE)[1] for one in (first, second)]
    assert releases[0] == releases[1]


@pytest.mark.parametrize("name", BOOSTERS)
def test_early_stopping_keeps_the_ledgers_best_round(name: str) -> None:
    first = run(ROOT / "examples" / name)
    seen = row(first, "by the ladder" if "xgboost" in name else "stopped after")[0]
    kept = row(first, "by the ladder" if "xgboost" in name else "the ledger's best")
    if "lightgbm" in name:
        assert kept[0] == kept[1] < seen < 500
        assert row(first, "on fresh rows")[0] > 0.9
    else:
        assert kept[0] == seen < 500
        assert kept[1] < seen / 2  # so few of the scores are shown


def test_a_mechanism_of_ones_own_keeps_the_contract() -> None:
    script = ROOT / "examples" / "own_mechanism.py"
    shown = run(script)
    steps = np.diff([float(one) for one in re.findall(r"released as (0\.\d+)", shown)])
    # Each release is dearer than the last: by more steps of 0.01 than there were releases.
    assert len(steps) > 3
    assert (steps > 0.01 * np.arange(1, len(steps) + 1)).all()
    test = ROOT / "examples" / "own_mechanism_test.py"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    checked = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert checked.returncode == 0, checked.stdout
    assert "10 passed" in checked.stdout


@pytest.mark.nightly
def test_workers_of_a_team_share_a_database(database: str) -> None:
    script, words = ROOT / "examples" / "team.py", ("--trials", "10", "--database", database)
    # Two that come first at once would both make Optuna's tables, and one of them fails.
    assert "0 submissions by all workers" in run(script, "--trials", "0", "--database", database)
    with ThreadPoolExecutor(2) as pool:
        shown = list(pool.map(lambda _: run(script, *words), range(2)))
    counted = [int(re.search(r"^(\d+) submissions by all", one, re.MULTILINE)[1]) for one in shown]
    assert max(counted) == 20
    assert "20 submissions" in shown[counted.index(20)]
    assert LadderHoldout.open("team", ledger=database).status().submissions == 20


def test_every_example_is_run_here() -> None:
    """A new example needs a test of what it shows; those that need PyTorch have it in deep/."""
    tests = (Path(__file__), *(ROOT / "tests" / "deep").glob("test_*.py"))
    texts = "".join(test.read_text() for test in tests)
    assert [script.name for script in EXAMPLES if f'"{script.name}"' not in texts] == []


# In the gate tests/project/test_rooms.py starts a process for the same.
@pytest.mark.nightly
def test_importing_the_package_imports_nothing_heavy() -> None:
    """The time that the benchmark measures is no matter for a test; what is imported is."""
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "import_time.py"))
    assert {"mlflow", "optuna", "sklearn"} <= set(benchmark["HEAVY"])
    assert benchmark["imported"]() == []


@pytest.mark.nightly
def test_the_benchmark_repeats_the_demo() -> None:
    shown = run(ROOT / "benchmarks" / "optimism.py", "--repetitions", "2")
    grid, boosting = shown.split("\n\n")
    for table in (grid, boosting):
        assert {"unguarded", "ParameterFreeLadder()", "PairedTestLadder(alpha=0.05)"} <= {
            line.split()[0] for line in table.splitlines()
        }


def test_an_agent_asks_a_server_and_writes_nothing_of_its_own(
    default_ledger: Path, tmp_path: Path
) -> None:
    shown = run_small(tmp_path, "agent", STEPS=40)
    believed = {who: row(shown, f"  {who} ")[0] for who in ("unguarded", "guarded")}
    assert believed["unguarded"] > believed["guarded"]
    low, high = row(shown, "certificate")
    assert low < 0.5 < high and not default_ledger.exists()


def test_a_loop_keeps_nothing_falsely_by_a_gate(tmp_path: Path) -> None:
    picture = tmp_path / "loop.svg"
    words = ("--picture", str(picture))
    shown = run_small(tmp_path, "keep_or_revert", *words, CANDIDATES=25, OTHERS=5000)
    greedy, gate = (row(shown, f"    {way} ") for way in ("greedy", "gate"))
    assert gate[0] < greedy[0] and gate[1] == 0
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_verifier_of_its_own_rewards_no_coins(tmp_path: Path) -> None:
    shown = run_small(tmp_path, "harbor_verifier", CHANGES=1)
    assert "rewards of 1: 0, of 0: 1" in shown
    assert "no predictions: 0; without the token: None" in shown


@pytest.mark.nightly
def test_an_agent_believes_in_coins_unguarded_and_the_page_shows_it(
    default_ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run(ROOT / "examples" / "agent.py")
    page = (ROOT / "docs" / "guide" / "agents.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
    believed = {who: row(shown, f"  {who} ")[0] for who in ("unguarded", "guarded")}
    assert believed["unguarded"] > 0.7 > 0.52 > believed["guarded"]
    low, high = row(shown, "certificate")
    assert low < 0.5 < high
    assert not default_ledger.exists() and not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_loop_keeps_fewer_changes_by_a_gate_and_the_page_shows_it(tmp_path: Path) -> None:
    picture = tmp_path / "loop.svg"
    shown = run(ROOT / "examples" / "keep_or_revert.py", "--picture", str(picture))
    page = (ROOT / "docs" / "guide" / "keep_or_revert.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
    # Of the first of two tables: kept, and kept falsely.
    greedy, gate = (row(shown, f"    {way} ") for way in ("greedy", "gate"))
    assert gate[0] < greedy[0] and gate[1] == 0 < greedy[1]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


# In the gate test_the_loop_reverts_what_is_refused_... runs the same script, keep_or_revert.sh.
@pytest.mark.nightly
def test_a_loop_over_a_repository_keeps_no_coins_by_a_gate_and_the_page_shows_it() -> None:
    shown = run(ROOT / "examples" / "git_loop.py")
    page = (ROOT / "docs" / "background" / "agent_loops.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
    # Kept, believed, true, too much.
    greedy, gate = (row(shown, f"  {way} ") for way in ("better score", "gate"))
    assert greedy[0] >= 5 and greedy[3] >= 0.15
    assert gate[0] == 0 and gate[3] <= 0.05


def test_the_loop_reverts_what_alters_nothing_and_ends_when_nothing_more_is_accepted(
    default_ledger: Path, tmp_path: Path
) -> None:
    y = np.arange(60) % 2
    LadderHoldout(
        np.arange(60).reshape(-1, 1),
        y,
        scoring="accuracy",
        name="tiny",
        mechanism=GateLadder(horizon=2),
    )
    right = np.where(np.arange(60) < np.array([[30], [30], [58], [59], [60], [60]]), y, 1 - y)
    for place, answers in enumerate(right.tolist()):
        np.savetxt(tmp_path / f"{place}.txt", answers, fmt="%d")
    repository = tmp_path / "repository"
    repository.mkdir()
    git = ["git", "-C", str(repository)]
    for words in (
        ["init", "--quiet"],
        ["config", "user.name", "agent"],
        ["config", "user.email", "agent@localhost"],
    ):
        subprocess.run([*git, *words], check=True)
    shutil.copy(tmp_path / "0.txt", repository / "answers.txt")
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "the baseline"], check=True)
    python = shlex.quote(sys.executable)
    load = "numpy.loadtxt('answers.txt', dtype=int)"
    settings = {
        "PROPOSE": 'touch made; n=$(($(cat "$MADE" 2>/dev/null || echo 0) + 1)); '
        'echo $n > "$MADE"; cp "$FOLDER/$n.txt" answers.txt',
        "PREDICT": f'{python} -c "import os, numpy; '
        f"numpy.save(os.environ['PREDICTIONS'], {load})\"",
        "GATE": f"{python} -m ladderholdout gate",
        "FOLDER": str(tmp_path),
        "MADE": str(tmp_path / "count"),
    }
    loop = ["bash", str(ROOT / "examples" / "keep_or_revert.sh"), "tiny", "9"]
    done = subprocess.run(loop, cwd=repository, env=os.environ | settings, check=False)
    # Unchanged, accepted, not shown to be better, and spent: there is no fifth.
    assert done.returncode == 3 and (tmp_path / "count").read_text().strip() == "4"
    log = subprocess.run([*git, "log", "--format=%s"], capture_output=True, text=True, check=True)
    assert log.stdout.split("\n")[:2] == ["change 2", "the baseline"]
    assert np.loadtxt(repository / "answers.txt").tolist() == right[2].tolist()
    status = subprocess.run([*git, "status", "--short"], capture_output=True, text=True, check=True)
    assert status.stdout == ""
    history = LadderHoldout.open("tiny").history()
    assert [one.improved for one in history] == [True, False, True, False, False]
    commits = subprocess.run([*git, "log", "--format=%h"], capture_output=True, text=True)
    assert [one.context["commit"] for one in history[:3:2]] == commits.stdout.split()[::-1]


def test_the_loop_ends_and_reverts_nothing_where_nothing_was_decided(tmp_path: Path) -> None:
    """The server goes away: what was committed is neither kept nor thrown away."""
    repository, python = tmp_path / "repository", shlex.quote(sys.executable)
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=agent", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "baseline"], check=True)
    for name, value in (("user.name", "agent"), ("user.email", "agent@localhost")):
        subprocess.run([*git, "config", name, value], check=True)
    # The baseline is accepted, the second is not decided, and there is no third.
    gate = tmp_path / "gate.py"
    gate.write_text(
        "import os, sys\nsys.exit(0 if '--baseline' in sys.argv else int(os.environ['STATUS']))\n"
    )
    settings = {
        "PROPOSE": "echo change >> answers.txt",
        "PREDICT": 'touch "$PREDICTIONS"',
        "GATE": f"{python} {shlex.quote(str(gate))}",
    }
    loop = ["bash", str(ROOT / "examples" / "keep_or_revert.sh"), "tiny", "3"]
    for changes, status in enumerate((4, 2, 6, 139), start=1):
        stated = os.environ | settings | {"STATUS": str(status)}
        done = subprocess.run(loop, cwd=repository, env=stated, capture_output=True, check=False)
        assert done.returncode == status
        assert (repository / "answers.txt").read_text() == "change\n" * changes


@pytest.mark.nightly
def test_a_verifier_of_its_own_rewards_no_coins_and_the_page_shows_it() -> None:
    shown = run(ROOT / "examples" / "harbor_verifier.py")
    page = (ROOT / "docs" / "background" / "agent_loops.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
    assert "rewards of 1: 0, of 0: 20" in shown
    assert "no predictions: 0; without the token: None" in shown
    assert row(shown, "believed")[2] <= 0.05


def test_the_task_for_harbor_gives_the_agent_neither_token_nor_labels() -> None:
    folder = ROOT / "examples" / "harbor"
    task = tomllib.loads((folder / "task.toml").read_text())
    # Under a table it would be dropped, and the verifier would see nothing of the agent's.
    assert task["artifacts"] == ["/logs/artifacts/predictions.csv"]
    verifier, agent = task.pop("verifier"), (folder / "environment" / "Dockerfile").read_text()
    assert verifier["environment_mode"] == "separate"
    assert verifier["env"]["LADDERHOLDOUT_TOKEN"] == "${LADDERHOLDOUT_TOKEN}"
    for part in (str(task), agent, (folder / "instruction.md").read_text()):
        assert "TOKEN" not in part and "SERVER" not in part and "ladder-holdout" not in part
    # Nothing is copied into the verifier's container when it runs: its image has the script.
    assert "COPY test.sh /tests/test.sh" in (folder / "tests" / "Dockerfile").read_text()
    assert os.access(folder / "tests" / "test.sh", os.X_OK)
