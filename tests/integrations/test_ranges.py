"""Ranges of the loss that a search proposes: from training rows alone, and they work as printed."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from ladderholdout import LadderHoldout
from ladderholdout.errors import RangeWarning
from ladderholdout.integrations.ranges import ProposedRange

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")

HELD = 600
X = np.random.default_rng(0).normal(size=(HELD + 200, 4))
Y = 100.0 + 30.0 * X[:, 0] + 25.0 * np.random.default_rng(1).normal(size=len(X))
TRAIN = X[HELD:], Y[HELD:]
ALPHAS = {"alpha": [0.1, 10.0, 1000.0]}


def grid(**settings: Any) -> GridSearchCV:
    return GridSearchCV(Ridge(), ALPHAS, **{"cv": KFold(4), **settings})


class Opener:
    """`LadderHoldout(...)` as a proposal writes it: ... are the arguments as they were before."""

    def __init__(self, ledger: Path, **before: Any) -> None:
        self.labels = Y[:HELD]
        self.before = {"ledger": ledger, **before}

    def __call__(self, *dots: Any, **changed: Any) -> LadderHoldout:
        return LadderHoldout(X[:HELD], self.labels, **{**self.before, **changed})

    def follow(self, proposed: ProposedRange) -> LadderHoldout:
        return eval(str(proposed), {"LadderHoldout": self})  # type: ignore[no-any-return]


def fitted(holdout: LadderHoldout, search: Any = None, y: Any = TRAIN[1]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        return holdout.guard(search or grid(), finalists=2).fit(TRAIN[0], y)


@pytest.mark.parametrize(
    ("scoring", "power"),
    [
        ("neg_mean_absolute_error", 1),
        ("neg_root_mean_squared_error", 1),
        ("neg_mean_squared_error", 2),
        ("r2", 1),
    ],
)
def test_it_is_four_inner_errors_of_the_best_candidate(
    scoring: str, power: int, tmp_path: Path
) -> None:
    search = fitted(Opener(tmp_path / "ledger.db", scoring=scoring)())
    best = Ridge(alpha=grid().fit(*TRAIN).best_params_["alpha"])
    inner = cross_val_predict(best, *TRAIN, cv=KFold(4))
    error = math.sqrt(np.mean((inner - TRAIN[1]) ** 2))
    proposed = search.proposed_loss_range_
    assert proposed.error == pytest.approx(error)
    low, high = proposed.loss_range
    assert low == 0.0 and 4 * error <= high ** (1 / power) <= 4 * error * 1.1
    assert float(f"{high:.2g}") == high
    assert (proposed.target_range is None) == (scoring != "r2")


@pytest.mark.parametrize(
    ("scoring", "before"),
    [
        ("neg_mean_absolute_error", {"target_range": (-5000, 5000)}),
        ("neg_root_mean_squared_error", {"loss_range": (0, 2000)}),
        ("neg_mean_squared_error", {"loss_range": (0, 1_000_000)}),
        ("r2", {"target_range": (-1000, 1000)}),
        ("explained_variance", {}),
    ],
)
def test_the_call_that_it_prints_makes_the_interval_narrower(
    scoring: str, before: dict[str, Any], tmp_path: Path
) -> None:
    """On the same holdout, although the new ladder pays for what the first one showed."""
    opened = Opener(tmp_path / "ledger.db", scoring=scoring, **before)
    first = opened()
    with pytest.warns(RangeWarning, match=r"LadderHoldout\(\.\.\., loss_range=") as caught:
        search = first.guard(grid(), finalists=2).fit(*TRAIN)
    assert str(search.proposed_loss_range_) in str(caught[0].message)
    again = fitted(opened.follow(search.proposed_loss_range_))
    assert again.proposed_loss_range_ is None
    narrow, wide = again.certificate_, search.certificate_
    assert narrow.missing is None and narrow.low > -math.inf
    if wide.missing is None:
        assert narrow.high - narrow.low < wide.high - wide.low
    else:
        assert not before
    assert narrow.low < -20.0 if scoring.startswith("neg") else narrow.low < 0.59 < narrow.high


def test_the_labels_of_the_holdout_play_no_part(tmp_path: Path) -> None:
    """Nor which finalist wins: with labels turned round, another one does."""
    proposals, told, winners = [], [], []
    for place, labels in enumerate([Y[:HELD], 200.0 - Y[:HELD]]):
        opened = Opener(tmp_path / f"{place}.db", scoring="neg_mean_absolute_error")
        opened.labels = labels
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search = opened().guard(grid(), finalists=3).fit(*TRAIN)
        told.append([str(warning.message) for warning in caught])
        proposals.append(search.proposed_loss_range_)
        winners.append(search.best_params_["alpha"])
    assert proposals[0] == proposals[1] and told[0] == told[1] != []
    assert winners[0] != winners[1]


@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error"])
def test_none_is_proposed_if_clipping_moves_the_score(scoring: str, tmp_path: Path) -> None:
    """One error in fifty is most of the score, which the reserve gives an interval."""
    noise = 5.0 * np.random.default_rng(0).normal(size=len(X))
    noise[::50] *= 30.0
    opened = Opener(tmp_path / "l.db", scoring=scoring, reserve=0.5)
    opened.labels = 30.0 * X[:HELD, 0] + noise[:HELD]
    with pytest.warns(RangeWarning, match="No range of the error is proposed") as caught:
        search = (
            opened().guard(grid(), finalists=2).fit(TRAIN[0], 30.0 * TRAIN[0][:, 0] + noise[HELD:])
        )
    assert search.proposed_loss_range_ is None and search.certificate_.missing is not None
    told = str(caught[0].message)
    assert "reserve=" in told and "loss_range=(0, largest)" in told
    certificate = opened().reserve_certificate()
    assert certificate.low < certificate.score < certificate.high and not certificate.clipping


def test_whoever_stops_at_the_warning_has_asked_nothing(tmp_path: Path) -> None:
    opened = Opener(tmp_path / "ledger.db", scoring="r2")
    holdout = opened()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RangeWarning)
        with pytest.raises(RangeWarning):
            holdout.guard(grid()).fit(*TRAIN)
    assert holdout.status().submissions == 0


def test_a_range_for_good_models_says_what_opening_it_warns_of(tmp_path: Path) -> None:
    """Four errors of a model that is far better than the mean are few for the mean itself."""
    opened = Opener(tmp_path / "l.db", scoring="neg_mean_absolute_error")
    opened.labels = 100.0 + 30.0 * X[:HELD, 0]
    with pytest.warns(RangeWarning, match="the mean of the targets") as caught:
        search = opened().guard(grid(), finalists=2).fit(TRAIN[0], 100.0 + 30.0 * TRAIN[0][:, 0])
    assert "narrow" in str(caught[0].message)
    with pytest.warns(RangeWarning, match="narrow"):
        opened.follow(search.proposed_loss_range_)


def test_a_range_that_is_about_right_is_left_alone(tmp_path: Path) -> None:
    """Eight inner errors are: no warning, which any would fail this test."""
    for place, largest in enumerate((100, 150, 190)):
        opened = Opener(
            tmp_path / f"{place}.db",
            scoring="neg_root_mean_squared_error",
            loss_range=(0, largest),
        )
        assert opened().guard(grid(), finalists=2).fit(*TRAIN).proposed_loss_range_ is None


class Counted(Ridge):  # type: ignore[misc]
    fits = 0

    def fit(self, *args: Any, **params: Any) -> Any:
        type(self).fits += 1
        return super().fit(*args, **params)


@pytest.mark.parametrize(("scoring", "more"), [("neg_median_absolute_error", 0), ("r2", 4)])
def test_the_folds_are_fitted_where_a_range_is_of_use(
    scoring: str, more: int, tmp_path: Path
) -> None:
    Counted.fits = 0
    holdout = Opener(tmp_path / "ledger.db", scoring=scoring)()
    search = fitted(holdout, GridSearchCV(Counted(), ALPHAS, cv=4))
    assert Counted.fits == 3 * 4 + 2 + more
    assert (search.proposed_loss_range_ is None) == (more == 0)


@pytest.mark.parametrize(
    "search",
    [
        make_pipeline(StandardScaler(), grid()),
        grid(cv=ShuffleSplit(3, random_state=0)),
        grid(scoring=["r2", "neg_max_error"], refit="r2"),
    ],
    ids=["in a pipeline", "no partition", "several scores"],
)
def test_other_searches(search: Any, tmp_path: Path) -> None:
    found = fitted(Opener(tmp_path / "l.db", scoring="neg_mean_absolute_error")(), clone(search))
    assert 20 < found.proposed_loss_range_.error < 30


def test_several_metrics_keep_the_ranges_that_they_have(tmp_path: Path) -> None:
    scoring = ["neg_mean_absolute_error", "neg_mean_squared_error", "neg_median_absolute_error"]
    opened = Opener(
        tmp_path / "l.db", scoring=scoring, loss_range={"neg_mean_squared_error": (0, 12000)}
    )
    search = fitted(opened())
    proposed = search.proposed_loss_range_
    assert list(proposed.loss_range) == scoring[:2]
    assert proposed.loss_range["neg_mean_squared_error"] == (0, 12000)
    again = fitted(opened.follow(proposed))
    assert again.certificate_["neg_mean_absolute_error"].missing is None
    assert again.proposed_loss_range_ is None


class Fails(Ridge):  # type: ignore[misc]
    """A model that learns from few rows alone, or from all: not from those of a fold."""

    def fit(self, X: Any, y: Any) -> Any:
        if len(X) == 150:
            raise ValueError("not from 150 rows")
        return super().fit(X, y)


def test_folds_on_which_it_cannot_be_measured_are_named_and_the_search_goes_on(
    tmp_path: Path,
) -> None:
    folds = [(np.arange(100), np.arange(100, 200)), (np.arange(150), np.arange(150, 200))]
    holdout = Opener(tmp_path / "l.db", scoring="r2")()
    search = GridSearchCV(Fails(), {"alpha": [0.1, 1.0]}, cv=folds, error_score=-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = holdout.guard(search, finalists=1).fit(*TRAIN)
    (told,) = [str(one.message) for one in caught if one.category is RangeWarning]
    assert "not from 150 rows" in told and "goes on" in told
    assert found.proposed_loss_range_ is None and found.is_incumbent_


def test_a_study_of_inner_scores_is_told_as_well(tmp_path: Path) -> None:
    holdout = Opener(tmp_path / "l.db", scoring="neg_mean_absolute_error")()

    def build(trial: Any) -> Any:
        depth = trial.suggest_int("depth", 1, 4)
        return DecisionTreeRegressor(max_depth=depth, random_state=0)

    objective = holdout.optuna.objective(build, inner=KFold(4), train=TRAIN)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective.inner_score, n_trials=4)
    best = DecisionTreeRegressor(max_depth=study.best_params["depth"], random_state=0)
    inner = cross_val_predict(best, *TRAIN, cv=KFold(4))
    error = math.sqrt(np.mean((inner - TRAIN[1]) ** 2))
    with pytest.warns(RangeWarning, match=r"loss_range=\(0, (\d+)\)") as caught:
        holdout.optuna.finalists(study, objective, k=2)
    said = float(str(caught[0].message).partition("loss_range=(0, ")[2].partition(")")[0])
    assert 4 * error <= said <= 4 * error * 1.1


# -- what a certificate says of its own width -------------------------------------------------


def test_a_wide_interval_names_the_number_that_narrows_it(tmp_path: Path) -> None:
    scoring = "neg_root_mean_squared_error"
    wide = fitted(Opener(tmp_path / "wide.db", scoring=scoring, loss_range=(0, 2000))())
    fresh = fitted(Opener(tmp_path / "fresh.db", scoring=scoring, loss_range=(0, 100))())
    told = str(wide.certificate_)
    assert "loss_range=(0, 2000)" in told and "proposed_loss_range_" in told
    share = float(told.partition("it roughly ")[2].partition(" times")[0])
    was, would_be = (one.certificate_.high - one.certificate_.low for one in (wide, fresh))
    assert share == pytest.approx(would_be / was, rel=0.5)
    assert "proposed_loss_range_" in wide.certificate_._repr_html_()
    assert fresh.certificate_.advice == "" and "proposed" not in str(fresh.certificate_)


def test_r2_says_why_it_has_no_lower_end(tmp_path: Path) -> None:
    opened = Opener(tmp_path / "l.db", scoring="r2", target_range=(-2000, 2000))
    certificate = fitted(opened()).certificate_
    assert certificate.low == -math.inf
    assert "no lower end above -1 is proved" in certificate.line()
    assert "loss_range=(0, 4000)" in str(certificate) and f"{HELD} rows" in str(certificate)
    said = re.search(
        r"\(0, (\d+) root mean squared errors\).* (\d+) standard dev", str(certificate)
    )
    assert said is not None
    errors, spreads = map(float, said.groups())
    # What it names gives one, by the errors and targets of the training rows.
    ranges = {
        "loss_range": (0, errors * 25.0),
        "target_range": tuple(100.0 + spreads / 2 * np.std(TRAIN[1]) * np.array([-1, 1])),
    }
    again = fitted(Opener(tmp_path / "named.db", scoring="r2", **ranges)())
    assert again.certificate_.low > -1.0
