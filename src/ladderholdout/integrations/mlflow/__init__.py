"""MLflow: what was released in the analyst's run, raw beside it in an audit experiment.

Nothing here imports MLflow before a function is called.
"""

from __future__ import annotations

from ladderholdout.integrations.mlflow.export import Anchor, Exported, anchors, attach, export
from ladderholdout.integrations.mlflow.registry import CertifiedVersion, certify_version
from ladderholdout.integrations.mlflow.service import Places, places
from ladderholdout.integrations.mlflow.tracker import Tracking

__all__ = [
    "Anchor",
    "CertifiedVersion",
    "Exported",
    "Places",
    "Tracking",
    "anchors",
    "attach",
    "certify_version",
    "export",
    "places",
]
