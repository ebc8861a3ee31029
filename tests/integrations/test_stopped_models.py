"""Models that early stopping leaves, against what scikit-learn says of them on the holdout.

Each case has the labels, columns, missing values, older trees or other callbacks of people's own
programs. The right value is always scikit-learn's, of the model that came back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from ladderholdout import InvalidArgument, LadderHoldout, LadderStopping
from ladderholdout.integrations import catboost, lightgbm, staged, xgboost
from tests.support.stopping import Parts, assert_kept, parts

ROUNDS = 25
XGB = {"objective": "binary:logistic", "nthread": 1}
LGB = {"objective": "binary", "verbose": -1, "num_threads": 1}
CAT = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "random_seed": 0}
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings(
        "ignore:.*`booster=(dart|gblinear)` is deprecated",
        "ignore:.*argument 'eval_set' is deprecated",
        "ignore:X does not have valid feature names",
    ),
]


class Tool(NamedTuple):
    """How a library trains two classes, and what the model's second column is on some rows."""

    module: Any
    fit: Callable[[Any, Any, Any], Any]
    share: Callable[[Any, Any], Any]


def _second(model: Any, X: Any) -> Any:
    return model.predict_proba(X)[:, 1]


def _xgb(by: Any, X: Any, y: Any) -> Any:
    return xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, callbacks=[by]).fit(X, y)


def _xgb_train(by: Any, X: Any, y: Any) -> Any:
    return xgb.train(XGB, xgb.DMatrix(X, y), ROUNDS, callbacks=[by])


def _lgb(by: Any, X: Any, y: Any) -> Any:
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1)
    return model.fit(X, y, callbacks=[by])


def _lgb_train(by: Any, X: Any, y: Any) -> Any:
    return lgb.train(LGB, lgb.Dataset(X, y), ROUNDS, callbacks=[by])


def _cat(by: Any, X: Any, y: Any) -> Any:
    return by.fit(cb.CatBoostClassifier(iterations=ROUNDS, **CAT), X, y)


def _cat_train(by: Any, X: Any, y: Any) -> Any:
    return by.fit(cb.CatBoost({"iterations": ROUNDS, "loss_function": "Logloss", **CAT}), X, y)


def _cat_share(model: Any, X: Any) -> Any:
    return model.predict(X, prediction_type="Probability")[:, 1]


def _hist(by: Any, X: Any, y: Any) -> Any:
    return by.fit(HistGradientBoostingClassifier(max_iter=ROUNDS, random_state=0), X, y)


def _monitored(by: Any, X: Any, y: Any) -> Any:
    return GradientBoostingClassifier(n_estimators=ROUNDS, random_state=0).fit(X, y, monitor=by)


def _passes(by: Any, X: Any, y: Any) -> Any:
    return by.partial_fit(SGDClassifier(loss="log_loss", random_state=0), X, y, rounds=ROUNDS)


TOOLS = {
    "xgb": Tool(xgboost, _xgb, _second),
    "xgb.train": Tool(xgboost, _xgb_train, lambda model, X: model.predict(xgb.DMatrix(X))),
    "lgb": Tool(lightgbm, _lgb, _second),
    "lgb.train": Tool(lightgbm, _lgb_train, lambda model, X: model.predict(X)),
    "cat": Tool(catboost, _cat, _second),
    "cat.train": Tool(catboost, _cat_train, _cat_share),
    "hist": Tool(staged, _hist, _second),
    "monitored": Tool(staged, _monitored, _second),
    "passes": Tool(staged, _passes, _second),
}
STATED = ["xgb", "xgb.train", "lgb", "lgb.train", "cat", "cat.train"]


@pytest.fixture
def data() -> Parts:
    return parts("binary")


def near(holdout: LadderHoldout, right: float) -> None:
    """The score of the incumbent is scikit-learn's, up to the grid of the releases."""
    released = holdout.status().score
    assert released is not None and abs(released - right) < 0.013


# -- classes -------------------------------------------------------------------------------

LABELS = {
    "text": ["benign", "malignant"],
    "text, the second coded 0": ["malignant", "benign"],
    "1 and 2": [1, 2],
    "2 and 1": [2, 1],
    "-1 and 1": [-1, 1],
    "1 and 0": [1, 0],
}


@pytest.mark.parametrize(
    ("tool", "labels"),
    [*zip(TOOLS, cycle([name for name in LABELS if name != "1 and 0"]), strict=False)],
)
def test_codes_are_no_classes_of_the_holdout(data: Parts, tool: str, labels: str) -> None:
    """The model learns 0 and 1, and nobody says which of the holdout's classes is which."""
    names = np.array(LABELS[labels])
    holdout = LadderHoldout(data.X_holdout, names[data.y_holdout], scoring="accuracy")
    by = TOOLS[tool].module.ladder_stopping(holdout, 5)
    with pytest.raises(InvalidArgument, match=r"^classes must be"):
        TOOLS[tool].fit(by, data.X, data.y)
    assert holdout.status().submissions == 0


@pytest.mark.parametrize(
    ("tool", "labels", "scoring"),
    [
        # Each library with each metric; labels are translated before any library sees them.
        (tool, *case)
        for tool, case in zip(
            sorted(STATED * 3),
            zip(
                cycle(["text", "text, the second coded 0", "2 and 1", "1 and 0"]),
                cycle(["accuracy", "neg_log_loss", "roc_auc"]),
                strict=False,
            ),
            strict=False,
        )
    ],
)
def test_classes_that_are_stated_count(data: Parts, tool: str, labels: str, scoring: str) -> None:
    names = np.array(LABELS[labels])
    y = names[data.y_holdout]
    holdout = LadderHoldout(data.X_holdout, y, scoring=scoring)
    by = TOOLS[tool].module.ladder_stopping(holdout, 5, classes=names)
    model = TOOLS[tool].fit(by, data.X, data.y)
    share = TOOLS[tool].share(model, data.X_holdout)
    second = y == names[1]
    right = {
        "accuracy": lambda: accuracy_score(y, names[(share > 0.5).astype(int)]),
        "neg_log_loss": lambda: -log_loss(second, share),
        "roc_auc": lambda: roc_auc_score(second, share),
    }[scoring]()
    near(holdout, right)


@pytest.mark.parametrize("tool", ["lgb", "cat", "hist", "monitored", "passes"])
def test_estimators_that_know_the_classes_need_no_statement(data: Parts, tool: str) -> None:
    names = np.array(["yes", "no"])
    y = names[data.y_holdout]
    holdout = LadderHoldout(data.X_holdout, y, scoring="neg_log_loss")
    by = TOOLS[tool].module.ladder_stopping(holdout, 5)
    model = TOOLS[tool].fit(by, data.X, names[data.y])
    near(holdout, -log_loss(y == "yes", TOOLS[tool].share(model, data.X_holdout)))


def test_a_subset_of_the_classes_is_known_by_the_estimator() -> None:
    data = parts("three")
    some = data.y != 1
    holdout = data.holdout("accuracy")
    by = lightgbm.ladder_stopping(holdout, 5)
    model = _lgb(by, data.X[some], data.y[some])
    near(holdout, accuracy_score(data.y_holdout, model.predict(data.X_holdout)))
    with pytest.raises(InvalidArgument, match="one column for each of 3 classes"):
        _lgb_train(lightgbm.ladder_stopping(holdout, 5), data.X[some], data.y[some] // 2)


# -- what the training rows are read with --------------------------------------------------


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
@pytest.mark.parametrize("api", ["estimator", "train"])
def test_missing_values_are_those_of_the_training_rows(data: Parts, api: str, booster: str) -> None:
    rng = np.random.default_rng(0)
    for X in (data.X, data.X_holdout):
        X[rng.random(X.shape) < 0.3] = -999
    holdout = data.holdout("neg_log_loss")
    by = xgboost.ladder_stopping(holdout, 5)
    how: dict[str, Any] = {"n_estimators": ROUNDS, "n_jobs": 1, "missing": -999}
    if api == "estimator":
        model = xgb.XGBClassifier(callbacks=[by], booster=booster, **how).fit(data.X, data.y)
        share = model.predict_proba(data.X_holdout)[:, 1]
    else:
        rows = xgb.DMatrix(data.X, data.y, missing=-999)
        model = xgb.train({**XGB, "booster": booster}, rows, ROUNDS, callbacks=[by])
        share = model.predict(xgb.DMatrix(data.X_holdout, missing=-999))
    near(holdout, -log_loss(data.y_holdout, share))
    table = np.column_stack([1 - share, share]) if api == "train" else None
    release = holdout.submit(model) if table is None else holdout.submit(share)
    assert_kept(holdout, by.stopping, release)


@pytest.mark.parametrize("api", ["estimator", "train"])
def test_a_base_margin_is_asked_for(data: Parts, api: str) -> None:
    margin, own = data.X[:, 0], data.X_holdout[:, 0]

    def fit(by: Any) -> Any:
        if api == "train":
            rows = xgb.DMatrix(data.X, data.y, base_margin=margin)
            return xgb.train(XGB, rows, ROUNDS, callbacks=[by])
        model = xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, callbacks=[by])
        return model.fit(data.X, data.y, base_margin=margin).get_booster()

    holdout = data.holdout("neg_log_loss")
    with pytest.raises(InvalidArgument, match=r"^dmatrix must be with the base_margin"):
        fit(xgboost.ladder_stopping(holdout, 5))
    assert holdout.status().submissions == 0
    model = fit(xgboost.ladder_stopping(holdout, 5, dmatrix={"base_margin": own}))
    share = model.predict(xgb.DMatrix(data.X_holdout, base_margin=own))
    near(holdout, -log_loss(data.y_holdout, share))


def test_a_baseline_of_catboost_is_refused(data: Parts) -> None:
    holdout = data.holdout("neg_log_loss")
    by = catboost.ladder_stopping(holdout, 5)
    model = cb.CatBoostClassifier(iterations=ROUNDS, **CAT)
    with pytest.raises(InvalidArgument, match=r"^baseline must be left out"):
        by.fit(model, cb.Pool(data.X, data.y, baseline=data.X[:, 0]))
    with pytest.raises(InvalidArgument, match=r"^baseline must be left out"):
        by.fit(model, data.X, data.y, baseline=data.X[:, 0])
    assert not model.is_fitted()


# -- columns -------------------------------------------------------------------------------

FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "same": lambda X: X,
    "permuted": lambda X: X[X.columns[::-1]],
    "an array": lambda X: X.to_numpy(),
    "a column more": lambda X: X.assign(extra=1.0),
    "a column less": lambda X: X.iloc[:, :-1],
    "other names": lambda X: X.set_axis(list("wxyz"), axis=1),
}
BY_NAME = {"cat", "cat.train"}
# What each tool is right about; it refuses the others.
RIGHT = {
    "same": set(TOOLS),
    "permuted": BY_NAME,
    "an array": set(TOOLS) - {"xgb", "xgb.train"},
    "a column more": BY_NAME,
    "a column less": set(),
    "other names": set(),
}


# Each tool meets the forms in which the tools differ; what all refuse is met by every second one.
TAKEN = [tool for tool in TOOLS if tool != "monitored"]
MET = [(tool, form) for tool in TAKEN for form in ("permuted", "an array")]
MET += zip(TAKEN, cycle(["a column more", "a column less", "other names"]), strict=False)
MET += [("cat", "a column more"), ("xgb", "same"), ("hist", "same")]


@pytest.mark.parametrize(("tool", "form"), MET)
def test_columns_are_those_of_the_training_rows(data: Parts, tool: str, form: str) -> None:
    names = ["mean radius", "mean texture", "size", "form"]
    rows, held = (pd.DataFrame(X, columns=names) for X in (data.X, data.X_holdout))
    holdout = LadderHoldout(FORMS[form](held), data.y_holdout, scoring="neg_log_loss")
    by = TOOLS[tool].module.ladder_stopping(holdout, 5)
    if tool in RIGHT[form]:
        model = TOOLS[tool].fit(by, rows, data.y)
        near(holdout, -log_loss(data.y_holdout, TOOLS[tool].share(model, held)))
        return
    with pytest.raises(InvalidArgument, match=r"^X must be (with the columns|a table)"):
        TOOLS[tool].fit(by, rows, data.y)
    assert holdout.status().submissions == 0
    # As the message says.
    kept = held[list(rows.columns)]
    holdout = LadderHoldout(kept, data.y_holdout, scoring="neg_log_loss", ledger="memory")
    model = TOOLS[tool].fit(TOOLS[tool].module.ladder_stopping(holdout, 5), rows, data.y)
    near(holdout, -log_loss(data.y_holdout, TOOLS[tool].share(model, held)))


def test_a_model_of_lightgbm_is_asked_about_its_own_columns(data: Parts) -> None:
    """Its `predict` takes them by their place, whatever their names."""
    rows, held = (pd.DataFrame(X, columns=["a b", "b", "c", "d"]) for X in (data.X, data.X_holdout))
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1).fit(rows, data.y)
    right = -log_loss(data.y_holdout, model.predict_proba(held))
    for given in (held, held.to_numpy()):
        holdout = LadderHoldout(given, data.y_holdout, scoring="neg_log_loss", ledger="memory")
        holdout.submit(model)
        near(holdout, right)
    for form in ("permuted", "other names"):
        given = FORMS[form](held)
        holdout = LadderHoldout(given, data.y_holdout, scoring="neg_log_loss", ledger="memory")
        with pytest.raises(InvalidArgument, match="in another order"):
            holdout.submit(model)
        with pytest.raises(InvalidArgument, match="in another order"):
            LadderStopping(holdout).evaluate(model)
        assert holdout.status().submissions == 0


def test_an_array_is_given_the_names_that_xgboost_asks_for(data: Parts) -> None:
    rows = pd.DataFrame(data.X, columns=list("abcd"))
    holdout = data.holdout("neg_log_loss")
    by = xgboost.ladder_stopping(holdout, 5, dmatrix={"feature_names": list(rows.columns)})
    model = _xgb(by, rows, data.y)
    held = pd.DataFrame(data.X_holdout, columns=list("abcd"))
    near(holdout, -log_loss(data.y_holdout, model.predict_proba(held)))


@pytest.mark.parametrize("tool", ["xgb", "xgb.train", "lgb", "lgb.train"])
def test_categories_that_the_holdout_has_as_numbers_are_refused(data: Parts, tool: str) -> None:
    """A library would take 10, 20, 30 for the places of categories."""
    rng = np.random.default_rng(1)
    kinds = rng.choice([10, 20, 30], len(data.y) + len(data.y_holdout))
    data.y[:] = (kinds[: len(data.y)] == 20) ^ (rng.random(len(data.y)) < 0.1)
    data.y_holdout[:] = kinds[len(data.y) :] == 20
    rows, held = (pd.DataFrame(X, columns=list("abcd")) for X in (data.X, data.X_holdout))
    rows["kind"], held["kind"] = kinds[: len(rows)], kinds[len(rows) :]
    rows["kind"] = rows["kind"].astype("category")

    def fit(by: Any) -> Any:
        if tool == "xgb":
            how: dict[str, Any] = {"enable_categorical": True, "callbacks": [by]}
            return xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, **how).fit(rows, data.y)
        if tool == "xgb.train":
            table = xgb.DMatrix(rows, data.y, enable_categorical=True)
            return xgb.train(XGB, table, ROUNDS, callbacks=[by])
        return TOOLS[tool].fit(by, rows, data.y)

    for given in (held, held.to_numpy()):
        holdout = LadderHoldout(given, data.y_holdout, scoring="neg_log_loss", ledger="memory")
        with pytest.raises(InvalidArgument, match=r"^X must be"):
            fit(TOOLS[tool].module.ladder_stopping(holdout, 5))
        assert holdout.status().submissions == 0
    known = held.astype(rows.dtypes)
    holdout = LadderHoldout(known, data.y_holdout, scoring="neg_log_loss", ledger="memory")
    model = fit(TOOLS[tool].module.ladder_stopping(holdout, 5))
    if tool == "xgb.train":
        share = model.predict(xgb.DMatrix(known, enable_categorical=True))
    else:
        share = TOOLS[tool].share(model, known)
    near(holdout, -log_loss(data.y_holdout, share))
    assert log_loss(data.y_holdout, share) < 0.4


@pytest.mark.parametrize("tool", ["xgb", "lgb", "lgb.train", "cat", "hist"])
def test_categories_that_the_holdout_has_as_text_are_read_or_refused(
    data: Parts, tool: str
) -> None:
    rng = np.random.default_rng(1)
    kinds = rng.choice(["u", "v", "w"], len(data.y) + len(data.y_holdout))
    rows, held = (pd.DataFrame(X, columns=list("abcd")) for X in (data.X, data.X_holdout))
    rows["kind"], held["kind"] = kinds[: len(rows)], kinds[len(rows) :]
    rows["kind"] = pd.Categorical(rows["kind"], ["w", "u", "v"])
    other = held.assign(kind=pd.Categorical(held["kind"], ["v", "w", "u"]))

    def fit(by: Any) -> Any:
        if tool == "cat":
            model = cb.CatBoostClassifier(iterations=ROUNDS, cat_features=["kind"], **CAT)
            return by.fit(model, rows, data.y)
        if tool == "hist":
            model = HistGradientBoostingClassifier(max_iter=ROUNDS, random_state=0)
            return by.fit(model.set_params(categorical_features="from_dtype"), rows, data.y)
        if tool == "xgb":
            how: dict[str, Any] = {"enable_categorical": True, "callbacks": [by]}
            return xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, **how).fit(rows, data.y)
        return TOOLS[tool].fit(by, rows, data.y)

    for given in (held, other):
        holdout = LadderHoldout(given, data.y_holdout, scoring="neg_log_loss", ledger="memory")
        by = TOOLS[tool].module.ladder_stopping(holdout, 5)
        if given is held and tool in ("xgb", "lgb", "lgb.train"):
            with pytest.raises(InvalidArgument, match=r"^X must be"):
                fit(by)
            assert holdout.status().submissions == 0
            continue
        model = fit(by)
        known = held.astype(rows.dtypes)
        near(holdout, -log_loss(data.y_holdout, TOOLS[tool].share(model, known)))


# -- older trees ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["model", "path", "by place"])
@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_trees_of_an_initial_model_are_no_rounds(
    data: Parts, tmp_path: Any, scoring: str, how: str
) -> None:
    first = cb.CatBoostClassifier(iterations=30, learning_rate=0.02, **CAT)
    first.fit(data.X[:100], data.y[:100])
    first.save_model(str(tmp_path / "first.cbm"))
    holdout = data.holdout(scoring)
    by = catboost.ladder_stopping(holdout, 5)
    model = cb.CatBoostClassifier(iterations=ROUNDS, learning_rate=0.3, **CAT)
    init = str(tmp_path / "first.cbm") if how == "path" else first
    by.fit(model, data.X[100:], data.y[100:], init_model=init)
    assert model.tree_count_ == 30 + by.stopping.best_round
    assert by.stopping.rounds <= ROUNDS
    right = {
        "accuracy": accuracy_score(data.y_holdout, model.predict(data.X_holdout)),
        "neg_log_loss": -log_loss(data.y_holdout, model.predict_proba(data.X_holdout)),
    }[scoring]
    near(holdout, right)
    assert_kept(holdout, by.stopping, holdout.submit(model))
    if how == "by place":
        whole = cb.CatBoostClassifier(iterations=ROUNDS, learning_rate=0.3, **CAT)
        whole.fit(data.X[100:], data.y[100:], init_model=first)
        assert by.cut(whole, before=30).tree_count_ == model.tree_count_


def test_a_histogram_that_continues_is_refused_before_it_trains(data: Parts) -> None:
    holdout = data.holdout("neg_log_loss")
    by = staged.ladder_stopping(holdout, 5)
    model = HistGradientBoostingClassifier(max_iter=60, warm_start=True, random_state=0)
    with pytest.raises(InvalidArgument, match=r"^warm_start must be False"):
        by.fit(model, data.X, data.y)
    assert not hasattr(model, "_predictors") and holdout.status().submissions == 0
    by.fit(model.set_params(warm_start=False), data.X, data.y)
    near(holdout, -log_loss(data.y_holdout, model.predict_proba(data.X_holdout)))


# -- a second stopper ----------------------------------------------------------------------


def halves(data: Parts) -> tuple[Any, Any, Any, Any]:
    half = len(data.y) // 2
    return data.X[:half], data.y[:half], data.X[half:], data.y[half:]


def kept(holdout: LadderHoldout, stopping: Any, model: Any, data: Parts) -> None:
    """The model is that of the ladder's best round, and its score scikit-learn's."""
    improved = stopping.improved
    assert_kept(holdout, stopping, holdout.submit(model))
    if improved:
        near(holdout, -log_loss(data.y_holdout, model.predict_proba(data.X_holdout)))


def stopped_twice(data: Parts, tool: str, by: Any, where: str) -> Any:
    """Fit with the library's own early stopping beside the ladder; return the model."""
    X, y, X_valid, y_valid = halves(data)
    place, _, value = where.partition("=")
    if tool == "xgb":
        callbacks = {"before": [None, by], "after": [by, None]}.get(place, [by])
        own = xgb.callback.EarlyStopping(rounds=4)
        callbacks = [own if one is None else one for one in callbacks]
        settings = {place: int(value)} if value else {}
        model = xgb.XGBClassifier(n_estimators=60, n_jobs=1, callbacks=callbacks, **settings)
        return model.fit(X, y, eval_set=[(X_valid, y_valid)], verbose=False)
    if tool == "xgb.train":
        how: dict[str, Any] = {"evals": [(xgb.DMatrix(X_valid, y_valid), "valid")]}
        how |= {"early_stopping_rounds": 4, "verbose_eval": False, "callbacks": [by]}
        return xgb.train(XGB, xgb.DMatrix(X, y), 60, **how)
    if tool == "lgb":
        callbacks = {"before": [None, by], "after": [by, None]}.get(place, [by])
        own = lgb.early_stopping(4, verbose=False)
        callbacks = [own if one is None else one for one in callbacks]
        settings = {place: int(value)} if value else {}
        model = lgb.LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1, **settings)
        return model.fit(X, y, eval_set=[(X_valid, y_valid)], callbacks=callbacks)
    if tool == "lgb.train":
        rows, valid = lgb.Dataset(X, y), lgb.Dataset(X_valid, y_valid)
        params = {**LGB, place: int(value)}
        return lgb.train(params, rows, 60, valid_sets=[valid], callbacks=[by])
    name, stated = place.split(":")[-1], value if value.isalpha() else float(value or 1)
    if tool == "cat":
        stated = stated if isinstance(stated, str) or name == "od_pval" else int(stated)
        model = cb.CatBoostClassifier(iterations=60, **CAT)
        fitted = {"eval_set": (X_valid, y_valid)}
        if place.startswith("fit:"):
            fitted[name] = stated
        else:
            model.set_params(**{name: stated})
        return by.fit(model, X, y, **fitted)
    boosted: Any = GradientBoostingClassifier(n_estimators=60, n_iter_no_change=3)
    if tool == "monitored":
        return boosted.fit(X, y, monitor=by)
    if tool == "hist":
        boosted = HistGradientBoostingClassifier(max_iter=60, early_stopping=True)
    return by.fit(boosted, X, y)


@pytest.mark.parametrize(
    ("tool", "where", "line"),
    [
        ("lgb", "before", "early_stopping(...)"),
        ("lgb", "after", "early_stopping(...)"),
        ("lgb", "early_stopping_round=4", "early_stopping_round=4"),
        ("lgb.train", "n_iter_no_change=4", "early_stopping_round=4"),
        ("xgb", "before", "EarlyStopping(...)"),
        ("xgb", "after", "EarlyStopping(...)"),
        ("xgb", "early_stopping_rounds=4", "early_stopping_rounds=4"),
        ("xgb.train", "", "early_stopping_rounds=4"),
        ("cat", "early_stopping_rounds=4", "early_stopping_rounds=4"),
        ("cat", "fit:early_stopping_rounds=4", "early_stopping_rounds=4"),
        ("cat", "od_type=Iter", "od_type='Iter'"),
        ("cat", "od_wait=4", "od_wait=4"),
        ("cat", "od_pval=0.01", "od_pval=0.01"),
        ("boosted", "", "n_iter_no_change=3"),
        ("monitored", "", "n_iter_no_change=3"),
        ("hist", "", "early_stopping=True"),
    ],
)
def test_a_second_stopper_is_refused_with_the_line_to_delete(
    data: Parts, tool: str, where: str, line: str
) -> None:
    holdout = data.holdout("neg_log_loss")
    modules = {"boosted": staged, **{name: one.module for name, one in TOOLS.items()}}
    by = modules[tool].ladder_stopping(holdout, 2)
    with pytest.raises(InvalidArgument, match=r"^early stopping must be by the ladder") as refused:
        stopped_twice(data, tool, by, where)
    assert f"Delete {line}:" in str(refused.value)
    assert holdout.status().submissions == by.stopping.rounds == 0


def test_a_callback_of_ones_own_may_end_xgboost(data: Parts) -> None:
    class Ends(xgb.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return epoch == 6

    holdout = data.holdout("neg_log_loss")
    by = xgboost.ladder_stopping(holdout, 60)
    model = xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, callbacks=[by, Ends()])
    model.fit(data.X, data.y)
    assert by.stopping.rounds == 7
    kept(holdout, by.stopping, model, data)


def test_a_callback_of_ones_own_that_ends_lightgbm_is_named(data: Parts) -> None:
    """LightGBM cuts its model and calls nobody after that: rounds that wait have no predictions."""

    def own(env: Any) -> None:
        if env.iteration == 6:
            raise lgb.callback.EarlyStopException(0, env.evaluation_result_list)

    holdout = data.holdout("neg_log_loss")
    by = lightgbm.ladder_stopping(holdout, 60)
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1)
    model.fit(data.X, data.y, callbacks=[own, by])
    with pytest.raises(InvalidArgument, match=r"^callbacks must be without one that ends training"):
        print(by.stopping.best_round)
    assert holdout.status().submissions == by.stopping.rounds == 0


@pytest.mark.parametrize(
    ("how", "patience"),
    [({}, 3), ({}, 60), ({"use_best_model": False}, 3)],
)
def test_catboost_with_rows_of_its_own(how: dict[str, Any], patience: int) -> None:
    data = parts("binary", seed=3)
    X, y, X_valid, y_valid = halves(data)
    holdout = data.holdout("neg_log_loss")
    by = catboost.ladder_stopping(holdout, patience)
    model = cb.CatBoostClassifier(iterations=60, learning_rate=0.3, **CAT)
    by.fit(model, X, y, eval_set=(X_valid, y_valid), **how)
    assert model.tree_count_ == by.stopping.best_round
    kept(holdout, by.stopping, model, data)


def test_a_fit_that_improves_nothing_has_the_scores_of_the_round_it_keeps(data: Parts) -> None:
    X, y, X_valid, y_valid = halves(data)
    holdout = data.holdout("neg_log_loss")
    holdout.submit(data.y_holdout.astype(float))
    by = lightgbm.ladder_stopping(holdout, 10)
    valid = [lgb.Dataset(X_valid, y_valid)]
    booster = lgb.train(LGB, lgb.Dataset(X, y), 60, valid_sets=valid, callbacks=[by])
    assert not by.stopping.improved and booster.best_iteration == 10
    right = log_loss(y_valid, booster.predict(X_valid))
    assert booster.best_score["valid_0"]["binary_logloss"] == pytest.approx(right)
