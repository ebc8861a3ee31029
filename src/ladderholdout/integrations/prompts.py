"""Searches for prompts: they go by training items, and their finalists query the holdout.

For the optimisers of MLflow (`mlflow.genai.optimize_prompts`) and of DSPy. Both ask for what they
are given by its methods, so that neither is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ladderholdout.errors import InvalidArgument, LadderHoldoutError, OverlapError, as_given
from ladderholdout.guard.batches import Batch
from ladderholdout.guard.finalists import Finalist, winner_of
from ladderholdout.guard.open_ladder import Predictions, check_open, ladder_of
from ladderholdout.identity import copy_of
from ladderholdout.mechanisms.arithmetic import whole


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


class _Guarded:
    """What both optimisers have in common: the holdout, its items, and who of them won."""

    finalists_: tuple[Finalist, ...]

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
        self._inputs = _function("inputs", inputs)
        self._output = _same if output is None else _function("output", output)
        self._count = whole("finalists", finalists)

    def _refuse_items(self, examples: Iterable[Mapping[str, Any]]) -> None:
        """Refuse items of the holdout among those that the search goes by."""
        rows = _items(copy_of(self._ladder.rows(checked=True).X))
        mine = {_key(self._inputs(row)) for row in rows}
        shared = sum(_key(one) in mine for one in examples)
        if shared:
            raise OverlapError(
                f"{shared} of the training items are items of the holdout "
                f"{self._ladder.facts.name!r}, with their references: a search that sees the "
                "score of each item learns them. "
                "Give the optimiser other items; its finalists alone query the holdout."
            )

    def _confirm(
        self, candidates: list[tuple[float | None, Callable[[list[Any]], list[Any]], Any]]
    ) -> int:
        """Query the holdout with the distinct finalists, and return the place of the winner."""
        ladder = self._ladder
        chosen: list[tuple[int, Predictions]] = []
        for at, (_, answer, _) in enumerate(candidates):
            if len(chosen) == self._count:
                break
            predictions = ladder.predict(_Program(answer))
            if not any(predictions.equals(known) for _, known in chosen):
                chosen.append((at, predictions))
        with Batch(ladder) as batch:
            for at, predictions in chosen:
                described = {"search": type(self.optimizer).__name__, "prompts": candidates[at][2]}
                batch.add(predictions, described)
        incumbent, held = batch.held()
        self.finalists_ = tuple(
            Finalist(at, candidates[at][0], release, mine)
            for (at, _), release, mine in zip(chosen, batch.releases, held, strict=True)
        )
        return chosen[winner_of(self.finalists_, incumbent)][0]

    @property
    def _released(self) -> float | None:
        """The released score, where a finalist is the incumbent."""
        held = [one.release.score for one in self.finalists_ if one.is_incumbent]
        return held[0] if held else None


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
        In the order in which they queried the holdout.

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
        check_open(self._ladder)
        self._refuse_items(one["inputs"] for one in train_data)
        tried: dict[str, _Tried] = {}

        def noting(prompts: dict[str, str], dataset: list[dict[str, Any]]) -> Any:
            found = eval_fn(prompts, dataset)
            one = tried.setdefault(_key(prompts), _Tried(dict(prompts)))
            one.scores |= {_key(it.inputs): float(it.score) for it in found if it.score is not None}
            return found

        result = self.optimizer.optimize(noting, train_data, target_prompts, enable_tracking)
        known = [one for one in tried.values() if one.scores]
        best = _Tried(dict(result.optimized_prompts))
        best = tried.get(_key(best.prompts), best)
        others = sorted((one for one in known if one is not best), key=lambda it: it.rank)[::-1]

        def answering(prompts: dict[str, str]) -> Callable[[list[Any]], list[Any]]:
            return lambda items: self._answers(eval_fn, prompts, items)

        candidates = [
            (one.rank[1] if one.scores else None, answering(one.prompts), one.prompts)
            for one in (best, *others)
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
        asked = [{"inputs": dict(self._inputs(one))} for one in items]
        try:
            found = eval_fn(prompts, asked)
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
        return [self._output(one.outputs) for one in found]


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
        In the order in which they queried the holdout.

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
        check_open(self._ladder)
        for name in ("trainset", "valset"):
            self._refuse_items(dict(one.inputs()) for one in given.get(name) or ())
        program = self.optimizer.compile(student, **given)
        listed = getattr(program, "candidate_programs", None) or []
        others = sorted(listed, key=lambda one: -float(one["score"]))

        def answering(one: Any) -> Callable[[list[Any]], list[Any]]:
            return lambda items: [self._output(one(**self._inputs(item))) for item in items]

        # The optimiser's own choice goes first, by whatever it was chosen.
        programs = [(None, program), *((float(it["score"]), it["program"]) for it in others)]
        candidates = [(score, answering(one), type(one).__name__) for score, one in programs]
        return programs[self._confirm(candidates)][1]


def _same(answer: Any) -> Any:
    return answer


def _function(argument: str, given: Any) -> Callable[[Any], Any]:
    if not callable(given):
        raise InvalidArgument(argument, "a function of one item", as_given(given))
    return given  # type: ignore[no-any-return]


def _items(X: Any) -> list[Any]:
    """Return the items of a holdout: of a table with several columns, its rows as mappings."""
    if hasattr(X, "to_dict"):
        found: list[Any] = X.to_dict("records")
        return found if len(X.columns) > 1 else [next(iter(one.values())) for one in found]
    rows = X.tolist() if hasattr(X, "tolist") else list(X)
    return [one[0] if isinstance(one, list) and len(one) == 1 else one for one in rows]


def _key(inputs: Mapping[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in inputs.items()))
