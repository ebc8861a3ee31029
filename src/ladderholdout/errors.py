"""Everything this library raises or warns about.

The tree::

    Exception
    └── LadderHoldoutError            the root: catch this one to catch them all
        ├── InvalidArgument           a setting or an input was refused (also a ValueError)
        │   └── InvalidSubmission     predictions were refused; nothing was written
        ├── HoldoutConflict           the ledger knows this holdout or ladder under other settings
        │   └── DailyLimit            an account has made its submissions of today
        ├── UnknownHoldout            no holdout or ladder of that name in the ledger
        ├── AccessDenied              a server does not take this token
        ├── OverlapError              half of the holdout or more was seen elsewhere
        ├── LedgerError               the ledger could not be read or written
        │   ├── LedgerBusy            it stayed locked for longer than the timeout
        │   └── LedgerUnreachable     its server does not answer, or was lost on the way
        ├── MetricError               the function of a metric failed; nothing was written
        ├── MissingExtra              a package of an extra is not installed (also an ImportError)
        ├── VaultError                the holdout's rows are missing, changed or not private
        └── TrackingError             MLflow cannot be reached or refuses; the ledger is whole
    BaseException
    └── SearchStopped                 any of the above, raised inside a search

    UserWarning
    └── LadderHoldoutWarning          the root of the warnings
        ├── KnownHoldoutWarning       these rows are in the ledger already, named or given otherwise
        ├── OverlapWarning            some rows of the holdout were seen elsewhere
        ├── CopiedRowsWarning         rows of the holdout equal each other, labels included
        ├── GroupedRowsWarning        the rows come in groups, and are taken as independent
        ├── NotConsultedWarning       the search never queries the holdout
        ├── NotIncumbentWarning       what was picked is not the incumbent of the ladder
        │   └── NoImprovementWarning  no candidate of this search became the incumbent
        ├── TargetWarning             the targets do not look like what the metric is for
        ├── PredictionWarning         nor do the predictions
        ├── RangeWarning              the range of the loss is missing, narrow or far too wide
        ├── BudgetWarning             the releases of this ladder are used up
        ├── OpenedWarning             raw scores were shown before; no certificate for this one
        └── TrackingWarning           not all of the ledger is in MLflow yet

No message ever holds a raw score, a label, or a class name of the holdout: an error
text would be a leak like any other.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

# Whose frames are between this library and the line of the user that called it.
_BETWEEN = {"ladderholdout", "sklearn", "optuna", "joblib", "contextlib", "weakref"}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask whether one of the known names was meant: a sentence, empty where none is close.

    Parameters
    ----------
    name : str
    known : iterable of str

    Returns
    -------
    str

    Examples
    --------
    >>> did_you_mean("acuracy", ["accuracy", "roc_auc"]), did_you_mean("x", ["accuracy"])
    ("Did you mean 'accuracy'?", '')
    """
    folded = {spelling.casefold(): spelling for spelling in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=3)
    return (
        f"Did you mean {' or '.join(repr(folded[spelling]) for spelling in near)}?" if near else ""
    )


# Joiners of letters, without which some scripts and emojis fall apart, and the hard space.
_HARMLESS = "\u200c\u200d\u00a0"


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of whoever called this library, be it through a search or a study.

    Parameters
    ----------
    message : str
    category : type
        One of this module.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("The releases are used up.", BudgetWarning)
    ...
    >>> print(caught[0].message)
    The releases are used up.
    """
    warnings.warn(message, category, stacklevel=_stack_level())


def _stack_level() -> int:
    """Return the ``stacklevel`` by which `warn` warns at the first line of the user's own."""
    level, frame = 2, sys._getframe(2)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


def printable(text: str, *, longest: int | None = None) -> str:
    r"""Return a text that others have written as it may be printed, anywhere.

    Parameters
    ----------
    text : str
    longest : int or None, default=None
        Characters that are shown at most; the number of others follows.

    Returns
    -------
    str
        Control characters, lone surrogates and marks that turn the direction of writing are
        escaped as Python does it: in a terminal they would clear the screen, end the program,
        or show another text than there is. Line breaks are kept.

    Examples
    --------
    >>> print(printable("run 7\x1b[2J"), printable("abcdef", longest=3))
    run 7\x1b[2J abc... (3 more)
    """
    more = 0 if longest is None else len(text) - longest
    text = f"{text[:longest]}... ({more} more)" if more > 0 else text
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in _HARMLESS or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text
    )


class LadderHoldoutError(Exception):
    """Root of the errors of this library.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> try:
    ...     LadderHoldout.open("dice", ledger="memory")
    ... except LadderHoldoutError as error:
    ...     print(type(error).__name__)
    ...
    LedgerError
    """

    def __str__(self) -> str:
        # A name from somebody's ledger may be in it.
        return printable(super().__str__())


class InvalidArgument(LadderHoldoutError, ValueError):
    """A setting or an input is outside of what is allowed.

    Parameters
    ----------
    argument : str
        The name the caller used.
    allowed : str
        What is allowed, as the end of "must be ...".
    came : object
        What came instead: a short description, never a label or a raw score.
    remedy : str, default=""
        What to do about it: one sentence.

    Examples
    --------
    >>> print(InvalidArgument("step", "a number in (0, 1]", 2, "Take 0.01 for whole percents."))
    step must be a number in (0, 1], but is 2. Take 0.01 for whole percents.
    """

    def __init__(self, argument: str, allowed: str, came: object, remedy: str = "") -> None:
        # The four parts are the arguments of the exception, so that it pickles (loky
        # sends a worker's error to the parent as a pickle).
        super().__init__(argument, allowed, came, remedy)

    def __str__(self) -> str:
        argument, allowed, came, remedy = self.args
        return printable(f"{argument} must be {allowed}, but is {came}. {remedy}".rstrip())


class InvalidSubmission(InvalidArgument):
    """Predictions were refused; the ledger holds no entry of them.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> try:
    ...     holdout.submit([0])
    ... except InvalidSubmission as error:
    ...     print(type(error).__name__)
    ...
    InvalidSubmission
    """


class HoldoutConflict(LadderHoldoutError):
    """What was asked for contradicts what is in the ledger.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.owner.retire()
    >>> try:
    ...     holdout.submit([0, 1])
    ... except HoldoutConflict as error:
    ...     print(type(error).__name__)
    ...
    HoldoutConflict
    """


class DailyLimit(HoldoutConflict):
    """An account has made all submissions that it may make today; nothing was written.

    Examples
    --------
    >>> try:
    ...     raise DailyLimit("what happened, and what to do")
    ... except HoldoutConflict as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class UnknownHoldout(LadderHoldoutError):
    """The ledger holds no such holdout or ladder.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> place = "memory:known"
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger=place)
    >>> try:
    ...     LadderHoldout.open("dice", ledger=place)
    ... except UnknownHoldout as error:
    ...     print(type(error).__name__)
    ...
    UnknownHoldout
    """


class AccessDenied(LadderHoldoutError):
    """A server takes no request with this token: there is none, or it is wrong or expired.

    Examples
    --------
    >>> try:
    ...     raise AccessDenied("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class OverlapError(LadderHoldoutError):
    """Half of the holdout's rows or more are known from elsewhere.

    Examples
    --------
    >>> try:
    ...     raise OverlapError("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class LedgerError(LadderHoldoutError):
    """The ledger could not be read or written; no release was given.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> try:
    ...     LadderHoldout.open("dice", ledger="/no/such/folder/ledger.db")
    ... except LedgerError as error:
    ...     print(type(error).__name__)
    ...
    LedgerError
    """


class LedgerBusy(LedgerError):
    """Another process held the ledger for longer than the timeout.

    Examples
    --------
    >>> try:
    ...     raise LedgerBusy("what happened, and what to do")
    ... except LedgerError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class LedgerUnreachable(LedgerError):
    """The server of the ledger does not answer, or the connection to it was lost.

    Examples
    --------
    >>> try:
    ...     raise LedgerUnreachable("what happened, and what to do")
    ... except LedgerError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class MetricError(LadderHoldoutError):
    """The function of a metric failed, other than for want of a value; nothing was written.

    Examples
    --------
    >>> try:
    ...     raise MetricError("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class MissingExtra(LadderHoldoutError, ImportError):
    """What was called needs a package that the plain installation leaves out.

    Parameters
    ----------
    what : str
        What needs it.
    package : str
        Which is not installed; also the attribute `name`, as of every ImportError.
    extra : str
        The extra of ladderholdout that brings it.

    Examples
    --------
    >>> print(MissingExtra("The report", "jinja2", "report"))
    The report needs jinja2, which is not installed: pip install 'ladderholdout[report]'
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        # The three parts are the arguments of the exception, so that it pickles.
        super().__init__(what, package, extra)
        self.name = package

    def __str__(self) -> str:
        what, package, extra = self.args
        return printable(
            f"{what} needs {package}, which is not installed: pip install 'ladderholdout[{extra}]'"
        )


class RoutingDisabled(LadderHoldoutError, RuntimeError):
    """Metadata was requested while scikit-learn routes none.

    Examples
    --------
    >>> try:
    ...     raise RoutingDisabled("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class VaultError(LadderHoldoutError):
    """The private file with the holdout's rows is missing, changed or not private.

    Examples
    --------
    >>> try:
    ...     raise VaultError("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class TrackingError(LadderHoldoutError):
    """MLflow cannot be reached or refuses a request; the ledger holds everything.

    Examples
    --------
    >>> try:
    ...     raise TrackingError("what happened, and what to do")
    ... except LadderHoldoutError as error:
    ...     print(error)
    ...
    what happened, and what to do
    """


class SearchStopped(BaseException):
    """The guard could not answer inside a search, so the search ends here.

    Derived from ``BaseException`` on purpose: scikit-learn turns every ``Exception`` of
    a scorer into a score of nan, and a search that goes on with nan scores refits its
    first candidate as if it had won. The error itself is in the message.

    Examples
    --------
    >>> issubclass(SearchStopped, Exception)  # so that a search does not go on with nan
    False
    """


class LadderHoldoutWarning(UserWarning):
    """Root of the warnings of this library.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", LadderHoldoutWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", LadderHoldoutWarning)
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class KnownHoldoutWarning(LadderHoldoutWarning):
    """These rows are in the ledger already: other names, features, labels or accounts.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", KnownHoldoutWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", KnownHoldoutWarning)
    """


class OverlapWarning(LadderHoldoutWarning):
    """Some of the holdout's rows are known from elsewhere.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", OverlapWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", OverlapWarning)
    """


class CopiedRowsWarning(LadderHoldoutWarning):
    """Rows of the holdout equal each other in features and label, more often than by chance.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", CopiedRowsWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", CopiedRowsWarning)
    """


class GroupedRowsWarning(LadderHoldoutWarning):
    """The rows come in groups, and certificates take each row as a draw of its own.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", GroupedRowsWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", GroupedRowsWarning)
    """


class NotConsultedWarning(LadderHoldoutWarning):
    """A search scores plain rows and never asks the holdout.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", NotConsultedWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", NotConsultedWarning)
    """


class NotIncumbentWarning(LadderHoldoutWarning):
    """What was picked is not the incumbent, so the released score is another model's.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", NotIncumbentWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", NotIncumbentWarning)
    """


class NoImprovementWarning(NotIncumbentWarning):
    """No candidate of this search became the incumbent.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", NoImprovementWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", NoImprovementWarning)
    """


class TargetWarning(LadderHoldoutWarning):
    """The targets do not look like what the metric is for.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", TargetWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", TargetWarning)
    """


class PredictionWarning(LadderHoldoutWarning):
    """The predictions do not look like what the metric is for.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", PredictionWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", PredictionWarning)
    """


class RangeWarning(LadderHoldoutWarning):
    """The range of the loss is missing, narrow or wide: for the targets, or for inner errors.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", RangeWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", RangeWarning)
    """


class BudgetWarning(LadderHoldoutWarning):
    """The releases of this ladder are used up; the released score stays.

    Examples
    --------
    >>> import warnings
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", budget=1, ledger="memory")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = holdout.submit([0, 0]), holdout.submit([0, 1])
    ...
    >>> caught[-1].category.__name__
    'BudgetWarning'
    """


class OpenedWarning(LadderHoldoutWarning):
    """An audit has shown raw scores of this ladder: only a reserve certifies what comes now.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 0]), holdout.owner.audit()
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = holdout.submit([0, 1])
    ...
    >>> caught[0].category.__name__
    'OpenedWarning'
    """


class RestoredWarning(LadderHoldoutWarning):
    """The ledger is an older copy: what it had released since is off the record.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", RestoredWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", RestoredWarning)
    """


class TrackingWarning(LadderHoldoutWarning):
    """Not all of the ledger is in MLflow yet.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", TrackingWarning)  # to stop where it is given
    >>> warnings.simplefilter("default", TrackingWarning)
    """
