"""What things are called in MLflow: tags, metric keys, experiments."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version

from ladderholdout.ledger import HoldoutRecord, LadderRecord
from ladderholdout.ledger.replay import rules_of

PREFIX = "ladderholdout."
IDENTITY = f"{PREFIX}identity"
KIND = f"{PREFIX}kind"
HOLDOUT = f"{PREFIX}holdout"
LADDER = f"{PREFIX}ladder"
RAW = f"{PREFIX}raw"
TOKEN = f"{PREFIX}token"
ENTRIES = f"{PREFIX}entries"
HEAD = f"{PREFIX}head"
GUARDED = f"{PREFIX}guarded"

ANALYST = "analyst"
AUDIT = "audit"

RELEASED_KEY = "ladder_released"
RAW_KEY = "ladder_raw"
IMPROVED_KEY = "ladder_improved"
RESERVE_KEY = "ladder_reserve"

_PACKAGES = ("ladderholdout", "numpy", "scikit-learn", "mlflow")
_LONGEST = 500


def audit_experiment(holdout: str) -> str:
    """Return the name of the experiment that auditors look into.

    Examples
    --------
    >>> audit_experiment("churn-2026")
    'churn-2026 (audit)'
    """
    return f"{holdout} (audit)"


def identity(holdout: HoldoutRecord, ladder: LadderRecord) -> str:
    """Return what one ladder of one ledger is known by: 32 hexadecimal digits.

    A replaced ledger has another: names alone would let its series run into the old one's.
    """
    said = (
        holdout.fingerprint,
        ladder.settings.account,
        ladder.settings.name,
        ladder.created.isoformat(),
    )
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]


def tags(holdout: HoldoutRecord, ladder: LadderRecord, kind: str, ledger: str) -> dict[str, str]:
    """Return the tags that tie a run to the ledger; nothing in them depends on labels."""
    settings = ladder.settings
    return {
        IDENTITY: identity(holdout, ladder),
        KIND: kind,
        HOLDOUT: holdout.name,
        LADDER: f"{settings.account}/{settings.name}",
        f"{PREFIX}fingerprint": holdout.fingerprint,
        f"{PREFIX}mechanism": repr(rules_of(settings).mechanism)[:_LONGEST],
        f"{PREFIX}metric": settings.metric,
        f"{PREFIX}ledger": ledger,
        f"{PREFIX}versions": versions(),
    }


def guarded(holdout: HoldoutRecord, ladder: LadderRecord) -> str:
    """Say in a line which ladder is open."""
    settings = ladder.settings
    return f"{holdout.name} ({settings.account}/{settings.name}, {holdout.fingerprint[:12]})"


def versions() -> str:
    """Return the versions of what the scores rest on."""
    return ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # mlflow-skinny is a package of another name
        return "of another package"
