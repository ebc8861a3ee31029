"""Attacks a run's page and certificates of model versions: raw scores and wrong models."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from mlflow import MlflowClient
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import HoldoutConflict, TrackingError, TrackingWarning
from ladderholdout.integrations.mlflow import CertifiedVersion, certify_version, export
from ladderholdout.mechanisms import PairedTestLadder
from tests.integrations.test_mlflow import submit, tiny
from tests.support import ledgers
from tests.support.canaries import canaries_of
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import entries_of
from tests.support.mlflow_stores import (
    new_store,
    released,
    series,
)

pytestmark = pytest.mark.processes

NOTE, PICTURE = "mlflow.note.content", "ladder.svg"


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    return tiny(tmp_path / "ledger.db")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path / "store")


def text_of(client: MlflowClient, run_id: str, path: str) -> str:
    return Path(client.download_artifacts(run_id, path)).read_text("utf-8")


# -- a run's page ----------------------------------------------------------------------------


def test_a_run_has_a_note_a_picture_and_the_holdout_as_its_input(
    holdout: LadderHoldout, store: str
) -> None:
    with holdout.track(tracking_uri=store) as tracking:
        submit(holdout, 1)
    client, status = MlflowClient(store), holdout.status()
    run = client.get_run(str(tracking.run_id))
    note = run.data.tags[NOTE]
    assert note.startswith("## Holdout tiny\n") and "holds no raw score" in note
    assert f"{status.score:.6g} (submission {status.incumbent})" in note
    assert "Ladder(step=0.05)" in note
    picture = text_of(client, run.info.run_id, PICTURE)
    drawn = ElementTree.fromstring(picture)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    kinds = [one.get("class") for one in drawn.iter()]
    improved = sum(entry.improved for entry in entries_of(holdout))
    assert kinds.count("dot") == improved
    assert kinds.count("band") == (status.certificate.missing is None)
    assert "prefers-color-scheme: dark" in picture
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.source_type) == ("tiny", "ladderholdout")
    audit = client.get_run(str(tracking.audit_run_id))
    assert "For auditors" in audit.data.tags[NOTE]
    assert client.list_artifacts(audit.info.run_id) == []
    assert not canaries_of(holdout, coins()[1]).found_in(note + picture)
    # An export brings them up to date.
    submit(holdout, 2, 8)
    export(holdout, tracking_uri=store)
    assert "submissions | 13" in client.get_run(run.info.run_id).data.tags[NOTE]
    assert text_of(client, run.info.run_id, PICTURE) != picture


def test_a_note_of_somebody_elses_stays(holdout: LadderHoldout, store: str) -> None:
    client = MlflowClient(store)
    run = client.create_run("0", tags={NOTE: "My own words."}).info.run_id
    submit(holdout, 1)
    export(holdout, run_id=run, tracking_uri=store)
    assert client.get_run(run).data.tags[NOTE] == "My own words."
    assert [one.path for one in client.list_artifacts(run)] == [PICTURE]


def test_names_are_no_markup_in_a_note(tmp_path: Path, store: str) -> None:
    name = "a|b <img src=x> [c](d) `e`"
    held = tiny(tmp_path / "names.db", name=name)
    run = export(held, tracking_uri=store)[0].run_id
    note = MlflowClient(store).get_run(run).data.tags[NOTE]
    for mark in ("|b", "<img", "[c]", "`e`"):
        assert not re.search(r"(?<!\\)" + re.escape(mark), note), mark
    # Nothing was submitted, so that there is nothing to draw.
    assert MlflowClient(store).list_artifacts(run) == []


def test_a_ladder_that_shows_no_values_has_its_improvements_drawn(
    tmp_path: Path, store: str
) -> None:
    held = tiny(tmp_path / "bit.db", mechanism=PairedTestLadder(0.05), show="improvements")
    submit(held, 1)
    run = export(held, tracking_uri=store)[0].run_id
    client = MlflowClient(store)
    picture = text_of(client, run, PICTURE)
    assert "improvements so far" in picture and 'class="band"' not in picture
    assert not canaries_of(held, coins()[1]).found_in(picture + client.get_run(run).data.tags[NOTE])
    # Once a score is asked for, that one is drawn, and what was not asked for has none.
    submit(held, 2, 1)
    asked = held.reveal()
    export(held, tracking_uri=store)
    picture = text_of(client, run, PICTURE)
    assert "released score (accuracy)" in picture and f"released score {asked:.6g}" in picture


def test_where_artifacts_cannot_go_the_series_is_complete_and_it_is_said(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    (tmp_path / "store" / "mlruns").touch()  # a file, where a folder has to be
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with holdout.track(tracking_uri=store) as tracking:
            submit(holdout, 1)
    (said,) = [str(one.message) for one in warned if one.category is TrackingWarning]
    assert said.startswith("The note and the picture of the run are not in MLflow.")
    assert "ladder-holdout export tiny" in said
    client = MlflowClient(store)
    assert series(client, str(tracking.run_id), "ladder_released") == released(holdout)
    assert client.get_run(str(tracking.run_id)).info.status == "FINISHED"


# -- certificates of versions ----------------------------------------------------------------


def tree(depth: int, seed: int = 3) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(*coins(200, seed))


def version_of(client: MlflowClient, name: str = "coins", run: str | None = "new") -> Any:
    """Register a version that has a run, and no files: the model is given by hand."""
    if run == "new":
        run = client.create_run("0").info.run_id
    if not [one for one in client.search_registered_models() if one.name == name]:
        client.create_registered_model(name)
    return client.create_model_version(name, f"/nowhere/{name}", run)


def certified(holdout: LadderHoldout, uri: str, **given: Any) -> CertifiedVersion:
    return certify_version(holdout, "coins", 1, tracking_uri=uri, registry_uri=uri, **given)


def test_a_version_gets_json_and_tags(holdout: LadderHoldout, store: str) -> None:
    client, model = MlflowClient(store, store), tree(4)
    version = version_of(client)
    for guess in guesses(1, 4):
        holdout.submit(guess)
    release = holdout.submit(model)
    while not release.improved:  # the labels are coins; any model may be the incumbent
        model = tree(4, seed=release.submission + 10)
        release = holdout.submit(model)
    before = holdout.status()
    done = certified(holdout, store, model=model)
    status = holdout.status()
    # The predictions are the incumbent's again, so that nothing stepped.
    assert entries_of(holdout)[-1].repeat_of == before.incumbent == status.incumbent
    assert done.folder == "certificates/coins-v1" and done.run_id == version.run_id
    found = json.loads(text_of(client, done.run_id, f"{done.folder}/certificate.json"))
    assert found == done.certificate
    certificate = holdout.certificate()
    assert found["schema"] == "ladderholdout.certificate" and found["schema_version"] == 1
    assert found["model"] == {"name": "coins", "version": "1", "run_id": version.run_id}
    assert found["holdout"] == {
        "name": "tiny",
        "fingerprint": holdout.status().fingerprint,
        "n": 60,
    }
    assert (found["metric"], found["greater_is_better"], found["n"]) == ("accuracy", True, 60)
    assert found["released_score"] == status.score == certificate.score
    assert found["interval"] == {"low": certificate.low, "high": certificate.high}
    assert found["confidence"] == 0.95 and found["incumbent"] == status.incumbent
    assert found["queries"] == sum(count for _, _, count in status.ladders)
    head = ledgers.head(holdout, found["ledger_head"]["length"])
    assert head is not None and head.hash == found["ledger_head"]["hash"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["date"])
    assert found["assumptions"] == list(certificate.assumptions)
    tags = client.get_model_version("coins", "1").tags
    said = {key.removeprefix("ladderholdout."): value for key, value in tags.items()}
    assert said["fingerprint"] == holdout.status().fingerprint
    assert said["released_score"] == f"{status.score:.6g}"
    low, high = map(float, said["interval"].split(" to "))
    assert low <= certificate.low < certificate.high <= high  # never narrower than it is
    assert high - low < 1.25 * (certificate.high - certificate.low)
    assert said["queries"] == str(found["queries"]) and said["confidence"] == "0.95"
    assert said["certificate"] == "certificates/coins-v1/certificate.json"
    assert [one.path for one in client.list_artifacts(done.run_id, done.folder)] == [
        f"{done.folder}/certificate.json"
    ]
    everything = json.dumps(found) + str(tags)
    assert not canaries_of(holdout, coins()[1]).found_in(everything)


def test_a_model_that_is_not_the_incumbent_gets_none(holdout: LadderHoldout, store: str) -> None:
    client, model = MlflowClient(store, store), tree(4)
    version_of(client)
    holdout.submit(model)
    holdout.submit(coins()[1])  # all of them right: the incumbent from now on
    for other in (model, tree(1)):
        with pytest.raises(HoldoutConflict, match="is not the incumbent") as refused:
            certified(holdout, store, model=other)
        assert not canaries_of(holdout, coins()[1]).found_in(str(refused.value))
    version = client.get_model_version("coins", "1")
    assert version.tags == {} and client.list_artifacts(version.run_id) == []


def test_what_has_no_certificate_gets_none(holdout: LadderHoldout, store: str) -> None:
    client, model = MlflowClient(store, store), tree(4)
    version_of(client)
    holdout.submit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        holdout.owner.audit()
        holdout.submit(coins()[1])
        perfect = type("Perfect", (), {"predict": lambda _, X: coins()[1]})()
        with pytest.raises(HoldoutConflict, match="There is no certificate"):
            certified(holdout, store, model=perfect)
    assert client.get_model_version("coins", "1").tags == {}


def test_a_version_without_a_run_an_unknown_one_and_another_registry_are_refused(
    holdout: LadderHoldout, store: str
) -> None:
    client, model = MlflowClient(store, store), tree(4)
    version_of(client, run=None)
    before = holdout.status().submissions
    with pytest.raises(InvalidArgument, match="registered from a run"):
        certified(holdout, store, model=model)
    with pytest.raises(TrackingError, match="RESOURCE_DOES_NOT_EXIST"):
        certify_version(holdout, "coins", 7, model=model, tracking_uri=store, registry_uri=store)
    version_of(client)
    with pytest.raises(InvalidArgument, match="MLflow's own setting"):
        certify_version(holdout, "coins", 2, tracking_uri=store, registry_uri=store)
    assert holdout.status().submissions == before


def test_names_of_models_are_no_paths(holdout: LadderHoldout, store: str) -> None:
    client, model = MlflowClient(store, store), tree(4)
    name = ".<b>coins & co"
    version_of(client, name)
    holdout.submit(model)
    given = {"tracking_uri": store, "registry_uri": store}
    done = certify_version(holdout, name, 1, model=model, **given)
    assert re.fullmatch(r"certificates/[\w-][\w.-]*-v1", done.folder)
    assert text_of(client, done.run_id, f"{done.folder}/certificate.json")
