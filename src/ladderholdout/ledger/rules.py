"""Every release, recomputed from the ledger alone (promise 5).

A rule decides from the evidence that was recorded with each submission, and its noise
comes from the holdout's secret and the submission's number; so no predictions are needed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

from ladderholdout.errors import InvalidArgument
from ladderholdout.ledger.events import LadderSettings, Submitted, Withdrawn
from ladderholdout.mechanisms import MECHANISMS, mechanism_from
from ladderholdout.mechanisms.base import Evidence, State
from ladderholdout.mechanisms.rules import FreshRngs, LadderRules
from ladderholdout.metrics import Evaluation, ItemMetric, Metric, get_metric, scales


@lru_cache(256)
def rules_of(settings: LadderSettings) -> LadderRules:
    """Return the rules a ladder follows; those of the same settings are made once."""
    mechanism = mechanism_from(settings.mechanism, settings.mechanism_settings)
    scale = scales.scale_of(stored_metric(settings))
    return LadderRules(mechanism, settings.budget, settings.unit, scale, settings.show)


@lru_cache(256)
def stored_metric(settings: LadderSettings) -> Metric:
    """Return the metric of a ladder from the ledger alone.

    A metric of the user's own is known by its name and sign, not by its function: the one
    that comes back can show scores, and refuses to compute any.
    """
    stated = settings.metric_settings.get("loss_range")
    if custom := settings.metric_settings.get("custom"):
        score = _Unavailable(bool(custom["counts"]))
        shown = {name: custom[name] for name in ("response", "offset", "root")}
        kind = ItemMetric if custom.get("items") else Metric
        metric = kind(name=settings.metric, score=score, **shown)
    else:
        metric = get_metric(settings.metric)
    if (targets := settings.metric_settings.get("target_range")) is not None:
        largest = float(settings.metric_settings["largest_error"])
        return metric.with_target_range((targets[0], targets[1]), (0.0, largest))
    if (label := settings.metric_settings.get("pos_label")) is not None and not custom:
        metric = metric.with_pos_label(label)
    if settings.metric_settings.get("alike_rows") and not custom:
        metric = metric.with_alike_rows()
    return metric if stated is None else metric.with_risk_range((stated[0], stated[1]))


@dataclass(frozen=True, slots=True)
class _Unavailable:
    """The function of a metric of the user's own, of which the ledger knows this much."""

    counts: bool

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidArgument(
            "scoring",
            "given again for a metric of your own",
            "missing",
            "The ledger keeps its name, not its function: "
            "LadderHoldout.open(name, scoring=metric).",
        )


def not_improved(rules: LadderRules, released: float, first: float) -> tuple[float, bool]:
    """Return the answer to predictions that were submitted before: they improve nothing.

    Predictions that differ from earlier ones on the reserve's rows alone get it as well. It is the
    answer to a query that does not improve, and it steps nothing. So nobody can see which rows are
    the reserve's.

    Parameters
    ----------
    rules : LadderRules
    released : float
        The risk that is released now.
    first : float
        The risk that answered the first submission of these predictions.

    Returns
    -------
    tuple of (float, bool)
    """
    rule = rules.mechanism
    # Where each submission that does not improve has an answer of its own.
    apart = rules.shows_scores and (rule.discloses or rule.redraws or rule.needs_account)
    return (first if apart else released), False


def rule_shown(settings: LadderSettings) -> str:
    """Return the rule as Python writes it; a rule of the user's own may be unknown here."""
    if settings.mechanism in MECHANISMS:
        return repr(rules_of(settings).mechanism)
    given = (f"{name}={value!r}" for name, value in settings.mechanism_settings.items())
    return f"{settings.mechanism}({', '.join(given)})"


def state_to(state: State) -> dict[str, Any]:
    """Return a state as the numbers that the ledger keeps."""
    numbers: dict[str, Any] = {
        "standing": state.standing,
        "noise": state.noise,
        "releases": state.releases,
    }
    if state.places:  # ladders of one account have none
        numbers["places"] = [list(place) for place in state.places]  # as JSON gives it back
    if state.candidates:  # of a gate
        numbers |= {"candidates": state.candidates, "accepted": state.accepted}
    return numbers


def state_from(numbers: Mapping[str, Any], n: int, incumbent: Evaluation | None) -> State:
    """Return the state of the ledger's numbers and its incumbent."""
    places = tuple(map(tuple, numbers.get("places", ())))
    return State(**{**numbers, "n": n, "incumbent": incumbent, "places": places})


class Replay:
    """A ladder's rule, run again on the recorded evidence, one submission after the other.

    Parameters
    ----------
    settings : LadderSettings
    n : int
        Number of rows that the ladder measures.
    secret : bytes
    ladder : int
    """

    __slots__ = ("_draws", "_improved", "_risks", "_rules", "_start", "_state")

    def __init__(self, settings: LadderSettings, n: int, secret: bytes, ladder: int) -> None:
        self._rules = rules_of(settings)
        self._state = self._rules.start(n)
        self._start = self._state.standing
        # The answer to each submission, in nine bytes, for the repeats of any of them.
        self._risks, self._improved = array("d"), bytearray()
        self._draws = FreshRngs(self._rules, secret, ladder)

    def answer(self, one: Submitted) -> tuple[float, bool]:
        """Return the answer to the next submission."""
        if one.repeat_of is None:
            rng = self._draws.of(one.query or 0)
            self._state, outcome = self._rules.replay(self._state, Evidence(**one.evidence), rng)
            answer = outcome.risk, outcome.improved
        else:
            answer = self._risks[one.repeat_of - 1], bool(self._improved[one.repeat_of - 1])
            if one.evidence:  # it was not answered as it was the first time
                answer = not_improved(self._rules, self._state.standing, answer[0])
        if gap := one.number - 1 - len(self._risks):  # where entries were removed
            self._risks.extend([math.nan] * gap)
            self._improved.extend(bytes(gap))
        self._risks.append(answer[0])
        self._improved.append(answer[1])
        return answer

    def back(self, withdrawn: Withdrawn) -> None:
        """Go back to an earlier incumbent; what was spent and the noise stay."""
        if withdrawn.replaced:
            back = withdrawn.incumbent
            standing = self._start if back is None else self._risks[back - 1]
            self._state = replace(self._state, standing=standing)

    @property
    def state(self) -> dict[str, Any]:
        """The state by now, in the numbers that the ledger keeps."""
        return state_to(self._state)
