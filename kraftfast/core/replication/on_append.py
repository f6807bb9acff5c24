"""Producers have records waiting, or the leader's log has taken some."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import DrainAppends, RefuseAppends
from kraftfast.core.events import Appended, AppendsQueued
from kraftfast.core.membership.changes import change_appended
from kraftfast.core.membership.on_controls import hold_for_voters, on_controls
from kraftfast.core.replication.fetch_answers import answer_parked, push_all
from kraftfast.core.replication.flush_policy import flush_leader
from kraftfast.core.replication.high_watermark import acknowledge_self, maybe_update_high_watermark
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode


def on_appends_queued(state: QuorumState, event: AppendsQueued, now_ms: int) -> None:
    """Have the queued batches appended as leader, within bounds (D14); else refuse them."""
    leader = state.leader
    if leader is None or state.shutting_down:
        state.effects.append(RefuseAppends(ErrorCode.NOT_LEADER_OR_FOLLOWER, state.leader_id))
        return
    leader.appends_queued = True
    request_drain(state, leader, now_ms)


def on_appended(state: QuorumState, event: Appended, now_ms: int) -> None:
    """Answer and push to the followers first, then flush by the policy.

    Nothing is counted for the leader here: what is appended is not on disk (D1). Only
    durability=memory counts it.
    """
    leader = state.leader
    log = state.log
    if leader is None or event.epoch != state.epoch:
        on_appended_late(state, event, now_ms)
        return
    leader.draining = False
    before = log.end_offset
    log.appended(event.end_offset, event.bytes, now_ms)
    if event.controls or before == leader.epoch_start_offset:
        hold_for_voters(state, event.controls, before)
    if event.controls:
        on_controls(state, event.controls, now_ms)
        change_appended(state, leader, event.controls)
    if event.end_offset > before:
        answer_parked(state, leader, False)
        push_all(state, leader, now_ms)
        if log.in_memory:
            acknowledge_self(state, leader)
            maybe_update_high_watermark(state, leader, now_ms)
        elif event.controls:  # fewer may be needed now
            maybe_update_high_watermark(state, leader, now_ms)
        idle = before == state.high_watermark or before == leader.epoch_start_offset
        flush_leader(state, leader, idle, now_ms)
    request_drain(state, leader, now_ms)


def on_appended_late(state: QuorumState, event: Appended, now_ms: int) -> None:
    """Take records that the log appended as leader of an epoch whose leadership has ended.

    Any Fetch under way names the end before them, so it is given up.
    """
    log = state.log
    if event.end_offset == log.end_offset:
        return
    assert event.epoch <= state.epoch and log.last_epoch() <= event.epoch
    before = log.end_offset
    log.appended(event.end_offset, event.bytes, now_ms)
    hold_for_voters(state, event.controls, before)
    if state.peers.fetching is not None:
        state.peers.back_off(state.peers.fetching.id, now_ms)
    if state.follower is not None:
        state.follower.stream = 0
    assert not state.writing and state.leader is None
    on_controls(state, event.controls, now_ms)
    state.poll_due = True


def request_drain(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Have the node append what producers queued, within the bounds of D14."""
    log = state.log
    if not leader.appends_queued or leader.draining or state.shutting_down:
        return
    if leader.transfer is not None:
        return
    if log.end_offset == leader.epoch_start_offset:
        return  # the epoch's first record is its LeaderChange
    room = state.config.unflushed_bytes_max - log.flushing_bytes - log.unflushed_bytes
    if room <= 0 or now_ms - log.oldest_unflushed_ms() > state.config.held_age_ms_max:
        return
    leader.appends_queued = False
    leader.draining = True
    state.effects.append(DrainAppends(state.epoch, min(room, limits.TURN_BYTES_MAX)))
