"""The plugin that tags runs made while a guard is open; MLflow loads it by its entry point."""

from __future__ import annotations

from mlflow.tracking.context.abstract_context import RunContextProvider

from ladderholdout.guard import open_ladders
from ladderholdout.integrations.mlflow import service as names


class GuardContext(RunContextProvider):
    """Tags every run that is made while this process holds a guarded holdout.

    The tag ``ladderholdout.guarded`` names the holdouts, one a line, each with its ladder
    and the first letters of its fingerprint.

    Examples
    --------
    >>> GuardContext().in_context() in (True, False)
    True
    """

    def in_context(self) -> bool:
        """Return whether this process holds a guarded holdout."""
        return any(True for _ in open_ladders())

    def tags(self) -> dict[str, str]:
        """Return the tags of a new run."""
        return {names.GUARDED: "\n".join(map(names.guarded, open_ladders()))}
