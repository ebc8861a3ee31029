"""The rows of a view as they are stored: read from the vault, checked, and copied into it."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout import vault as vaults
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    LedgerError,
    LedgerUnreachable,
    RestoredWarning,
    VaultError,
)
from ladderholdout.ledger.arrays import digests_of as predictions_digests
from ladderholdout.ledger.events import Damaged, Submitted
from ladderholdout.ledger.fold import HoldoutRecord
from ladderholdout.ledger.log import as_bytes
from ladderholdout.ledger.place import is_memory, vault_beside
from ladderholdout.ledger.transaction import KnownRows, Transaction, ViewRecord
from ladderholdout.metrics.arrays import is_counted
from ladderholdout.vault import Place, Rows
from ladderholdout.vault.remote import is_url

IntArray: TypeAlias = NDArray[np.intp]


def check_predictions(holdout: HoldoutRecord, entry: Submitted, predictions: NDArray[Any]) -> None:
    """Refuse stored predictions that are not those of a submission; LedgerError."""
    if predictions_digests(holdout.secret, predictions, holdout.reserve)[0] != entry.digest:
        raise LedgerError(
            f"The kept predictions of submission {entry.number} were changed. "
            "`ladder-holdout verify NAME` lists what else was; restore the ledger from a backup."
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kept:
    """What the ledger holds of a view and its rows, at one moment.

    Attributes
    ----------
    record : HoldoutRecord
    known : KnownRows
    view : ViewRecord
    """

    record: HoldoutRecord
    known: KnownRows
    view: ViewRecord

    def rows(self) -> Rows:
        """Read the rows from the vault.

        Raises
        ------
        VaultError
            It cannot be read, or there is none.
        """
        if self.view.vault_path is None or self.view.vault_digest is None:
            raise VaultError(
                f"No copy of the rows of {self.record.name!r} is kept (vault=False). Open it "
                "with its rows: LadderHoldout(X, y, ...)."
            )
        return vaults.read(self.view.vault_path, self.view.vault_digest, self.view.fingerprint)

    def order(self, rows: Rows) -> IntArray:
        """Return what brings rows of this view into the order of the content.

        Raises
        ------
        HoldoutConflict
            They are other rows, or have other labels or weights than are on record.
        """
        order = self._order(rows)
        if order is None:
            raise HoldoutConflict(
                f"The given rows are not those of {self.record.name!r} with the labels and "
                "weights on record. Was the ledger replaced? Open it again with its rows, "
                "LadderHoldout(X, y, ...)."
            )
        return order

    def _order(self, rows: Rows) -> IntArray | None:
        known, hashes = self.known, fp.row_hashes(rows.X)
        recorded = known_digests(known)
        if fp.fingerprint(hashes) != self.view.fingerprint:
            return None
        given, places = digests_of(self.record.secret, rows), self.view.places
        if not np.array_equal(hashes, self.view.row_hashes):
            of_view = recorded.take(fp.inverse(known.places)[places])
            to = fp.counterparts(
                *(hashes, given.of_pairs(), self.view.row_hashes, of_view.of_pairs())
            )
            places = places[to]
        order = fp.inverse(places)
        given = given.take(order[known.places])
        same = np.array_equal(given.labels, recorded.labels) and given.same_weights(recorded)
        return order if same else None


def groups_on_record(known: KnownRows, estimand: str | None) -> Groups | None:
    """Return the groups of rows in the order of the content, where whole groups were drawn."""
    if known.groups is None or estimand is None:
        return None
    return Groups.of(known.groups[fp.inverse(known.places)], estimand)


@dataclass(frozen=True, slots=True)
class Amended:
    """How much of what measured a submission had been amended by then.

    Attributes
    ----------
    count : int
        Labels of the part of the holdout that measured it.
    share : float
        Their share of its weights: so far a mean of losses in [0, 1] is at most from what it
        would be with the labels as registered.
    """

    count: int = 0
    share: float = 0.0

    def around(self, risk: float) -> tuple[float, float, float]:
        """Return the least risk that the labels as registered may give, this one, and the most."""
        return max(risk - self.share, min(risk, 0.0)), risk, min(risk + self.share, max(risk, 1.0))

    def assumptions(self) -> tuple[str, ...]:
        """Return what certificates of it allow for."""
        if not self.count:
            return ()
        labels = "label was" if self.count == 1 else "labels were"
        return (
            f"{self.count} {labels} amended before the submission: the interval allows for any "
            "values of them, and so is for the labels as registered, whatever the amendment "
            "knew of earlier scores",
        )


def amended_before(
    tx: Transaction,
    holdout_id: int,
    position: float | None,
    weights: NDArray[np.float64] | None,
    *,
    reserve: bool = False,
) -> Amended:
    """Read what had been amended before a link of the chain, or by now.

    The `weights` are of the rows in question: those of the reserve, or those that ladders
    measure, in the order of the content.
    """
    amended, kept = tx.amended(holdout_id, position), tx.holdout(holdout_id).reserve
    if amended is None:
        return Amended()
    if kept is not None:
        amended = amended[kept if reserve else ~kept]
    share = amended.mean() if weights is None else weights[amended].sum() / weights.sum()
    return Amended(int(amended.sum()), float(share))


def read_kept(tx: Transaction, holdout_id: int, view: int) -> Kept:
    """Read what the ledger holds of a view."""
    return Kept(tx.holdout(holdout_id), tx.known(holdout_id), tx.view(holdout_id, view))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Digests:
    """Keyed digests of labels and weights, one for each row; None for weights that are all one."""

    labels: NDArray[np.uint64]
    weights: NDArray[np.uint64] | None

    def of_pairs(self) -> NDArray[np.uint64]:
        """Return digests of label and weight together."""
        return self.labels if self.weights is None else self.labels + 3 * self.weights

    def take(self, order: IntArray) -> Digests:
        """Return those of the rows in another order."""
        return Digests(self.labels[order], None if self.weights is None else self.weights[order])

    def same_weights(self, other: Digests) -> bool:
        """Return whether the weights are the same."""
        if self.weights is None or other.weights is None:
            return self.weights is other.weights
        return np.array_equal(self.weights, other.weights)


def first_view(
    record: HoldoutRecord, hashes: NDArray[np.uint64], order: NDArray[Any]
) -> ViewRecord:
    """Return the view that rows are registered as, before they are in the ledger."""
    places = fp.inverse(order)
    return ViewRecord(1, record.fingerprint, hashes, places, None, None)


# Of rows that are digested for the ledger.
_AT_A_TIME = 1 << 16


def pieces_of(
    secret: bytes,
    rows: Rows,
    hashes: NDArray[np.uint64],
    ids: NDArray[np.uint64] | None,
    groups: NDArray[np.uint64] | None,
    order: NDArray[Any],
) -> tuple[dict[str, Iterable[Any]], Callable[[], bytes | None]]:
    """Return what a new holdout is known by, column by column, and the digest of all labels.

    Each piece is made when it is asked for: all of them would be as long as the rows. The digest
    is known once all labels were asked for.
    """
    n, sequence = len(hashes), hmac.new(secret, digestmod="sha256")

    def digests(values: NDArray[Any], argument: str) -> Iterator[memoryview]:
        for start in range(0, n, _AT_A_TIME):
            piece = fp.row_hashes(values[start : start + _AT_A_TIME], argument)
            yield as_bytes(fp.label_digests(secret, piece))

    def labels() -> Iterator[memoryview]:
        for piece in digests(rows.y, "y"):
            sequence.update(piece)
            yield piece

    def places() -> Iterator[memoryview]:
        found = fp.inverse(order)
        for start in range(0, n, _AT_A_TIME):
            yield as_bytes(found[start : start + _AT_A_TIME])

    found: dict[str, Iterable[Any]] = {"label_digests": labels()}
    if ids is not None:
        found["ids"] = [as_bytes(ids)]
    if groups is not None:
        found["groups"] = [as_bytes(groups)]
    if rows.sample_weight is not None and not _are_ones(rows.sample_weight):
        found["weight_digests"] = digests(rows.sample_weight, "sample_weight")
    found["places"] = places()
    known = fp.sequence_bits(rows.y) >= fp.ENOUGH_BITS
    # As `identity.sequence_digest`.
    return found, lambda: sequence.digest() if known else None


def _are_ones(weights: NDArray[Any]) -> bool:
    return bool((weights == 1).all())


def digests_of(secret: bytes, rows: Rows) -> Digests:
    """Digest the labels and weights of rows."""
    weights = rows.sample_weight
    plain = weights is None or _are_ones(weights)
    of_weights = None if plain else fp.row_hashes(weights, "sample_weight")
    return Digests(
        fp.label_digests(secret, fp.row_hashes(rows.y, "y")),
        None if of_weights is None else fp.label_digests(secret, of_weights),
    )


def known_digests(known: KnownRows) -> Digests:
    """Return the digests on record, in the order of registration."""
    return Digests(known.label_digests, known.weight_digests)


def in_first_order(known: KnownRows, rows: Rows, order: IntArray) -> tuple[Rows, IntArray]:
    """Return the rows of a view in the order of the first registration.

    `order` brings the rows as they are into the order of the content; so does that returned.
    """
    places = order[known.places]
    if np.array_equal(places, np.arange(len(places))):
        return rows, order
    X = fp.take(rows.X, places)
    if hasattr(X, "reset_index") and is_counted(rows.X.index):
        X = X.reset_index(drop=True)  # it names no rows, and would be taken for positions
    weights = None if rows.sample_weight is None else rows.sample_weight[places]
    return Rows(X, rows.y[places], weights), fp.inverse(known.places).astype(np.intp)


def with_labels(rows: Rows, order: IntArray, labels: NDArray[Any]) -> Rows:
    """Return rows with other labels, which come in the order of the content, as `order` makes."""
    return replace(rows, y=labels[fp.inverse(order)])


@dataclass(slots=True)
class Copies:
    """The files that one change writes and leaves behind; those written go where it fails."""

    written: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Of a server that was lost in mid-commit it is not known whether the ledger names them. It
        # does where it warned after the commit, and somebody made warnings errors.
        if error is not None and not isinstance(error, LedgerUnreachable | RestoredWarning):
            for path in self.written:
                with suppress(VaultError):
                    vaults.remove(path)

    def drop_former(self) -> None:
        """Remove what was replaced, now that the change is in the ledger."""
        for path in self.former:
            vaults.remove(path)

    def keep(
        self,
        tx: Transaction,
        record: HoldoutRecord,
        view: ViewRecord,
        rows: Rows,
        folder: Place | None,
        *,
        foreign: bool,
        anew: bool = False,
    ) -> str | None:
        """Bring the rows of a view to the folder, unless they are there unharmed; return where."""
        in_folder = folder == folder_of(view.vault_path)
        if in_folder and not anew and (folder is None or _intact(view)):
            return view.vault_path
        if folder is None:
            if view.vault_path is not None:
                self.former.append(view.vault_path)
            tx.set_vault(record.id, None, None, view.number)
            return None
        # The vault keeps the order of the view, which handles in other processes rely on.
        if foreign:
            raise InvalidArgument(
                "X",
                "in the order it was registered in, to write its vault anew",
                "in another order",
                "Give the rows as they were the first time.",
            )
        return self._write(tx, record, view, rows, folder)

    def amend(
        self, tx: Transaction, record: HoldoutRecord, labels: NDArray[Any], but: int | None
    ) -> None:
        """Write the copies of all views but one anew, with other labels.

        The labels come in the order of the content.
        """
        for view in tx.views(record.id):
            folder = folder_of(view.vault_path)
            if folder is not None and view.number != but:
                rows = read_kept(tx, record.id, view.number).rows()
                amended = with_labels(rows, fp.inverse(view.places), labels)
                self._write(tx, record, view, amended, folder)

    def _write(
        self, tx: Transaction, record: HoldoutRecord, view: ViewRecord, rows: Rows, folder: Place
    ) -> str:
        stem = f"{view.fingerprint[:16]}-{uuid4().hex[:8]}"
        path, digest = vaults.write(folder, stem, rows)
        self.written.append(str(path))
        if view.vault_path is not None:
            self.former.append(view.vault_path)
        tx.set_vault(record.id, str(path), digest, view.number)
        return str(path)


def folder_of(path: str | None) -> Place | None:
    """Return the folder of a vault, where there is one.

    Raises
    ------
    LedgerError
        The place is neither a URL nor absolute, as all are that this library writes.
    """
    if path is None:
        return None
    if not (is_url(path) or Path(path).is_absolute()):
        raise Damaged
    return vaults.folder_of(path)


def vault_folder(url: str, vault: str | os.PathLike[str] | bool | None) -> Place | None:
    """Return the folder for the rows; None where no copy may be kept."""
    if vault is False or (vault is None and is_memory(url)):
        return None
    if vault is None or vault is True:
        return vault_beside(url, None)
    if isinstance(vault, str) and is_url(vault):
        return vault.rstrip("/")
    return Path(vault).expanduser().absolute()


def _intact(view: ViewRecord) -> bool:
    return vaults.intact(str(view.vault_path), str(view.vault_digest))
