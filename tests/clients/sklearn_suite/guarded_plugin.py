"""A plugin of pytest: scikit-learn's own tests, with the guard inside what they call.

`LADDERHOLDOUT_SUITE` states how. "folds": each search and each `cross_validate` has a guarded fold
after its own, whose results are taken out again before the test sees them, so that all else has to
be as without it. "scorers": whatever `get_scorer` returns is a holdout of that metric, where the
library has it, which scores the rows of the tests plainly.
"""

from __future__ import annotations

import functools
import os
import pickle
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.metrics
import sklearn.model_selection
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import _scorer
from sklearn.model_selection import _search, _validation

from ladderholdout import LadderHoldout, thirdparty
from ladderholdout.errors import LadderHoldoutError
from ladderholdout.mechanisms import FullDisclosure

FOLDER = tempfile.TemporaryDirectory(prefix="ladderholdout-suite-")
_here = threading.local()
_made = {"guarded": 0, "plain": 0}


# -- a guarded fold in each fit --------------------------------------------------------------


def holdout_for(estimator: Any, X: Any, y: Any) -> LadderHoldout | None:
    """A holdout of the very rows, which is no honest one; None where these rows make none."""
    metric = "accuracy" if is_classifier(estimator) else "neg_mean_squared_error"
    if y is None or not (is_classifier(estimator) or is_regressor(estimator)):
        return None
    number = _made["guarded"] + _made["plain"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LadderHoldout(
                *(X, y),
                **{"scoring": metric, "overlap": "ignore", "mechanism": FullDisclosure()},
                **{"name": f"rows-{number}", "ledger": Path(FOLDER.name) / f"{number}.db"},
            )
    except (LadderHoldoutError, TypeError, ValueError):
        return None


class WithGuardedFold:
    """The folds of a splitter, and then the guarded one."""

    def __init__(self, cv: Any, holdout: LadderHoldout) -> None:
        self._cv, self._holdout = cv, holdout

    def split(self, X: Any, y: Any = None, groups: Any = None, **more: Any) -> Iterator[Any]:
        given = {"groups": groups} if groups is not None else {}
        yield from self._cv.split(X, y, **given, **more)
        yield from self._holdout.split().split(X, y)

    def get_n_splits(self, *rows: Any, **named: Any) -> int:
        return int(self._cv.get_n_splits(*rows, **named)) + 1

    def __getattr__(self, name: str) -> Any:
        if name in ("_cv", "_holdout"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._cv, name)


class Asking:
    """A scorer that scores rows as ever, and the empty fold by the holdout."""

    def __init__(self, scorer: Any, holdout: LadderHoldout) -> None:
        self._scorer, self._holdout, self._names = scorer, holdout, None

    def __call__(self, estimator: Any, X: Any, y: Any = None, **more: Any) -> Any:
        if np.shape(X)[:1] == (0,) or (isinstance(X, list) and not X):
            found = self._holdout(estimator, X, y)
            names = getattr(self._scorer, "_scorers", self._names)
            return found if names is None else dict.fromkeys(names, found)
        rows = (X,) if y is None else (X, y)
        found = self._scorer(estimator, *rows, **more)
        if isinstance(found, dict):
            self._names = list(found)
        return found

    def __getattr__(self, name: str) -> Any:
        if name in ("_scorer", "_holdout", "_names"):
            raise AttributeError(name)
        return getattr(self._scorer, name)


class AskingSeveral(Asking, _scorer._MultimetricScorer):
    """The same for several scorers, by whose class scikit-learn goes."""

    _scorers = property(lambda self: self._scorer._scorers)
    _raise_exc = property(lambda self: self._scorer._raise_exc)


def asking(scorer: Any, holdout: LadderHoldout) -> Asking:
    several = isinstance(scorer, _scorer._MultimetricScorer)
    return (AskingSeveral if several else Asking)(scorer, holdout)


def current() -> LadderHoldout | None:
    """The holdout of the fit that this thread is in, where that is the innermost one."""
    holdout: LadderHoldout | None = getattr(_here, "holdout", None)
    return holdout


class entered:
    """Let the fit in this block have a guarded fold, or none."""

    def __init__(self, holdout: LadderHoldout | None) -> None:
        self._holdout = holdout
        _made["plain" if holdout is None else "guarded"] += 1

    def __enter__(self) -> None:
        self._before = current()
        _here.holdout = self._holdout

    def __exit__(self, *_: object) -> None:
        _here.holdout = self._before


def as_a_users(begin: Any) -> Any:
    """Take the tests, which are modules of scikit-learn's, for code of a user's."""

    @functools.wraps(begin)
    def init(self: Any, frame: Any) -> None:
        begin(self, frame)
        if ".tests." in self.module:
            self.module = self.library = "tests"
            self.place = self.module, self.place[1]

    return init


def guard_folds() -> None:
    base = _search.BaseSearchCV
    plain_fit, plain_scorers, plain_results = base.fit, base._get_scorers, base._format_results
    plain_check, plain_validate = _search.check_cv, _validation.cross_validate

    @functools.wraps(plain_fit)
    def fit(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
        halving = type(self).__name__.startswith("Halving")
        holdout = None if halving else holdout_for(self.estimator, X, y)
        with entered(holdout):
            plain_fit(self, X, y, **params)
        if holdout is not None:
            self.n_splits_ -= 1
            if isinstance(self.scorer_, Asking):
                self.scorer_ = self.scorer_._scorer
        return self

    def scorers(self: Any) -> Any:
        found, metric = plain_scorers(self)
        holdout = current()
        return (found if holdout is None else asking(found, holdout)), metric

    def results(self: Any, params: Any, n_splits: int, out: Any, more: Any = None) -> Any:
        if current() is not None:
            out = [one for at, one in enumerate(out) if (at + 1) % n_splits]
            n_splits -= 1
        return plain_results(self, params, n_splits, out, more)

    def check(cv: Any = 5, y: Any = None, **settings: Any) -> Any:
        found, holdout = plain_check(cv, y, **settings), current()
        return found if holdout is None else WithGuardedFold(found, holdout)

    @functools.wraps(plain_validate)
    def validate(estimator: Any, X: Any, y: Any = None, **settings: Any) -> Any:
        holdout = holdout_for(estimator, X, y)
        with entered(None):  # what is fitted within has none
            if holdout is None:
                return plain_validate(estimator, X, y, **settings)
            _made["guarded"] += 1
            cv = plain_check(settings.get("cv"), y, classifier=is_classifier(estimator))
            settings["cv"] = WithGuardedFold(cv, holdout)
            scoring = settings.get("scoring")
            scorer = scoring if callable(scoring) else _scorer.check_scoring(estimator, scoring)
            settings["scoring"] = asking(scorer, holdout)
            found = plain_validate(estimator, X, y, **settings)
        return {
            name: {part: one[:-1] for part, one in values.items()}
            if isinstance(values, dict)
            else values[:-1]
            for name, values in found.items()
        }

    base.fit, base._get_scorers, base._format_results = fit, scorers, results
    _search.check_cv = check
    for module in (_validation, sklearn.model_selection):
        module.cross_validate = validate


# -- scorers that are holdouts -----------------------------------------------------------------


def guard_scorers() -> None:
    plain = _scorer.get_scorer

    @functools.cache
    def holdout_of(name: str) -> Any:
        X = np.linspace(1.0, 2.0, 40)[:, None] + np.pi * 1e6
        for y in (np.arange(40) % 2, X[:, 0] / 1e6):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = LadderHoldout(
                        X, y, scoring=name, name=name, ledger=Path(FOLDER.name) / f"{name}.db"
                    )
                found.split()
                _made["guarded"] += 1
                return found
            except LadderHoldoutError:
                continue
        _made["plain"] += 1
        return None

    @functools.wraps(plain)
    def get_scorer(scoring: Any) -> Any:
        found = holdout_of(scoring) if isinstance(scoring, str) else None
        # As scikit-learn does, a scorer of one's own: what is requested of one stays there.
        return plain(scoring) if found is None else pickle.loads(pickle.dumps(found))

    for module in (_scorer, sklearn.metrics):
        module.get_scorer = get_scorer


# -- pytest ------------------------------------------------------------------------------------


def pytest_configure(config: Any) -> None:
    thirdparty.Frame.__init__ = as_a_users(thirdparty.Frame.__init__)
    ways = {"folds": guard_folds, "scorers": guard_scorers}
    ways[os.environ["LADDERHOLDOUT_SUITE"]]()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"with the guard: {_made['guarded']}, without: {_made['plain']}")
