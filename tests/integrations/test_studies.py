"""Cases of studies: builds as people have them, trials left over, folds of one class."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from optuna_integration import LightGBMPruningCallback
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.integrations.optuna import Candidate, inner_score_steps
from ladderholdout.integrations.optuna.plots import plot_ladder
from ladderholdout.mechanisms import FullDisclosure

optuna.logging.set_verbosity(optuna.logging.ERROR)

X, Y = load_breast_cancer(return_X_y=True)
X_TRAIN, X_HOLDOUT, Y_TRAIN, Y_HOLDOUT = train_test_split(
    X, Y, test_size=200, stratify=Y, random_state=0
)
X_FIT, X_CHECK, Y_FIT, Y_CHECK = train_test_split(X_TRAIN, Y_TRAIN, random_state=0)
SCALER = StandardScaler().fit(X_FIT)
TRAIN = (X_TRAIN, Y_TRAIN)


@pytest.fixture
def holdout() -> LadderHoldout:
    """Released scores are raw here, so that they can be compared with scikit-learn's."""
    return LadderHoldout(
        X_HOLDOUT, Y_HOLDOUT, scoring="accuracy", mechanism=FullDisclosure(), ledger="memory"
    )


def study_of(**settings: Any) -> optuna.Study:
    chosen = {"direction": "maximize", "sampler": optuna.samplers.RandomSampler(seed=0)}
    if "directions" in settings:
        del chosen["direction"]
    return optuna.create_study(**(chosen | settings))


def tree(trial: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=trial.suggest_int("depth", 1, 8), random_state=0)


def right_score(params: dict[str, Any]) -> float:
    """The accuracy of a trial's tree, by scikit-learn alone."""
    model = DecisionTreeClassifier(max_depth=params["depth"], random_state=0)
    return float(accuracy_score(Y_HOLDOUT, model.fit(*TRAIN).predict(X_HOLDOUT)))


def state_of(study: optuna.Study) -> list[Any]:
    """What the storage has of a study, but for what finalists note there on purpose."""
    own = {key: one for key, one in study.user_attrs.items() if not key.startswith("ladder_")}
    system = study._storage.get_study_system_attrs(study._study_id)
    return [repr(study.get_trials()), own, system]


# A study that pruned, and its finalists


def epochs_of(alpha: float) -> tuple[SGDClassifier, Any]:
    model = SGDClassifier(alpha=alpha, random_state=0)

    def curve() -> Any:
        for _ in range(5):
            model.partial_fit(SCALER.transform(X_FIT), Y_FIT, classes=[0, 1])
            yield model.score(SCALER.transform(X_CHECK), Y_CHECK)

    return model, curve()


def build_in_epochs(trial: Any) -> Any:
    model, curve = epochs_of(trial.suggest_float("alpha", 1e-4, 1e3, log=True))
    scores = [score for _, score in inner_score_steps(trial, curve)]
    return make_pipeline(SCALER, model), scores[-1]


PRUNERS = {
    "median": optuna.pruners.MedianPruner(n_startup_trials=2),
    "hyperband": optuna.pruners.HyperbandPruner(max_resource=5),
    "halving": optuna.pruners.SuccessiveHalvingPruner(),
    "threshold": optuna.pruners.ThresholdPruner(lower=0.8),
}


@pytest.mark.parametrize(
    ("pruner", "direction"),
    [
        ("median", "maximize"),
        ("hyperband", "minimize"),
        ("halving", "maximize"),
        ("threshold", "maximize"),
    ],
)
def test_a_pruned_study_has_finalists(holdout: LadderHoldout, pruner: str, direction: str) -> None:
    def build(trial: Any) -> Any:
        pipeline, score = build_in_epochs(trial)
        return pipeline, score

    study = study_of(pruner=PRUNERS[pruner], study_name="pruned", direction=direction)
    objective = holdout.optuna.objective(build)
    study.optimize(objective.inner_score, n_trials=8)
    before = state_of(study)
    final = holdout.optuna.finalists(study, objective, k=2)
    assert state_of(study) == before
    for one in final:
        model, curve = epochs_of(one.candidate.params["alpha"])
        assert one.inner_score == list(curve)[-1]
        right = accuracy_score(Y_HOLDOUT, model.predict(SCALER.transform(X_HOLDOUT)))
        assert one.release.score == pytest.approx(right)


def test_a_gate_builds_a_pruned_studys_best(holdout: LadderHoldout) -> None:
    study = study_of(pruner=PRUNERS["median"])
    objective = holdout.optuna.objective(build_in_epochs)
    gate = holdout.optuna.gate(objective, patience=99)
    study.optimize(objective.inner_score, n_trials=8, callbacks=[gate])
    model, curve = epochs_of(study.best_params["alpha"])
    assert list(curve)
    right = accuracy_score(Y_HOLDOUT, model.predict(SCALER.transform(X_HOLDOUT)))
    assert gate.releases[-1].score == pytest.approx(right)


def test_a_model_of_a_finished_trial_is_built_by_hand(holdout: LadderHoldout) -> None:
    """Also in a process where the objective never ran, and by calling build itself."""
    study = study_of(pruner=PRUNERS["median"])
    study.optimize(holdout.optuna.objective(build_in_epochs).inner_score, n_trials=3)
    fresh = holdout.optuna.objective(build_in_epochs)
    by_hand = [
        fresh.candidate(study.best_trial).inner_score,
        build_in_epochs(study.best_trial)[1],
        build_in_epochs(optuna.trial.FixedTrial(study.best_params))[1],
        fresh.candidate(optuna.trial.FixedTrial(study.best_params)).inner_score,  # type: ignore[arg-type]
    ]
    assert by_hand == [study.best_value] * 4


# Builds that do more with a trial than ask for parameters


def notes(trial: Any) -> Any:
    trial.set_user_attr("depth", trial.suggest_int("depth", 1, 8))
    return tree(trial)


def notes_on_the_study(trial: Any) -> Any:
    trial.study.set_user_attr("seen", trial.number)
    return tree(trial)


def reports(trial: Any) -> Any:
    trial.report(0.5 + trial.number, 3)
    if trial.should_prune():
        raise optuna.TrialPruned
    return tree(trial)


def uses_the_storage(trial: Any) -> Any:
    trial.storage.set_trial_system_attr(trial._trial_id, "mine", 1)
    assert trial.storage.get_trial(trial._trial_id).state is TrialState.RUNNING
    return tree(trial)


def has_an_age(trial: Any) -> Any:
    assert trial.datetime_start is not None and trial.number >= 0
    return tree(trial)


def asks_in_another_order(trial: Any) -> Any:
    asked = ["depth", "leaf"]
    for name in asked if trial.number % 2 else asked[::-1]:
        trial.suggest_int(name, 1, 8)
    return DecisionTreeClassifier(max_depth=trial.params["depth"], random_state=0)


def asks_under_a_condition(trial: Any) -> Any:
    if trial.suggest_categorical("kind", ["deep", "flat"]) == "deep":
        return tree(trial)
    return DecisionTreeClassifier(max_depth=trial.suggest_int("depth", 1, 8), random_state=0)


def is_a_trial(trial: Any) -> Any:
    assert isinstance(trial, optuna.trial.BaseTrial) and not isinstance(trial, type)
    assert trial.suggest_float("unused", 0, 1) == trial.params["unused"]
    return tree(trial)


BUILDS = [
    notes,
    reports,
    has_an_age,
    asks_in_another_order,
    asks_under_a_condition,
    is_a_trial,
]


@pytest.mark.parametrize(
    ("build", "storage"),
    [*zip(BUILDS, cycle(["journal", "memory"]), strict=False)],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_finalists_of_any_build(
    holdout: LadderHoldout, tmp_path: Path, build: Callable[[Any], Any], storage: str
) -> None:
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
    study = study_of(storage=journal if storage == "journal" else None, study_name="named")
    objective = holdout.optuna.objective(build, inner=2, train=TRAIN)
    study.optimize(objective.inner_score, n_trials=4)
    before = state_of(study)
    final = holdout.optuna.finalists(study, objective, k=2)
    assert state_of(study) == before
    assert [one.release.score for one in final] == pytest.approx(
        [right_score(one.candidate.params) for one in final]
    )
    assert objective.candidate(final[0].candidate).inner_score == final[0].inner_score
    assert state_of(study) == before


def uploads(trial: Any) -> Any:
    with TemporaryDirectory() as folder:
        store, file = FileSystemArtifactStore(folder), Path(folder) / "depth.json"
        file.write_text("1")
        upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
    return tree(trial)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (notes_on_the_study, "asks the trial for 'study'"),
        (uses_the_storage, "asks the trial for 'storage'"),
        (uploads, "storage is required"),
    ],
)
def test_a_build_that_needs_a_running_trial_is_refused_and_the_remedy_helps(
    holdout: LadderHoldout, build: Callable[[Any], Any], said: str
) -> None:
    study = study_of()
    objective = holdout.optuna.objective(build, inner=2, train=TRAIN)
    study.optimize(objective.inner_score, n_trials=2)
    before = state_of(study)
    with pytest.raises(InvalidArgument, match=said) as refusal:
        holdout.optuna.finalists(study, objective, k=1)
    assert "if isinstance(trial, optuna.Trial)" in str(refusal.value)
    assert state_of(study) == before and holdout.status().submissions == 0
    checks = holdout.optuna.objective(
        lambda trial: build(trial) if isinstance(trial, optuna.Trial) else tree(trial),
        inner=2,
        train=TRAIN,
    )
    (one,) = holdout.optuna.finalists(study, checks, k=1)
    assert state_of(study) == before
    assert one.release.score == pytest.approx(right_score(one.candidate.params))


def test_a_gate_refuses_such_a_build_at_the_first_trial(holdout: LadderHoldout) -> None:
    objective = holdout.optuna.objective(notes_on_the_study, inner=2, train=TRAIN)
    study = study_of()
    with pytest.raises(InvalidArgument, match="asks the trial for 'study'"):
        study.optimize(
            objective.inner_score, n_trials=3, callbacks=[holdout.optuna.gate(objective)]
        )
    assert len(study.trials) == 1


@pytest.mark.parametrize("error", [ValueError("own"), AttributeError("own"), KeyError("own")])
def test_what_a_build_raises_itself_is_raised(holdout: LadderHoldout, error: Exception) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(tree, inner=2, train=TRAIN).inner_score, n_trials=1)

    def build(trial: Any) -> Any:
        raise error

    with pytest.raises(type(error), match="own") as raised:
        holdout.optuna.finalists(study, build)
    assert raised.value is error


def test_callbacks_of_optuna_integration(holdout: LadderHoldout) -> None:
    lightgbm = pytest.importorskip("lightgbm")

    def predicted(leaves: int, callbacks: list[Any]) -> tuple[Any, float]:
        settings = {"objective": "binary", "metric": "auc", "num_leaves": leaves, "seed": 0}
        settings |= {"num_threads": 1, "verbose": -1}
        rows = lightgbm.Dataset(X_FIT, Y_FIT)
        valid = lightgbm.Dataset(X_CHECK, Y_CHECK, reference=rows)
        model = lightgbm.train(settings, rows, 5, valid_sets=[valid], callbacks=callbacks)
        auc = float(roc_auc_score(Y_CHECK, model.predict(X_CHECK)))
        return (model.predict(X_HOLDOUT) > 0.5).astype(int), auc

    def build(trial: Any) -> Any:
        runs = isinstance(trial, optuna.Trial)
        callbacks = [LightGBMPruningCallback(trial, "auc", valid_name="valid_0")] if runs else []
        return predicted(trial.suggest_int("leaves", 2, 30), callbacks)

    study = study_of(pruner=PRUNERS["median"])
    objective = holdout.optuna.objective(build)
    study.optimize(objective.inner_score, n_trials=4)
    before = state_of(study)
    (one,) = holdout.optuna.finalists(study, objective, k=1)
    assert state_of(study) == before
    right, auc = predicted(one.candidate.params["leaves"], [])
    assert one.release.score == pytest.approx(accuracy_score(Y_HOLDOUT, right))
    assert one.inner_score == pytest.approx(auc)


def test_what_only_a_finished_trial_has_is_there_as_well(holdout: LadderHoldout) -> None:
    """A build for finalists that fits as many epochs as the best step says."""
    study = study_of()

    def objective(trial: Any) -> float:
        for step in range(trial.suggest_int("depth", 1, 8)):
            trial.report(step, step)
        return trial.number

    study.optimize(objective, n_trials=3)

    def build(trial: Any) -> Any:
        assert trial.value == trial.number and trial.state is TrialState.COMPLETE
        assert len(trial.intermediate_values) == trial.params["depth"] == trial.last_step + 1
        depth = trial.last_step + 1
        return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(*TRAIN)

    (one,) = holdout.optuna.finalists(study, build, k=1)
    assert one.release.score == pytest.approx(right_score(one.candidate.params))


def test_a_build_that_asks_for_something_else_is_refused_before_any_query(
    holdout: LadderHoldout,
) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(tree, inner=2, train=TRAIN).inner_score, n_trials=2)

    def other(trial: Any) -> Any:
        return tree(trial).set_params(min_samples_leaf=trial.suggest_int("leaf", 1, 9))

    def prunes(trial: Any) -> Any:
        raise optuna.TrialPruned

    for build, said in (
        (other, "parameter 'leaf' is not found"),
        (prunes, "prunes the trial by itself"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            holdout.optuna.finalists(study, holdout.optuna.objective(build, train=TRAIN))
    assert holdout.status().submissions == 0


def test_finalists_whose_last_model_is_not_fitted_query_nothing(holdout: LadderHoldout) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(tree, inner=2, train=TRAIN).inner_score, n_trials=4)
    worst = max(study.trials, key=lambda trial: (-trial.value, trial.number)).number

    class Raises(DecisionTreeClassifier):
        def predict(self, X: Any, check_input: bool = True) -> Any:
            raise ZeroDivisionError

    def build(trial: Any) -> Any:
        kind = Raises if trial.number == worst else DecisionTreeClassifier
        return kind(max_depth=trial.params["depth"]).fit(*TRAIN)

    with pytest.raises(InvalidArgument, match="raises ZeroDivisionError"):
        holdout.optuna.finalists(study, build, k=4)
    assert holdout.status().submissions == 0


# Its picture


@pytest.mark.parametrize("show", ["scores", "improvements"])
def test_a_picture_has_releases_and_inner_scores_and_nothing_raw(show: str) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ladder = LadderHoldout(X_HOLDOUT, Y_HOLDOUT, scoring="accuracy", show=show, ledger="memory")
    study = study_of()
    objective = ladder.optuna.objective(another_tree, inner=2, train=TRAIN)
    study.optimize(objective, n_trials=9)
    ax = plot_ladder(ladder, study, ax=figure.subplots())
    drawn = {line.get_label(): dict(line.get_xydata().tolist()) for line in ax.lines}
    inner = {trial.number: trial.value for trial in study.trials}
    assert drawn.pop("inner score") == pytest.approx(inner)
    answers = {entry.number - 1: entry for entry in ladder.history()}
    released = {at: entry.score for at, entry in answers.items() if entry.score is not None}
    assert drawn.pop("improved", {}).keys() == {at for at in released if answers[at].improved}
    assert {at: score for one in drawn.values() for at, score in one.items()} == {
        at: score for at, score in released.items() if not answers[at].improved
    }
    assert bool(released) is (show == "scores")
    figure.canvas.draw()


def test_a_picture_of_several_objectives_is_refused(holdout: LadderHoldout) -> None:
    with pytest.raises(InvalidArgument, match="one with a single objective, but is one with 2"):
        plot_ladder(holdout, study_of(directions=["maximize", "minimize"]))


# Several objectives


def small_tree(trial: Any) -> Candidate:
    model = tree(trial).fit(X_FIT, Y_FIT)
    score = float(model.score(X_CHECK, Y_CHECK))
    model = clone(model).fit(*TRAIN)
    return Candidate(model, score, others=(float(model.get_n_leaves()),))


@pytest.mark.parametrize("guarded", [0, 1])
def test_an_inner_score_gives_the_value_of_each_objective(
    holdout: LadderHoldout, guarded: int
) -> None:
    directions = ["maximize", "minimize"] if guarded == 0 else ["minimize", "minimize"]
    study = study_of(directions=directions)
    study.optimize(holdout.optuna.objective(small_tree, guarded=guarded).inner_score, n_trials=3)
    for trial in study.trials:
        model = DecisionTreeClassifier(max_depth=trial.params["depth"], random_state=0)
        score = model.fit(X_FIT, Y_FIT).score(X_CHECK, Y_CHECK)
        leaves = model.fit(*TRAIN).get_n_leaves()
        assert trial.values == ([score, leaves] if guarded == 0 else [leaves, -score])
    assert holdout.status().submissions == 0


def test_an_inner_score_without_a_value_for_each_objective_is_refused_at_once(
    holdout: LadderHoldout,
) -> None:
    asked = []

    def build(trial: Any) -> Any:
        asked.append(trial.number)
        return tree(trial)

    study = study_of(directions=["maximize", "minimize"])
    objective = holdout.optuna.objective(build, inner=2, train=TRAIN)
    with pytest.raises(InvalidArgument, match=r"Return Candidate\(model, inner_score, others="):
        study.optimize(objective.inner_score, n_trials=5)
    assert asked == [0] and holdout.status().submissions == 0


def test_a_gate_in_such_a_study_is_refused_and_its_remedy_helps(holdout: LadderHoldout) -> None:
    study = study_of(directions=["maximize", "minimize"])
    objective = holdout.optuna.objective(small_tree)
    with pytest.raises(InvalidArgument, match="single objective") as refusal:
        study.optimize(
            objective.inner_score, n_trials=3, callbacks=[holdout.optuna.gate(objective)]
        )
    with pytest.raises(InvalidArgument, match="single objective") as other:
        holdout.optuna.finalists(study, objective)
    assert holdout.status().submissions == 0
    said = {str(one.value).rpartition(": ")[2].removesuffix(".") for one in (refusal, other)}
    known = {"holdout": holdout, "objective": objective, "study": study}
    (final,) = (eval(one, known) for one in said)
    assert [one.release.score for one in final] == pytest.approx(
        [right_score(trial.params) for trial in study.best_trials]
    )


# What build returns


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "score": (lambda t: cross_val_score(tree(t), *TRAIN, cv=2).mean(), "a number or a text"),
    "float": (lambda t: 0.9, "a number or a text"),
    "nothing": (lambda t: None, "returns None"),
    "nan": (lambda t: float("nan"), "a number or a text"),
    "model, nan": (lambda t: (tree(t).fit(*TRAIN), float("nan")), "inner_score must be .* is nan"),
    "model, text": (lambda t: (tree(t).fit(*TRAIN), "0.9"), "inner_score must be"),
    "model, True": (lambda t: (tree(t).fit(*TRAIN), True), "inner_score must be"),
    "score, model": (lambda t: (0.9, tree(t).fit(*TRAIN)), "the model second"),
    "three": (lambda t: (tree(t).fit(*TRAIN), 0.9, 3), "a tuple of 3"),
    "one": (lambda t: (tree(t).fit(*TRAIN),), "a tuple of 1"),
    "class": (lambda t: DecisionTreeClassifier, "a class"),
    "class, score": (lambda t: (DecisionTreeClassifier, 0.9), "a class"),
    "dict": (lambda t: {"model": tree(t)}, "a dict"),
    "params": (lambda t: {"max_depth": t.suggest_int("depth", 1, 8)}, "a dict"),
    "generator": (lambda t: iter(Y_HOLDOUT), "iterator"),
    "array of nothing": (lambda t: np.array(0.9), "ndarray"),
    "others": (lambda t: Candidate(tree(t).fit(*TRAIN), 0.9, others=3.0), "others must be"),  # type: ignore[arg-type]
}


def test_what_is_no_model_is_refused_before_anything_is_spent(holdout: LadderHoldout) -> None:
    asked = cycle([(2, "objective"), (None, "inner_score"), (None, "objective")])
    for (case, (build, said)), (inner, way) in zip(WRONG.items(), asked, strict=False):
        objective = holdout.optuna.objective(build, inner=inner, train=TRAIN if inner else None)
        run: Any = objective if way == "objective" else objective.inner_score
        with pytest.raises(InvalidArgument) as refused:
            study_of().optimize(run, n_trials=2)
        assert re.search(said, str(refused.value)), (case, inner, way)
    assert holdout.status().submissions == 0


UNFITTED: dict[str, Callable[[], Any]] = {
    "tree": DecisionTreeClassifier,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "lightgbm": lambda: pytest.importorskip("lightgbm").LGBMClassifier(),
    "xgboost": lambda: pytest.importorskip("xgboost").XGBClassifier(),
    "catboost": lambda: pytest.importorskip("catboost").CatBoostClassifier(),
}


@pytest.mark.parametrize(
    ("kind", "way"), [*zip(UNFITTED, cycle(["objective", "inner_score"]), strict=False)]
)
def test_a_model_that_nobody_fitted_is_refused_and_the_remedy_helps(
    holdout: LadderHoldout, kind: str, way: str
) -> None:
    objective = holdout.optuna.objective(lambda trial: (UNFITTED[kind](), 0.5))
    with pytest.raises(InvalidArgument, match=r"not fitted.* give inner= and train="):
        study_of().optimize(objective if way == "objective" else objective.inner_score, n_trials=1)
    assert holdout.status().submissions == 0


def test_a_model_whose_state_is_not_known_is_taken_for_fitted(holdout: LadderHoldout) -> None:
    """A class of the user's that names what it learnt otherwise, and one without any state."""

    class Own(DummyClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            self.most = np.bincount(y).argmax()
            return self

        def predict(self, X: Any) -> Any:
            return np.full(len(X), self.most)

    class Constant:
        def predict(self, X: Any) -> Any:
            return np.ones(len(X), dtype=int)

    for model in (Own().fit(*TRAIN), Constant()):
        study = study_of()
        study.optimize(
            holdout.optuna.objective(lambda trial, model=model: (model, 0.5)).inner_score,
            n_trials=1,
        )
        (one,) = holdout.optuna.finalists(study, lambda trial, model=model: model)
        assert one.release.score == pytest.approx(accuracy_score(Y_HOLDOUT, np.ones(200)))


def test_an_objective_without_an_inner_score_says_how_to_get_one(holdout: LadderHoldout) -> None:
    objective = holdout.optuna.objective(lambda trial: tree(trial).fit(*TRAIN))
    with pytest.raises(InvalidArgument, match="inner=5, train="):
        study_of().optimize(objective.inner_score, n_trials=1)
    study = study_of()
    study.optimize(holdout.optuna.objective(tree, inner=5, train=TRAIN).inner_score, n_trials=1)
    right = cross_val_score(tree(study.best_trial), *TRAIN, cv=5)
    assert study.best_value == pytest.approx(right.mean())


def test_predictions_that_do_not_fit_are_refused_before_the_study(holdout: LadderHoldout) -> None:
    for wrong in (Y_HOLDOUT[1:], np.full(200, 7), np.full(200, np.nan)):
        objective = holdout.optuna.objective(lambda trial, wrong=wrong: (wrong, 0.5))
        with pytest.raises(InvalidArgument, match="predictions must be"):
            study_of().optimize(objective.inner_score, n_trials=1)


@pytest.mark.parametrize("kind", ["list", "series", "polars", "tuple", "column"])
def test_predictions_in_any_container_are_taken(holdout: LadderHoldout, kind: str) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    wrap: dict[str, Callable[[Any], Any]] = {
        "list": list,
        "series": pd.Series,
        "polars": pl.Series,
        "tuple": lambda found: tuple(found.tolist()),
        "column": lambda found: found.reshape(-1, 1),
    }

    def build(trial: Any) -> Any:
        return wrap[kind](tree(trial).fit(*TRAIN).predict(X_HOLDOUT)), 0.5

    study = study_of()
    objective = holdout.optuna.objective(build)
    study.optimize(objective.inner_score, n_trials=2)
    (one,) = holdout.optuna.finalists(study, objective, k=1)
    assert one.release.score == pytest.approx(right_score(one.candidate.params))


def test_predictions_for_each_of_several_metrics_are_taken() -> None:
    both = LadderHoldout(X_HOLDOUT, Y_HOLDOUT, scoring=["accuracy", "roc_auc"], ledger="memory")

    def build(trial: Any) -> Any:
        model = tree(trial).fit(*TRAIN)
        scores = model.predict_proba(X_HOLDOUT)[:, 1]
        told = {"accuracy": model.predict(X_HOLDOUT), "roc_auc": scores}
        return told, {"accuracy": 0.5, "roc_auc": 0.5}

    study = study_of(directions=["maximize", "maximize"])
    study.optimize(both.optuna.objective(build).inner_score, n_trials=1)
    study.optimize(both.optuna.objective(build), n_trials=1)
    assert both.status().submissions == 1


def test_ask_and_tell_names_the_model(holdout: LadderHoldout) -> None:
    loop = holdout.optuna.ask_tell(study_of())
    for wrong, said in ((0.9, "a number or a text"), (DecisionTreeClassifier(), "not fitted")):
        with pytest.raises(InvalidArgument, match=f"model must be a fitted estimator.*{said}"):
            loop.tell(loop.ask(), wrong, inner_score=0.9)
    assert holdout.status().submissions == 0


# Trials that were left over


@pytest.mark.parametrize(
    ("left", "storage"),
    [("RUNNING", "journal"), ("WAITING", "memory"), ("FAIL", "journal"), ("PRUNED", "memory")],
)
def test_a_trial_that_was_left_over_costs_no_estimate(
    holdout: LadderHoldout, tmp_path: Path, left: str, storage: str
) -> None:
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
    study = study_of(storage=journal if storage == "journal" else None)
    if left == "WAITING":
        study.enqueue_trial({"depth": 3})
    else:
        trial = study.ask()
        tree(trial)
        if left != "RUNNING":
            study.tell(trial, state=TrialState[left])
    ladder = LadderHoldout(X_HOLDOUT, Y_HOLDOUT, scoring="accuracy", ledger="memory")
    study.optimize(ladder.optuna.objective(another_tree, inner=2, train=TRAIN), n_trials=3)
    assert study.trials[0].state.name == ("COMPLETE" if left == "WAITING" else left)
    found = ladder.estimate()
    assert found.score is not None and found.reason is None


def another_tree(trial: Any) -> DecisionTreeClassifier:
    return tree(trial).set_params(max_features=1, random_state=trial.number)


def test_what_removes_the_estimate_is_named() -> None:
    ladder = LadderHoldout(X_HOLDOUT, Y_HOLDOUT, scoring="accuracy", ledger="memory")
    study = study_of()

    def build(trial: Any) -> Any:
        if trial.number == 2:
            study.ask()  # number 3, which is left running
        return another_tree(trial)

    study.optimize(ladder.optuna.objective(build, inner=2, train=TRAIN), n_trials=4)
    assert "trial 3 of the study runs beside the others" in str(ladder.estimate())
    threads = LadderHoldout(X_HOLDOUT[1:], Y_HOLDOUT[1:], scoring="accuracy", ledger="memory")
    objective = threads.optuna.objective(another_tree, inner=2, train=TRAIN)
    study_of().optimize(objective, n_trials=4, n_jobs=2)
    assert "several threads" in str(threads.estimate())


# Inner folds


RARE = np.random.default_rng(0).normal(size=(600, 5))
# One row of ten is positive, and none of the training rows from 100 to 199.
RARE_Y = (np.arange(600) % 10 == 0) & ((np.arange(600) < 100) | (np.arange(600) >= 200))
RARE_Y = RARE_Y.astype(int)

FOLDS: dict[str, tuple[Any, str]] = {
    "leave one out": (LeaveOneOut(), "fold 1 of 200 has one test row"),
    "blocks": (
        PredefinedSplit(np.repeat([0, 1, 2, 3], 50)),
        r"fold 3 of 4 has 50 test rows of one class",
    ),
    "pairs": (
        [(np.arange(50, 200), np.arange(50)), (np.arange(100), np.arange(150, 200))],
        r"fold 2 of 2 has 50 test rows of one class",
    ),
}


@pytest.mark.parametrize(
    ("case", "way"), [*zip(FOLDS, cycle(["objective", "inner_score"]), strict=False)]
)
def test_a_fold_of_one_class_is_named_and_the_remedy_helps(case: str, way: str) -> None:
    X_train, y_train = RARE[:200], RARE_Y[:200]
    rare = LadderHoldout(RARE[200:], RARE_Y[200:], scoring="roc_auc", ledger="memory")

    def build(trial: Any) -> Any:
        return LogisticRegression(C=trial.suggest_float("C", 1e-3, 1e3, log=True))

    inner, said = FOLDS[case]
    objective = rare.optuna.objective(build, inner=inner, train=(X_train, y_train))
    with pytest.raises(InvalidArgument, match=said) as refusal:
        study_of().optimize(objective if way == "objective" else objective.inner_score, n_trials=3)
    assert rare.status().submissions == 0
    assert "inner=StratifiedKFold(5, shuffle=True, random_state=0)" in str(refusal.value)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    study = study_of()
    study.optimize(
        rare.optuna.objective(build, inner=folds, train=(X_train, y_train)).inner_score, n_trials=1
    )
    model = LogisticRegression(**study.best_params)
    right = [
        roc_auc_score(
            y_train[test],
            clone(model).fit(X_train[train], y_train[train]).predict_proba(X_train[test])[:, 1],
        )
        for train, test in folds.split(X_train, y_train)
    ]
    assert study.best_value == pytest.approx(np.mean(right))


def test_training_rows_of_one_class_are_named(holdout: LadderHoldout) -> None:
    zeros, ones = np.flatnonzero(Y_TRAIN == 0)[:60], np.flatnonzero(Y_TRAIN == 1)[:60]
    rows = np.concatenate([zeros, ones])
    for inner in (TimeSeriesSplit(5), KFold(2)):
        objective = holdout.optuna.objective(
            tree, inner=inner, train=(X_TRAIN[rows], Y_TRAIN[rows])
        )
        with pytest.raises(InvalidArgument, match=r"those of fold 1 of \d are all of one class"):
            study_of().optimize(objective.inner_score, n_trials=1)
