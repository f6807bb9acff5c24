"""ReadIndex: up to which offset a reader must read to see what was committed before it asked.

The answer is the leader's high watermark when it was asked, once a majority confirmed after that
moment that it follows this leader still (Ongaro's dissertation, 6.4). What confirms is an answer
to a BeginQuorumEpoch sent after the question: a Fetch that arrives may have left long ago. Other
replicas ask their leader. Kafka has no such thing. Every barrier has a deadline.
"""

from __future__ import annotations

from typing import Any

from kraftfast import limits
from kraftfast.core.effects import AnswerReadBarrier, Reply, Send
from kraftfast.core.elections.begin_quorum_epoch import begin_quorum_epoch
from kraftfast.core.events import (
    ReadBarrierRequested,
    RequestReceived,
    ResponseReceived,
)
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.changes import ACCEPTED, NONE, check_cluster_id, check_leads
from kraftfast.core.messages import ReadBarrierRequest, ReadBarrierResponse
from kraftfast.core.replication.leader import Barrier, Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_OFFSET


def on_read_barrier_requested(state: QuorumState, event: ReadBarrierRequested, now_ms: int) -> None:
    """Take the question of a reader in this process."""
    deadline_ms = now_ms + max(event.timeout_ms, 0)
    barrier = Barrier(event.source, False, deadline_ms)
    if state.leader is not None:
        add_barrier(state, state.leader, barrier)
    elif len(state.barriers) < limits.READ_BARRIERS_MAX:
        state.barriers.append(barrier)
        state.poll_due = True
    else:
        answer(state, barrier, ErrorCode.BROKER_NOT_AVAILABLE)


def on_read_barrier(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Add a barrier for a reader of another replica."""
    request = event.request
    timeout_ms = min(max(request.timeout_ms, 0), state.config.request_timeout_ms)
    barrier = Barrier(event.source, True, now_ms + timeout_ms)
    for found in (check_cluster_id(state, request.cluster_id), check_leads(state)):
        if found is not ACCEPTED:
            answer(state, barrier, found[0])
            return
    assert state.leader is not None
    add_barrier(state, state.leader, barrier)


def add_barrier(state: QuorumState, leader: Leader, barrier: Barrier) -> None:
    """Let a barrier join the next round: this one may have been confirmed before the reader asked.

    What was confirmed under an earlier leadership of this replica does not count (D21).
    """
    if len(leader.barriers) >= limits.READ_BARRIERS_MAX:
        answer(state, barrier, ErrorCode.BROKER_NOT_AVAILABLE)
        return
    barrier.offset = state.high_watermark
    barrier.round = leader.barrier_round + 1
    barrier.confirmed = False
    leader.barriers.append(barrier)
    state.poll_due = True


def answer(state: QuorumState, barrier: Barrier, error: ErrorCode) -> None:
    """Answer the reader here, or the replica that asked for a reader of its own."""
    offset = barrier.offset if error is NONE else NO_OFFSET
    if barrier.remote:
        response = ReadBarrierResponse(error, offset, state.leader_id, state.epoch)
        state.effects.append(Reply(barrier.source, response))
    else:
        state.effects.append(AnswerReadBarrier(barrier.source, offset, error))


# --- at the leader ----------------------------------------------------------------------------


def tend_leader_barriers(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Ask for confirmation, and answer what is confirmed or has waited too long."""
    if not leader.barriers:
        return
    if len(leader.confirmed) >= leader.needed_of_others:  # the round under way, if any, is over
        settle_round(state, leader)
    expired = [each for each in leader.barriers if now_ms >= each.deadline_ms]
    for barrier in expired:
        leader.barriers.remove(barrier)
        answer(state, barrier, ErrorCode.REQUEST_TIMED_OUT)
    if not asks_for_confirmation(leader):
        if not any(each.round > leader.barrier_round for each in leader.barriers):
            return
        leader.barrier_round += 1
        leader.confirmed = set()
        leader.round_asks = {}
        if leader.needed_of_others <= 0:  # the only voter is its own majority
            settle_round(state, leader)
            return
    for voter_id in leader.voters:
        if voter_id not in leader.confirmed:
            correlation = begin_quorum_epoch(state, voter_id, now_ms)
            if correlation:
                leader.round_asks[voter_id] = correlation


def asks_for_confirmation(leader: Leader) -> bool:
    """Return whether a reader waits for the round of confirmations that is under way."""
    return any(
        each.round == leader.barrier_round and not each.confirmed for each in leader.barriers
    )


def settle_round(state: QuorumState, leader: Leader) -> None:
    """Answer the barriers of this round and earlier ones: a majority follows this leader.

    But a leader that has committed nothing of its epoch does not know what is committed (D6).
    """
    for barrier in list(leader.barriers):
        if barrier.round > leader.barrier_round:
            continue
        barrier.confirmed = True
        if barrier.offset == NO_OFFSET:
            barrier.offset = state.high_watermark
        if barrier.offset == NO_OFFSET:
            leader.watches_commit = True
            continue
        leader.barriers.remove(barrier)
        answer(state, barrier, NONE)


def on_confirmed(state: QuorumState, leader: Leader, event: ResponseReceived) -> None:
    """Count a voter that answered a BeginQuorumEpoch of this epoch, sent in this round."""
    if leader.round_asks.get(event.peer_id) == event.correlation:
        leader.confirmed.add(event.peer_id)
        state.poll_due = True


def leader_barriers_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when ``tend_leader_barriers`` has something to do, as far as time decides it."""
    if not leader.barriers:
        return NEVER_MS
    due_ms = min(each.deadline_ms for each in leader.barriers)
    if asks_for_confirmation(leader):
        for voter_id in leader.voters:
            if voter_id not in leader.confirmed:
                due_ms = min(due_ms, state.peers.due_ms(voter_id))
    return due_ms


# --- at all others ----------------------------------------------------------------------------


def tend_barriers(state: QuorumState, current: Any, now_ms: int) -> None:
    """Ask the leader for the readers here; a reader waits for a leader, up to its deadline.

    One request for all who wait: a request for each would crowd out Fetches.
    """
    if not state.barriers:
        return
    waiting = []
    for barrier in list(state.barriers):
        if now_ms >= barrier.deadline_ms:
            state.barriers.remove(barrier)
            answer(state, barrier, ErrorCode.REQUEST_TIMED_OUT)
        elif state.leader is not None:
            state.barriers.remove(barrier)
            add_barrier(state, state.leader, barrier)
        elif not barrier.correlation and now_ms >= barrier.retry_at_ms:
            waiting.append(barrier)
    if not waiting or state.follower is None or now_ms < may_ask_ms(state):
        return
    correlation = state.barriers_correlation = state.peers.next_number()
    state.barriers_asked_ms = now_ms
    for barrier in waiting:
        barrier.correlation = correlation
    timeout_ms = max(barrier.deadline_ms for barrier in waiting) - now_ms
    request = ReadBarrierRequest(timeout_ms, state.cluster_id)
    state.effects.append(Send(state.leader_id, correlation, request))


def may_ask_ms(state: QuorumState) -> int:
    """Return when another request may go: after the last answer, or a pause if that is lost."""
    for barrier in state.barriers:
        if barrier.correlation and barrier.correlation == state.barriers_correlation:
            return state.barriers_asked_ms + state.config.retry_backoff_ms
    return 0


def barriers_due_ms(state: QuorumState, current: Any) -> int:
    """Return when ``tend_barriers`` has something to do."""
    due_ms = NEVER_MS
    for barrier in state.barriers:
        due_ms = min(due_ms, barrier.deadline_ms)
        if state.follower is not None and not barrier.correlation:
            due_ms = min(due_ms, max(barrier.retry_at_ms, may_ask_ms(state)))
    return due_ms


def asked_under(state: QuorumState, correlation: int) -> list[Barrier]:
    """Return the barriers that this request was sent for, as far as they still wait."""
    return [each for each in state.barriers if correlation and each.correlation == correlation]


def on_read_barrier_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Pass the leader's answer to the readers; try an error again until their deadlines."""
    barriers = asked_under(state, event.correlation)
    if event.response.error is not NONE:
        ask_again(state, barriers, now_ms)
        return
    for barrier in barriers:
        state.barriers.remove(barrier)
        barrier.offset = event.response.offset
        answer(state, barrier, NONE)
    state.poll_due = True  # the next request is for readers that came meanwhile


def ask_again(state: QuorumState, barriers: list[Barrier], now_ms: int) -> None:
    """Retry these barriers after a pause, and those that wait with them: else each of many has one
    of its own, and some request fails all the time (L7)."""
    for barrier in barriers:
        barrier.correlation = 0
    for barrier in state.barriers:
        if not barrier.correlation:
            barrier.retry_at_ms = now_ms + state.config.retry_backoff_ms
    state.poll_due = True
