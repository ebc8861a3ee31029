"""The thread that copies a ladder into MLflow while people search."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from ladderholdout.errors import LadderHoldoutError, TrackingWarning, warn
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.integrations.mlflow import runs
from ladderholdout.integrations.mlflow import service as names

_PERIOD, _AFTER_FAULT = 0.5, 5.0
"""Seconds between two readings of the ledger."""

PATIENCE = 30.0
"""Seconds that closing waits at most: MLflow itself would try for minutes."""


class Tracking:
    """A ladder's copy in MLflow while it is written; made by `LadderHoldout.track`.

    Used as a context manager it is closed with its block; else close it.

    Parameters
    ----------
    holdout : OpenLadder
    places : Places
        The tracking servers.
    run_id, experiment : str or None
        The analyst's run, or where a new one goes.
    sealed : bool
        Whether raw scores stay in the ledger before an audit.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> with holdout.track(tracking_uri=uri) as tracking:
    ...     _ = holdout.submit([0, 1, 0, 1])
    ...     tracking.flush()
    ...
    True
    >>> tracking.sent
    2
    >>> folder.cleanup()
    """

    def __init__(
        self,
        holdout: OpenLadder,
        places: names.Places,
        run_id: str | None,
        experiment: str | None,
        *,
        sealed: bool,
    ) -> None:
        wish = runs.claim(holdout, places, run_id, experiment, sealed)
        self._copies = runs.Copies(holdout, places, wish)
        if not sealed:
            self._copies.disclose()
        self._status = "FINISHED"
        self._turn = threading.Condition()
        self._asked, self._done, self._closing = 1, 0, False  # it reads at once
        self._fault: str | None = "Nothing was sent yet."
        # Of the note and the picture, which are sent once, at the end.
        self._bare: str | None = None
        self._process = os.getpid()
        # A daemon: a request that hangs must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._work, name="ladderholdout-mlflow", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def run_id(self) -> str | None:
        """The analyst's run; None as long as the server has not given it."""
        return self._run_of(names.ANALYST)

    @property
    def audit_run_id(self) -> str | None:
        """The ladder's audit run; None as long as there is none."""
        return self._run_of(names.AUDIT)

    @property
    def sent(self) -> int:
        """The number of the last submission that the analyst's run is known to hold."""
        copy = self._copies.by_kind.get(names.ANALYST)
        return 0 if copy is None else copy.last

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Send what has been submitted so far.

        Parameters
        ----------
        timeout : float, default=30
            Seconds to wait at most.

        Returns
        -------
        bool
            Whether MLflow holds all of it.
        """
        with self._turn:
            if self._closing:
                return self._fault is None
            self._asked += 1
            asked = self._asked
            self._turn.notify_all()
            answered = self._turn.wait_for(lambda: self._done >= asked, timeout)
            return answered and self._fault is None

    def close(self, timeout: float = PATIENCE) -> None:
        """Send what is left and stop; one warning names what could not be sent.

        Parameters
        ----------
        timeout : float, default=30
            Seconds to wait at most.

        Examples
        --------
        >>> import tempfile
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         ledger="memory", name="tiny")
        >>> _ = holdout.submit([0, 1, 1, 1])
        >>> folder = tempfile.TemporaryDirectory()
        >>> uri = f"sqlite:///{folder.name}/mlflow.db"
        >>> tracking = holdout.track(tracking_uri=uri)
        >>> tracking.close()
        >>> tracking.sent
        1
        >>> folder.cleanup()
        """
        if self._closing or os.getpid() != self._process:
            return
        atexit.unregister(self.close)
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self._wait(timeout)
        fault = "MLflow does not answer in time." if self._thread.is_alive() else self._fault
        if fault is not None:
            self._warn(f"Not all submissions are in MLflow. {fault} The ledger holds them all:")
        elif self._bare is not None:
            self._warn(f"The note and the picture of the run are not in MLflow. {self._bare}")

    def _warn(self, what: str) -> None:
        warn(f"{what} {self._copies.remedy()} brings MLflow up to date.", TrackingWarning)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            self._status = "KILLED" if kind is KeyboardInterrupt else "FAILED"
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closing else "open"
        return f"Tracking(run_id={self.run_id!r}, sent={self.sent}, {state})"

    def _wait(self, timeout: float) -> None:
        """Wait for the thread, unless it waits itself for a server that is gone."""
        end = time.monotonic() + timeout
        while self._thread.is_alive() and (left := end - time.monotonic()) > 0:
            self._thread.join(min(_PERIOD, left))
            # Only the server that it is at: the other one may answer, and slowly.
            at = self._copies.at
            if self._thread.is_alive() and not names.reachable(at) and self._copies.at == at:
                return

    def _run_of(self, kind: str) -> str | None:
        copy = self._copies.by_kind.get(kind)
        return None if copy is None else copy.run_id

    # -- the thread -------------------------------------------------------------------

    def _work(self) -> None:
        with names.hushed():
            while not self._round():
                pass

    def _round(self) -> bool:
        """Wait for a reason to read the ledger, send what is new; return if it was the last."""
        with self._turn:
            period = _PERIOD if self._fault is None else _AFTER_FAULT
            self._turn.wait_for(lambda: self._closing or self._asked > self._done, period)
            asked, closing = self._asked, self._closing
        copies, status = self._copies, self._status if closing else None
        # One server may be down and the other not.
        faults = list(
            filter(None, (fault_of(copies.analyst, None, status), fault_of(copies.audit)))
        )
        if closing and not faults:
            self._bare = fault_of(copies.describe)
        with self._turn:
            self._fault, self._done = " ".join(faults) or None, asked
            self._turn.notify_all()
        return closing


def fault_of(step: Callable[..., object], *given: Any) -> str | None:
    """Take a step and report what went wrong, without any part of what was sent."""
    try:
        step(*given)
    except LadderHoldoutError as error:
        return str(error)
    except Exception as error:
        return f"The copy in MLflow fails ({type(error).__name__})."
    return None
