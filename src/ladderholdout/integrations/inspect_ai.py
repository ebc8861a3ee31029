"""Inspect: a scorer whose answers are one submission to a holdout, and a reader of its logs.

The task has no targets: `held_out` records what the model answered, and when all items are
answered the metric of the scorer submits them. What the log keeps of the holdout was released.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import OpenLadder, Origin, ladder_of, of_one_metric
from ladderholdout.guard.opening import reopen
from ladderholdout.guard.settings import HoldoutSettings
from ladderholdout.integrations import evaluations
from ladderholdout.remote.ladder import connect

with needed("A scorer of Inspect"):
    from inspect_ai.log import read_eval_log_samples
    from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
    from inspect_ai.solver import TaskState

_TIMEOUT = 60.0
_ANSWERED = "answered"  # what a sample has for a score; NaN would keep it from the metric
_UNREAD = {"events", "store", "messages"}


@dataclass(slots=True)
class _Run:
    """A scorer, which has a run for each time that a task is evaluated with it."""

    ladder: OpenLadder
    reading: evaluations.Reading
    # By what was answered: Inspect computes metrics several times, and the holdout is asked once.
    released: dict[frozenset[evaluations.Answer], dict[str, float]] = field(default_factory=dict)


# By a number of its own, and by its arguments: a retry has answers that another process recorded.
_runs: dict[str, _Run] = {}
# Holdouts that are no names: in memory, or with a metric of one's own.
_held: dict[tuple[str, str, str], OpenLadder] = {}


def held_out(holdout: Any, *, pattern: str | None = None, otherwise: str | None = None) -> Scorer:
    """Return a scorer for a task of Inspect whose references are in a holdout.

    When all items were answered, the answers are submitted, once. The results of the log have
    what was released: `released` (the score of the incumbent, where the ladder shows scores),
    `improved` or, by a gate, `accepted`, and `submission`. As long as rows have no answer they
    have `missing` instead, and nothing is submitted.

    Parameters
    ----------
    holdout : LadderHoldout
        Of one metric, local or behind a server, registered with the samples' ids. With epochs it
        has a row for each answer, with the ids ``ID/EPOCH`` and the items as groups.
    pattern, otherwise : str, optional
        What of an answer is the prediction, and the class that answers count as which are none:
        see `Reading`.

    Returns
    -------
    Scorer
        ``ladderholdout/holdout``; `by_name` makes it of a name, for a task in a file and for
        ``inspect score``.

    Raises
    ------
    InvalidArgument
        It is no holdout, has no ids, or a metric for which a text is no prediction.
    HoldoutConflict
        It takes no more submissions.

    Examples
    --------
    >>> from inspect_ai import Task
    >>> from inspect_ai.dataset import Sample
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.metrics import metric_of_items
    >>> exact = metric_of_items("exact", lambda reference, answer: reference == answer)
    >>> names, sums = ["a", "b"], ["2 + 2", "3 + 4"]
    >>> holdout = LadderHoldout(sums, ["4", "7"], scoring=exact, ids=names, ledger="memory")
    >>> samples = [Sample(id=name, input=text) for name, text in zip(names, sums)]
    >>> task = Task(dataset=samples, scorer=held_out(holdout))  # eval(task, model=...) submits
    """
    ladder = ladder_of(holdout)
    facts = ladder.facts
    _held[facts.name, facts.account, facts.ladder] = ladder
    try:
        return by_name(facts.name, None, facts.account, facts.ladder, pattern, otherwise)
    finally:
        del _held[facts.name, facts.account, facts.ladder]


@metric(name="released", scores="unreduced")
def _released() -> Metric:
    """Submit the answers when all rows have one, and return what is released."""

    def compute(scores: list[SampleScore]) -> Value:
        noted = [score.score.metadata or {} for score in scores]
        run = _run_of(noted)
        if run is None:  # of a log that another process wrote: its holdout was asked then
            return {}
        answers = [
            evaluations.Answer(score.sample_id, note["epoch"], score.score.answer or "")
            for score, note in zip(scores, noted, strict=True)
        ]
        missing = run.ladder.facts.n - len(answers)
        if missing > 0:
            return {"missing": missing}
        key = frozenset(answers)
        if key not in run.released:
            run.released[key] = _submitted(run, answers, noted[0]["model"])
        return dict(run.released[key])

    return compute


def _run_of(noted: list[dict[str, Any]]) -> _Run | None:
    """Return the scorer that recorded the answers, or else one with the same arguments."""
    for name in ("run", "scorer"):
        for note in noted:
            if note.get(name) in _runs:
                return _runs[note[name]]
    return None


def _submitted(run: _Run, answers: list[evaluations.Answer], model: str) -> dict[str, float]:
    """Submit all answers, and return what may be known, in numbers."""
    # The pattern was applied when each was recorded.
    predictions = evaluations.submission_of(
        run.ladder, answers, evaluations.Reading(otherwise=run.reading.otherwise)
    )
    origin = Origin(search="Inspect", context={"estimator": model})
    if run.ladder.facts.rules.mechanism.flags_alone:
        decision = run.ladder.decide(predictions, origin)
        return {"accepted": float(decision.accepted), "submission": float(decision.submission)}
    release = run.ladder.submit(predictions, origin)
    shown = {} if release.score is None else {"released": float(release.score)}
    more = {"improved": float(release.improved), "submission": float(release.submission)}
    return shown | more


@scorer(metrics=[_released()], name="holdout")
def by_name(
    name: str,
    server: str | None = None,
    account: str = "default",
    ladder: str = "main",
    pattern: str | None = None,
    otherwise: str | None = None,
) -> Scorer:
    """Return the scorer of a holdout that is registered under a name; see `held_out`.

    The ledger is what LADDERHOLDOUT_LEDGER names, or the default one, and a token is in
    LADDERHOLDOUT_TOKEN or its file: Inspect writes the arguments of a scorer into the log.

    Parameters
    ----------
    name : str
    server : str, optional
        The URL of a server that has it, instead of a ledger.
    account, ladder : str
        Whose ladder, and which, in a ledger.
    pattern, otherwise : str, optional
        As for `held_out`.

    Returns
    -------
    Scorer

    Raises
    ------
    UnknownHoldout, AccessDenied
        As from `LadderHoldout.open` and `LadderHoldout.connect`.
    """
    run = _Run(_opened(name, server, account, ladder), evaluations.Reading(pattern, otherwise))
    commands.check_open(run.ladder)
    evaluations.check_takes_answers(run.ladder)
    known = uuid4().hex
    alike = json.dumps([name, server, account, ladder, pattern, otherwise])
    _runs[known] = _runs[alike] = run

    async def score(state: TaskState, target: Target) -> Score:
        answer = run.reading.of(state.output.completion)
        note = {"run": known, "scorer": alike, "epoch": state.epoch, "model": str(state.model)}
        return Score(value=_ANSWERED, answer=answer, metadata=note)

    return score


def _opened(name: str, server: str | None, account: str, ladder: str) -> OpenLadder:
    if server is not None:
        path = f"/holdouts/{quote(name, safe='')}"
        url = server.rstrip("/").removesuffix(path) + path
        return of_one_metric(connect(url, None, None, "auto", "auto", _TIMEOUT))
    known = _held.get((name, account, ladder))
    if known is not None:
        return known
    return of_one_metric(reopen(HoldoutSettings(name=name, account=account, ladder=ladder)))


def answers_of(path: Path, ids: str | None = None) -> list[evaluations.Answer]:
    """Read the answers in a log of Inspect; see `evaluation_logs.answers_in`.

    Parameters
    ----------
    path : Path
        Ending in .eval or .json.
    ids : str, optional
        A field of the samples' metadata that has the ids of the items.

    Returns
    -------
    list of Answer

    Raises
    ------
    InvalidArgument
        It is no such log, has no samples, or a sample failed.
    """
    answers = []
    try:
        for sample in read_eval_log_samples(
            path, all_samples_required=False, resolve_attachments="core", exclude_fields=_UNREAD
        ):
            item = sample.id if ids is None else sample.metadata.get(ids)
            failed = sample.error is not None
            answers.append((item, sample.epoch, sample.output.completion, failed))
    except Exception as fault:  # its text may show a sample, with its target
        came = f"{path}, which cannot ({type(fault).__name__})"
        raise InvalidArgument("the file", "one that reads as a log of Inspect", came) from None
    if not answers:
        raise InvalidArgument("the file", "a log with samples", f"{path}, which has none")
    for number, (item, epoch, _, failed) in enumerate(answers, 1):
        if not isinstance(item, int | str):
            came = f"without one in sample {number}"
            raise InvalidArgument("ids", "a field of each sample's metadata with its id", came)
        if failed:
            came = f"an error for {item!r} in epoch {epoch}"
            remedy = "Run it again: inspect eval-retry."
            raise InvalidArgument("the log", "one in which every item was answered", came, remedy)
    return [evaluations.Answer(item, epoch, text) for item, epoch, text, _ in answers]
