"""Everything this library raises or warns about.

The tree::

    Exception
    └── LadderHoldoutError            the root: catch this one to catch them all
        ├── InvalidArgument           a setting or an input was refused (also a ValueError)
        │   └── InvalidSubmission     predictions were refused; nothing was written
        ├── HoldoutConflict           the ledger knows this holdout or ladder under other settings
        ├── UnknownHoldout            no holdout or ladder of that name in the ledger
        ├── OverlapError              half of the holdout or more was seen elsewhere
        ├── LedgerError               the ledger could not be read or written
        │   ├── LedgerBusy            it stayed locked for longer than the timeout
        │   └── LedgerUnreachable     its server does not answer, or was lost on the way
        ├── VaultError                the holdout's rows are missing, changed or not private
        └── TrackingError             MLflow cannot be reached or refuses; the ledger is whole
    BaseException
    └── SearchStopped                 any of the above, raised inside a search

    UserWarning
    └── LadderHoldoutWarning          the root of the warnings
        ├── KnownHoldoutWarning       these rows stand in the ledger already, in other clothes
        ├── OverlapWarning            some rows of the holdout were seen elsewhere
        ├── NotConsultedWarning       the search never looks at the holdout
        ├── NoImprovementWarning      no candidate of this search improved the standing release
        ├── BudgetWarning             the releases of this ladder are used up
        ├── OpenedWarning             raw scores were shown before; no certificate for this one
        └── TrackingWarning           not all of the ledger is in MLflow yet

No message ever holds a raw score, a label, or a class name of the holdout: an error
text is a way out as good as any other.
"""

from __future__ import annotations


class LadderHoldoutError(Exception):
    """Root of the errors of this library."""


class InvalidArgument(LadderHoldoutError, ValueError):
    """A setting or an input lies outside of what is allowed.

    Parameters
    ----------
    argument : str
        The name the caller used.
    allowed : str
        What may stand there, as the end of "must be ...".
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
        return f"{argument} must be {allowed}, but is {came}. {remedy}".rstrip()


class InvalidSubmission(InvalidArgument):
    """Predictions were refused; the ledger holds no entry of them."""


class HoldoutConflict(LadderHoldoutError):
    """What was asked for contradicts what stands in the ledger."""


class UnknownHoldout(LadderHoldoutError):
    """The ledger holds no such holdout or ladder."""


class OverlapError(LadderHoldoutError):
    """Half of the holdout's rows or more are known from elsewhere."""


class LedgerError(LadderHoldoutError):
    """The ledger could not be read or written; no release was given."""


class LedgerBusy(LedgerError):
    """Another process held the ledger for longer than the timeout."""


class LedgerUnreachable(LedgerError):
    """The server of the ledger does not answer, or the connection to it was lost."""


class VaultError(LadderHoldoutError):
    """The private file with the holdout's rows is missing, changed or not private."""


class TrackingError(LadderHoldoutError):
    """MLflow cannot be reached or refuses a request; the ledger holds everything."""


class SearchStopped(BaseException):
    """The guard could not answer inside a search, so the search ends here.

    Derived from ``BaseException`` on purpose: scikit-learn turns every ``Exception`` of
    a scorer into a score of nan, and a search that goes on with nan scores refits its
    first candidate as if it had won. The error itself stands in the message.
    """


class LadderHoldoutWarning(UserWarning):
    """Root of the warnings of this library."""


class KnownHoldoutWarning(LadderHoldoutWarning):
    """These rows are in the ledger already: another name, order or account."""


class OverlapWarning(LadderHoldoutWarning):
    """Some of the holdout's rows are known from elsewhere."""


class NotConsultedWarning(LadderHoldoutWarning):
    """A search scores plain rows and never asks the holdout."""


class NoImprovementWarning(LadderHoldoutWarning):
    """No candidate of this search improved the standing release."""


class BudgetWarning(LadderHoldoutWarning):
    """The releases of this ladder are used up; the standing one stays."""


class OpenedWarning(LadderHoldoutWarning):
    """An audit has shown raw scores of this ladder: only a reserve certifies what comes now."""


class RestoredWarning(LadderHoldoutWarning):
    """The ledger is an older copy: what it had told since is off the record."""


class TrackingWarning(LadderHoldoutWarning):
    """Not all of the ledger is in MLflow yet."""
