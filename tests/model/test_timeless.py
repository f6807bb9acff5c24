"""Between two steps no time is kept, but which directory of an id was heard later is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core.replication.leader import Leader
from kraftfast.errors import ErrorCode
from kraftfast.types import ReplicaKey
from tests.model.beginning import goes_on, key_of
from tests.model.content import content_print
from tests.model.planting import begun
from tests.model.timeless import NOW_MS, rank_heard, state_of

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

OLD, NEW = key_of(2), ReplicaKey(2, b"b" * 16)
FETCHES: tuple[Action, ...] = (
    ("crash", 2, 0, 0), ("wipe", 2, "empty"), ("start", 2), ("calm",),
)  # fmt: skip


def replaced() -> tuple[Quorum, State]:
    """Return a leader of which the second replica fetches with another disk than before."""
    quorum, state = begun(ids=(1, 2), voters=(1,), dynamic=True, streaming=False, wipes=("empty",))
    return quorum, goes_on(quorum, state, *FETCHES)


def leader_of(quorum: Quorum, state: State) -> Leader:
    leader = state_of(quorum.turns.host_of(state.replicas[0]).replica).leader
    assert leader is not None
    return leader


def test_the_disk_that_was_heard_later_is_known_after_a_rest() -> None:
    leader = leader_of(*replaced())
    old, new = (leader.observers[key] for key in (OLD, NEW))
    assert leader.successor_of(old) is new and leader.successor_of(new) is None
    assert new.last_fetch_ms == old.last_fetch_ms, "nothing else of when is known"


def test_what_is_heard_again_and_again_makes_no_new_states() -> None:
    quorum, state = replaced()
    before = [each.last_heard_ms for each in leader_of(quorum, state).observers.values()]
    assert sorted(before) == [NOW_MS - 2, NOW_MS - 1]
    for _ in range(3):
        state = quorum.apply(state, ("timer", 1, "parked_deadline_ms")) or state
        state = quorum.calm(state)
    after = [each.last_heard_ms for each in leader_of(quorum, state).observers.values()]
    assert after == before


def test_states_that_differ_in_that_alone_are_two_under_all_names() -> None:
    quorum, state = replaced()
    for names in ({}, {2: 3, 3: 2}):
        host: Any = quorum.turns.host_of(state.replicas[0])
        leader = state_of(host.replica).leader
        assert leader is not None
        old, new = (leader.observers[key] for key in (OLD, NEW))
        before = content_print(host, names)
        old.last_heard_ms, new.last_heard_ms = new.last_heard_ms, old.last_heard_ms
        assert content_print(host, names) != before
        assert leader.successor_of(new) is old


def test_a_reassignment_removes_a_disk_that_was_replaced_and_is_silent() -> None:
    quorum, state = begun(ids=(1, 2, 3, 4), voters=(1, 2, 3), dynamic=True, wipes=("empty",))
    asks: tuple[Action, ...] = (
        ("crash", 4, 0, 0), ("assign", 1, (1, 2, 4)), ("calm",),
        ("probed", 1, ErrorCode.NETWORK_EXCEPTION),
    )  # fmt: skip
    state = goes_on(quorum, state, *FETCHES, *asks)
    moves: tuple[Action, ...] = (("timer", 1, "move_at_ms"), ("calm",))
    assert OLD in quorum.see(goes_on(quorum, state, *moves), 1).voters.keys
    state = goes_on(quorum, state, ("timer", 1, "silent 2"), *moves)
    assert OLD not in quorum.see(state, 1).voters.keys


def test_ranks_keep_what_never_was_and_what_was_at_once() -> None:
    class Heard:
        def __init__(self, id: int, heard_ms: int) -> None:
            self.key, self.last_heard_ms = ReplicaKey(id, bytes(16)), heard_ms

    every = [Heard(2, 7), Heard(3, 50), Heard(2, -1), Heard(2, 90), Heard(2, 90), Heard(3, 50)]
    rank_heard(tuple(every))
    found = [each.last_heard_ms for each in every]
    last = NOW_MS - 1
    assert found == [last - 1, last, -1, last, last, last]
