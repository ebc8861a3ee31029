"""Opening a holdout and a ladder on it: a holdout is its content (promise 6)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import platformdirs
from numpy.typing import NDArray

from ladderholdout import fingerprint as fp
from ladderholdout import vault as vaults
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    OverlapError,
    OverlapWarning,
    UnknownHoldout,
)
from ladderholdout.holdout.choices import Wish, asked_for, settings_for, stored_metric
from ladderholdout.ledger import (
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Ledger,
    Transaction,
    file_of,
    is_memory,
)
from ladderholdout.ledger.replay import rules_of, state_to
from ladderholdout.metrics import METRICS, Metric
from ladderholdout.vault import Rows

OVERLAP_POLICIES = ("auto", "warn", "error", "ignore")
_STACK = 5  # frames from the warning to the caller of LadderHoldout(...)


@dataclass(frozen=True, slots=True)
class Opened:
    """A holdout and one of its ladders, with how the given rows lie.

    `hashes` are those of the rows, as given; `foreign` says that they came in another
    order than the vault's.
    """

    holdout: HoldoutRecord
    ladder: LadderRecord
    metric: Metric
    hashes: NDArray[np.uint64]
    foreign: bool


def open_rows(ledger: Ledger, rows: Rows, wish: Wish) -> Opened:
    """Find these rows and the wished ladder in the ledger, or start what is missing.

    All of it is one transaction: whatever is refused leaves nothing behind.
    """
    hashes = fp.row_hashes(rows.X)
    contents = fp.content_hashes(hashes, rows.y, rows.sample_weight)
    with ledger.write() as tx:
        known = _same_content(tx, fp.fingerprint(hashes), contents)
        ladder = None if known is None else _find_ladder(tx, known, wish.account, wish.ladder)
        if known is not None and ladder is not None:
            agree(known, ladder, asked_for(wish.metric, wish.mechanism, wish.budget))
        metric = wish.metric or _metric_of(ladder)
        classes = _classes(known, metric, rows, wish.classes)
        metric = metric.for_classes(classes)
        settings = None if ladder else settings_for(wish, metric, len(hashes))
        if known is None:
            known = _register(tx, hashes, contents, wish)
            known = _store(tx, known, rows, vault_folder(ledger.url, wish.vault))
            foreign = False
        else:
            known, foreign = _reopen(tx, known, rows, hashes, wish, ledger.url)
        if classes is not None and known.classes is None:
            known = tx.set_classes(known.id, classes)
        if settings is not None:
            ladder = _start_ladder(tx, known, settings)
    assert ladder is not None
    return Opened(known, ladder, metric, hashes, foreign)


def agree(holdout: HoldoutRecord, ladder: LadderRecord, asked: Mapping[str, Any]) -> None:
    """Refuse settings that contradict those the ladder was started under.

    Parameters
    ----------
    asked : Mapping
        Field of `LadderSettings` -> value, only for what the caller stated.
    """
    for field, value in asked.items():
        stands = getattr(ladder.settings, field)
        if value != stands:
            what = field.removesuffix("_settings")
            raise HoldoutConflict(
                f"The ladder {ladder.settings.name!r} of account {ladder.settings.account!r} on "
                f"{holdout.name!r} stands in the ledger with {what} {_brief(ladder, field)}, and "
                f"you ask for {value!r}. Leave {what} out to go on with it, or start a second "
                'ladder, ladder="another name", which counts against the same holdout.'
            )


def find(
    tx: Transaction, name: str, account: str, ladder: str
) -> tuple[HoldoutRecord, LadderRecord]:
    """Return a holdout and its ladder by name."""
    found = tx.holdouts(name=name)
    if not found:
        names = ", ".join(repr(known.name) for known in tx.holdouts()) or "none yet"
        raise UnknownHoldout(f"The ledger knows no holdout {name!r}. It holds: {names}.")
    known = _find_ladder(tx, found[0], account, ladder)
    if known is not None:
        return found[0], known
    ladders = (known.settings for known in tx.ladders(found[0].id))
    there = ", ".join(f"{known.account}/{known.name}" for known in ladders) or "none"
    raise UnknownHoldout(
        f"{name!r} has no ladder {ladder!r} of account {account!r}. Its ladders: {there}."
    )


def vault_folder(url: str, vault: str | os.PathLike[str] | bool | None) -> Path | None:
    """Return the folder for the rows; None where no copy may be kept."""
    if vault is False or (vault is None and is_memory(url)):
        return None
    if vault is None or vault is True:
        beside = file_of(url)
        parent = beside.parent if beside else platformdirs.user_data_path("ladderholdout")
        return parent / "vault"
    return Path(vault).expanduser().absolute()


def judge_overlap(policy: str, shared: int, n: int, message: str) -> None:
    """Warn of shared rows, or refuse them, as the policy says.

    Half of the holdout is where chance ends: honest data may hold some equal rows.
    """
    if policy == "error" or (policy == "auto" and 2 * shared >= n):
        raise OverlapError(f'{message} If that is meant, say overlap="warn".')
    if policy != "ignore":
        warnings.warn(message, OverlapWarning, stacklevel=_STACK)


def _same_content(
    tx: Transaction, fingerprint: str, contents: NDArray[np.uint64]
) -> HoldoutRecord | None:
    for known in tx.holdouts(fingerprint=fingerprint):
        if fp.content_digest(known.secret, contents) == known.content_digest:
            return known
    return None


def _find_ladder(
    tx: Transaction, holdout: HoldoutRecord, account: str, name: str
) -> LadderRecord | None:
    for ladder in tx.ladders(holdout.id):
        if (ladder.settings.account, ladder.settings.name) == (account, name):
            return ladder
    return None


def _metric_of(ladder: LadderRecord | None) -> Metric:
    if ladder is None:
        raise InvalidArgument(
            "scoring",
            "stated for a new ladder",
            "missing",
            f'Name a metric as scikit-learn does, scoring="accuracy" (there are {len(METRICS)}), '
            "or give a Metric.",
        )
    return stored_metric(ladder.settings)


def _classes(
    known: HoldoutRecord | None, metric: Metric, rows: Rows, stated: NDArray[Any] | None
) -> NDArray[Any] | None:
    # Predictions are kept as places in this list, so it is fixed once and for all.
    stands = None if known is None else known.classes
    classes = metric.classes_of(rows.y, stated if stands is None else stands)
    if stands is not None and stated is not None and not np.array_equal(stands, np.unique(stated)):
        raise HoldoutConflict(
            "classes= differs from the classes that this holdout was registered with. Leave it "
            "out to go on with those."
        )
    metric.targets(rows.y, classes)  # refuses what the metric cannot score
    return classes


def _start_ladder(
    tx: Transaction, holdout: HoldoutRecord, settings: LadderSettings
) -> LadderRecord:
    others = tx.ladders(holdout.id)
    if others:
        looks = sum(ladder.submissions for ladder in others)
        _say(
            f"This opens ladder {settings.name!r} of account {settings.account!r} on the holdout "
            f"{holdout.name!r}, which has {len(others)} already with {looks} submissions. They "
            "count together: a new account or ladder does not make a used holdout fresh."
        )
    return tx.add_ladder(holdout.id, settings, state_to(rules_of(settings).start(holdout.n)))


def _register(
    tx: Transaction, hashes: NDArray[np.uint64], contents: NDArray[np.uint64], wish: Wish
) -> HoldoutRecord:
    fingerprint = fp.fingerprint(hashes)
    name = wish.name or f"holdout-{fingerprint[:8]}"
    shared = {}
    for known in tx.holdouts():
        theirs = tx.row_hashes(known.id)
        count = fp.overlap(hashes, theirs)
        if count:
            judge_overlap(
                wish.overlap,
                count,
                min(len(hashes), len(theirs)),
                f"{count} of these {len(hashes)} rows stand in the holdout {known.name!r} "
                f"({len(theirs)} rows, registered {known.created:%Y-%m-%d}): what was learned "
                "from that one is known about this one too.",
            )
            shared[known] = count
    if tx.holdouts(name=name):
        raise HoldoutConflict(
            f"The name {name!r} stands in the ledger for other rows. Take another name, or "
            "give the rows that it was registered with."
        )
    secret = os.urandom(32)
    new = tx.add_holdout(name, fingerprint, fp.content_digest(secret, contents), secret, hashes)
    for known, count in shared.items():
        tx.note_overlap(new, f"the holdout {known.name}", count)
        tx.note_overlap(known.id, f"the holdout {name}", count)
    return tx.holdout(new)


def _reopen(
    tx: Transaction,
    known: HoldoutRecord,
    rows: Rows,
    hashes: NDArray[np.uint64],
    wish: Wish,
    url: str,
) -> tuple[HoldoutRecord, bool]:
    if wish.name not in (None, known.name):
        _say(
            f"These rows are known as {known.name!r} (registered {known.created:%Y-%m-%d}). "
            f"Another name does not start afresh: going on with {known.name!r}."
        )
    foreign = not np.array_equal(hashes, tx.row_hashes(known.id))
    if foreign:
        _say(
            f"These are the rows of {known.name!r} in another order. `submit` takes "
            "predictions in the order given here."
        )
    folder = _folder_of(known) if wish.vault is None else vault_folder(url, wish.vault)
    if folder != _folder_of(known) or (folder is not None and not _intact(known)):
        # The vault keeps the registered order, which handles in other processes rely on.
        if foreign and folder is not None:
            raise InvalidArgument(
                "X",
                "in the order it was registered in, to write its vault anew",
                "in another order",
                "Give the rows as they were the first time.",
            )
        known = _store(tx, known, rows, folder)
    return known, foreign


def _store(
    tx: Transaction, record: HoldoutRecord, rows: Rows, folder: Path | None
) -> HoldoutRecord:
    if folder is None:
        tx.set_vault(record.id, None, None)
    else:
        path, digest = vaults.write(folder, f"{record.fingerprint[:16]}-{uuid4().hex[:8]}", rows)
        tx.set_vault(record.id, str(path), digest)
    return tx.holdout(record.id)


def _folder_of(record: HoldoutRecord) -> Path | None:
    return None if record.vault_path is None else Path(record.vault_path).parent


def _intact(record: HoldoutRecord) -> bool:
    return vaults.intact(Path(str(record.vault_path)), str(record.vault_digest))


def _brief(ladder: LadderRecord, field: str) -> str:
    if field.startswith("mechanism"):
        return repr(rules_of(ladder.settings).mechanism)
    return repr(getattr(ladder.settings, field))


def _say(message: str) -> None:
    warnings.warn(message, KnownHoldoutWarning, stacklevel=_STACK)
