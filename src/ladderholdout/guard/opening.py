"""Opening a holdout and a ladder on it, and fresh rows in its place: a holdout is its rows.

Fresh rows are a record of their own, a block, with their secret, their ladders and their chain, so
what measures, certifies and replays knows nothing of blocks. `docs/background/fresh_rows.md` shows
why what was released about earlier blocks costs nothing on a new one, and what breaks that.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import errors
from ladderholdout import vault as vaults
from ladderholdout.arguments import as_given, segment, text, whole
from ladderholdout.certificates.advice import stated_range
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.feedback import check_policy
from ladderholdout.guard import containment, open_ladder, recognition, submit
from ladderholdout.guard import rows as guard_rows
from ladderholdout.guard import settings as guard_settings
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.rows import Copies, Given
from ladderholdout.guard.settings import BETWEEN, HoldoutSettings, parted
from ladderholdout.identity import hashing, matching
from ladderholdout.identity.labels import sequence_digest
from ladderholdout.ledger import events, log, place, store
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord, parted_name, refuse_waiting
from ladderholdout.ledger.rules import rules_of, state_to, stored_metric
from ladderholdout.ledger.transaction import Transaction, ViewRecord
from ladderholdout.mechanisms import default_mechanism
from ladderholdout.metrics import METRICS, Metric, arrays, measuring
from ladderholdout.metrics.metric import check_range
from ladderholdout.vault import Place, Rows

CONFIDENCE = 0.95
"""The confidence of a new holdout's certificates, unless another one is stated."""

ROWS_ALIKE = "rows"
"""The estimand of grouped rows unless another one is stated: the mean over rows."""

_REPEATED = "ids that repeat, and so identify no row"
_FILES = " Files and servers keep the order of the first registration; ids allow any order."


@containment.without_frames
def register(X: Any, y: ArrayLike, stated: HoldoutSettings) -> LocalLadder:
    """Find these rows and the stated ladders in the ledger, or start what is missing.

    All of it is one transaction: whatever is refused leaves nothing behind.
    """
    wishes, given = stated.ladders(), guard_rows.given_rows(X, y, stated)
    ledger = store.Ledger(place.resolve_url(stated.ledger), create=True)
    with Copies() as copies, ledger.write() as tx:
        match = recognition.recognise(tx, given)
        known = None if match is None else match.record
        folder = guard_rows.vault_folder(ledger.url, stated.vault)
        if stated.vault is None and known is not None:
            folder = guard_rows.folder_of(known.vault_path)
        wanted = [_wanted(tx, known, given.rows, wish) for wish in wishes]
        if wanted[0][0] is None and not stated.metrics and parted(wishes[0].ladder)[1] is not None:
            raise errors.InvalidArgument(
                "ladder",
                f"without {BETWEEN!r} for a new ladder of one metric",
                "one with it",
                "Ladders of several metrics are named so; to start them, scoring= takes a list.",
            )
        _agree(known, stated)
        if match is None:
            record = _register(tx, given, stated)
        else:
            record = match.record
            given.order, given.groups = matching.inverse(match.places), match.groups
        groups = given.in_groups(record.estimand)
        if match is not None:
            _agree_reserve(record, groups, stated.reserve)
        sizes = record.n_ladder, guard_rows.draws_of(record, groups)[1]
        reserved = record.reserve is not None
        new = [
            None if ladder else guard_settings.settings_for(wish, metric, *sizes, reserved=reserved)
            for wish, (ladder, metric, _) in zip(wishes, wanted, strict=True)
        ]
        if match is not None:
            # Locked from here on, and compared with what this machine has seen of it.
            tx.hold(record.id)
            _go_on(tx, copies, match, given, stated.name)
            record = tx.holdout(record.id)
        ladders = []
        for wish, settings, (ladder, metric, classes) in zip(wishes, new, wanted, strict=True):
            if classes is not None and record.classes is None:
                record = tx.set_classes(record.id, classes)
            if settings is not None:
                ladder = _start_ladder(tx, record, given, settings, metric, classes, wish)
                _warn_of_others(tx, record, ladder)
            assert ladder is not None
            ladders.append((ladder, metric))
        if given.ids_repeat and record.estimand is None:
            tx.note_grouped(record.id, _REPEATED)
            recognition.warn_of_groups(_REPEATED)
        record = _kept(tx, copies, record, given, folder)
    return _held(ledger, record, given, ladders, stated)


def _kept(
    tx: Transaction, copies: Copies, record: HoldoutRecord, given: Given, folder: Place | None
) -> HoldoutRecord:
    """Copy the rows to their folder, unless they are there unharmed.

    Of new rows it is noted then what they are known by. It comes last in a transaction, for a file
    is not undone with it.
    """
    known = tx.fold(record.id)
    view = known.views[given.view - 1]
    path = view.vault_path
    is_there = folder == guard_rows.folder_of(path)
    if not is_there or (path is not None and not vaults.intact(path, str(view.vault_digest))):
        # The vault keeps the order of the view, which handles in other processes rely on.
        if given.foreign and folder is not None:
            raise errors.InvalidArgument(
                "X",
                "in the order it was registered in, to write its vault anew",
                "in another order",
                "Give the rows as they were the first time.",
            )
        path = copies.write(tx, record.id, view, given.rows, folder)
    if known.known is None:
        tx.fill(record.id, *guard_rows.pieces_of(record.secret, given))
    given.vault_path, given.order = path, given.order.astype(np.intp, copy=False)
    return tx.holdout(record.id)


def _held(
    ledger: store.Ledger,
    record: HoldoutRecord,
    given: Given,
    ladders: Sequence[tuple[LadderRecord, Metric]],
    stated: HoldoutSettings,
) -> LocalLadder:
    """Return the ladder that was opened with these rows, or those of several metrics."""
    guard, opened, groups = None, [], given.in_groups(record.estimand)
    given.hashes.sort()
    for started, metric in ladders:
        ladder = _opened(ledger.url, record, started, metric, stated, given.view)
        if guard is None:
            rows = given.rows, given.view, given.hashes, given.order, groups
            guard = submit.Guard(ledger, record, started, metric, *rows)
        else:  # the rows are in memory once
            guard = guard.of_ladder(started, metric)
        ladder.order, ladder.foreign = guard.order, given.foreign
        ladder.carried = given.rows if given.vault_path is None else None
        ladder.keep(guard)
        opened.append(ladder)
    metrics = stated.metrics
    return _joined(dict(zip(metrics, opened, strict=True))) if metrics else opened[0]


def _joined(by_metric: Mapping[str, LocalLadder]) -> LocalLadder:
    """Return the ladders of several metrics as one."""
    return replace(next(iter(by_metric.values())), by_metric=by_metric)


def _opened(
    url: str,
    holdout: HoldoutRecord,
    record: LadderRecord,
    metric: Metric,
    stated: HoldoutSettings,
    view: int,
) -> LocalLadder:
    """Return a ladder of the ledger, and remember it among those of this process."""
    facts = open_ladder.facts_of((url, holdout.id), holdout, record)
    check_policy(stated.feedback, shows_scores=facts.rules.shows_scores)
    policies = stated.feedback, stated.overlap
    ladder = LocalLadder(url, record.id, record.created, metric, *policies, view)
    ladder.remember(facts)
    return ladder


# -- a holdout that is known by its name ----------------------------------------------------


def reopen(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with the ladders of a registered holdout, by what `LadderHoldout.open` takes."""
    name, scoring = text("name", stated.name), stated.scoring

    def look(tx: Transaction) -> tuple[str, ...]:
        """Return the metrics under the name of the ladder; none where that is of one."""
        there = _ladders_named(tx, named(tx, name), stated.account, stated.ladder)
        return () if None in there else tuple(filter(None, there))

    with containment.without_frames:
        known = store.Ledger(place.resolve_url(stated.ledger)).transact(look, place.Access.READ)
    metrics = stated.metrics
    if not metrics and not known:
        return reopen_ladder(stated, view)
    if isinstance(scoring, str | Metric):
        metrics = {scoring if isinstance(scoring, str) else scoring.name: scoring}
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise errors.UnknownHoldout(
            f"The ladder {stated.ladder!r} of account {stated.account!r} on {name!r} has no "
            f"metric {', '.join(map(repr, unknown))}. "
            f"It has: {', '.join(map(repr, known)) or 'one'}."
        )
    ladders = {}
    for metric in metrics or known:
        # By its name here, which may not be the metric's own.
        own = None if metrics.get(metric) == metric else metrics.get(metric)
        ladder = f"{stated.ladder}{BETWEEN}{metric}"
        ladders[metric] = reopen_ladder(replace(stated, scoring=own, ladder=ladder), view)
    return next(iter(ladders.values())) if isinstance(scoring, str | Metric) else _joined(ladders)


def reopen_ladder(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with the ladder of one metric, by what `LadderHoldout.open` takes."""
    name, ledger = text("name", stated.name), store.Ledger.opened(place.resolve_url(stated.ledger))
    (wish,), number = stated.ladders(), None if view is None else whole("view", view)

    def find(tx: Transaction) -> tuple[HoldoutRecord, LadderRecord, ViewRecord]:
        """Return the holdout, its ladder, and one of its views or the newest."""
        found = named(tx, name)
        known = find_ladder(tx, found, stated.account, wish.ladder)
        if known is not None:
            return found, known, tx.view(found.id, number)
        ladders = [one.settings for one in tx.ladders(found.id)]
        there = [f"{one.account}/{one.name}" for one in ladders]
        close = errors.did_you_mean(f"{stated.account}/{wish.ladder}", there)
        raise errors.UnknownHoldout(
            f"{name!r} has no ladder {wish.ladder!r} of account {stated.account!r}. Its ladders: "
            f"{', '.join(there) or 'none'}. {close}".rstrip()
        )

    with containment.without_frames:
        holdout, record, seen = ledger.transact(find, place.Access.READ)
    metric = wish.going_on(holdout.name, record.settings).for_classes(holdout.classes)
    return _opened(ledger.url, holdout, record, metric, stated, seen.number)


def named(tx: Transaction, name: str) -> HoldoutRecord:
    """Return a holdout by name; the error for an unknown name lists the known ones."""
    found = tx.holdouts(name=name)
    if not found:
        known = [one.name for one in tx.holdouts()]
        there = f"It holds: {', '.join(map(repr, known)) or 'none yet'}."
        close = errors.did_you_mean(name, known)
        raise errors.UnknownHoldout(f"The ledger has no holdout {name!r}. {there} {close}".rstrip())
    return found[0]


def _ladders_named(
    tx: Transaction, holdout: HoldoutRecord, account: str, base: str
) -> dict[str | None, LadderRecord]:
    """Return the ladders under one name, by metric, oldest first; that of one metric by None."""
    ladders = {}
    for ladder in tx.ladders(holdout.id):
        name, metric = parted(ladder.settings.name)
        if (ladder.settings.account, name) == (account, base):
            ladders[metric] = ladder
    return ladders


def find_ladder(
    tx: Transaction, holdout: HoldoutRecord, account: str, name: str
) -> LadderRecord | None:
    """Return a ladder of a holdout by its name, if there is one."""
    base, metric = parted(name)
    return _ladders_named(tx, holdout, account, base).get(metric)


def by_first_order(ladder: open_ladder.OpenLadder) -> None:
    """Take predictions in the order of the first registration, as all files have them."""
    for local in (ladder, *ladder.by_metric.values()):
        if isinstance(local, LocalLadder):
            local.first_order = True


# -- rows that the ledger does not know ---------------------------------------------------


def _register(tx: Transaction, given: Given, stated: HoldoutSettings) -> HoldoutRecord:
    """Register rows that the ledger does not know."""
    name = segment("name", stated.name or f"holdout-{hashing.fingerprint(given.hashes)[:8]}")
    seen = recognition.judge_shared(tx, given, stated.overlap)
    if tx.holdouts(name=name):
        raise errors.HoldoutConflict(
            f"The name {name!r} is in the ledger for other rows. Take another name, give the rows "
            "that it was registered with, or let these follow them: "
            f"LadderHoldout.open({name!r}).replenish(X, y)."
        )
    if parted_name(name)[1] is not None:
        raise errors.InvalidArgument(
            "name",
            "a text without @ and a number at its end, which names an earlier block of a holdout",
            as_given(name),
        )
    reserve = guard_rows.reserve_of(given.draws, stated.reserve, given.drawn)
    estimand = None if given.groups is None else stated.estimand or ROWS_ALIKE
    confidence = stated.confidence or CONFIDENCE
    record = _start(tx, given, reserve, name=name, confidence=confidence, estimand=estimand)
    for other, ours, covered in seen:
        tx.note_overlap(record.id, f"the holdout {other.name}", ours)
        tx.note_overlap(other.id, f"the holdout {name}", covered)
    return record


def _start(tx: Transaction, given: Given, reserve: int, **stated: Any) -> HoldoutRecord:
    """Start the record of rows, whose order by content is known then.

    Parameters
    ----------
    reserve : int
        How many of them, or of their groups, no ladder measures.
    **stated
        What `Registered` has besides: of rows that take the place of others also what
        `Transaction.pass_on` returns.
    """
    secret = os.urandom(32)
    contents = hashing.content_hashes(given.hashes, given.rows.y, given.rows.sample_weight)
    order = np.argsort(contents, kind="stable")
    if len(order) <= 2**32:
        # Until all is written half the bytes do.
        order = order.astype(np.uint32)
    given.order = order
    contents = contents[order]
    hashes = log.as_bytes(given.hashes)
    registered = events.Registered(
        **stated,
        fingerprint=hashing.fingerprint(given.hashes),
        content=sequence_digest(secret, contents).hex(),
        n=len(given),
        row_hashes=hashlib.sha256(hashes).hexdigest(),
        time=log.now(),
    )
    new = tx.start(registered, secret, hashes)
    if reserve:
        # In the order of the content: so it is found again in whatever order the rows come.
        groups = given.in_groups(registered.estimand)
        drawn = guard_rows.draw(secret, given.draws, reserve)
        tx.set_reserve(new, drawn[order if groups is None else groups.codes])
    recognition.warn_of_copies(registered.name, given)
    return tx.holdout(new)


# -- rows that it knows -------------------------------------------------------------------


def _agree(known: HoldoutRecord | None, stated: HoldoutSettings) -> None:
    """Refuse another confidence than the rows were registered with, or another estimand."""
    grouped = stated.groups is not None or (known is not None and known.estimand is not None)
    if stated.estimand is not None and not grouped:
        raise errors.InvalidArgument(
            "estimand",
            "left out where there are no groups: then it is the mean over rows",
            repr(stated.estimand),
            "Name the groups of the rows, groups=.",
        )
    if known is None:
        return
    another = f"; certificate(confidence={stated.confidence}) gives another one at a price"
    for argument, more in (("confidence", another), ("estimand", "")):
        there, here = getattr(known, argument), getattr(stated, argument)
        if here not in (None, there):
            raise errors.HoldoutConflict(
                f"{known.name!r} was registered with {argument}={there!r}, and you state "
                f"{here!r}. Leave it out to go on with that{more}."
            )


def _agree_reserve(known: HoldoutRecord, groups: Groups | None, share: float | None) -> None:
    """Refuse another reserve than the rows were registered with."""
    (draws, measured), drawn = guard_rows.draws_of(known, groups), "groups" if groups else "rows"
    count, kept = guard_rows.reserve_of(draws, share, drawn), draws - measured
    if share is not None and count != kept:
        registered = f"a reserve of {kept} {drawn}" if kept else "no reserve"
        raise errors.HoldoutConflict(
            f"{known.name!r} was registered with {registered} out of {draws}, and you ask for "
            f"{count}. Leave reserve= out to go on with that: rows that ladders have measured are "
            "no reserve any more, and those of a reserve must not be measured."
        )


def _go_on(
    tx: Transaction, copies: Copies, match: recognition.Match, given: Given, name: str | None
) -> None:
    """Record what is new of known rows, with a warning.

    The warning also covers what is known under another name or in another order.
    """
    known, view = match.record, match.view
    if name not in (None, known.name):
        _say(
            f"These rows are known as {known.name!r} (registered {known.created:%Y-%m-%d}). "
            f"Another name does not start afresh: going on with {known.name!r}."
        )
    if match.known.ids is not None and not tx.has_ids(known.id):
        tx.set_known(known.id, match.known)
    if view is None:
        fingerprint = hashing.fingerprint(given.hashes)
        view = tx.add_view(known.id, fingerprint, given.hashes, match.places)
        _say(
            f"These are the rows of {known.name!r} with other features, known {match.how}: they "
            f"are recorded as view {view.number} of it, and its ladders go on."
            + ("" if np.array_equal(match.places, match.known.places) else _FILES)
        )
    else:
        given.foreign = not np.array_equal(match.places, view.places)
    given.view = view.number
    if given.foreign:
        _say(
            f"These are the rows of {known.name!r} in another order. `submit` takes "
            f"predictions in the order given here.{_FILES}"
        )
    if match.amended is not None:
        tx.amend(known.id, match.known, match.amended)
        copies.amend(tx, known.id, given)
        count = int(match.amended.sum())
        _say(
            f"{count} of the {known.n} labels of {known.name!r} differ{'s' * (count == 1)} from "
            "the record, which is amended: submissions so far were scored with the labels "
            "before, the ladders go on, and a new one (ladder=) scores everything anew and counts "
            "together with them."
        )


def _say(message: str) -> None:
    errors.warn(message, errors.KnownHoldoutWarning)


# -- fresh rows ---------------------------------------------------------------------------


@containment.without_frames
def replenish(
    ladder: LocalLadder,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    ids: Any = None,
    groups: Any = None,
    training: Any = None,
    reserve: float | None = None,
) -> LocalLadder:
    """Register fresh rows as the newest block of a holdout, with all of its ladders.

    All of it is one transaction: whatever is refused, and whoever is killed, leaves the block
    before in its place.

    Parameters
    ----------
    ladder : LocalLadder
        Of the block before. With ``overlap="auto"`` any row that is known is refused.
    X, y, sample_weight, ids, groups, training, reserve
        As for `LadderHoldout.replenish`.

    Returns
    -------
    LocalLadder
        The one that follows it.
    """
    stated = HoldoutSettings(
        scoring={name: one.metric for name, one in ladder.by_metric.items()} or None,
        sample_weight=sample_weight,
        ids=ids,
        groups=groups,
        reserve=reserve,
        feedback=ladder.feedback,
        overlap=ladder.overlap,
    )
    ledger, own, guard = store.Ledger.opened(ladder.ledger), ladder.each.values(), ladder.guard()
    given = guard_rows.given_rows(X, y, stated, guard.rows.X)
    recognition.refuse_trained(given, training)
    with Copies() as copies, ledger.write() as tx:
        (holdout_id,) = {tx.ladder(one.id, one.since).holdout_id for one in own}
        name = tx.newest(holdout_id).name
        before = tx.holdout(holdout_id)
        recognition.check_named(before, given, tx.known(holdout_id))
        shared = recognition.refuse_known(tx, given, before, guard.rows, stated.overlap)
        recognition.check_columns(given.rows.X, guard.rows.X)
        if 10 * len(given) < before.n:
            slip = f"{len(given)}, less than a tenth of the {before.n} before"
            errors.warn(f"The fresh rows are {slip}.", errors.TargetWarning)
        if before.classes is not None and len({*np.ravel(given.rows.y).tolist()}) == 1:
            errors.warn("The fresh rows are of one class alone.", errors.TargetWarning)
        draws, measured = guard_rows.draws_of(before, guard.groups)
        reserved = guard_rows.reserve_of(given.draws, stated.reserve, given.drawn)
        if stated.reserve is None and before.n_reserve:
            share = 1.0 - measured / draws
            reserved = min(max(1, round(given.draws * share)), given.draws - 1)
        stays = {"name": name, "confidence": before.confidence, "estimand": before.estimand}
        record = _start(tx, given, reserved, **stays, **tx.pass_on(holdout_id))
        for other_id, count in shared.items():
            tx.note_overlap(record.id, f"the holdout {tx.holdout(other_id).name}", count)
        if before.classes is not None:
            record = tx.set_classes(record.id, before.classes)
        metrics = [one.metric for one in own]
        groups = given.in_groups(record.estimand)
        sizes = measured, guard_rows.draws_of(record, groups)[1]
        started, warned = {}, set()
        for earlier in tx.ladders(holdout_id):
            metric = _metric_of(earlier.settings, metrics)
            settings = _settings_now(earlier.settings, metric, before, record, sizes)
            classes = _classes(record, metric, given.rows, None)
            kind = settings, metric.for_classes(classes), classes
            described = f"{settings.metric} {settings.metric_settings}"
            is_new = described not in warned
            warned.add(described)
            new = _start_ladder(tx, record, given, *kind, is_new=is_new)
            started[earlier.id] = new, kind[1]
        by_id = {earlier_id: new.id for earlier_id, (new, _) in started.items()}
        _carry_over(tx, holdout_id, record.id, by_id)
        record = _kept(tx, copies, record, given, guard_rows.folder_of(before.vault_path))
    return _held(ledger, record, given, [started[one.id] for one in own], stated)


def _carry_over(tx: Transaction, before: int, after: int, ladders: Mapping[int, int]) -> None:
    """Let accounts and leaderboards go on, with rounds and teams; what waits is refused.

    What the rows so far were stated to be, those that follow them are, too.
    """
    known = tx.hold(before)
    accounts = list(known.accounts.values())
    if accounts:
        moved = (replace(account, ladder=ladders.get(account.ladder or 0)) for account in accounts)
        tx.add(after, *moved)
        tx.add(before, events.AccountsMoved())
    for earlier in tx.ladders(before):
        following, rounds = ladders[earlier.id], known.rounds.get(earlier.id)
        if rounds is not None:
            refuse_waiting(rounds, earlier.settings.name)
            tx.add(after, events.RoundsBegun(ladder=following, hours=rounds.hours, time=log.now()))
        for _, noted in known.noted:
            if noted.ladder == earlier.id and noted.what in ("merged", "left"):
                tx.note(after, noted.what, following, **noted.detail)
    for sign in known.grouped().items():
        tx.note_grouped(after, *sign)
    if known.spent_at:
        tx.note(after, "spent", widths=known.spent_at)


def _metric_of(settings: events.LadderSettings, known: Sequence[Metric]) -> Metric:
    """Return the metric of a ladder, with its function where the caller has it."""
    asked = settings.metric, settings.metric_settings
    same = (one for one in known if (one.name, guard_settings.metric_settings(one)) == asked)
    return next(same, None) or stored_metric(settings)


def _settings_now(
    settings: events.LadderSettings,
    metric: Metric,
    before: HoldoutRecord,
    record: HoldoutRecord,
    draws: tuple[int, int],
) -> events.LadderSettings:
    """Return the settings of a ladder on the fresh rows: as they were, but for default steps.

    Where nobody stated a rule, its steps are those for as many rows as there are now.
    """
    sizes = (before.n_ladder, record.n_ladder) if metric.is_mean else draws
    reserved = record.n_reserve > 0
    earlier, fresh = (default_mechanism(metric, size, reserved=reserved) for size in sizes)
    if (settings.mechanism, settings.mechanism_settings) != (earlier.name, earlier.settings()):
        return settings
    return replace(settings, mechanism=fresh.name, mechanism_settings=fresh.settings())


# -- ladders ------------------------------------------------------------------------------


def _wanted(
    tx: Transaction, known: HoldoutRecord | None, rows: Rows, wish: HoldoutSettings
) -> tuple[LadderRecord | None, Metric, NDArray[Any] | None]:
    """Return the wished ladder, if there is one, its metric, and the classes of the rows.

    One metric is refused where a ladder's name belongs to several, and the other way round.
    """
    (base, of_several), ladder = parted(wish.ladder), None
    if known is not None:
        there = _ladders_named(tx, known, wish.account, base)
        ladder, several = there.get(of_several), [*filter(None, there)]
        if of_several is not None and None in there:
            raise errors.HoldoutConflict(
                f"The ladder {base!r} of account {wish.account!r} on {known.name!r} is of one "
                "metric, and you ask for several. Give these a name of their own, "
                "ladder='several', which counts against the same holdout."
            )
        if of_several is None and several:
            raise errors.HoldoutConflict(
                f"The ladder {base!r} of account {wish.account!r} on {known.name!r} is of several "
                f"metrics: {', '.join(several)}. Go on with them, scoring={several}, with one of "
                f"them, LadderHoldout.open({known.name!r}, scoring={several[0]!r}), or start "
                'another ladder, ladder="another name".'
            )
    metric = wish.metric
    if known is not None and ladder is not None:
        metric = wish.going_on(known.name, ladder.settings)
    if metric is None:
        raise errors.InvalidArgument(
            "scoring",
            "stated for a new ladder",
            "missing",
            f'Name a metric as scikit-learn does, scoring="accuracy" (there are {len(METRICS)}), '
            "or give a Metric.",
        )
    classes = _classes(known, metric, rows, wish.classes)
    return ladder, metric.for_classes(classes), classes


def _classes(
    known: HoldoutRecord | None, metric: Metric, rows: Rows, stated: ArrayLike | None
) -> NDArray[Any] | None:
    if stated is not None and not metric.is_classification:
        raise errors.InvalidArgument(
            "classes", f"left out for {metric.name}, a regression", "stated"
        )
    if stated is not None and metric.binary and metric.pos_label is None:
        in_order = arrays.label_vector(stated, "classes").tolist()
        if in_order != np.unique(in_order).tolist():  # it implies another positive class
            raise errors.InvalidArgument(
                "classes",
                f"in sorted order for {metric.name!r}, which is about the second",
                "in another order",
                "If the first of the sorted ones is meant, state pos_label= with that one.",
            )
    # Predictions are kept as places in this list, so it is fixed once and for all.
    fixed = None if known is None else known.classes
    classes = metric.classes_of(rows.y, fixed if stated is None else stated)
    if fixed is not None and classes is not None and not np.array_equal(fixed, classes):
        raise errors.HoldoutConflict(
            "classes= differs from the classes that this holdout was registered with. Leave it "
            "out to go on with those."
        )
    with containment.without_autologging():
        # Refuses what the metric cannot score, and a stated range that misses some of it.
        check_range(metric.stated_targets, metric.targets(rows.labels, classes))
    return classes


def _warn_of_others(tx: Transaction, record: HoldoutRecord, started: LadderRecord) -> None:
    """Warn of a new ladder if there are others on these rows; refuse new names that are none."""
    others = [ladder for ladder in tx.ladders(record.id) if ladder.id != started.id]
    settings, (base, of_several) = started.settings, parted(started.settings.name)
    for argument, name in (("account", settings.account), ("ladder", settings.name)):
        if not any(name in (one.settings.account, one.settings.name) for one in others):
            segment(argument, name)
    # The ladders of several metrics are one thing to their user: the warning names the first.
    beside = of_several and len(_ladders_named(tx, record, settings.account, base)) > 1
    if others and not beside:
        count = sum(ladder.submissions for ladder in others)
        _say(
            f"This opens ladder {base!r} of account {settings.account!r} on the holdout "
            f"{record.name!r}, which has {len(others)} already with {count} submissions. They "
            "count together: a new account or ladder does not make a used holdout fresh."
        )


def _start_ladder(
    tx: Transaction,
    record: HoldoutRecord,
    given: Given,
    settings: events.LadderSettings,
    metric: Metric,
    classes: NDArray[Any] | None,
    wish: HoldoutSettings | None = None,
    *,
    is_new: bool = True,
) -> LadderRecord:
    """Start a ladder on rows.

    Whoever starts a ladder holds the rows with their labels, so that what is refused, and what is
    warned of if the metric `is_new`, shows nothing new. Nobody reads the reserve's own labels,
    neither here nor before a query.
    """
    rules, rows = rules_of(settings), given.rows
    weights, labels = rows.sample_weight, rows.labels
    if weights is not None and rules.mechanism.flags_alone:
        allowed = f"left out, for {settings.mechanism} takes no weights"
        remedy = "Leave sample_weight out, or take a mechanism for rows with weights."
        raise errors.InvalidArgument(
            "sample_weight", allowed, "stated", "" if wish is None else remedy
        )
    with containment.without_autologging():
        if record.reserve is not None:
            measured = ~record.reserve[matching.inverse(given.order)]
            if weights is not None and not (weights[measured].any() and weights[~measured].any()):
                allowed = "positive among the reserve's rows and among the others"
                raise errors.InvalidArgument(
                    "sample_weight", allowed, "zero everywhere in one of the two"
                )
            labels = labels[measured]
            try:
                metric.targets(labels, classes)
            except errors.InvalidArgument:
                raise errors.InvalidArgument(
                    "reserve",
                    f"one that leaves the ladders rows on which {metric.name!r} has a value",
                    "another",
                    "Take a smaller share, more rows, or a metric that needs less of them.",
                ) from None
        if is_new and classes is not None:
            _check_numbers(metric, rows.labels, classes)
        if is_new and metric.clip and not metric.is_classification:
            _warn_of_narrow_range(metric, metric.targets(labels, None))
        if wish is not None and classes is not None:
            _warn_of_targets(metric, rows, classes, stated=wish.classes is not None)
    return tx.add_ladder(record.id, settings, state_to(rules.start(record.n_ladder)))


def _check_numbers(metric: Metric, labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse classes whose numbers a function of the user's reads: it receives their positions.

    Known by predictions that are wrong in some rows. A function that raises for the numbers
    themselves looks the classes up by their positions.
    """
    numbered = classes.dtype.kind not in "iuf" or np.array_equal(classes, np.arange(len(classes)))
    if metric.response != "labels" or numbered or measuring.is_ours(metric):
        return
    targets = metric.targets(labels, classes)
    shifted = np.roll(targets, 1).astype(np.int32)
    try:
        by_number = measuring.measure(metric, classes[targets], classes[shifted]).risk
    except (errors.InvalidArgument, errors.InvalidSubmission, errors.MetricError):
        return
    if not math.isclose(measuring.measure(metric, targets, shifted).risk, by_number, abs_tol=1e-12):
        raise errors.InvalidArgument(
            "y",
            f"of the classes 0 to {len(classes) - 1}, whose numbers {metric.name!r} reads",
            f"of {len(classes)} classes with other numbers",
            "It receives positions among the sorted classes. Number them before anything is "
            "trained, y = np.searchsorted(np.unique(y), y), or let it look them up: "
            "classes[targets], classes[predictions].",
        )


# The share of clipped losses from which on a range is called narrow.
_MANY = 0.05
# From so many numbers on, with so few rows for each, they are hardly names of classes.
_FEW, _ROWS_FOR_EACH = 20, 5


def _warn_of_narrow_range(metric: Metric, targets: NDArray[Any]) -> None:
    """Warn where the mean target, predicted for every row, has losses outside of the range.

    Once, to whoever starts the ladder and so holds the labels: how many losses of a submission
    were clipped is for an audit alone.
    """
    means = np.broadcast_to(targets.mean(axis=0), targets.shape)
    clipped = metric.evaluate(targets, means).clipped
    if clipped is not None and clipped > _MANY * len(targets):
        errors.warn(
            f"{stated_range(metric)} is narrow for these targets: many losses are "
            "beyond it where their mean is predicted for every row. Intervals and gates, not "
            f"released scores, are of {metric.clipping}, in the unit that {metric.name} shows.",
            errors.RangeWarning,
        )


def _warn_of_targets(metric: Metric, rows: Rows, classes: NDArray[Any], *, stated: bool) -> None:
    """Warn of targets that a metric takes and is not meant for, where a ladder is started.

    Parameters
    ----------
    stated : bool
        Whether the caller named the classes, and so which of two is the second.
    """
    counts, n = np.bincount(metric.targets(rows.labels, classes)), len(rows.y)
    n_classes = np.count_nonzero(counts)
    if n_classes == 1 and n > 1:
        errors.warn(
            "All rows of this holdout have the same class: a prediction of it for every row has "
            "the best score there is, and no search can be judged. Take rows of every class.",
            errors.TargetWarning,
        )
    if classes.dtype.kind in "iuf" and n_classes > _FEW and n < _ROWS_FOR_EACH * n_classes:
        errors.warn(
            f"The targets are numbers with many values, and {metric.name} takes each for a class "
            'of its own. For measured targets take a regression metric, such as "r2".',
            errors.TargetWarning,
        )
    if metric.binary and classes.dtype.kind == "U" and not stated and metric.pos_label is None:
        errors.warn(
            f"{metric.name} is about one of two classes, and here that is the second in the order "
            "of the alphabet. If the first is meant, start another ladder with it: pos_label= with "
            'that class, and ladder="another name". If the second is meant, pos_label= states it.',
            errors.TargetWarning,
        )
