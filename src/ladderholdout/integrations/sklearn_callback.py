"""scikit-learn's callbacks: the tasks of a fit, and what was released in it.

They are there from scikit-learn 1.9 on, and experimental.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import sklearn
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ladderholdout import thirdparty
from ladderholdout.arguments import whole
from ladderholdout.errors import LadderHoldoutError, OlderPackage, printable
from ladderholdout.guard import HasLadder, Status, html_table, incumbent_line, ladder_of
from ladderholdout.ledger import is_memory


@dataclass(frozen=True, slots=True)
class FitTask:
    """One task of a fit, as scikit-learn divides it.

    Attributes
    ----------
    path : tuple of int
        The numbers of the tasks that it is in, from the outermost on, and its own.
    estimator, name : str
        Whose task it is, and what scikit-learn calls it, such as ``candidate-split-evaluation``.
    begun : datetime
        In UTC.
    seconds : float or None
        How long it took; None where it did not end.

    Examples
    --------
    >>> task = FitTask((0, 2), "GridSearchCV", "candidate-split-evaluation", datetime.now())
    >>> task.seconds is None
    True
    """

    path: tuple[int, ...]
    estimator: str
    name: str
    begun: datetime
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FitRun:
    """One fit of the outermost estimator: its tasks, and what the holdout released in the meantime.

    Attributes
    ----------
    estimator : str
    begun : datetime
        In UTC.
    seconds : float
    tasks : tuple of FitTask
        In the order in which they began.
    submissions : int
        To the ladder while it was fitted, whoever made them.
    improvements : tuple of (submission, score)
        Those that improved the ladder, with the released score; None where it shows no values.
    status : Status or None
        Of the ladder after the fit; None where it could not be read.
    fault : str or None
        Why not.

    Examples
    --------
    >>> run = FitRun("GridSearchCV", datetime.now(), 1.5, (), 0, (), None, "it was deleted")
    >>> run.lines()[0]
    ('fit', 'GridSearchCV, 1.5 s')
    """

    estimator: str
    begun: datetime
    seconds: float
    tasks: tuple[FitTask, ...]
    submissions: int
    improvements: tuple[tuple[int, float | None], ...]
    status: Status | None
    fault: str | None = None

    def lines(self) -> list[tuple[str, str]]:
        """Return it as (what, value) pairs, for printing."""
        ended = sum(task.seconds is not None for task in self.tasks)
        lines = [
            ("fit", f"{self.estimator}, {self.seconds:.1f} s"),
            ("tasks", f"{ended} of {len(self.tasks)} ended"),
        ]
        if self.status is None:
            return [*lines, ("holdout", f"not read: {self.fault}")]
        improved = f"{self.submissions}, {len(self.improvements)} improved"
        return [
            *lines,
            ("holdout", self.status.name),
            ("submissions", improved),
            ("released score", incumbent_line(self.status.score, self.status.incumbent)),
            ("certificate", self.status.certificate.line()),
        ]

    def __str__(self) -> str:
        return printable("\n".join(f"{what:<18}{value}" for what, value in self.lines()))

    def _repr_html_(self) -> str:
        return html_table(self.lines())


class LadderCallback:
    """A callback of scikit-learn for fits that query a holdout.

    Set it with ``set_callbacks`` on a search whose scorer is the holdout, on
    ``holdout.guard(search)``, or on a pipeline around one. It shows how many of the fit's tasks
    are done, keeps them with their times, and reads what was released when the fit is over: how
    many submissions there were, which of them improved, the released score and its certificate.

    It is given neither rows nor labels. It reads nothing of the ladder before the fit is over,
    since whoever is shown a release may act on it: so the candidates stay one batch.

    It stops nothing. The protocol lets a callback ask for that, and no estimator of scikit-learn
    1.9 heeds it. `LadderStopping` is early stopping by the ladder.

    Parameters
    ----------
    holdout : LadderHoldout
    verbose : int, default=1
        Above 0: a progress bar and then the summary of the fit, on the standard error stream.
    max_propagation_depth : int or None, default=0
        How many levels of estimators within also report their tasks; None for all. With 1 on
        ``holdout.guard(search)`` the candidates of the search are tasks as well.

    Raises
    ------
    InvalidArgument
        An argument is refused.
    OlderPackage
        scikit-learn is older than 1.9.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> grid = GridSearchCV(
    ...     DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3]},
    ...     scoring=holdout, cv=holdout.split(), refit=holdout.select,
    ... )
    >>> seen = LadderCallback(holdout, verbose=0)
    >>> _ = grid.set_callbacks(seen).fit(X, y)
    >>> seen.runs[-1].submissions
    3
    """

    def __init__(
        self, holdout: HasLadder, *, verbose: int = 1, max_propagation_depth: int | None = 0
    ) -> None:
        if importlib.util.find_spec("sklearn.callback") is None:
            raise OlderPackage("LadderCallback", "scikit-learn", "1.9", sklearn.__version__)
        self.holdout: HasLadder | None = holdout
        self._in_memory = is_memory(ladder_of(holdout).ledger)
        if not isinstance(verbose, bool):  # True is a level as well, as in scikit-learn
            whole("verbose", verbose, least=0)
        self.verbose = int(verbose)
        self.max_propagation_depth = (
            None
            if max_propagation_depth is None
            else whole("max_propagation_depth", max_propagation_depth, least=0)
        )
        # By the fit: how many submissions there were when it began.
        self._before: dict[str, int] = {}
        self._listen(_Heard())

    def _listen(self, heard: _Heard) -> None:
        self._heard = heard
        self._address = thirdparty.hear(heard.take, self)

    @property
    def runs(self) -> tuple[FitRun, ...]:
        """The fits that are over, in the order in which they ended."""
        return self._heard.over()

    # -- the protocol of scikit-learn --------------------------------------------------

    def setup(self, estimator: Any, context: Any) -> None:
        """Begin a fit."""
        fit = context.root_uuid.hex
        self._before[fit] = self._submissions()
        self._say("setup", fit, estimator=context.estimator_name, verbose=self.verbose)

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Note a task that begins."""
        self._say(
            "begin",
            context.root_uuid.hex,
            path=_path(context),
            estimator=context.estimator_name,
            name=context.task_name,
            parts=context.max_subtasks or 0,
        )

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Note a task that ended; never ask to stop."""
        self._say("end", context.root_uuid.hex, path=_path(context))
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """End a fit, and read what was released in it."""
        fit = context.root_uuid.hex
        before = self._before.pop(fit, 0)
        try:
            released = self._released(before)
        except LadderHoldoutError as error:
            # The fit is over, and its own result does not depend on this.
            released = {"submissions": 0, "improvements": (), "status": None, "fault": str(error)}
        self._say("teardown", fit, **released)

    def _submissions(self) -> int:
        """Count the submissions so far, which shows nothing of any of them."""
        if self.holdout is None:
            return 0
        try:
            return ladder_of(self.holdout).state().submissions
        except LadderHoldoutError:
            return 0  # the fit raises it itself, or `teardown` does

    def _released(self, before: int) -> dict[str, Any]:
        if self.holdout is None:
            fault = "its ledger is in the memory of another process"
            return {"submissions": 0, "improvements": (), "status": None, "fault": fault}
        ladder = ladder_of(self.holdout)
        entries = ladder.history(before, None)
        improved = tuple((entry.number, entry.score) for entry in entries if entry.improved)
        return {"submissions": len(entries), "improvements": improved, "status": ladder.status()}

    def _say(self, event: str, fit: str, **what: Any) -> None:
        message = {"event": event, "fit": fit, "time": datetime.now(UTC), **what}
        thirdparty.say(self._address, message)

    # -- passing it around -------------------------------------------------------------

    def __deepcopy__(self, memo: Any) -> Self:
        # One object follows all copies of a search, as `clone` has it.
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy, for what the listener's thread changes is not to be walked through.
        state = vars(self) | {"_heard": _Heard(self.runs), "_before": dict(self._before)}
        return state | ({"holdout": None} if self._in_memory else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if not thirdparty.is_heard(self._address):
            self._listen(self._heard)

    def __repr__(self) -> str:
        return f"LadderCallback({self.holdout!r})"


def _path(context: Any) -> tuple[int, ...]:
    above = () if context.parent is None else _path(context.parent)
    return (*above, context.task_id)


@dataclass(slots=True)
class _Open:
    """A fit that is not over."""

    estimator: str
    begun: datetime
    bar: Progress | None
    task: TaskID | None
    tasks: dict[tuple[int, ...], FitTask] = field(default_factory=dict)
    ended: int = 0
    expected: int = 1


class _Heard:
    """What callbacks reported, in any process: the fits that are open, and those that are over."""

    def __init__(self, runs: tuple[FitRun, ...] = ()) -> None:
        self._runs, self._open = list(runs), dict[str, _Open]()
        self._lock = threading.Lock()

    def over(self) -> tuple[FitRun, ...]:
        """Return the fits that are over."""
        with self._lock:
            return tuple(self._runs)

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in one message; several threads may."""
        given = dict(message)
        event, fit, time = given.pop("event"), given.pop("fit"), given.pop("time")
        with self._lock:
            if event == "setup":
                self._open[fit] = _opened(time, **given)
            elif (running := self._open.get(fit)) is None:
                return  # it began under another copy of the callback
            elif event == "teardown":
                self._runs.append(_closed(self._open.pop(fit), time, **given))
            else:
                (_begin if event == "begin" else _end)(running, time, **given)

    def __getstate__(self) -> dict[str, Any]:
        return {"_runs": list(self.over())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(tuple(state["_runs"]))  # type: ignore[misc]


def _opened(time: datetime, estimator: str, verbose: int) -> _Open:
    if not verbose:
        return _Open(estimator, time, None, None)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    bar = Progress(*columns, console=Console(stderr=True))
    bar.start()
    return _Open(estimator, time, bar, bar.add_task(printable(estimator), total=None))


def _begin(
    fit: _Open, time: datetime, path: tuple[int, ...], estimator: str, name: str, parts: int
) -> None:
    fit.tasks[path] = FitTask(path, estimator, name, time)
    # Parts that were announced, and any that were not.
    fit.expected = max(fit.expected + parts, len(fit.tasks))
    if fit.bar is not None and fit.task is not None:
        described = printable(f"{fit.estimator}: {name}")
        fit.bar.update(fit.task, total=fit.expected, description=described)


def _end(fit: _Open, time: datetime, path: tuple[int, ...]) -> None:
    known = fit.tasks.get(path)
    if known is None:
        return
    seconds = (time - known.begun).total_seconds()
    fit.tasks[path] = FitTask(known.path, known.estimator, known.name, known.begun, seconds)
    fit.ended += 1
    if fit.bar is not None and fit.task is not None:
        fit.bar.update(fit.task, completed=fit.ended)


def _closed(
    fit: _Open,
    time: datetime,
    submissions: int,
    improvements: tuple[tuple[int, float | None], ...],
    status: Status | None,
    fault: str | None = None,
) -> FitRun:
    seconds = (time - fit.begun).total_seconds()
    tasks = tuple(fit.tasks.values())
    run = FitRun(fit.estimator, fit.begun, seconds, tasks, submissions, improvements, status, fault)
    if fit.bar is not None:
        fit.bar.stop()
        fit.bar.console.print(str(run), markup=False, highlight=False)
    return run
