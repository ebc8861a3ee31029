"""The plugin by which MLflow knows holdouts as sources of data sets.

MLflow loads it by its entry point while ``mlflow.data`` is half imported. Nothing else may import
it first: it would load MLflow around itself, which then misses the class. `dataset_of` makes the
data sets.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from mlflow.data.dataset_source import DatasetSource

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, TrackingError
from ladderholdout.guard import HasLadder, ladder_of
from ladderholdout.integrations.mlflow.service import SOURCE, source_of

_HEX = re.compile(r"[0-9a-f]{16,128}")


class HoldoutSource(DatasetSource):
    """Where a holdout comes from, by its fingerprint; it loads nothing.

    MLflow finds this class by its entry point, so ``mlflow.data.get_source(run_input)`` returns
    one for a run that names a holdout.

    Parameters
    ----------
    holdout : str
        The holdout's name.
    fingerprint : str
        Of its rows; nothing in it depends on labels.
    rows : int

    Raises
    ------
    InvalidArgument
        These are no name, fingerprint and number.

    Examples
    --------
    >>> source = HoldoutSource("churn-2026", "8409546db97c1f0e", 400)
    >>> source.to_dict()["holdout"]
    'churn-2026'
    """

    def __init__(self, holdout: str, fingerprint: str, rows: int) -> None:
        if not isinstance(holdout, str) or not holdout:
            raise InvalidArgument("holdout", "a name", as_given(holdout))
        if not isinstance(fingerprint, str) or not _HEX.fullmatch(fingerprint):
            raise InvalidArgument("fingerprint", "hexadecimal digits", as_given(fingerprint))
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise InvalidArgument("rows", "a positive number", as_given(rows))
        self.holdout, self.fingerprint, self.rows = holdout, fingerprint, rows

    def load(self) -> NoReturn:
        """Refuse: rows of a holdout are not handed out.

        Raises
        ------
        TrackingError
            Always, with what to do instead.
        """
        raise TrackingError(
            f"The holdout {self.holdout!r} is named here by its fingerprint alone: no tracking "
            "server has its rows. Open it where its ledger is, LadderHoldout.open(name), or "
            "connect to its server, LadderHoldout.connect(url), and submit predictions."
        )

    @staticmethod
    def _get_source_type() -> str:
        return SOURCE

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return isinstance(raw_source, HasLadder)

    @classmethod
    def _resolve(cls, raw_source: Any) -> HoldoutSource:
        return cls.from_dict(source_of(ladder_of(raw_source)))

    def to_dict(self) -> dict[str, Any]:
        """Return the name, the fingerprint and the number of rows."""
        return {"holdout": self.holdout, "fingerprint": self.fingerprint, "rows": self.rows}

    @classmethod
    def from_dict(cls, source_dict: dict[Any, Any]) -> HoldoutSource:
        """Read what `to_dict` returned.

        Raises
        ------
        InvalidArgument
            Something else came.
        """
        if not isinstance(source_dict, dict) or set(source_dict) != {
            *("holdout", "fingerprint", "rows")
        }:
            raise InvalidArgument(
                "source_dict", "with holdout, fingerprint and rows", as_given(source_dict)
            )
        return cls(**source_dict)

    def __repr__(self) -> str:
        return f"HoldoutSource(holdout={self.holdout!r}, fingerprint={self.fingerprint[:12]!r})"
