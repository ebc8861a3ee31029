"""Opening a holdout and a ladder on it: a holdout is its content (promise 6)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from ladderholdout.holdout.apart import check_parts, reserve_of, set_reserve
from ladderholdout.holdout.choices import Wish, asked_for, going_on, settings_for
from ladderholdout.holdout.marks import mark_of
from ladderholdout.ledger import (
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Ledger,
    Transaction,
    is_memory,
)
from ladderholdout.ledger.replay import rules_of, state_to
from ladderholdout.mechanisms import mechanism_from
from ladderholdout.metrics import METRICS, Metric
from ladderholdout.vault import Place, Rows
from ladderholdout.vault.remote import is_url

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
        before = known = _same_content(tx, fp.fingerprint(hashes), contents)
        ladder = None if known is None else _find_ladder(tx, known, wish.account, wish.ladder)
        metric = _metric_for(wish, ladder)
        if known is not None and ladder is not None:
            agree(known, ladder, asked_for(metric, wish.mechanism, wish.budget))
        classes = _classes(known, metric, rows, wish.classes)
        metric = metric.for_classes(classes)
        n_reserve = reserve_of(known, wish.reserve, len(hashes))
        n = len(hashes) - n_reserve
        settings = None if ladder else settings_for(wish, metric, n, n_reserve)
        gone = None
        if known is None:
            known = _register(tx, hashes, contents, wish)
            if n_reserve:
                known = set_reserve(tx, known, contents, n_reserve)
        else:
            gone = mark_of(ledger.url, known).note(tx, known.id)
        foreign = _recognise(tx, known, hashes, wish.name)
        if classes is not None and known.classes is None:
            known = tx.set_classes(known.id, classes)
        if settings is not None:
            check_parts(metric, rows, classes, known, contents)
            ladder = _start_ladder(tx, known, settings)
        folder = vault_folder(ledger.url, wish.vault)
        if wish.vault is None and before is not None:
            folder = _folder_of(before)
        # Last, for a file is not undone with the transaction.
        known = _store(tx, known, rows, folder, foreign)
        mark, head = mark_of(ledger.url, known), tx.end(known.id)
    mark.settle(head, gone)
    if before is not None and before.vault_path not in (None, known.vault_path):
        vaults.remove(str(before.vault_path))
    assert ladder is not None
    return Opened(known, ladder, metric, hashes, foreign)


def agree(holdout: HoldoutRecord, ladder: LadderRecord, asked: Mapping[str, Any]) -> None:
    """Refuse settings that contradict those the ladder was started under.

    Parameters
    ----------
    asked : Mapping
        Field of `LadderSettings` -> value, only for what the caller stated.
    """
    stands = asdict(ladder.settings)
    for field, value in asked.items():
        if value != stands[field]:
            argument, there = _stated(stands, field)
            _, here = _stated({**stands, **asked}, field)
            raise HoldoutConflict(
                f"The ladder {ladder.settings.name!r} of account {ladder.settings.account!r} on "
                f"{holdout.name!r} stands in the ledger with {argument} {there}, and you ask for "
                f"{here}. Leave {argument} out to go on with it, or start a second ladder, "
                'ladder="another name", which counts against the same holdout.'
            )


def find(
    tx: Transaction, name: str, account: str, ladder: str
) -> tuple[HoldoutRecord, LadderRecord]:
    """Return a holdout and its ladder by name."""
    found = named(tx, name)
    known = _find_ladder(tx, found, account, ladder)
    if known is not None:
        return found, known
    ladders = (known.settings for known in tx.ladders(found.id))
    there = ", ".join(f"{known.account}/{known.name}" for known in ladders) or "none"
    raise UnknownHoldout(
        f"{name!r} has no ladder {ladder!r} of account {account!r}. Its ladders: {there}."
    )


def named(tx: Transaction, name: str) -> HoldoutRecord:
    """Return a holdout by name, or say which ones there are."""
    found = tx.holdouts(name=name)
    if not found:
        names = ", ".join(repr(known.name) for known in tx.holdouts()) or "none yet"
        raise UnknownHoldout(f"The ledger knows no holdout {name!r}. It holds: {names}.")
    return found[0]


def vault_folder(url: str, vault: str | os.PathLike[str] | bool | None) -> Place | None:
    """Return the folder for the rows; None where no copy may be kept."""
    if vault is False or (vault is None and is_memory(url)):
        return None
    if vault is None or vault is True:
        return vaults.beside(url, None)
    if isinstance(vault, str) and is_url(vault):
        return vault.rstrip("/")
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


def _metric_for(wish: Wish, ladder: LadderRecord | None) -> Metric:
    if ladder is not None:
        return going_on(wish.metric, ladder.settings)
    if wish.metric is None:
        raise InvalidArgument(
            "scoring",
            "stated for a new ladder",
            "missing",
            f'Name a metric as scikit-learn does, scoring="accuracy" (there are {len(METRICS)}), '
            "or give a Metric.",
        )
    return wish.metric


def _classes(
    known: HoldoutRecord | None, metric: Metric, rows: Rows, stated: ArrayLike | None
) -> NDArray[Any] | None:
    from ladderholdout.integrations.mlflow.quiet import without_autologging

    if stated is not None and not metric.is_classification:
        raise InvalidArgument("classes", f"left out for {metric.name}, a regression", "stated")
    # Predictions are kept as places in this list, so it is fixed once and for all.
    stands = None if known is None else known.classes
    classes = metric.classes_of(rows.y, stands if stated is None else stated)
    if stands is not None and classes is not None and not np.array_equal(stands, classes):
        raise HoldoutConflict(
            "classes= differs from the classes that this holdout was registered with. Leave it "
            "out to go on with those."
        )
    with without_autologging():
        metric.targets(rows.y, classes)  # refuses what the metric cannot score
    return classes


def _start_ladder(
    tx: Transaction, holdout: HoldoutRecord, settings: LadderSettings
) -> LadderRecord:
    others = tx.ladders(holdout.id)
    started = tx.add_ladder(
        holdout.id, settings, state_to(rules_of(settings).start(holdout.n_ladder))
    )
    if others:
        looks = sum(ladder.submissions for ladder in others)
        _say(
            f"This opens ladder {settings.name!r} of account {settings.account!r} on the holdout "
            f"{holdout.name!r}, which has {len(others)} already with {looks} submissions. They "
            "count together: a new account or ladder does not make a used holdout fresh."
        )
    return started


def _register(
    tx: Transaction, hashes: NDArray[np.uint64], contents: NDArray[np.uint64], wish: Wish
) -> HoldoutRecord:
    fingerprint = fp.fingerprint(hashes)
    name = wish.name or f"holdout-{fingerprint[:8]}"
    shared = {}
    for known in tx.holdouts():
        theirs = tx.row_hashes(known.id)
        # Both ways: one row of theirs may stand many times among these.
        inside, covered = fp.overlap(hashes, theirs), fp.overlap(theirs, hashes)
        if inside:
            judge_overlap(
                wish.overlap,
                *max((inside, len(hashes)), (covered, len(theirs)), key=lambda it: it[0] / it[1]),
                f"{inside} of these {len(hashes)} rows stand in the holdout {known.name!r} "
                f"({len(theirs)} rows, registered {known.created:%Y-%m-%d}): what was learned "
                "from that one is known about this one too.",
            )
            shared[known] = inside, covered
    if tx.holdouts(name=name):
        raise HoldoutConflict(
            f"The name {name!r} stands in the ledger for other rows. Take another name, or "
            "give the rows that it was registered with."
        )
    secret = os.urandom(32)
    new = tx.add_holdout(name, fingerprint, fp.content_digest(secret, contents), secret, hashes)
    for known, (inside, covered) in shared.items():
        tx.note_overlap(new, f"the holdout {known.name}", inside)
        tx.note_overlap(known.id, f"the holdout {name}", covered)
    return tx.holdout(new)


def _recognise(
    tx: Transaction, known: HoldoutRecord, hashes: NDArray[np.uint64], name: str | None
) -> bool:
    """Say what is known under another name or in another order; return whether it is one."""
    if name not in (None, known.name):
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
    return foreign


def _store(
    tx: Transaction, record: HoldoutRecord, rows: Rows, folder: Place | None, foreign: bool
) -> HoldoutRecord:
    """Bring the rows to the folder, unless they lie there unharmed."""
    if folder == _folder_of(record) and (folder is None or _intact(record)):
        return record
    if folder is None:
        tx.set_vault(record.id, None, None)
        return tx.holdout(record.id)
    # The vault keeps the registered order, which handles in other processes rely on.
    if foreign:
        raise InvalidArgument(
            "X",
            "in the order it was registered in, to write its vault anew",
            "in another order",
            "Give the rows as they were the first time.",
        )
    path, digest = vaults.write(folder, f"{record.fingerprint[:16]}-{uuid4().hex[:8]}", rows)
    tx.set_vault(record.id, str(path), digest)
    return tx.holdout(record.id)


def _folder_of(record: HoldoutRecord) -> Place | None:
    return None if record.vault_path is None else vaults.folder_of(record.vault_path)


def _intact(record: HoldoutRecord) -> bool:
    return vaults.intact(str(record.vault_path), str(record.vault_digest))


def _stated(settings: Mapping[str, Any], field: str) -> tuple[str, str]:
    """Return the argument behind a field of the settings, and what would be given for it."""
    value = settings[field]
    if field == "metric_settings" and "custom" not in value:
        return "loss_range", repr(value.get("loss_range"))
    if field.startswith("metric"):
        return "scoring", repr(value)
    if field.startswith("mechanism"):
        found = mechanism_from(settings["mechanism"], settings["mechanism_settings"])
        return "mechanism", repr(found)
    return field, repr(value)


def _say(message: str) -> None:
    warnings.warn(message, KnownHoldoutWarning, stacklevel=_STACK)
