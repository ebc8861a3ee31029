"""Each search of the page docs/guide/searchers.md: who won, how often it asked, what it keeps."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from tests.clients.support import assert_nothing_raw, assert_winner, recipe, refusal
from tests.support.ledgers import entries_of

PAGE = "searchers"
TREE, GRID = DecisionTreeClassifier(random_state=0), {"max_depth": [3, 6, 9, 12]}


@pytest.fixture
def holdout(names: dict[str, Any]) -> LadderHoldout:
    """The holdout of the page, with what its first block imports."""
    from sklearn.model_selection import cross_val_score

    names |= {"GridSearchCV": GridSearchCV, "cross_val_score": cross_val_score}
    names["DecisionTreeClassifier"] = DecisionTreeClassifier
    found = LadderHoldout(
        names["X_holdout"], names["y_holdout"], scoring="accuracy", name="digits-2026"
    )
    found.split()  # so that nobody is reminded of it
    names["holdout"] = found
    return found


def check_guarded(holdout: LadderHoldout, guarded: Any) -> None:
    """The finalists alone queried the holdout, in one batch, and the winner is the incumbent."""
    history = holdout.history()
    assert 1 <= len(history) <= 20 and len(history) == len(guarded.finalists_)
    assert {one.batch for one in history} != {None} and len({one.batch for one in history}) == 1
    assert guarded.is_incumbent_ and guarded.best_score_ == holdout.status().score
    assert guarded.certificate_.missing is None and holdout.estimate().reason is None
    if len(history) > holdout.status().releases:
        assert_nothing_raw(holdout, guarded.cv_results_, guarded.search_, guarded)
    assert_winner(holdout, guarded.best_estimator_)


def check_finalists(holdout: LadderHoldout, names: dict[str, Any], count: int) -> None:
    history = holdout.history()
    assert len(history) == len(names["final"]) <= count
    assert len({one.batch for one in history}) == 1
    assert_winner(holdout, names["winner"])


# -- scikit-optimize --------------------------------------------------------------------------


@pytest.mark.row("BayesSearchCV", "holdout.guard(BayesSearchCV(...))", "scikit-optimize")
def test_bayes_search_guarded(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    check_guarded(holdout, recipe(PAGE, "BayesSearchCV", names)["guarded"])


@pytest.mark.row(
    "BayesSearchCV",
    "refit=False, then holdout.select(search.cv_results_)",
    "scikit-optimize",
)
def test_bayes_search_with_select(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    recipe(PAGE, "BayesSearchCV", names)
    ours = LadderHoldout(
        names["X_test"], names["y_test"], scoring="accuracy", name="other", overlap="ignore"
    )
    names = recipe(PAGE, "BayesSearchCV", names | {"holdout": ours}, part=2)
    assert ours.status().submissions == 12
    # What it learns from its answers is no batch, and each round of one candidate is.
    assert ours.estimate().reason is not None
    assert_nothing_raw(ours, names["search"].cv_results_, names["search"])
    assert_winner(ours, names["model"])


@pytest.mark.row("BayesSearchCV", "refit=holdout.select", "scikit-optimize")
def test_bayes_search_takes_no_function(
    holdout: LadderHoldout, names: dict[str, Any], note: Any
) -> None:
    from skopt import BayesSearchCV
    from skopt.space import Integer

    search = BayesSearchCV(
        TREE, {"max_depth": Integer(2, 12)}, scoring=holdout, cv=holdout.split(), n_iter=3
    )
    search.set_params(refit=holdout.select)
    train = names["X_train"], names["y_train"]
    text = refusal(lambda: search.fit(*train), note, ValueError, "doesn't support a callable refit")
    note("because", f"{text}. These are its own words; the line above is the remedy.")
    assert holdout.status().submissions == 0


# -- sklearn-genetic-opt ----------------------------------------------------------------------


@pytest.mark.row("GASearchCV", "holdout.guard(GASearchCV(...))", "sklearn-genetic-opt")
def test_genetic_search_guarded(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    check_guarded(holdout, recipe(PAGE, "GASearchCV", names)["guarded"])


@pytest.mark.row(
    "GASearchCV",
    "scoring=holdout, cv=holdout.split(), then holdout.select(search.cv_results_)",
    "sklearn-genetic-opt",
)
def test_genetic_search_asking_for_each(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    from sklearn_genetic import GASearchCV
    from sklearn_genetic.space import Continuous, Integer

    space = {"max_depth": Integer(2, 12), "max_features": Continuous(0.1, 1.0)}
    search = GASearchCV(
        TREE,
        param_grid=space,
        scoring=holdout,
        cv=holdout.split(),
        refit=False,
        population_size=6,
        generations=3,
        verbose=False,
    )
    search.fit(names["X_train"], names["y_train"])
    queries = holdout.status().submissions
    assert queries >= 12
    best = search.cv_results_["params"][holdout.select(search.cv_results_)]
    model = DecisionTreeClassifier(random_state=0).set_params(**best)
    # The mean of a generation's feedback is a share of the rows now and then, as raw scores are.
    history = {name: one for name, one in search.history.items() if name != "fitness"}
    assert history.keys() >= {"fitness_max", "fitness_min"}
    assert_nothing_raw(holdout, search.cv_results_, history)
    assert_winner(holdout, model.fit(names["X_train"], names["y_train"]))


# -- Optuna -----------------------------------------------------------------------------------


@pytest.mark.row(
    "OptunaSearchCV", "holdout.guard(OptunaSearchCV(...))", "optuna-integration", "optuna"
)
def test_optuna_search_guarded(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    guarded = recipe(PAGE, "OptunaSearchCV", names)["guarded"]
    check_guarded(holdout, guarded)


# -- FLAML ------------------------------------------------------------------------------------


@pytest.mark.row("FLAML", "automl.fit(...); holdout.submit(automl)", "flaml")
def test_flaml_confirmed_at_the_end(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "FLAML", names)
    assert names["release"].improved and holdout.status().submissions == 1
    assert_winner(holdout, names["automl"])


@pytest.mark.row("FLAML", "metric=function with 1 - holdout(estimator, X_val[:0])", "flaml")
def test_flaml_with_a_metric_that_asks(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "FLAML", names)
    asked = holdout.status().submissions
    names = recipe(PAGE, "FLAML", names, part=2)
    automl, history = names["automl"], holdout.history(after=asked)
    assert 2 <= len(history) <= 8
    step = 1 / len(names["y_holdout"])
    fed = {round(1 - (one.score - (0 if one.improved else step)), 9) for one in history}
    assert round(automl.best_loss, 9) == min(fed)
    entries = entries_of(holdout)
    assert all(one.batch is None for one in entries)
    from tests.clients.support import numbers, secrets

    kept = set(numbers([automl.best_loss, automl.best_loss_per_estimator, automl.best_result]))
    hidden = secrets(holdout)
    assert not [one for one in kept if any(abs(one - other) < 1e-9 for other in hidden)]


# -- hyperopt, Ray ----------------------------------------------------------------------------


@pytest.mark.row("hyperopt", "holdout.finalists(models)", "hyperopt")
def test_hyperopt(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "hyperopt", names)
    check_finalists(holdout, names, 5)
    assert_nothing_raw(holdout, names["trials"].trials, names["final"])


@pytest.mark.row(
    "hyperopt", "{'loss': -holdout(model, X_train[:0]), 'status': STATUS_OK}", "hyperopt"
)
def test_hyperopt_asking_for_each(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    from hyperopt import STATUS_OK, Trials, fmin, hp, space_eval, tpe

    X, y = names["X_train"], names["y_train"]

    def build(params: Any) -> Any:
        return DecisionTreeClassifier(max_depth=int(params["depth"]), random_state=0).fit(X, y)

    def objective(params: Any) -> Any:
        return {"loss": -holdout(build(params), X[:0]), "status": STATUS_OK}

    space, trials = {"depth": hp.quniform("depth", 2, 12, 1)}, Trials()
    best = fmin(
        objective,
        space,
        tpe.suggest,
        10,
        trials=trials,
        rstate=np.random.default_rng(1),
        verbose=False,
    )
    assert holdout.status().submissions == 10
    assert_nothing_raw(holdout, trials.trials)
    # The least loss is the incumbent's.
    assert_winner(holdout, build(space_eval(space, best)))


@pytest.fixture(scope="module")
def ray() -> Any:
    found = pytest.importorskip("ray")
    found.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield found
    found.shutdown()


@pytest.mark.row("Ray Tune", "holdout.finalists(models)", "ray")
def test_ray_tune(holdout: LadderHoldout, names: dict[str, Any], ray: Any, tmp_path: Any) -> None:
    names = recipe(PAGE, "Ray Tune", names)
    check_finalists(holdout, names, 3)


@pytest.mark.row("Ray Tune", "{'score': holdout(model, X_train[:0])}", "ray")
def test_ray_tune_asking_for_each(holdout: LadderHoldout, names: dict[str, Any], ray: Any) -> None:
    from ray import tune

    X, y = names["X_train"], names["y_train"]

    def trainable(config: Any) -> Any:
        model = DecisionTreeClassifier(**config, random_state=0).fit(X, y)
        return {"score": holdout(model, X[:0])}

    tuner = tune.Tuner(
        trainable,
        param_space={"max_depth": tune.grid_search([2, 4, 6, 7, 8, 10])},
        tune_config=tune.TuneConfig(metric="score", mode="max"),
        run_config=tune.RunConfig(verbose=0),
    )
    results = tuner.fit()
    assert not results.errors and holdout.status().submissions == 6
    assert_nothing_raw(holdout, [one.metrics for one in results])
    best = results.get_best_result().config
    assert_winner(holdout, DecisionTreeClassifier(**best, random_state=0).fit(X, y))


@pytest.mark.row("Ray's joblib backend", "holdout.guard(GridSearchCV(...))", "ray", "joblib")
def test_rays_joblib_backend(holdout: LadderHoldout, names: dict[str, Any], ray: Any) -> None:
    check_guarded(holdout, recipe(PAGE, "Ray's joblib backend", names)["guarded"])


@pytest.mark.row(
    "Ray's joblib backend",
    "scoring=holdout, cv=holdout.split(), refit=holdout.select",
    "ray",
    "joblib",
)
def test_rays_joblib_backend_asking_for_each(
    holdout: LadderHoldout, names: dict[str, Any], ray: Any
) -> None:
    import joblib
    from ray.util.joblib import register_ray

    register_ray()
    search = GridSearchCV(TREE, GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select)
    with joblib.parallel_backend("ray", n_jobs=2):
        search.fit(names["X_train"], names["y_train"])
    assert holdout.status().submissions == 4
    assert len({one.batch for one in holdout.history()} - {None}) == 1
    assert_winner(holdout, search.best_estimator_)


# -- dask-ml ----------------------------------------------------------------------------------


@pytest.mark.row("dask-ml", "holdout.guard(GridSearchCV(...))", "dask-ml", "dask")
def test_dask_ml_guarded(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    check_guarded(holdout, recipe(PAGE, "dask-ml", names)["guarded"])


@pytest.mark.parametrize("settings", [{}, {"iid": False}, {"refit": False}])
@pytest.mark.parametrize("kind", ["GridSearchCV", "RandomizedSearchCV"])
@pytest.mark.row("dask-ml", "scoring=holdout, cv=holdout.split()", "dask-ml", "dask")
def test_dask_ml_with_the_guarded_fold(
    holdout: LadderHoldout, names: dict[str, Any], note: Any, settings: Any, kind: str
) -> None:
    from dask_ml import model_selection

    more = {"n_iter": 2} if kind.startswith("R") else {}
    search = getattr(model_selection, kind)(
        TREE, GRID, scoring=holdout, cv=holdout.split(), scheduler="threads", **more, **settings
    )
    text = refusal(lambda: search.fit(names["X_train"], names["y_train"]), note)
    assert "holdout.guard(GridSearchCV(model, grid, cv=5))" in text
    assert holdout.status().submissions == 0


@pytest.mark.parametrize("inner", [0, 2])
@pytest.mark.row("dask-ml", "cv=list(holdout.split().split(X, y))", "dask-ml", "dask")
def test_dask_ml_with_the_guarded_fold_in_a_list(
    holdout: LadderHoldout, names: dict[str, Any], note: Any, inner: int
) -> None:
    from dask_ml.model_selection import GridSearchCV as Search

    train = names["X_train"], names["y_train"]
    folds = list(holdout.split(inner=inner).split(*train))
    search = Search(TREE, GRID, scoring=holdout, cv=folds, scheduler="threads")
    refusal(lambda: search.fit(*train), note, SearchStopped, r"guard\(GridSearchCV")
    assert holdout.status().submissions == 0


# -- TPOT -------------------------------------------------------------------------------------


@pytest.mark.row("TPOT", "holdout.finalists(models)", "TPOT")
def test_tpot(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "TPOT", names)
    check_finalists(holdout, names, 3)
    kept = names["tpot"].evaluated_individuals.drop(columns=["Individual", "Instance"])
    if len(names["final"]) > holdout.status().releases:
        assert_nothing_raw(holdout, kept)


@pytest.mark.row("TPOT", "holdout.guard(TPOTClassifier(...))", "TPOT")
def test_tpot_is_no_search_with_cv_results(holdout: LadderHoldout, note: Any) -> None:
    from tpot import TPOTClassifier

    text = refusal(lambda: holdout.guard(TPOTClassifier()), note, InvalidArgument)
    assert "holdout.finalists(models)" in text and holdout.status().submissions == 0


# -- mlxtend ----------------------------------------------------------------------------------


@pytest.mark.row("mlxtend", "holdout.finalists(models)", "mlxtend")
def test_mlxtend(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "mlxtend", names)
    check_finalists(holdout, names, 3)


@pytest.mark.row(
    "mlxtend", "SequentialFeatureSelector(..., scoring=holdout, cv=holdout.split())", "mlxtend"
)
def test_mlxtend_with_the_guarded_fold(
    holdout: LadderHoldout, names: dict[str, Any], note: Any
) -> None:
    from mlxtend.feature_selection import SequentialFeatureSelector

    selector = SequentialFeatureSelector(TREE, 2, scoring=holdout, cv=holdout.split())
    text = refusal(lambda: selector.fit(names["X_train"][:, :4], names["y_train"]), note)
    assert "SequentialFeatureSelector" in text and holdout.status().submissions == 0


# -- imbalanced-learn -------------------------------------------------------------------------


@pytest.mark.row(
    "imbalanced-learn", "holdout.guard(GridSearchCV(pipeline, ...))", "imbalanced-learn"
)
def test_imbalanced_learn_guarded(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    check_guarded(holdout, recipe(PAGE, "imbalanced-learn", names)["guarded"])


@pytest.mark.row(
    "imbalanced-learn",
    "GridSearchCV(pipeline, ..., scoring=holdout, cv=holdout.split(), refit=holdout.select)",
    "imbalanced-learn",
)
def test_imbalanced_learn_asking_for_each(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names = recipe(PAGE, "imbalanced-learn", names)
    ours = LadderHoldout(
        names["X_test"], names["y_test"], scoring="accuracy", name="other", overlap="ignore"
    )
    grid = {"decisiontreeclassifier__max_depth": [3, 6, 9, 12]}
    search = GridSearchCV(
        names["pipeline"], grid, scoring=ours, cv=ours.split(), refit=ours.select
    ).fit(names["X_train"], names["y_train"])
    assert ours.status().submissions == 4
    assert_winner(ours, search.best_estimator_)


@pytest.mark.parametrize("step", ["SMOTE", "scaler", "bagging"])
@pytest.mark.row(
    "imbalanced-learn",
    "a search with cv=holdout.split() as a step of its pipeline",
    "imbalanced-learn",
)
def test_a_search_that_is_given_what_a_sampler_made_up(
    holdout: LadderHoldout, names: dict[str, Any], note: Any, step: str
) -> None:
    from imblearn.ensemble import BalancedBaggingClassifier
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = names["X_train"], names["y_train"]
    keep = (y != 0) | (np.cumsum(y == 0) < 12)  # few zeros, so that some are made up
    search = GridSearchCV(TREE, GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select)
    whole = {
        "SMOTE": make_pipeline(SMOTE(random_state=0), search),
        "scaler": make_pipeline(StandardScaler(), SMOTE(random_state=0), search),
        "bagging": BalancedBaggingClassifier(search, n_estimators=2),
    }[step]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = refusal(lambda: whole.fit(X[keep], y[keep]), note)
    assert "Put that estimator inside the search" in text and holdout.status().submissions == 0
