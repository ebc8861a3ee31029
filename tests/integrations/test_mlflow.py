"""Attacks the copy in MLflow: gaps, doubles, strays, raw scores where the analyst looks."""

from __future__ import annotations

import json
import re
import shlex
import socket
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import HoldoutConflict, OpenedWarning, TrackingError, TrackingWarning
from ladderholdout.guard.containment import without_autologging
from ladderholdout.integrations.mlflow import Tracking, anchors, attach, export
from ladderholdout.integrations.mlflow.runs import RunChoice, analyst_run
from ladderholdout.mechanisms import Ladder
from tests.support.canaries import all_logs, canaries_of, texts_of
from tests.support.commands import CliRunner
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import head, rechain, tamper
from tests.support.mlflow_stores import (
    ANALYST,
    AUDIT,
    RAW,
    RELEASED,
    all_runs,
    assert_complete,
    free_port,
    new_store,
    python,
    raw,
    released,
    rows_of,
    series,
    store_bytes,
)
from tests.support.processes import at_once

pytestmark = pytest.mark.processes


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    return tiny(tmp_path / "ledger.db")


def tiny(ledger: Path | str, **settings: Any) -> LadderHoldout:
    """A holdout whose raw scores have many digits, and its releases two."""
    X, y = coins()
    weights = np.random.default_rng(7731).uniform(0.5, 1.5, len(y))
    chosen = {"scoring": "accuracy", "name": "tiny", "mechanism": Ladder(step=0.05)}
    return LadderHoldout(X, y, sample_weight=weights, ledger=ledger, **(chosen | settings))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path / "store")


def submit(holdout: LadderHoldout, seed: int, k: int = 5) -> None:
    for guess in guesses(seed, k):
        holdout.submit(guess)


# -- live -------------------------------------------------------------------------------


def test_where_raw_scores_go_is_said_once(
    holdout: LadderHoldout, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a level that Python shows where no logging is configured."""
    caplog.set_level("WARNING", logger="ladderholdout.mlflow")
    submit(holdout, 1, 1)
    with holdout.track(tracking_uri=store, raw="sealed"):
        pass
    assert not caplog.records
    with holdout.track(tracking_uri=store):
        pass
    with holdout.track(tracking_uri=store):
        pass
    export(holdout, tracking_uri=store)
    (record,) = caplog.records
    said = record.getMessage()
    for part in ("'tiny'", "'tiny (audit)'", store, "can read", 'raw="sealed"', "analyst's run"):
        assert part in said
    assert "0." not in said.replace(store, "")  # no raw score
    other = new_store(tmp_path / "other")
    export(holdout, tracking_uri=store, audit_tracking_uri=other)
    assert len(caplog.records) == 2 and other in caplog.text


def test_both_series_are_complete_and_equal_to_the_ledger(
    holdout: LadderHoldout, store: str
) -> None:
    with holdout.track(tracking_uri=store) as tracking:
        submit(holdout, 1)
        assert tracking.flush()
        assert tracking.sent == 5
        submit(holdout, 2)
        holdout.submit(guesses(1, 1)[0])  # a repeat has a number and a place in the series
    assert_complete(holdout, store)
    client = MlflowClient(store)
    assert [run.info.run_id for run in all_runs(client, "tiny")] == [tracking.run_id]
    assert [run.info.run_id for run in all_runs(client, AUDIT)] == [tracking.audit_run_id]
    assert len(all_runs(client)) == 2
    assert {run.info.status for run in all_runs(client)} == {"FINISHED"}
    for one in client.get_metric_history(str(tracking.run_id), RELEASED):
        time = holdout.history()[one.step - 1].time
        assert one.timestamp == round(time.timestamp() * 1000)


def test_the_tags_tie_both_runs_to_the_ledger(holdout: LadderHoldout, store: str) -> None:
    with holdout.track(tracking_uri=store):
        submit(holdout, 1)
    for run in all_runs(MlflowClient(store)):
        said = {key.partition(".")[2]: value for key, value in run.data.tags.items()}
        status = holdout.status()
        assert said["holdout"] == "tiny"
        assert said["ladder"] == "default/main"
        assert said["fingerprint"] == status.fingerprint
        assert said["mechanism"] == "Ladder(step=0.05)"
        assert said["metric"] == "accuracy"
        assert said["ledger"] == status.ledger
        assert re.fullmatch(
            r"ladderholdout \S+, numpy \S+, scikit-learn \S+, mlflow \S+", said["versions"]
        )


def by_name(ledger: str, seed: int) -> None:
    submit(LadderHoldout.open("tiny", ledger=ledger), seed)


def test_what_processes_and_threads_submit_is_copied(holdout: LadderHoldout, store: str) -> None:
    with holdout.track(tracking_uri=store):
        threads = [threading.Thread(target=submit, args=(holdout, seed)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        at_once([(by_name, holdout.ledger, seed) for seed in (3, 4)])
        for thread in threads:
            thread.join()
    assert len(holdout.history()) == 20
    assert_complete(holdout, store)


def test_a_second_run_holds_the_whole_ladder_and_the_audit_goes_on_in_its_one_run(
    holdout: LadderHoldout, store: str
) -> None:
    for seed in (1, 2):
        with holdout.track(tracking_uri=store):
            submit(holdout, seed)
    first, second = all_runs(MlflowClient(store), "tiny")
    assert rows_of(store, "runs") == 3  # deleted ones would be among them
    assert len(all_runs(MlflowClient(store), AUDIT)) == 1
    assert len(series(MlflowClient(store), first.info.run_id, RELEASED)) == 5
    assert len(series(MlflowClient(store), second.info.run_id, RELEASED)) == 10
    assert_complete(holdout, store)


def test_trackings_at_the_same_time_make_one_audit_run_and_no_doubles(
    holdout: LadderHoldout, store: str
) -> None:
    with (
        holdout.track(tracking_uri=store) as one,
        holdout.track(tracking_uri=store) as other,
    ):
        submit(holdout, 1, 20)
        assert one.flush() and other.flush()
    assert len(all_runs(MlflowClient(store), AUDIT)) == 1
    assert_complete(holdout, store)


def test_more_than_one_request_can_hold_is_sent_in_several(store: str) -> None:
    holdout = tiny("memory")
    submit(holdout, 1, 1001)
    with holdout.track(tracking_uri=store):
        pass
    assert_complete(holdout, store)
    assert rows_of(store) == 3 * 1001


def test_a_failed_search_is_a_failed_run(holdout: LadderHoldout, store: str) -> None:
    with pytest.raises(ZeroDivisionError), holdout.track(tracking_uri=store):
        submit(holdout, 1)
        raise ZeroDivisionError
    (run,) = all_runs(MlflowClient(store), "tiny")
    assert run.info.status == "FAILED"
    assert_complete(holdout, store)


# -- whose run ----------------------------------------------------------------------------


@pytest.fixture
def active(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A run of the analyst's own, active, as with mlflow.start_run()."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    with mlflow.start_run(experiment_id=mlflow.create_experiment("mine")) as run:
        yield run.info.run_id


def test_the_active_run_is_the_analysts(holdout: LadderHoldout, store: str, active: str) -> None:
    with holdout.track() as tracking:
        submit(holdout, 1)
    assert tracking.run_id == active
    client = MlflowClient(store)
    assert client.get_run(active).info.status == "RUNNING"  # whose it is may end it
    assert len(all_runs(client)) == 2
    assert_complete(holdout, store)


def test_a_second_ladder_beside_the_first_gets_a_run_below_the_active_one(
    holdout: LadderHoldout, store: str, active: str
) -> None:
    with pytest.warns(UserWarning, match="This opens ladder"):
        other = tiny(holdout.ledger, scoring="roc_auc", ladder="auc")
    with holdout.track() as first, other.track() as second:
        submit(holdout, 1)
        other.submit(np.random.default_rng(0).random(60))
    client = MlflowClient(store)
    assert first.run_id == active
    below = client.get_run(str(second.run_id))
    assert below.data.tags["mlflow.parentRunId"] == active
    assert series(client, active, RELEASED) == released(holdout)
    assert series(client, str(second.run_id), RELEASED) == released(other)
    assert len(all_runs(client, AUDIT)) == 2


def test_a_run_and_an_experiment_of_ones_choice(holdout: LadderHoldout, store: str) -> None:
    client = MlflowClient(store)
    mine = client.create_run("0").info.run_id
    with holdout.track(mine, tracking_uri=store) as tracking:
        submit(holdout, 1)
    assert tracking.run_id == mine
    with holdout.track(experiment="chosen", tracking_uri=store) as tracking:
        submit(holdout, 2)
    assert [run.info.run_id for run in all_runs(client, "chosen")] == [tracking.run_id]
    assert_complete(holdout, store)


def test_a_run_of_another_ladder_is_left_alone(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    with holdout.track(tracking_uri=store) as tracking:
        submit(holdout, 1)
    # The same rows, name, account and ladder in another ledger are another ladder.
    other = tiny(tmp_path / "other.db")
    submit(other, 2)
    for run_id, what in ((tracking.run_id, "another ladder"), ("0" * 32, "id=0+ not found")):
        with pytest.raises(TrackingError, match=what):
            export(other, run_id=run_id, tracking_uri=store)
        with (
            pytest.warns(TrackingWarning, match=what),
            other.track(run_id, tracking_uri=store),
        ):
            pass
    client = MlflowClient(store)
    assert series(client, str(tracking.run_id), RELEASED) == released(holdout)
    assert len(all_runs(client, "tiny")) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"raw": "never"},
        {"run_id": ""},
        {"run_id": 3},
        {"experiment": " "},
        {"run_id": "a", "experiment": "b"},
        {"tracking_uri": ""},
        {"audit_tracking_uri": 5},
    ],
)
def test_arguments_that_mean_nothing_are_refused_at_once(
    holdout: LadderHoldout, given: dict[str, Any]
) -> None:
    for do in (holdout.track, lambda **given: export(holdout, **given)):
        with pytest.raises(InvalidArgument):
            do(**given)


# -- what is raw --------------------------------------------------------------------------


def test_nothing_raw_is_in_the_analysts_store_nor_in_any_log(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    audit = new_store(tmp_path / "audit")
    with all_logs() as records:
        with holdout.track(tracking_uri=store, audit_tracking_uri=audit) as tracking:
            submit(holdout, 1, 20)
        export(holdout, tracking_uri=store, audit_tracking_uri=audit)
    assert_complete(holdout, store, audit)
    canaries = canaries_of(holdout, coins()[1])
    assert canaries.found_in(store_bytes(audit)) == {"raw score"}
    shown = [store_bytes(store), tracking, vars(tracking), records.texts]
    assert not canaries.found_in(*shown)
    assert records.texts


@pytest.mark.parametrize("which", ["analyst", "audit"])
def test_what_refuses_raw_scores_is_not_quoted(
    holdout: LadderHoldout, store: str, tmp_path: Path, which: str
) -> None:
    """A database quotes the rows that it refuses."""
    audit = new_store(tmp_path / "audit")
    full = (store if which == "analyst" else audit).removeprefix("sqlite:///")
    with closing(sqlite3.connect(full)) as connection, connection:
        refuses = "BEGIN SELECT RAISE(ABORT, 'this disk is full'); END"
        connection.execute(f"CREATE TRIGGER full BEFORE INSERT ON metrics {refuses}")
    submit(holdout, 1, 20)
    with pytest.raises(TrackingError, match="refused a request") as refusal:
        export(holdout, tracking_uri=store, audit_tracking_uri=audit)
    assert ("this disk is full" in str(refusal.value)) == (which == "analyst")
    assert not canaries_of(holdout, coins()[1]).found_in(texts_of(refusal.value))


def test_the_active_model_gets_none_of_it(
    holdout: LadderHoldout, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where artifacts go
    # MLflow's client would hang every metric on it, in the analyst's own experiment.
    client = MlflowClient(store)
    model = client.create_logged_model("0")
    monkeypatch.setenv("MLFLOW_ACTIVE_MODEL_ID", model.model_id)

    def export_there() -> None:  # in a thread that has not looked into the environment yet
        export(holdout, tracking_uri=store)

    with holdout.track(tracking_uri=store):
        submit(holdout, 1)
    submit(holdout, 2)
    thread = threading.Thread(target=export_there)
    thread.start()
    thread.join()
    assert_complete(holdout, store)
    assert rows_of(store, "logged_model_metrics") == 0
    run_id = all_runs(client, "tiny")[0].info.run_id
    control = threading.Thread(target=client.log_metric, args=(run_id, "seen", 1.0))
    control.start()
    control.join()
    assert rows_of(store, "logged_model_metrics") == 1


def test_sealed_scores_stay_in_the_ledger_until_an_audit(
    holdout: LadderHoldout, store: str
) -> None:
    with holdout.track(tracking_uri=store, raw="sealed") as tracking:
        submit(holdout, 1, 20)
    canaries, client = canaries_of(holdout, coins()[1]), MlflowClient(store)
    (done,) = export(holdout, tracking_uri=store)  # its tags say that it is sealed
    assert (done.kind, done.sent, done.entries) == ("analyst", 0, 20)
    assert not canaries.found_in(store_bytes(store))
    assert client.get_experiment_by_name(AUDIT) is None
    assert tracking.audit_run_id is None

    holdout.owner.audit()
    ours, theirs = export(holdout, tracking_uri=store)
    assert (ours.run_id, ours.sent, theirs.sent) == (tracking.run_id, 0, 20)
    assert canaries.found_in(store_bytes(store)) == {"raw score"}
    assert_complete(holdout, store)


def test_an_audit_unseals_a_tracking_that_is_open(holdout: LadderHoldout, store: str) -> None:
    with holdout.track(tracking_uri=store, raw="sealed") as tracking:
        submit(holdout, 1)
        assert tracking.flush()
        assert tracking.audit_run_id is None
        holdout.owner.audit()
        with pytest.warns(OpenedWarning):
            submit(holdout, 2)
    assert_complete(holdout, store)


# -- export -------------------------------------------------------------------------------


def test_a_second_export_adds_nothing(holdout: LadderHoldout, store: str) -> None:
    submit(holdout, 1)
    first = export(holdout, tracking_uri=store)
    assert [(one.kind, one.sent) for one in first] == [("analyst", 5), ("audit", 5)]
    rows, runs = rows_of(store), len(all_runs(MlflowClient(store)))
    second = export(holdout, tracking_uri=store)
    assert [(one.run_id, one.sent) for one in second] == [(one.run_id, 0) for one in first]
    assert (rows_of(store), len(all_runs(MlflowClient(store)))) == (rows, runs) == (15, 2)
    assert_complete(holdout, store)


@pytest.mark.parametrize("name", ["a'b `x`", 'say "no" 100 % [é] \' OR 1=1 --'])
def test_any_name_is_found_again(store: str, name: str) -> None:
    holdout = tiny("memory", name=name, account=name, ladder=name)
    submit(holdout, 1)
    first = export(holdout, tracking_uri=store)
    second = export(holdout, tracking_uri=store)
    assert [one.run_id for one in first] == [one.run_id for one in second]
    assert [one.sent for one in second] == [0, 0]
    assert len(all_runs(MlflowClient(store), f"{name} (audit)")) == 1
    assert MlflowClient(store).get_run(first[0].run_id).data.tags["ladderholdout.holdout"] == name


@pytest.mark.parametrize(
    ("arrived", "shift"), [([], 0), ([1], 1000), ([1, 2, 3, 4, 5], 0), ([2, 5], 1000)]
)
def test_a_copy_that_was_cut_short_is_completed_without_doubles(
    holdout: LadderHoldout, store: str, arrived: list[int], shift: int
) -> None:
    # As if the process had died between the values and the tags. Values at another time are
    # other rows to MLflow, so it is not its own sifting that keeps them from doubling.
    with holdout.track(tracking_uri=store) as tracking:
        pass
    submit(holdout, 1)
    client, known = MlflowClient(store), released(holdout)
    values = [Metric(RELEASED, known[step], 10**12 + shift, step) for step in arrived]
    client.log_batch(str(tracking.run_id), metrics=values)
    ours, _ = export(holdout, tracking_uri=store)
    assert ours.sent == 5 - len(arrived)
    assert_complete(holdout, store)
    assert rows_of(store) == 15


def test_a_run_that_holds_something_else_is_said_and_left_as_it_is(
    holdout: LadderHoldout, store: str
) -> None:
    with holdout.track(tracking_uri=store) as tracking:
        pass
    submit(holdout, 1)
    MlflowClient(store).log_metric(str(tracking.audit_run_id), RAW, 0.123456, step=3)
    with pytest.raises(HoldoutConflict, match="another value for submission 3") as info:
        export(holdout, tracking_uri=store)
    assert not canaries_of(holdout, coins()[1]).found_in(texts_of(info.value))
    assert "123456" not in str(info.value)
    assert rows_of(store) == 5 + 1


def test_anchors_are_what_the_runs_say(holdout: LadderHoldout, store: str) -> None:
    assert anchors(holdout, tracking_uri=store) == ()
    submit(holdout, 1)
    done = export(holdout, tracking_uri=store)
    submit(holdout, 2)
    found = anchors(holdout, tracking_uri=store)
    assert [(one.kind, one.run_id, one.entries) for one in found] == [
        (one.kind, one.run_id, 5) for one in done
    ]
    for one in found:
        assert head(holdout, one.head.length) == one.head != head(holdout)
    export(holdout, tracking_uri=store)
    assert {one.head for one in anchors(holdout, tracking_uri=store)} == {head(holdout)}


def test_a_report_is_attached_to_the_audit_run(
    holdout: LadderHoldout, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.html"
    report.write_text("<p>all is well</p>")
    run_id = attach(holdout, report, audit_tracking_uri=store)
    client = MlflowClient(store)
    assert [run.info.run_id for run in all_runs(client, AUDIT)] == [run_id]
    assert [one.path for one in client.list_artifacts(run_id)] == ["report.html"]
    with pytest.raises(TrackingError):
        attach(holdout, tmp_path / "none.html", audit_tracking_uri=store)


def test_a_deleted_experiment_is_said(holdout: LadderHoldout, store: str) -> None:
    client = MlflowClient(store)
    client.delete_experiment(client.create_experiment(AUDIT))
    with pytest.raises(TrackingError, match=r"'tiny \(audit\)' is deleted"):
        export(holdout, tracking_uri=store)


# -- when MLflow is not there ---------------------------------------------------------------


def test_without_a_server_the_search_goes_on_and_one_warning_says_what_to_do(
    holdout: LadderHoldout, store: str
) -> None:
    uri = f"http://ada:secret@127.0.0.1:{free_port()}"
    with warnings.catch_warnings(record=True) as warned, all_logs() as records:
        warnings.simplefilter("always")
        with holdout.track(tracking_uri=uri, raw="sealed") as tracking:
            submit(holdout, 1)
            assert not tracking.flush()
    assert len(holdout.history()) == 5
    (said,) = [str(one.message) for one in warned if one.category is TrackingWarning]
    assert [one.filename for one in warned] == [__file__]
    assert "secret" not in said + repr(records.texts)
    assert not [text for text in records.texts if "urllib3" in text]
    command = said[said.index("ladder-holdout export") : said.index(" brings MLflow")]
    # What it says works, once there is a server.
    words = shlex.split(command)[1:]
    words[words.index("--tracking-uri") + 1] = store
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "5 submissions sent" in result.output
    assert len(all_runs(MlflowClient(store))) == 1  # it is still sealed
    export(holdout, tracking_uri=store, raw="live")
    assert_complete(holdout, store)


def test_the_audit_goes_on_where_only_the_analysts_server_is_down(
    holdout: LadderHoldout, store: str
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with (
        pytest.warns(TrackingWarning, match="does not answer") as warned,
        holdout.track(tracking_uri=dead, audit_tracking_uri=store) as tracking,
    ):
        submit(holdout, 1)
    assert len(warned) == 1
    assert not tracking.flush()  # closed is closed: it does not wait
    assert series(MlflowClient(store), str(tracking.audit_run_id), RAW) == raw(holdout)
    assert tracking.run_id is None


def test_closing_waits_for_a_slow_audit_where_only_the_analysts_server_is_down(
    holdout: LadderHoldout, store: str
) -> None:
    MlflowClient(store).search_experiments()  # makes the file
    dead = f"http://127.0.0.1:{free_port()}"
    file = store.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as busy:
        busy.execute("begin exclusive")
        free = threading.Timer(2.0, busy.execute, ["rollback"])
        with pytest.warns(TrackingWarning, match="does not answer"):
            tracking = holdout.track(tracking_uri=dead, audit_tracking_uri=store)
            submit(holdout, 1)
            free.start()
            tracking.close()
        free.join()
    assert series(MlflowClient(store), str(tracking.audit_run_id), RAW) == raw(holdout)


def test_a_run_whose_creation_was_not_answered_is_found_again(
    holdout: LadderHoldout, store: str
) -> None:
    wish = RunChoice(None, None, None, sealed=True)
    first, second = (analyst_run(holdout.__ladder__, store, wish).run_id for _ in range(2))
    assert first == second
    assert rows_of(store, "runs") == 1


def test_closing_waits_for_a_server_that_does_not_answer_no_longer_than_told(
    holdout: LadderHoldout,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts, and says nothing
        uri = f"http://127.0.0.1:{listening.getsockname()[1]}"
        tracking = holdout.track(tracking_uri=uri)
        submit(holdout, 1)
        assert not tracking.flush(timeout=0.01)
        with pytest.warns(TrackingWarning, match="does not answer in time"):
            tracking.close(timeout=0.01)
        tracking.close()  # closed is closed


def test_a_ledger_that_goes_away_fails_the_guard_and_not_the_tracking(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    with pytest.warns(TrackingWarning, match="ledger"), holdout.track(tracking_uri=store):
        submit(holdout, 1)
        (tmp_path / "ledger.db").rename(tmp_path / "gone.db")


def test_the_command_names_whatever_is_not_the_usual(tmp_path: Path, store: str) -> None:
    holdout = tiny(tmp_path / "other.db", name="a name", account="ada", ladder="b")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        uri = f"http://127.0.0.1:{free_port()}"
        with holdout.track(experiment="e f", tracking_uri=uri, audit_tracking_uri=store):
            submit(holdout, 1)
    words = shlex.split(str(warned[0].message).partition("ladder-holdout ")[2])
    words = words[: words.index("brings")]
    assert words[:2] == ["export", "a name"]
    assert dict(zip(words[2::2], words[3::2], strict=True)) == {
        "--account": "ada",
        "--ladder": "b",
        "--ledger": str(tmp_path / "other.db"),
        "--experiment": "e f",
        "--tracking-uri": uri,
        "--audit-tracking-uri": store,
    }


def test_a_ledger_in_memory_is_exported_from_its_process(store: str) -> None:
    holdout = tiny("memory")
    with (
        pytest.warns(TrackingWarning, match=r"integrations\.mlflow\.export\(holdout\)"),
        holdout.track(tracking_uri=f"http://127.0.0.1:{free_port()}"),
    ):
        submit(holdout, 1)
    export(holdout, tracking_uri=store)
    assert_complete(holdout, store)


# -- autologging, imports, the plugin ------------------------------------------------------


def test_autologging_is_off_inside_and_as_before_outside() -> None:
    from mlflow.utils import autologging_utils as autologging

    def off() -> bool:
        return bool(autologging._AUTOLOGGING_GLOBALLY_DISABLED)

    both, leave, seen = threading.Barrier(2), threading.Event(), []

    def first() -> None:
        with without_autologging():
            both.wait()
            leave.wait()

    thread = threading.Thread(target=first)
    thread.start()
    with without_autologging():
        both.wait()
        leave.set()
        thread.join()  # the other is out, and this one still in
        seen.append(off())
    seen.append(off())
    with autologging.disable_autologging():
        with without_autologging():
            seen.append(off())
        seen.append(off())
    assert seen == [True, False, True, True]
    assert not off()


def test_a_switch_that_fails_once_is_turned_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.utils import autologging_utils as autologging

    with monkeypatch.context() as broken:
        broken.setattr(autologging, "disable_autologging", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError), without_autologging():
            pass
    with without_autologging():
        assert autologging._AUTOLOGGING_GLOBALLY_DISABLED


CALIBRATING = """
import warnings
warnings.simplefilter("ignore")
import sys
import numpy as np, mlflow
from sklearn.linear_model import LogisticRegression
from ladderholdout import (LadderHoldout, Metric)

def slope(targets, predictions, sample_weight=None):
    model = LogisticRegression().fit(predictions, targets)
    return float(np.clip(model.coef_[0, 0], 0, 1))

mlflow.set_tracking_uri(sys.argv[1])
mlflow.sklearn.autolog(log_models=False)
rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
p = rng.random((60, 2))
p /= p.sum(axis=1, keepdims=True)
"""
GUARDED = """
metric = Metric("slope", "probabilities", score=slope, loss_range=(0, 1), offset=1)
holdout = LadderHoldout(X, y, scoring=metric, name="calibrated")
LadderHoldout.open("calibrated", scoring=metric).submit(p)
holdout.submit(p[::-1])
LadderHoldout(X + 9, y[::-1], scoring=metric, name="with a reserve", reserve=0.3).submit(p)
"""


def test_a_metric_that_fits_a_model_to_the_labels_is_not_autologged(
    store: str, tmp_path: Path
) -> None:
    counting = "print(len(mlflow.search_runs(search_all_experiments=True)))\n"
    found = python(CALIBRATING + GUARDED + counting + "slope(y, p)\n" + counting, store)
    assert found.split() == ["0", "1"]


def test_nothing_imports_mlflow_before_it_is_asked_for() -> None:
    python(
        "import sys, ladderholdout, ladderholdout.cli\n"
        "import ladderholdout.integrations.mlflow\n"
        "ladderholdout.LadderHoldout([[0], [1]], [0, 1], scoring='accuracy').submit([0, 1])\n"
        "assert not {'mlflow', 'optuna'} & set(sys.modules)"
    )


def test_a_tracking_says_where_it_stands(holdout: LadderHoldout, store: str) -> None:
    tracking = holdout.track(tracking_uri=store)
    assert isinstance(tracking, Tracking)
    submit(holdout, 1)
    tracking.close()
    assert repr(tracking) == f"Tracking(run_id={tracking.run_id!r}, sent=5, closed)"
    assert ANALYST in {run.data.tags["ladderholdout.kind"] for run in all_runs(MlflowClient(store))}
    assert raw(holdout)


# -- the command -----------------------------------------------------------------------------


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_exports_and_says_what_it_did(holdout: LadderHoldout, store: str) -> None:
    submit(holdout, 1)
    words = ["export", "tiny", "--tracking-uri", store]
    status, said, _ = call(*words)
    assert status == 0
    assert [line.split()[0] for line in said.splitlines()] == ["analyst", "audit"]
    assert said.count("5 submissions sent, 5 in all") == 2
    status, said, _ = call(*words, "--json")
    assert [(one["kind"], one["sent"], one["entries"]) for one in json.loads(said)] == [
        ("analyst", 0, 5),
        ("audit", 0, 5),
    ]
    assert not canaries_of(holdout, coins()[1]).found_in(said)


def test_the_command_refuses_in_a_sentence(holdout: LadderHoldout, store: str) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for words, what in (
        (["nobody"], "nobody"),
        (["tiny", "--account", "ada"], "default/main"),
        (["tiny", "--tracking-uri", dead], "does not answer"),
        (["tiny", "--tracking-uri", store, "--raw", "never"], "'live', 'sealed'"),
        (["tiny", "--tracking-uri", store, "--run-id", "0" * 32], "not found"),
        (["tiny", "--tracking-uri", "nonsense://x"], "unsupported URI 'nonsense://x'"),
    ):
        status, shown, said = call("export", *words)
        assert (status, shown) == (1, "")
        assert said.startswith("Error: ") and what in said
        assert "Traceback" not in said


def test_verify_compares_with_what_was_anchored(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    words = ["verify", "tiny", "--mlflow", "--tracking-uri", store]
    assert call(*words)[0] == 1  # nothing is anchored
    submit(holdout, 1)
    export(holdout, tracking_uri=store)
    submit(holdout, 2)
    assert call(*words)[0] == 0
    # Whoever owns the files can chain it anew, and take away the mark that lies beside the
    # vault, which the ledger alone cannot tell.
    tamper(tmp_path / "ledger.db", "submission", "context", {"idea": "mine"}, number=2)
    assert call("verify", "tiny")[0] == 1
    rechain(tmp_path / "ledger.db")
    assert "older copy" in call("verify", "tiny")[1]
    for mark in tmp_path.rglob("*.mark"):
        mark.unlink()
    assert call("verify", "tiny")[0] == 0
    status, said, _ = call(*words)
    assert status == 1
    assert said.count("rebuilt or replaced") == 2
