"""Rows as they are held: as given, in parts, as stored, and named by their ids or index."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import errors
from ladderholdout import vault as vaults
from ladderholdout.arguments import as_given
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.guard.settings import HoldoutSettings, count_rows, names_of_rows, rows_of
from ladderholdout.identity import hashing, labels, matching
from ladderholdout.identity.copies import take, unwritable
from ladderholdout.ledger.arrays import digests_of as predictions_digests
from ladderholdout.ledger.events import Damaged, Submitted
from ladderholdout.ledger.fold import HoldoutRecord, View
from ladderholdout.ledger.log import as_bytes
from ladderholdout.ledger.place import is_memory, vault_beside
from ladderholdout.ledger.transaction import KnownRows, Transaction, ViewRecord
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Evaluation, Metric, arrays
from ladderholdout.vault import Place, Rows, is_url

IntArray: TypeAlias = NDArray[np.intp]
UInt64Array: TypeAlias = NDArray[np.uint64]


_ORDER = b"ladderholdout: the order of bets"


class _OfContent(np.random.Generator):
    """A generator that permutes rows as if they were in the order of their content."""

    def __init__(self, key: int, places: IntArray) -> None:
        super().__init__(np.random.Philox(key=key))
        self._places = places

    def permutation(self, x: Any, axis: int = 0) -> Any:
        drawn = super().permutation(x, axis)
        # Groups are in the order of their names.
        return self._places[drawn] if x == len(self._places) else drawn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """Some rows of a holdout, in the order of their content; raw, so not shown.

    For a function of the user's they are in the order of the first registration: it may know more
    of each row, such as an amount, than its target.

    Attributes
    ----------
    chosen : ndarray of bool, shape (n,), of int, or None
        Which rows of the holdout, or their places in the order of the first registration; None for
        all of them.
    targets : ndarray
        Canonical targets of these rows.
    weights : ndarray or None
        Their weights.
    groups : Groups or None
        Which of them were drawn together.
    """

    chosen: NDArray[np.bool_] | IntArray | None
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None
    groups: Groups | None = None

    def of(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions for these rows out of those for the whole holdout."""
        own = predictions if self.chosen is None else predictions[self.chosen]
        return arrays.indexed(own, arrays.index_of(self.targets))

    def order_rng(self) -> np.random.Generator:
        """Return the generator that orders these rows for bounds: a function of them alone.

        Their targets in the order of their content are the key, and what it permutes is that order:
        in any ledger the same rows get the same order, and nobody knows it without all targets.
        """
        # Places are there for a function of the user's, whose rows are in another order.
        chosen = np.arange(len(self.targets)) if self.chosen is None else self.chosen
        places = np.arange(len(self.targets)) if chosen.dtype == np.bool_ else np.argsort(chosen)
        targets = np.asarray(self.targets, dtype="<f8")[places]
        content = hashlib.sha256(_ORDER + targets.tobytes()).digest()
        return _OfContent(int.from_bytes(content[:16], "little"), places)

    def evaluate(self, metric: Metric, predictions: NDArray[Any]) -> Evaluation:
        """Measure predictions for the whole holdout on these rows."""
        evaluation = metric.evaluate(self.targets, self.of(predictions), self.weights)
        if self.groups is None:
            return evaluation
        return evaluation.in_groups(self.groups.codes, alike=self.groups.estimand == "groups")


def parts_of(
    targets: NDArray[Any],
    weights: NDArray[np.float64] | None,
    reserve: NDArray[np.bool_] | None,
    groups: Groups | None = None,
    first: IntArray | None = None,
) -> tuple[Part, Part | None]:
    """Return what the ladders measure, and the reserve if there is one.

    Parameters
    ----------
    targets, weights : ndarray
        Of all rows, in the order of their content.
    reserve : ndarray of bool, shape (n,), or None
    groups : Groups or None
        Of all rows, in the same order.
    first : ndarray of int, shape (n,), or None
        The places of all rows in the order of the first registration, where it matters.
    """
    # Nobody's function may write into them.
    for array in (targets, weights):
        if array is not None:
            unwritable(array)
    if reserve is None and first is None:
        return Part(None, targets, weights, groups), None

    def part(chosen: NDArray[Any]) -> Part:
        chosen = chosen if first is None else first[chosen[first]]
        own_weights = None if weights is None else unwritable(weights[chosen])
        own_groups = None if groups is None else groups.take(chosen)
        return Part(chosen, unwritable(targets[chosen]), own_weights, own_groups)

    if reserve is None:
        return part(np.ones(len(targets), dtype=bool)), None
    return part(~reserve), part(reserve)


def draw(secret: bytes, n: int, count: int) -> NDArray[np.bool_]:
    """Draw the reserve out of n rows as they were given, or out of n groups in order.

    By the secret alone: no label is read, so that which rows they are shows nothing of it. Strata
    would.
    """
    # No ladder has the number 0, and no submission: this is nobody's noise.
    return fresh_rng(secret, 0, 0).permutation(n) < count


def draws_of(record: HoldoutRecord, groups: Groups | None) -> tuple[int, int]:
    """Return how many rows, or groups of them, were drawn, and how many the ladders measure."""
    if groups is None:
        return record.n, record.n_ladder
    codes = groups.codes if record.reserve is None else groups.codes[~record.reserve]
    return len(groups), len(np.unique(codes))


def reserve_of(draws: int, share: float | None, what: str) -> int:
    """Return how many of the rows or groups that were drawn a reserve of some share has."""
    if share is None:
        return 0
    count = math.floor(share * draws + 0.5)
    if not 0 < count < draws:
        allowed = f"a share that leaves the ladders and the reserve a {what[:-1]} each"
        raise errors.InvalidArgument("reserve", f"{allowed}, of {draws}", as_given(share))
    return count


def check_predictions(holdout: HoldoutRecord, entry: Submitted, predictions: NDArray[Any]) -> None:
    """Refuse stored predictions that are not those of a submission; LedgerError."""
    if predictions_digests(holdout.secret, predictions, holdout.reserve)[0] != entry.digest:
        raise errors.LedgerError(
            f"The kept predictions of submission {entry.number} were changed. "
            "`ladder-holdout verify NAME` lists what else was; restore the ledger from a backup."
        )


@dataclass(slots=True, eq=False, repr=False)
class Given:
    """Rows as a caller gave them, with what they may be known by.

    From when they are known or registered, `order` brings them into the order of the content, and
    they are the rows of a `view`, which a vault keeps if there is a path. `foreign` is whether they
    came in another order than the view's.
    """

    rows: Rows
    hashes: UInt64Array
    ids: UInt64Array | None
    groups: UInt64Array | None
    # Ids that repeat name groups, and no row is known by them.
    ids_repeat: bool
    order: NDArray[Any] = field(init=False)
    view: int = 1
    foreign: bool = False
    vault_path: str | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def drawn(self) -> str:
        """What was drawn independently: the rows, or whole groups of them."""
        return "rows" if self.groups is None else "groups"

    @property
    def draws(self) -> int:
        """How many of those there are."""
        return len(self) if self.groups is None else len(np.unique(self.groups))

    @property
    def weighing(self) -> NDArray[np.bool_]:
        """Which of them have weight."""
        weights = self.rows.sample_weight
        return np.ones(len(self), dtype=bool) if weights is None else weights > 0

    def in_groups(self, estimand: str | None) -> Groups | None:
        """Return the groups in the order of the content, where whole groups were drawn."""
        return groups_of(self.groups, self.order, estimand)


def names_of(X: Any) -> list[str] | None:
    """Return the names of columns, as scikit-learn takes them: all of them texts."""
    columns = getattr(X, "columns", getattr(X, "column_names", None))
    names = list(columns) if isinstance(columns, Iterable) else []
    is_named = bool(names) and all(isinstance(name, str) for name in names)
    return [str(name) for name in names] if is_named else None


def in_order_of(X: Any, known: Any) -> Any:
    """Return a table with its columns in the order of another one that has the same names."""
    names, wanted = names_of(X), names_of(known)
    if not names or not wanted or names == wanted or sorted(names) != sorted(wanted):
        return X
    return X[wanted] if len(set(names)) == len(names) else X


def given_rows(X: Any, y: ArrayLike, stated: HoldoutSettings, like: Any = None) -> Given:
    """Bring together what a caller gives, validated, with hashes of it.

    The columns are put in the order of those of `like`, where they have the same names.
    """
    X, _, ids = names_of_rows(X, stated.ids, "ids")
    X, _, groups = names_of_rows(X, stated.groups, "groups")
    rows = rows_of(in_order_of(X, like), y, stated.sample_weight)
    for what, names in (("ids", stated.ids), ("groups", stated.groups)):
        arrays.check_index(what, names, y, "y")  # if X has no index
    if groups is not None and rows.sample_weight is not None:
        raise errors.InvalidArgument(
            "sample_weight",
            "left out where there are groups",
            "stated",
            "Rows that count more can be rows of their group; groups that count alike whatever "
            'their size are estimand="groups".',
        )
    repeat = ids is not None and len(np.unique(ids)) < len(ids)
    return Given(rows, hashing.row_hashes(rows.X), None if repeat else ids, groups, repeat)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kept:
    """What the ledger holds of a view and its rows, at one moment."""

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
            raise errors.VaultError(
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
        hashes, digests = hashing.row_hashes(rows.X), digests_of(self.record.secret, rows)
        if hashing.fingerprint(hashes) == self.view.fingerprint:
            to = self.found(hashes, digests)
            (of_labels, of_weights), known = digests, self.known
            alike = np.array_equal(of_labels, known.label_digests[to])
            if alike and weigh_alike(of_weights, known.weight_digests, to):
                return matching.inverse(known.places[to])
        raise errors.HoldoutConflict(
            f"The given rows are not those of {self.record.name!r} with the labels and "
            "weights on record. Was the ledger replaced? Open it again with its rows, "
            "LadderHoldout(X, y, ...)."
        )

    def found(
        self,
        hashes: UInt64Array,
        digests: tuple[UInt64Array, UInt64Array | None],
        groups: UInt64Array | None = None,
        theirs: UInt64Array | None = None,
    ) -> IntArray:
        """Return for each given row its place in the order of registration.

        Rows with equal hashes (`theirs` are those of the view) go together by labels, weights and
        groups.
        """
        of_view = matching.inverse(self.known.places)[self.view.places]
        mine = _pairs(*digests)
        there = _pairs(self.known.label_digests, self.known.weight_digests)[of_view]
        if groups is not None and self.known.groups is not None:
            # Rows that are equal may be of several groups.
            mine = mine + 5 * labels.by_value(groups)
            there += 5 * labels.by_value(self.known.groups)[of_view]
        theirs = self.view.row_hashes if theirs is None else theirs
        return np.asarray(of_view[matching.counterparts(hashes, mine, theirs, there)])

    @property
    def groups(self) -> Groups | None:
        """The groups of rows in the order of the content, where whole groups were drawn."""
        return groups_of(
            self.known.groups, matching.inverse(self.known.places), self.record.estimand
        )

    def in_first_order(self, rows: Rows, order: IntArray) -> tuple[Rows, IntArray]:
        """Return the rows of a view in the order of the first registration.

        `order` brings the rows as they are into the order of the content; so does that returned.
        """
        places = order[self.known.places]
        if np.array_equal(places, np.arange(len(places))):
            return rows, order
        X = take(rows.X, places)
        if hasattr(X, "reset_index") and arrays.is_counted(rows.X.index):
            X = X.reset_index(drop=True)  # it names no rows, and would be taken for positions
        weights = None if rows.sample_weight is None else rows.sample_weight[places]
        return Rows(X, rows.y[places], weights), matching.inverse(self.known.places)


def groups_of(
    names: UInt64Array | None, order: NDArray[Any], estimand: str | None
) -> Groups | None:
    """Return the groups of rows in the order of the content, where whole groups were drawn."""
    return None if names is None or estimand is None else Groups.of(names[order], estimand)


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


# Of rows that are digested for the ledger.
_AT_A_TIME = 1 << 16


def pieces_of(
    secret: bytes, given: Given
) -> tuple[dict[str, Iterable[Any]], Callable[[], bytes | None]]:
    """Return what a new holdout is known by, column by column, and the digest of all labels.

    Each piece is made when it is asked for: all of them would be as long as the rows. The digest
    is known once all labels were asked for.
    """
    n, rows, sequence = len(given), given.rows, hmac.new(secret, digestmod="sha256")

    def digests(values: NDArray[Any], argument: str) -> Iterator[memoryview]:
        for start in range(0, n, _AT_A_TIME):
            piece = hashing.row_hashes(values[start : start + _AT_A_TIME], argument)
            yield as_bytes(labels.label_digests(secret, piece))

    def of_labels() -> Iterator[memoryview]:
        for piece in digests(rows.y, "y"):
            sequence.update(piece)
            yield piece

    def places() -> Iterator[memoryview]:
        found = matching.inverse(given.order)
        for start in range(0, n, _AT_A_TIME):
            yield as_bytes(found[start : start + _AT_A_TIME])

    found: dict[str, Iterable[Any]] = {"label_digests": of_labels()}
    for name, hashes in (("ids", given.ids), ("groups", given.groups)):
        if hashes is not None:
            found[name] = [as_bytes(hashes)]
    if (weights := _weights_of(rows)) is not None:
        found["weight_digests"] = digests(weights, "sample_weight")
    found["places"] = places()
    telling = labels.are_telling(rows.y)
    # As `identity.sequence_digest`.
    return found, lambda: sequence.digest() if telling else None


def _weights_of(rows: Rows) -> NDArray[np.float64] | None:
    """Return the weights of rows, unless all of them are one."""
    weights = rows.sample_weight
    return None if weights is None or bool((weights == 1).all()) else weights


def digests_of(secret: bytes, rows: Rows) -> tuple[UInt64Array, UInt64Array | None]:
    """Return keyed digests of the label and, unless all weigh one, of the weight of each row."""
    of_weights, weights = None, _weights_of(rows)
    if weights is not None:
        hashes = hashing.row_hashes(weights, "sample_weight")
        of_weights = labels.label_digests(secret, hashes)
    return labels.label_digests(secret, hashing.row_hashes(rows.y, "y")), of_weights


def weigh_alike(these: UInt64Array | None, others: UInt64Array | None, order: IntArray) -> bool:
    """Return whether digests of weights are others in an order; None is of weights of one."""
    if these is None or others is None:
        return these is others
    return np.array_equal(these, others[order])


def _pairs(of_labels: UInt64Array, of_weights: UInt64Array | None) -> UInt64Array:
    """Return digests of label and weight together."""
    return of_labels if of_weights is None else of_labels + 3 * of_weights


def with_labels(rows: Rows, order: IntArray, labels: NDArray[Any]) -> Rows:
    """Return rows with other labels, which come in the order of the content, as `order` makes."""
    return replace(rows, y=labels[matching.inverse(order)])


@dataclass(slots=True)
class Copies:
    """The files that one change writes, which go if it fails, and those that it replaces."""

    written: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Of a server that was lost in mid-commit it is not known whether the ledger names them. It
        # does where it warned after the commit, and somebody made warnings errors.
        if error is None:
            for path in self.former:
                vaults.remove(path)
        elif not isinstance(error, errors.LedgerUnreachable | errors.RestoredWarning):
            for path in self.written:
                with suppress(errors.VaultError):
                    vaults.remove(path)

    def write(
        self, tx: Transaction, holdout_id: int, view: View, rows: Rows, folder: Place | None
    ) -> str | None:
        """Copy the rows of a view to a folder, in place of the copy so far; None for no copy."""
        path = digest = None
        if folder is not None:
            stem = f"{view.fingerprint[:16]}-{uuid4().hex[:8]}"
            place, digest = vaults.write(folder, stem, rows)
            path = str(place)
            self.written.append(path)
        if view.vault_path is not None:
            self.former.append(view.vault_path)
        tx.set_vault(holdout_id, path, digest, view.number)
        return path

    def amend(self, tx: Transaction, holdout_id: int, given: Given) -> None:
        """Write the copies of all views anew with the labels that are given."""
        labels = given.rows.y[given.order]
        for view in tuple(tx.fold(holdout_id).views):
            folder = folder_of(view.vault_path)
            if folder is not None:
                rows = given.rows
                if given.foreign or view.number != given.view:
                    kept = read_kept(tx, holdout_id, view.number)
                    rows = with_labels(kept.rows(), matching.inverse(kept.view.places), labels)
                self.write(tx, holdout_id, view, rows, folder)


def folder_of(path: str | None) -> Place | None:
    """Return the folder of a vault, where there is one.

    Raises
    ------
    LedgerError
        The place is neither a URL nor absolute, as all are that this library writes.
    """
    if path is None:
        return None
    if is_url(path):
        return path.rpartition("/")[0]
    if not Path(path).is_absolute():
        raise Damaged
    return Path(path).parent


def vault_folder(url: str, vault: str | os.PathLike[str] | bool | None) -> Place | None:
    """Return the folder for the rows; None where no copy may be kept."""
    if vault is False or (vault is None and is_memory(url)):
        return None
    if vault is None or vault is True:
        return vault_beside(url, None)
    if isinstance(vault, str) and is_url(vault):
        return vault.rstrip("/")
    return Path(vault).expanduser().absolute()


_IN_ORDER = (
    "Write the predictions without an index (index=False), in the order in which the rows were "
    "first registered, or with a column of ids, and name it by ids."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NamedPredictions:
    """Predictions with the names of their rows.

    Attributes
    ----------
    values : array-like
        Of n rows.
    names : array-like of n values
        The ids of the rows, or their index.
    by_ids : bool
        Which of the two.
    lines : sequence of int or None
        Where each row begins in the file that it was read from.
    """

    values: Any
    names: Any
    by_ids: bool = True
    lines: Sequence[int] | None = None

    def where(self, place: int) -> str:
        """Name the place of a row in what was given."""
        return f"row {place + 1}" if self.lines is None else f"line {self.lines[place]}"

    def in_order_of(self, X: Any) -> Any:
        """Return the values in the order of rows with the same index.

        Raises
        ------
        InvalidSubmission
            The rows have another index, and it is not known which prediction is whose.
        """
        names, index = list(self.names), arrays.index_of(X)
        labels = list(range(count_rows(X))) if index is None else index.tolist()
        if all(isinstance(name, str) for name in names):
            labels = [str(label) for label in labels]
        if names == labels:
            return self.values
        places = {name: place for place, name in enumerate(names)}
        same = len(places) == len(names) == len(labels) and set(places) == set(labels)
        counted = _are_counted(names) or _are_counted(labels)
        if not same and _are_counted(names):
            return self.values  # it has the rows in their order, and was never given an index
        if not same or counted:
            # As `by_index`: of positions that somebody counted it is not known what they name.
            came = "with an index in another order" if same else "with the index of other rows"
            raise errors.InvalidSubmission(
                "predictions", "in the order of the rows", came, _IN_ORDER
            )
        return take(self.values, np.array([places[label] for label in labels], dtype=np.intp))


def values_of(predictions: Any) -> Any:
    """Return predictions without the names of their rows."""
    return predictions.values if isinstance(predictions, NamedPredictions) else predictions


def are_named(predictions: Any) -> bool:
    """Return whether predictions, or those of a mapping, have the names of their rows."""
    if isinstance(predictions, Mapping):
        return any(map(are_named, predictions.values()))
    return isinstance(predictions, NamedPredictions)


def predictions_of(predictions: Any, ids: Any) -> Any:
    """Return predictions together with their ids, if there are any; those of a mapping each."""
    if ids is None:
        return predictions
    if isinstance(predictions, Mapping):
        return {name: predictions_of(one, ids) for name, one in predictions.items()}
    left, names, _ = names_of_rows(predictions, ids, "ids", "predictions")
    arrays.refuse_masked("predictions", left)
    if arrays.names_of(left):  # it has names of classes, perhaps
        return NamedPredictions(left, names)
    values = np.asarray(left)
    flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    return NamedPredictions(flat, names)


def order_by_ids(known: KnownRows, given: NamedPredictions) -> IntArray:
    """Return what brings predictions with ids into the order of the content.

    Raises
    ------
    InvalidArgument
        The holdout was registered without ids, or has others.
    """
    if known.ids is None:
        raise errors.InvalidArgument(
            "ids",
            "left out for a holdout that was registered without ids",
            "given",
            "Submit predictions in the order of its rows, or register it with ids=.",
        )
    hashes, ids = labels.by_value(labels.id_hashes(given.names)), labels.by_value(known.ids)
    to = matching.placed(hashes, ids)
    if to is not None:
        return matching.inverse(known.places[to])
    known_ids = np.isin(hashes, ids)
    missing, unknown = len(ids) - int(known_ids.sum()), np.flatnonzero(~known_ids)
    came = f"without {missing} of them"
    if len(unknown):
        came += f", and with {len(unknown)} others, the first in {given.where(unknown[0])}"
    raise errors.InvalidArgument("ids", "those of all rows of the holdout, each once", came)


def _are_counted(names: list[Any]) -> bool:
    """Return whether an index only counts the rows, in their order."""
    texts = list(map(str, names))
    return any(texts == list(map(str, range(first, first + len(names)))) for first in (0, 1))
