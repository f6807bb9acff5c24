"""Requests for read barriers, as the search has them: beside the one other, each with a number."""

from __future__ import annotations

from tests.model.beginning import goes_on
from tests.model.planting import begun, history
from tests.model.quorum import Action, Quorum, State

ANSWER: Action = ("deliver", 1, 3)


def test_the_answer_to_a_barrier_that_was_given_up_is_not_the_next_ones() -> None:
    """Found by the search, in its own numbering of requests: the core gives each its own number."""
    history(
        ("append", 1), ("deliver", 1, 2), ("barrier", 3), ("deliver", 3, 1), ("deliver", 1, 2),
        ("flushed", 2), ("timer", 1, "unflushed"), ("timer", 3, "barriers"), ("flushed", 1),
        *(("deliver", 2, 1),) * 3, ("barrier", 3), *(ANSWER,) * 3,
    )  # fmt: skip


def test_it_is_not_that_of_a_later_one() -> None:
    """Found by a reviewer: the numbers began at the first again when a barrier was answered."""
    quorum, state = begun()
    for actions in (
        (("barrier", 3),), (("timer", 3, "barriers"), ("resign", 1)), (("append", 2),),
        (("barrier", 3),), (("append", 2),),
    ):  # fmt: skip
        state = without_answer(quorum, goes_on(quorum, state, *actions))
    state = goes_on(quorum, state, ("barrier", 3))
    assert state.channels[quorum.place[1, 3]]
    while state.channels[quorum.place[1, 3]]:
        state = goes_on(quorum, state, ANSWER)


def without_answer(quorum: Quorum, state: State) -> State:
    """Let all happen that goes on by itself, but that 1 is heard by 3."""
    known: set[State] = set()
    while state not in known:
        known.add(state)
        for action in quorum.default_order(state):
            after = None if action == ANSWER else quorum.apply(state, action)
            if after is not None and after not in known:
                state = after
                break
    return state


def test_a_barrier_goes_beside_a_fetch() -> None:
    """Found by a reviewer: a request for a barrier was lost where a Fetch beside it was answered,
    and its stale reads with it."""
    quorum, state = begun(streaming=False)
    goes_on(quorum, state, ("barrier", 3), ("append", 1), ANSWER, ("calm",))
    assert quorum.oracle.looked["read"] == 1
