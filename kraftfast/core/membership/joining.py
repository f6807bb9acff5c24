"""What a follower asks of the leader about itself: its entry up to date, or to be a voter at all.

UpdateRaftVoter by voters, RemoveRaftVoter and AddRaftVoter by observers that join by themselves
(KIP-853; Kafka's ``pollFollowerAsVoter`` and ``pollFollowerAsObserver``).
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import Send
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.own_entry import is_outdated
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    Request,
    UpdateRaftVoterRequest,
)
from kraftfast.core.replication.follower import Follower
from kraftfast.core.state import QuorumState


def tend_membership(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Ask the leader once a period to mend this voter's entry, while no request is under way."""
    if now_ms < follower.membership_at_ms:
        return
    request = wanted_request(state, follower)
    if request is None or state.shutting_down:
        restart_period(state, follower, now_ms)
    elif state.peers.is_ready(state.leader_id, now_ms):
        correlation = state.peers.sent(state.leader_id, now_ms)
        follower.membership_correlation = correlation
        state.effects.append(Send(state.leader_id, correlation, request))


def restart_period(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Look again after a while; a replica without endpoints of its own has nothing to tell."""
    period_ms = state.config.membership_period_ms
    follower.membership_at_ms = now_ms + period_ms if state.config.endpoints else NEVER_MS


def is_asking(state: QuorumState, follower: Follower) -> bool:
    """Return whether such a request waits for its answer: no Fetch goes out beside it."""
    correlation = follower.membership_correlation
    return correlation != 0 and state.peers.peer(state.leader_id).correlation == correlation


def membership_due_ms(state: QuorumState, follower: Follower) -> int:
    """Return when ``tend_membership`` has something to do."""
    return max(follower.membership_at_ms, state.peers.due_ms(state.leader_id))


def wanted_request(state: QuorumState, follower: Follower) -> Request | None:
    """Return what this replica's membership lacks, if anything."""
    config, local = state.config, state.local
    if state.is_voter():
        if state.kraft_version == 0:
            wanted = not follower.leader_updated
        else:
            wanted = is_outdated(config, local, state.voters)
        return (
            UpdateRaftVoterRequest(
                state.epoch,
                local,
                config.endpoints,
                limits.KRAFT_VERSION_MIN,
                limits.KRAFT_VERSION_MAX,
                state.cluster_id,
            )
            if wanted
            else None
        )
    if not config.auto_join or state.kraft_version == 0 or local.id < 0:
        return None
    if state.was_voter or state.history.ever_named(local):
        return None  # removed: it stays out until an operator adds it (KAFKA-19850)
    if local.id in state.voters:  # the same replica with the disk that it had before
        return RemoveRaftVoterRequest(state.voters.key(local.id), state.cluster_id)
    return AddRaftVoterRequest(
        local,
        config.endpoints,
        config.request_timeout_ms,
        ack_when_committed=False,
        cluster_id=state.cluster_id,
    )
