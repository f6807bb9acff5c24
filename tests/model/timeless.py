"""A replica to which time does not pass: pauses are over, timers are far away until one is fired.

So any order of timers is possible, and no clock is part of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.replica import Replica
from kraftfast.core.state import QuorumState
from tests.model.storing import attributes_of

NOW_MS = 400_000
"""Longer than a leader remembers an observer that is silent: what never was is long ago."""
FAR_MS = 10**6

PRESENT = {
    "fetch_at_ms",
    "download_at_ms",
    "campaign_at_ms",
    "retry_at_ms",
    "ready_at_ms",
    "barriers_asked_ms",
    "flush_began_ms",
    "flushing_since_ms",
    "unflushed_since_ms",
}
"""Now: pauses, which are over at once, and the age of what is being flushed."""
PAST = {
    "began_ms",
    "begun_ms",
    "renewed_ms",
    "reading_ms",
    "gained_ms",
    "last_push_ms",
    "last_fetch_ms",
    "last_caught_up_ms",
    "handed_over_ms",
    "since_ms",
}
"""Now, if they were later than that; -1 stands for never, what was made old stays old."""
STAYS_OVER = ("fetch_deadline_ms", "membership_at_ms")
"""Once over, so until a leader is heard: a witness and an observer do nothing but grant then. What
a follower asks of its leader waits for the answer that is under way: most of the time, on sockets.
"""
IN_ORDER = "last_heard_ms"
"""Only which directory of an id was heard later is kept; all that were are heard lately."""

ROLE_TIMERS = (
    "election_deadline_ms",
    "fetch_deadline_ms",
    "stream_deadline_ms",
    "update_at_ms",
    "membership_at_ms",
    "check_quorum_deadline_ms",
    "begin_quorum_epoch_at_ms",
    "parked_deadline_ms",
    "move_at_ms",
)

OF_ITSELF = ("unflushed", "begin_quorum_epoch_at_ms")
"""Timers that go on whatever happens: they cost nothing."""


def state_of(replica: Replica) -> QuorumState:
    """Return what the replica remembers."""
    found: QuorumState = replica._state
    return found


def timed(state: QuorumState) -> Iterator[Any]:
    """Yield every object in which times are kept."""
    yield state
    yield state.log
    yield state.current
    yield from state.barriers
    yield state.request_epochs
    yield state.answer_epochs
    yield from state.peers._peers.values()
    leader = state.leader
    if leader is not None:
        yield from leader.voters.values()
        yield from leader.observers.values()
        yield from leader.parked
        yield from leader.barriers
        yield from leader.leases.values()
        if leader.change is not None:
            yield leader.change
        if leader.transfer is not None:
            yield leader.transfer


_TIMES: dict[type, tuple[tuple[str, int], ...]] = {}
_TO_PRESENT, _TO_PAST, _TO_FAR, _IF_AHEAD_TO_FAR = range(4)


def times_of(kind: type, thing: Any) -> tuple[tuple[str, int], ...]:
    """Return which attributes of a class are times, and what becomes of each."""
    found = _TIMES.get(kind)
    if found is None:
        names = [each for each in attributes_of(kind, thing) if each.endswith("_ms")]
        found = _TIMES[kind] = tuple(
            (each, becomes(each))
            for each in names
            if each != IN_ORDER and not each.endswith(("timeout_ms", "backoff_ms"))
        )
    return found


def becomes(name: str) -> int:
    """Return what becomes of a time between two steps."""
    if name in STAYS_OVER:
        return _IF_AHEAD_TO_FAR
    return _TO_PRESENT if name in PRESENT else _TO_PAST if name in PAST else _TO_FAR


def rest(replica: Replica) -> None:
    """Take the time out of a replica between two steps."""
    state = state_of(replica)
    state.fetch_failures = state.failover_round = 0
    if state.follower is not None:
        state.follower.downloads_refused = 0
    state.request_epochs.spent = state.answer_epochs.spent = 0
    for each in timed(state):
        for name, rule in times_of(type(each), each):
            value = getattr(each, name)
            if not -NEVER_MS < value < NEVER_MS:
                continue
            if rule == _TO_FAR or rule == _IF_AHEAD_TO_FAR and value > NOW_MS:
                setattr(each, name, FAR_MS)
            elif rule == _TO_PRESENT or value > NOW_MS:
                setattr(each, name, NOW_MS)
    log = state.log
    log.flushing_end_offset = log.flushing_end_offset if log.flushing else 0
    log.flushing_bytes = min(log.flushing_bytes, 1)
    log.unflushed_bytes = min(log.unflushed_bytes, 1)
    leader = state.leader
    if leader is not None:
        every = (*leader.voters.values(), *leader.observers.values())
        for progress in every:
            progress.last_fetch_log_end_offset = 0
        rank_heard(every)
        if leader.change is not None and leader.change.deadline_ms == FAR_MS:
            # the core takes from it when the change was asked for: now, like everything
            leader.change.deadline_ms = NOW_MS + state.config.request_timeout_ms


def rank_heard(every: tuple[Any, ...]) -> None:
    """Keep the order in which the directories of one id were heard, and nothing else of when.

    Who is heard in the next step is heard later than all of them.
    """
    heard: dict[int, set[int]] = {}
    for progress in every:
        if progress.last_heard_ms >= 0:
            heard.setdefault(progress.key.id, set()).add(progress.last_heard_ms)
    latest = {id: sorted(times, reverse=True) for id, times in heard.items()}
    for progress in every:
        if progress.last_heard_ms >= 0:
            rank = latest[progress.key.id].index(progress.last_heard_ms)
            progress.last_heard_ms = NOW_MS - 1 - rank


def timers(replica: Replica) -> tuple[str, ...]:
    """Return the names of the timers that can be over."""
    state = state_of(replica)
    current = state.current
    found = [name for name in ROLE_TIMERS if NOW_MS < getattr(current, name, NEVER_MS) < NEVER_MS]
    follower = state.follower
    if follower is not None:
        idle = {"stream_deadline_ms": follower.stream, "update_at_ms": state.writing}
        found = [name for name in found if idle.get(name, True)]
    if is_listening(state):
        found.append("ask_until_ms")
    if state.log.unflushed_bytes and not state.log.flushing:
        found.append("unflushed")
    if state.log.flushing:
        found.append("flushing")
    leader = state.leader
    if leader is not None:
        if leader.change is not None:
            found.append("change")
        if leader.transfer is not None:
            found.append("transfer")
        found += [f"silent {id}" for id, each in leader.voters.items() if each.last_fetch_ms >= 0]
    if state.barriers or (leader is not None and leader.barriers):
        found.append("barriers")
    return tuple(found)


def is_listening(state: QuorumState) -> bool:
    """Return whether an only voter that the configuration names waits to be called (D23)."""
    if state.log.end_offset > 0 or state.history.latest is not None or state.role != "unattached":
        return False
    return state.voters.is_only_voter(state.local) and NOW_MS < state.ask_until_ms < NEVER_MS


def let_be_over(replica: Replica, name: str) -> None:
    """Set one timer to now, or make old what the name says; a Tick does the rest."""
    state = state_of(replica)
    leader = state.leader
    what, _, id = name.partition(" ")
    if what == "unflushed":
        state.log.unflushed_since_ms = -FAR_MS
    elif what == "flushing":
        state.log.flushing_since_ms = -FAR_MS
        if leader is not None:
            leader.flush_began_ms = -FAR_MS
    elif what == "ask_until_ms":  # how long an only voter looks for a quorum before its first log
        state.ask_until_ms = NOW_MS
    elif what == "barriers":
        for barrier in (*state.barriers, *(leader.barriers if leader else ())):
            barrier.deadline_ms = NOW_MS
    elif what == "silent":
        assert leader is not None
        progress = leader.voters[int(id)]
        progress.last_fetch_ms = min(progress.last_fetch_ms, -FAR_MS)
        progress.last_caught_up_ms = min(progress.last_caught_up_ms, -FAR_MS)
        leader.began_ms = -FAR_MS  # or nobody is silent for long in its epoch
    elif what in ("change", "transfer"):
        getattr(leader, what).deadline_ms = NOW_MS
    else:
        setattr(state.current, what, NOW_MS)
        if what == "parked_deadline_ms":
            assert leader is not None
            for parked in leader.parked:
                parked.deadline_ms = NOW_MS
