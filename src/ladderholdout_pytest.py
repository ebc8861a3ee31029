"""A plugin of pytest: ``assert holdout.accepts(model)``, and a line about it in the summary.

It is a module of its own so that a run of tests that uses no holdout does not import the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ladderholdout import Decision

_DECIDED = "ladderholdout decision"
_OPTIONS = {
    "ladderholdout": "Name of the holdout whose gate decides.",
    "ladderholdout-ledger": "The ledger that has it; by default what LADDERHOLDOUT_LEDGER names.",
    "ladderholdout-server": "A server that has it instead; the token is in LADDERHOLDOUT_TOKEN.",
    "ladderholdout-account": "Whose ladder it is, in a ledger.",
    "ladderholdout-ladder": "Which of the account's ladders.",
}


class HoldoutGate:
    """The gate of a holdout inside a test.

    Parameters
    ----------
    holdout : LadderHoldout
        Of a ladder with `GateLadder`.
    decided : list of tuple of (str, str)
        Where each decision is noted, for the summary.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.mechanisms import GateLadder
    >>> X, y = np.arange(100).reshape(-1, 1), np.arange(100) % 2
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=GateLadder(), ledger="memory")
    >>> gate = HoldoutGate(holdout, [])
    >>> bool(gate.accepts(y, baseline=True))
    True
    """

    def __init__(self, holdout: Any, decided: list[tuple[str, object]]) -> None:
        self.holdout = holdout
        self._decided = decided

    def accepts(
        self,
        candidate: Any,
        *,
        margin: float | None = None,
        baseline: bool = False,
        ids: Any = None,
    ) -> Decision:
        """Decide whether a candidate may replace the incumbent; see `LadderHoldout.gate`.

        Parameters
        ----------
        candidate : array-like or estimator
            Predictions for the holdout's rows, or a fitted estimator.
        margin : float, optional
            The gain that it has to exceed.
        baseline : bool, default=False
            Accept the ladder's first candidate as the baseline.
        ids : list, array, Series or str, optional
            Of the predictions, where the holdout was registered with ids.

        Returns
        -------
        Decision
            True if it was accepted; a failed assertion shows the reason. What could not be
            decided, or not any more, ends the session: that is no verdict on the candidate.
        """
        asked = {"margin": margin, "baseline": baseline, "ids": ids}
        with _undecided():
            decision: Decision = self.holdout.gate(candidate, **asked)
        if decision.spent:
            pytest.exit(f"not decided: {decision.line()}", returncode=3)
        self._decided.append((_DECIDED, f"{self.holdout.name}: {decision.line()}"))
        return decision


@contextmanager
def _undecided() -> Iterator[None]:
    """End the session with 4, or 3 at a limit, where an error is no answer."""
    from ladderholdout.errors import DailyLimit, LedgerError, MetricError, VaultError

    try:
        yield
    except (DailyLimit, LedgerError, MetricError, VaultError) as error:
        status = 3 if isinstance(error, DailyLimit) else 4
        pytest.exit(f"not decided: {type(error).__name__}: {error}", returncode=status)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the holdout, and the same in the configuration."""
    group = parser.getgroup("ladderholdout", "decisions by a holdout")
    for name, described in _OPTIONS.items():
        group.addoption(f"--{name}", dest=name, default=None, help=described)
        parser.addini(name.replace("-", "_"), described, default=None)


def _stated(config: pytest.Config, name: str) -> str | None:
    """Return an option, or what the configuration states instead."""
    option = config.getoption(name)
    stated = option if option is not None else config.getini(name.replace("-", "_"))
    return None if stated is None else str(stated)


@pytest.fixture(scope="session")
def _gated_holdout(request: pytest.FixtureRequest) -> Any:
    """Open the holdout that the options name, once."""
    name, ledger, server, account, ladder = (_stated(request.config, one) for one in _OPTIONS)
    if name is None:
        pytest.fail(
            "The fixture `holdout` needs the name of a holdout: pytest --ladderholdout NAME, "
            "or `ladderholdout = NAME` in the configuration of pytest.",
            pytrace=False,
        )
    from urllib.parse import quote

    from ladderholdout import LadderHoldout

    with _undecided():
        if server is not None:
            path = f"/holdouts/{quote(name, safe='')}"
            return LadderHoldout.connect(server.rstrip("/").removesuffix(path) + path)
        return LadderHoldout.open(
            name, ledger=ledger, account=account or "default", ladder=ladder or "main"
        )


@pytest.fixture
def holdout(request: pytest.FixtureRequest, _gated_holdout: Any) -> HoldoutGate:
    """Return the gate of a holdout: ``assert holdout.accepts(model)``.

    A candidate that is accepted becomes the incumbent at once, and every call is on record: call it
    where a change is to be kept or reverted, and not in tests that run all the time.
    """
    return HoldoutGate(_gated_holdout, request.node.user_properties)


def _decisions(terminalreporter: Any) -> Iterator[str]:
    """Yield the decisions of all tests, those of other processes included."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in getattr(report, "user_properties", ()):
                    if name == _DECIDED:
                        yield str(line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write a line for each decision."""
    decisions = list(_decisions(terminalreporter))
    if decisions:
        terminalreporter.section("decisions of the holdout")
        for line in decisions:
            terminalreporter.write_line(line)
