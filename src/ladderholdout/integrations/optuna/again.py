"""A finished trial as a running one, so that a build that reports or prunes can run again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import TrialPruned
from optuna.pruners import NopPruner
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ladderholdout.errors import InvalidArgument
from ladderholdout.thirdparty import storage_of

_UNKNOWN = "a study that is not known here"


class _Known(BaseSampler):
    """Suggests what the trial has: its parameters are known, and no others are asked for."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters of the trial."""
        return dict(trial.distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return their values."""
        return dict(trial.params)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the value of one of them."""
        return trial.params[param_name]


class TrialAgain(Trial):
    """A finished trial as its build saw it: with its study, and able to report and to note.

    Its study is a copy in memory that ends with it: the trials before it, the same directions,
    a pruner that prunes nothing. What the build writes there reaches no storage of the user's.
    What a finished trial has beside (``values``, ``state``, ``last_step``) it has as well.

    Parameters
    ----------
    study : Study or None
        The trial's own; None where it is not known.
    finished : FrozenTrial
    """

    def __init__(self, study: Study | None, finished: FrozenTrial) -> None:
        self._finished = taken = copy(finished)
        taken.distributions = dict(finished.distributions)  # it notes what is asked for
        shadows = InMemoryStorage()
        with _quiet():
            copied = shadows.create_new_study(_directions(study, finished), _name(study))
        if study is not None:
            storage, own = storage_of(study)
            for key, value in storage.get_study_user_attrs(own).items():
                shadows.set_study_user_attr(copied, key, value)
            for key, value in storage.get_study_system_attrs(own).items():
                shadows.set_study_system_attr(copied, key, value)
            for one in study.get_trials(deepcopy=False):
                if one.number < finished.number:
                    shadows.create_new_trial(copied, template_trial=one)
        running = create_trial(
            state=TrialState.RUNNING,
            params=finished.params,
            distributions=finished.distributions,
            user_attrs=finished.user_attrs,
            system_attrs=finished.system_attrs,
        )
        running.datetime_start = finished.datetime_start
        trial_id = shadows.create_new_trial(copied, template_trial=running)
        shadow = Study(_name(study), shadows, _Known(), NopPruner())
        super().__init__(shadow, trial_id)

    def suggest_float(self, name: str, *given: Any, **named: Any) -> float:
        """Return the trial's value."""
        return self._known(name).suggest_float(name, *given, **named)

    def suggest_int(self, name: str, *given: Any, **named: Any) -> int:
        """Return the trial's value."""
        return self._known(name).suggest_int(name, *given, **named)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the trial's value."""
        return self._known(name).suggest_categorical(name, choices)

    def _known(self, name: str) -> FrozenTrial:
        """Return the finished trial; refuse a parameter that it was not asked for."""
        if name in self._finished.params:
            return self._finished
        # Another value would be another model.
        raise InvalidArgument(
            "build",
            f"a function that asks trial {self.number} for the parameters that it asked for in "
            "the study",
            f"one that asks for {name!r} as well",
            "Build the model by the function that the study optimised, and let nothing but the "
            "trial decide which parameters it asks for.",
        )

    @property
    def number(self) -> int:
        """The trial's number in its own study."""
        return self._finished.number

    @property
    def datetime_start(self) -> datetime | None:
        """When it began there."""
        return self._finished.datetime_start

    def __getattr__(self, name: str) -> Any:
        # Reached for what a running trial lacks.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._finished, name)


def built_again(build: Callable[[Any], Any], study: Study | None, trial: FrozenTrial) -> Any:
    """Return what a build returns for a finished trial; None for a study that is not known.

    Raises
    ------
    InvalidArgument
        It prunes the trial, though no pruner asks for it, or asks for another parameter.
    """
    try:
        return build(TrialAgain(study, trial))
    except TrialPruned:
        raise InvalidArgument(
            "build",
            f"a function that builds the model of trial {trial.number} again",
            "one that prunes the trial by itself",
            "Let it prune only where trial.should_prune() returns True.",
        ) from None


def is_of(study: Study, trial: FrozenTrial) -> bool:
    """Return whether a finished trial is one of a study's."""
    trials = study.get_trials(deepcopy=False)
    if trial.number >= len(trials):
        return False
    known = trials[trial.number]
    return (known.datetime_start, known.params) == (trial.datetime_start, trial.params)


def _directions(study: Study | None, finished: FrozenTrial) -> Sequence[StudyDirection]:
    if study is not None:
        return study.directions
    return [StudyDirection.MAXIMIZE] * len(finished.values or [0.0])


def _name(study: Study | None) -> str:
    return _UNKNOWN if study is None else study.study_name


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from announcing the copy as a new study of the user's."""
    here, logger = threading.get_ident(), logging.getLogger("optuna.storages._in_memory")

    def is_heard(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(is_heard)
    try:
        yield
    finally:
        logger.removeFilter(is_heard)
