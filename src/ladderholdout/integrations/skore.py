"""skore: a check that reports how often a report's test set was queried, and its certificate.

skore asks for a check by its attributes, so that nothing of it is imported here.
"""

from __future__ import annotations

from typing import Any

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import incumbent_line, ladder_of


class HoldoutCheck:
    """A check for the reports of skore: whether a search has queried the test set.

    It goes by the rows. A report whose test rows are the holdout's gets an issue that states the
    number of queries, of all ladders and accounts, and the certificate as `LadderHoldout.status`
    shows it, which costs nothing. On other test rows it passes.

    Parameters
    ----------
    holdout : LadderHoldout

    Attributes
    ----------
    code, title, report_types, docs_url, severity, slow
        As skore's protocol asks for them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from ladderholdout import LadderHoldout
    >>> X, y = [[0], [1], [2], [3]], [0, 1, 0, 1]
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", name="tiny", ledger="memory")
    >>> check = HoldoutCheck(holdout)  # report.checks.add([check])
    >>> check.check_function(SimpleNamespace(X_test=X)) is None  # nobody has queried it yet
    True
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> print(check.check_function(SimpleNamespace(X_test=X)).partition(";")[0])
    This test set is the holdout 'tiny', which was queried 1 time
    """

    code = "LH001"
    title = "Test set queried by a search"
    docs_url: str | None = None
    severity = "issue"
    slow = False

    def __init__(self, holdout: Any) -> None:
        self.report_types = ["estimator"]
        self._ladder = ladder_of(holdout)

    def check_function(self, report: Any) -> str | None:
        """Return what the check reports of a test set; None where there is nothing.

        Parameters
        ----------
        report : skore.EstimatorReport

        Returns
        -------
        str or None

        Raises
        ------
        LedgerError
            The ledger cannot be read.
        """
        shared = self._shared(getattr(report, "X_test", None))
        status = self._ladder.status()
        queries = sum(count for _, _, count in status.ladders)
        if not shared or not queries:
            return None
        which = "is" if shared == status.n else f"has {shared} of the {status.n} rows of"
        times = f"{queries} time{'s' * (queries != 1)}"
        believed = status.certificate.line()
        if status.certificate.missing is None:
            believed = f"the {believed.replace(' in ', ' lies in ', 1)}"
        else:
            believed = f"certificate: {believed}"
        return (
            f"This test set {which} the holdout {status.name!r}, which was queried {times}; a "
            "score on it that is not a release is too high for the model that the queries chose. "
            f"Incumbent: {incumbent_line(status.score, status.incumbent)}; {believed}."
        )

    def _shared(self, X: Any) -> int:
        """Count the rows of the holdout that are among these."""
        if X is None:
            return 0
        try:
            hashes = fp.row_hashes(X)
        except InvalidArgument:
            return 0  # rows of another kind than any holdout's
        return fp.overlap(self._ladder.rows().hashes, hashes)
