"""The price of requests: chances of all transcripts add up to at most 1, however it is asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from ladderholdout import InvalidArgument
from ladderholdout.certificates.codes import LadderTranscript, event_length
from ladderholdout.certificates.transcript import Request, Transcript

VALUES = 3
QUERIES = 7


@dataclass(frozen=True)
class Node:
    """What was shown by some moment: which queries improved, and the values that were requested."""

    flags: tuple[bool, ...] = ()
    asked: tuple[tuple[int, int], ...] = ()  # the query that improved, and its value

    @property
    def improved(self) -> tuple[int, ...]:
        return tuple(place for place, flag in enumerate(self.flags, 1) if flag)

    @property
    def ladder(self) -> LadderTranscript:
        values = tuple(value for _, value in self.asked)
        return LadderTranscript(len(self.flags), self.improved, values, VALUES)

    @property
    def by_event(self) -> Transcript:
        """What is paid for the incumbent of this node if it has just improved."""
        before = Node(self.flags[:-1], self.asked)
        own = before.ladder if before.flags else None
        return Transcript.alone(own)

    @property
    def by_request(self) -> Request:
        return Request(len(self.asked) + 1, (self.ladder,))

    def answers(self) -> Iterator[Node]:
        """Return what may follow a query; the first one improves whatever it is."""
        for flag in (True, False) if self.flags else (True,):
            yield Node((*self.flags, flag), self.asked)

    def revealed(self) -> Iterator[Node]:
        """Return what may follow a request: each value is below the ones before."""
        most = self.asked[-1][1] if self.asked else VALUES
        for value in range(most):
            yield Node(self.flags, (*self.asked, (self.improved[-1], value)))


Asks = Callable[[Node], bool]


def chances(asks: Asks, node: Node = Node()) -> tuple[float, float]:
    """Add up the chances of all events, and of all requests, below a node."""
    events = requests = 0.0
    if node.flags and node.flags[-1]:
        events += math.exp(-node.by_event.log_count())
    after = [node]
    if node.flags and node.improved[-1] not in dict(node.asked) and asks(node):
        requests += math.exp(-node.by_request.log_count())
        after = [*node.revealed()]
    for one in after:
        for answer in one.answers() if len(one.flags) < QUERIES else ():
            more = chances(asks, answer)
            events, requests = events + more[0], requests + more[1]
    return events, requests


def by_chance(seed: int) -> Asks:
    """Ask or not, fixed for each node."""
    drawn: dict[Node, bool] = {}
    rng = np.random.default_rng(seed)

    def asks(node: Node) -> bool:
        return drawn.setdefault(node, bool(rng.random() < 0.3 + 0.1 * (seed % 6)))

    return asks


ASKING: dict[str, Asks] = {
    "at once": lambda node: node.flags[-1],
    "never": lambda node: False,
    "after two in a row": lambda node: node.flags[-2:] == (True, True),
    "after bad luck": lambda node: node.flags[-2:] == (False, False),
    "once, at the end": lambda node: len(node.flags) == QUERIES,
    "after a small value": lambda node: not node.asked or node.asked[-1][1] == 1,
    **{f"by chance {seed}": by_chance(seed) for seed in range(8)},
}


@pytest.mark.parametrize("policy", ASKING)
def test_the_chances_of_events_and_of_requests_add_up_to_at_most_one_each(policy: str) -> None:
    events, requests = chances(ASKING[policy])
    assert 0.0 < events <= 1.0 and requests <= 1.0


def test_without_halves_the_chances_of_both_together_would_be_above_one() -> None:
    """So ln 2 is needed: the price of an event and that of a request, each alone, is too low."""
    events, requests = chances(ASKING["at once"])
    assert events + requests > 1.0 >= (events + requests) / 2


def test_requests_that_are_all_numbered_one_would_be_above_one() -> None:
    """The number is needed: with it left out, requests of one search pay less than they reveal."""
    total = 0.0

    def walk(node: Node) -> None:
        nonlocal total
        after = [node]
        if node.flags and node.flags[-1]:
            total += math.exp(event_length(len(node.asked) + 1) - node.by_request.log_count())
            after = [*node.revealed()]
        for one in after:
            for answer in one.answers() if len(one.flags) < QUERIES else ():
                walk(answer)

    walk(Node())
    assert total > 1.0


def test_the_smaller_price_is_paid_and_ln_2_more() -> None:
    own = LadderTranscript(9, (1, 3, 5), (), 101)
    alone = Transcript.alone(own)
    ladder = own.improving()
    for number, queries in itertools.product((1, 2, 40), (10, 5000)):
        told = LadderTranscript(queries, ladder.improved, (), 101)
        request = Request(number, (told,))
        found = Transcript(9, 1, (ladder,), 0.0, 1, 4, 0.0, True, request)
        by_hand = min(alone.log_count(), event_length(number) + told.length())
        assert found.log_count() == pytest.approx(by_hand + math.log(2))
        assert (found.by_request is request) == (found.log_count() < alone.log_count() + 0.69)
    assert Transcript.alone().log_count() == event_length(1)
    with pytest.raises(InvalidArgument, match="on_request=True"):
        Transcript(9, 1, (ladder,), 0.0, 1, 4, request=request)
    with pytest.raises(InvalidArgument, match="number"):
        Request(0, ())
