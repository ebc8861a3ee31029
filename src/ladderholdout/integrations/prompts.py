"""Searches for prompts: they go by training items, and their finalists query the holdout.

For the optimisers of MLflow (`mlflow.genai.optimize_prompts`), of DSPy, and GEPA. The first two ask
for what they are given by its methods, so that neither is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ladderholdout.arguments import function, whole
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, OverlapError
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.batches import Batch, Finalist, held_by, winner_of
from ladderholdout.guard.open_ladder import Origin, Predictions, ladder_of
from ladderholdout.identity.copies import copy_of


@dataclass(slots=True)
class _Tried:
    """The scores of a candidate on items of the training side, by item."""

    prompts: dict[str, str]
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[int, float]:
        """First those that were tried on most items: few scores are uncertain."""
        return len(self.scores), float(np.mean(list(self.scores.values())))


class _Program:
    """A program as a model with ``predict``: one call for each item."""

    def __init__(self, answer: Callable[[list[Any]], list[Any]]) -> None:
        self._answer = answer

    def predict(self, X: Any) -> list[Any]:
        return self._answer(_items(X))


_Candidate: TypeAlias = tuple[float | None, Callable[[list[Any]], list[Any]], Any, Any]
"""The score of a candidate on the training side, what answers items, its description, its name."""


class _Guarded:
    """What both optimisers have in common: the holdout, its items, and who of them won."""

    finalists_: tuple[Finalist, ...]

    @property
    def _search(self) -> str:
        """What the history calls the search."""
        return type(self.optimizer).__name__

    def __init__(
        self,
        optimizer: Any,
        holdout: Any,
        *,
        inputs: Callable[[Any], Mapping[str, Any]],
        output: Callable[[Any], Any] | None = None,
        finalists: int = 3,
    ) -> None:
        self._ladder = ladder_of(holdout)
        self.optimizer, self.holdout = optimizer, holdout
        self._inputs = function("inputs", inputs, "a function of one item")
        output = _same if output is None else output
        self._output = function("output", output, "a function of one item")
        self._count = whole("finalists", finalists)

    def _refuse_items(self, examples: Iterable[Any]) -> None:
        """Refuse items of the holdout among those that the search goes by."""
        items = [self._inputs(row) for row in _items(copy_of(self._ladder.rows(checked=True).X))]
        known, names = set(map(_key, items)), sorted({name for item in items for name in item})
        seen = [{name: _part(example, name) for name in names} for example in examples]
        lacking = sum(not names or _LACKS in example.values() for example in seen)
        if lacking:
            raise InvalidArgument(
                "inputs",
                "a function whose names all training items have: by them it is known whether they "
                "are items of the holdout",
                f"one of {', '.join(map(repr, names)) or 'no name'}, and {lacking} of {len(seen)} "
                "items lack one",
                "Return only names that the training items have, at least one.",
            )
        shared = sum(_key(example) in known for example in seen)
        if shared:
            raise OverlapError(
                f"{shared} of the training items are items of the holdout "
                f"{self._ladder.facts.name!r}, with their references: a search that sees the "
                "score of each item learns them. "
                "Give the optimiser other items; its finalists alone query the holdout."
            )

    def _confirm(self, candidates: list[_Candidate]) -> int:
        """Query the holdout with the distinct finalists, and return the place of the winner."""
        ladder = self._ladder
        chosen: list[tuple[int, Predictions]] = []
        for index, (_, answer, *_) in enumerate(candidates):
            if len(chosen) == self._count:
                break
            predictions = ladder.predict(_Program(answer))
            if not any(predictions.equals(known) for _, known in chosen):
                chosen.append((index, predictions))
        with Batch(ladder) as batch:
            for index, predictions in chosen:
                noted = {"search": self._search, "prompts": candidates[index][2]}
                batch.add(predictions, Origin(context=noted))
        incumbent, held = held_by(ladder, batch.releases)
        self.finalists_ = tuple(
            Finalist(candidates[index][3], candidates[index][0], release, is_incumbent)
            for (index, _), release, is_incumbent in zip(chosen, batch.releases, held, strict=True)
        )
        return chosen[winner_of(self.finalists_, incumbent)][0]

    @property
    def _released(self) -> float | None:
        """The released score, where a finalist is the incumbent."""
        scores = (each.release.score for each in self.finalists_ if each.is_incumbent)
        return next(scores, None)


class GuardedPromptOptimizer(_Guarded):
    """An optimiser for ``mlflow.genai.optimize_prompts`` whose finalists query a holdout.

    The optimiser inside goes by ``train_data`` and its scorers, as without a guard. When it ends,
    the prompts with the best scores there, its own choice among them, answer for the holdout's
    items and are submitted as one batch; the incumbent is what is returned and registered.

    Parameters
    ----------
    optimizer : BasePromptOptimizer
        Such as ``GepaPromptOptimizer`` or ``MetaPromptOptimizer``.
    holdout : LadderHoldout
        Of items with their references (see `ladderholdout.metrics.metric_of_items`).
    inputs : callable
        From an item of the holdout to the inputs of ``predict_fn``, a mapping.
    output : callable, optional
        From an answer of ``predict_fn`` to the prediction; by default the answer itself.
    finalists : int, default=3
        How many prompts query the holdout.

    Attributes
    ----------
    finalists_ : tuple of Finalist
        In the order in which they queried the holdout. Their `candidate` has the prompts.

    Raises
    ------
    OverlapError
        From ``optimize``: items of the holdout are among ``train_data``.
    """

    def optimize(
        self,
        eval_fn: Callable[..., Any],
        train_data: list[dict[str, Any]],
        target_prompts: dict[str, str],
        enable_tracking: bool = True,
    ) -> Any:
        """Search by the training items, and confirm the finalists; MLflow calls this.

        Parameters
        ----------
        eval_fn : callable
        train_data : list of dict
        target_prompts : dict of str to str
        enable_tracking : bool, default=True

        Returns
        -------
        PromptOptimizerOutput
            With the winner's prompts. Its final score is the released one, None where the winner
            is not the incumbent.

        Raises
        ------
        InvalidArgument
            ``predict_fn`` failed on an item of the holdout, or a scorer on an answer without its
            reference.
        """
        commands.check_open(self._ladder)
        self._refuse_items(item["inputs"] for item in train_data)
        tried: dict[str, _Tried] = {}

        def noting(prompts: dict[str, str], dataset: list[dict[str, Any]]) -> Any:
            results = eval_fn(prompts, dataset)
            scores = tried.setdefault(_key(prompts), _Tried(dict(prompts))).scores
            for item in results:
                if item.score is not None:
                    scores[_key(item.inputs)] = float(item.score)
            return results

        result = self.optimizer.optimize(noting, train_data, target_prompts, enable_tracking)
        best = _Tried(dict(result.optimized_prompts))
        best = tried.get(_key(best.prompts), best)
        others = [known for known in tried.values() if known.scores and known is not best]
        others.sort(key=lambda known: known.rank)
        candidates: list[_Candidate] = [
            (
                known.rank[1] if known.scores else None,
                partial(self._answers, eval_fn, known.prompts),
                known.prompts,
                known.prompts,
            )
            for known in (best, *others[::-1])
        ]
        winner = candidates[self._confirm(candidates)][2]
        return replace(
            result,
            optimized_prompts=winner,
            final_eval_score=self._released,
            final_eval_score_per_scorer={},
        )

    def _answers(
        self, eval_fn: Callable[..., Any], prompts: dict[str, str], items: list[Any]
    ) -> list[Any]:
        asked = [{"inputs": dict(self._inputs(item))} for item in items]
        try:
            results = eval_fn(prompts, asked)
        except LadderHoldoutError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise InvalidArgument(
                "scorers",
                "such that they take answers without a reference (expected_response is None)",
                f"such that one raised {kind}",
                "Return 0 there: what it returns for items of the holdout is not read.",
            ) from None
        return [self._output(result.outputs) for result in results]


class GuardedCompiler(_Guarded):
    """An optimiser of DSPy whose finalists query a holdout.

    The optimiser inside compiles by its own examples and metric, as without a guard. When it ends,
    the programs with the best scores there (``candidate_programs``), its own choice first, answer
    for the holdout's items and are submitted as one batch.

    Parameters
    ----------
    optimizer : dspy.teleprompt.Teleprompter
        Such as ``BootstrapFewShotWithRandomSearch``, ``COPRO`` or ``MIPROv2``.
    holdout : LadderHoldout
        Of items with their references (see `ladderholdout.metrics.metric_of_items`).
    inputs : callable
        From an item of the holdout to the inputs of the program, a mapping.
    output : callable
        From a prediction of the program to what is submitted: ``lambda one: one.answer``.
    finalists : int, default=3
        How many programs query the holdout.

    Attributes
    ----------
    finalists_ : tuple of Finalist
        In the order in which they queried the holdout. Their `candidate` is the place in
        ``candidate_programs``, None for the optimiser's own choice.

    Raises
    ------
    OverlapError
        From ``compile``: items of the holdout are among the examples.
    """

    def compile(self, student: Any, **given: Any) -> Any:
        """Compile by the training examples, and confirm the finalists.

        Parameters
        ----------
        student : dspy.Module
        **given
            For the ``compile`` of the optimiser: ``trainset=``, ``valset=`` and others.

        Returns
        -------
        dspy.Module
            The winner.
        """
        commands.check_open(self._ladder)
        for name in ("trainset", "valset"):
            self._refuse_items(dict(example.inputs()) for example in given.get(name) or ())
        program = self.optimizer.compile(student, **given)
        listed = getattr(program, "candidate_programs", None) or []
        places = sorted(range(len(listed)), key=lambda place: -float(listed[place]["score"]))

        def answers(program: Any, items: list[Any]) -> list[Any]:
            return [self._output(program(**self._inputs(item))) for item in items]

        # The optimiser's own choice goes first, by whatever it was chosen.
        programs: list[tuple[float | None, Any, int | None]] = [(None, program, None)]
        programs += [(float(listed[at]["score"]), listed[at]["program"], at) for at in places]
        candidates: list[_Candidate] = [
            (score, partial(answers, program), type(program).__name__, place)
            for score, program, place in programs
        ]
        return programs[self._confirm(candidates)][1]


class GuardedGepa(_Guarded):
    """GEPA with a holdout: candidates survive by other items, and the finalists query the holdout.

    ``optimize`` takes what ``gepa.optimize`` takes. When that ends, the candidates with the best
    scores on ``valset`` (or on ``trainset``, where there is none) answer for the holdout's items
    and are submitted as one batch; the incumbent is the winner. GEPA never sees an item of the
    holdout, nor a score of one.

    Parameters
    ----------
    holdout : LadderHoldout
        Of items with their references (see `ladderholdout.metrics.metric_of_items`).
    answer : callable
        From a candidate, which is a mapping from components to texts, and an item of the holdout
        to the answer that is judged.
    inputs : callable
        From an item of the holdout to the mapping by which GEPA's examples are known: of an
        example with these keys and the same values the labels would be seen.
    finalists : int, default=3
        How many candidates query the holdout.

    Attributes
    ----------
    finalists_ : tuple of Finalist
        In the order in which they queried the holdout. Their `candidate` is the place in
        ``result_.candidates``.
    result_ : gepa.GEPAResult
        What GEPA returned: all candidates, with their scores on its own items.

    Raises
    ------
    OverlapError
        From ``optimize``: items of the holdout are among the examples.
    """

    result_: Any

    def __init__(
        self,
        holdout: Any,
        *,
        answer: Callable[[Mapping[str, str], Any], Any],
        inputs: Callable[[Any], Mapping[str, Any]],
        finalists: int = 3,
    ) -> None:
        super().__init__(None, holdout, inputs=inputs, finalists=finalists)
        self._answer = function("answer", answer, "a function of a candidate and an item")

    @property
    def _search(self) -> str:
        return "GEPA"

    def optimize(
        self,
        seed_candidate: Mapping[str, str],
        trainset: Sequence[Any],
        valset: Sequence[Any] | None = None,
        **given: Any,
    ) -> dict[str, str]:
        """Search by the examples, and confirm the finalists.

        Parameters
        ----------
        seed_candidate : mapping of str to str
        trainset, valset : sequence of mapping
            Other items than those of the holdout, with what the adapter needs to score them.
        **given
            For ``gepa.optimize``: ``adapter=``, ``max_metric_calls=`` and others.

        Returns
        -------
        dict of str to str
            The winner.
        """
        with needed("A search by GEPA"):
            from gepa import optimize
        commands.check_open(self._ladder)
        self._refuse_items([*trainset, *(valset or ())])
        self.result_ = optimize(
            seed_candidate=dict(seed_candidate), trainset=trainset, valset=valset, **given
        )
        scores = self.result_.val_aggregate_scores
        places = sorted(range(len(scores)), key=lambda place: -scores[place])
        known = [dict(self.result_.candidates[place]) for place in places]
        candidates: list[_Candidate] = [
            (float(scores[place]), partial(self._answers, candidate), candidate, place)
            for place, candidate in zip(places, known, strict=True)
        ]
        return known[self._confirm(candidates)]

    def _answers(self, candidate: Mapping[str, str], items: list[Any]) -> list[Any]:
        return [self._answer(candidate, item) for item in items]


_LACKS = object()


def _part(example: Any, key: str) -> Any:
    """Return what an example has under a name, by key or as an attribute."""
    if isinstance(example, Mapping):
        return example.get(key, _LACKS)
    return getattr(example, key, _LACKS)


def _same(answer: Any) -> Any:
    return answer


def _items(X: Any) -> list[Any]:
    """Return the items of a holdout: of a table with several columns, its rows as mappings."""
    if hasattr(X, "to_dict"):
        records: list[Any] = X.to_dict("records")
        if len(X.columns) > 1:
            return records
        return [next(iter(record.values())) for record in records]
    rows = X.tolist() if hasattr(X, "tolist") else list(X)
    return [row[0] if isinstance(row, list) and len(row) == 1 else row for row in rows]


def _key(inputs: Mapping[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in inputs.items()))
