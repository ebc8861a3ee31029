"""One or several metrics: predictions for each of them, and all of their answers or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidSubmission, PredictionWarning, warn
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.of_metrics import ALONE, naming
from ladderholdout.guard.open_ladder import OpenLadder, Origin
from ladderholdout.guard.rows import values_of
from ladderholdout.guard.submit import Answer, Guard, Judged, Measured, judge_all
from ladderholdout.ledger.fold import Head
from ladderholdout.ledger.place import Access
from ladderholdout.ledger.postgres import Stale
from ladderholdout.ledger.transaction import Asked, Transaction

_RESPONSES = ("labels", "probabilities", "scores", "values")


def sources_of(ladder: OpenLadder, predictions: Any) -> dict[str, tuple[Any, bool]]:
    """Return what was given for each metric, and whether its second column is meant."""
    if not ladder.by_metric:
        return {ALONE: (predictions, False)}
    responses = {name: each.metric.response for name, each in ladder.by_metric.items()}
    if not isinstance(predictions, Mapping):
        kinds = set(responses.values())
        if len(kinds) > 1 and kinds != {"probabilities", "scores"}:
            raise _refusal(responses, "one array")
        kind = "probabilities" if len(kinds) > 1 else kinds.pop()
        predictions = {kind: predictions}
    if set(predictions) == set(responses):
        return {name: (predictions[name], False) for name in responses}
    if not set(predictions) <= set(_RESPONSES):
        raise _refusal(responses, f"a mapping with {', '.join(map(repr, predictions))}")
    sources, used = {}, set()
    for name, response in responses.items():
        # The score of an estimator without a decision function is the same.
        as_scores = response == "scores" and response not in predictions
        source = "probabilities" if as_scores else response
        if source not in predictions:
            lacking = source if source in responses.values() else response
            raise _refusal(responses, f"a mapping without {lacking!r}")
        sources[name] = predictions[source], as_scores
        used.add(source)
    unused = set(predictions) - used
    if unused:
        more = ", ".join(map(repr, sorted(unused)))
        raise _refusal(responses, f"a mapping with {more} as well")
    return sources


def _refusal(responses: Mapping[str, str], came: str) -> InvalidSubmission:
    """Return the refusal of predictions that are not what the metrics take."""
    metrics = ", ".join(f"{name!r} takes {kind}" for name, kind in responses.items())
    kinds = dict.fromkeys(responses.values())
    if "probabilities" in kinds:  # which serve where scores are asked for
        kinds.pop("scores", None)
    wanted = ", ".join(f"{kind!r}: ..." for kind in kinds)
    return InvalidSubmission(
        "predictions",
        f"given for each of the metrics ({metrics})",
        came,
        f"Submit {{{wanted}}}, or an estimator: holdout.submit(model).",
    )


def warn_of_labels(ladder: OpenLadder, predictions: Any) -> None:
    """Warn of labels where scores to rank by were wanted."""
    for name, (source, as_scores) in sources_of(ladder, predictions).items():
        metric = (ladder.by_metric.get(name) or ladder).metric
        if as_scores or (metric.response != "scores" and not metric.name.startswith("roc_auc")):
            continue
        # A fact about predictions alone.
        values = np.unique(np.asarray(values_of(source), dtype=np.float64))
        if len(values) == 2 and bool((values == np.round(values)).all()):
            warn(
                f"{metric.name} ranks the rows, and these predictions have two values only, like "
                "labels: submit decision_function(X) or predict_proba(X) instead of predict(X).",
                PredictionWarning,
            )


def answered(
    guards: Mapping[str, Guard],
    placed: Sequence[tuple[Mapping[str, Any], NDArray[np.intp] | None]],
    origins: Sequence[Origin],
) -> list[dict[str, Answer]]:
    """Judge sets of predictions on the ladders of one or several metrics, in one transaction.

    All answers are in the ledger before it returns, or none: what one metric refuses goes to none.

    Parameters
    ----------
    guards : mapping of str to Guard
        The guard of each metric; `ALONE` names the one of a holdout of one metric.
    placed : sequence of (mapping, ndarray or None)
        Predictions of shape (n,) or (n, n_classes) by metric, and their order as in `Placed`.
    origins : sequence of Origin
        An announced batch is judged with its best member first (`Guard.best_first`).

    Returns
    -------
    list of dict of str to Answer
        By metric, in the order of `placed`.
    """
    # A rule may measure once more, with other weights, so it steps under this as well.
    with without_autologging():
        while True:
            sets: dict[int, tuple[Guard, list[Measured]]] = {
                guard.ladder.id: (guard, []) for guard in guards.values()
            }
            for (given, order), origin in zip(placed, origins, strict=True):
                for number, (name, guard) in enumerate(guards.items(), 1):
                    own = origin
                    # Of several metrics a place in a batch represents one model and one of them:
                    # so the price of a place pays for the choice of both.
                    if origin.place is not None:
                        own = replace(origin, place=(origin.place - 1) * len(guards) + number)
                    with naming(name):
                        member = guard.measure(given[name], own, order)
                    sets[guard.ladder.id][1].append(member)
            answers = _answers_to(sets, None if ALONE in guards else list(guards))
            if answers is not None:
                each = zip(*answers.values(), strict=True)
                return [dict(zip(guards, own, strict=True)) for own in each]
            for guard in guards.values():  # labels were amended meanwhile
                guard.reload()


def _answers_to(
    sets: Mapping[int, tuple[Guard, Sequence[Measured]]], metrics: Sequence[str] | None
) -> dict[int, list[Answer]] | None:
    """Answer what was measured, in one transaction; None where labels were amended since."""
    lead, first = next(iter(sets.values()))
    names = None if metrics is None else dict(zip(sets, metrics, strict=True))

    def judge(tx: Transaction, asked: Sequence[Asked], left: Head | None = None) -> Judged | None:
        home = tx.locked_ladder(lead.ladder.id, lead.ladder.created, asked=asked, left=left)
        return judge_all(tx, home, sets, names)

    write, asked, judged = lead.ledger.transact, [submission.asked for submission in first], None
    course = None if len(sets) > 1 or first[0].origin.announced else lead.course
    if course and (left := course.left_for(asked)):
        known = [each._replace(first=course.firsts.get(each.digest)) for each in asked]
        with suppress(Stale):
            judged = write(partial(judge, asked=known, left=left), Access.LADDER)
    # Where there is a reserve, rounds that agree on all other rows are asked for one by one.
    ahead = asked if lead.holdout.reserve is None or len(asked) == 1 else ()
    judged = judged or write(partial(judge, asked=ahead), Access.LADDER)
    if course and judged:
        course.note(judged, asked)
    return judged and judged[0]
