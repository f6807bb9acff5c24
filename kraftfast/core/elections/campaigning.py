"""Ask for votes and pre-votes, and act on the answers.

A vote is asked for only with a log that is on disk (D21): a candidate that lost its tail after it
was granted votes could lead without records that are committed. Pre-votes promise nothing, so they
go out while the tail is still being flushed.
"""

from __future__ import annotations

from typing import Any

from kraftfast import limits
from kraftfast.core.effects import FlushedTo, Send
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.election import Election
from kraftfast.core.elections.leader_identity import may_still_follow, voters_place
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.messages import VoteRequest
from kraftfast.core.replication.flush_policy import flush_follower
from kraftfast.core.replication.follower import Follower
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import (
    next_failover_ms,
    transition_to_candidate,
    transition_to_follower,
    transition_to_leader,
    transition_to_prospective,
    transition_to_unattached,
)
from kraftfast.core.warning import warn_of_new_log
from kraftfast.types import NO_NODE


def begin_campaign(state: QuorumState, now_ms: int, failover: bool = False) -> None:
    """Ask for pre-votes first (KIP-996): a timer expired, or the leader is known to be dead.

    There is no epoch after the last one, so no replica campaigns in it.
    """
    current: Any = state.current
    if state.epoch < limits.EPOCH_MAX:
        transition_to_prospective(state, now_ms, failover)
    elif isinstance(current, Follower):
        current.fetch_deadline_ms = NEVER_MS
    else:
        current.election_deadline_ms = NEVER_MS


def request_votes(state: QuorumState, now_ms: int) -> None:
    """Ask every voter that has not answered and can be asked now.

    The own vote is written meanwhile: it is on disk before an answer is looked at, and counts (D5).
    """
    current = state.current
    assert isinstance(current, Prospective | Candidate)
    pre_vote = isinstance(current, Prospective)
    after = None if pre_vote or state.log.in_memory else FlushedTo(state.log.end_offset)  # D21
    for voter_id in current.election.unrecorded():
        if not state.peers.is_ready(voter_id, now_ms):
            continue
        request = VoteRequest(
            epoch=state.epoch,
            replica=state.local,
            last_epoch=state.log.last_epoch(),
            last_offset=state.log.end_offset,
            pre_vote=pre_vote,
            unanimous=current.election.unanimous,
            voters_at=voters_place(state),
            voter=state.voters.key(voter_id),
            cluster_id=state.cluster_id,
        )
        correlation = state.peers.sent(voter_id, now_ms)
        state.effects.append(Send(voter_id, correlation, request, after))


def decide(state: QuorumState, now_ms: int) -> None:
    """Act on the votes so far."""
    current = state.current
    if isinstance(current, Candidate):
        if current.election.is_won():
            transition_to_leader(state, now_ms)
        elif not current.shortened and is_split(state, current.election):
            current.shortened = True
            due_ms = now_ms + next_failover_ms(state)
            current.election_deadline_ms = min(current.election_deadline_ms, due_ms)
    elif isinstance(current, Prospective):
        if now_ms < current.campaign_at_ms:
            return  # another goes first
        if is_refused_as_empty(state, current):
            give_up_campaign(state, now_ms)
        elif awaits_answers(state, current) and now_ms < current.election_deadline_ms:
            return
        elif current.may_begin_epoch():
            become_candidate(state, now_ms)
        elif is_lost(state, current.election):
            give_up_campaign(state, now_ms)


def is_lost(state: QuorumState, election: Election) -> bool:
    """Return whether too few votes can still come: voters known dead give none."""
    dead = sum(state.peers.is_ended(id) for id in election.unrecorded())
    return election.is_lost(without=dead)


def is_split(state: QuorumState, election: Election) -> bool:
    """Return whether a candidate lost because dead voters give no vote, after a failover (L4).

    Perhaps no other candidate won. The next campaign then need not wait for an election timeout: it
    begins with pre-votes, which voters refuse if a leader was elected, and no two voters wait
    equally long.
    """
    return state.may_fail_over() and not election.is_lost() and is_lost(state, election)


def awaits_answers(state: QuorumState, current: Prospective) -> bool:
    """Return whether a replica without a log must wait for a voter's answer before it campaigns.

    Its disk may have been replaced: no majority of empty replicas may begin a second log while one
    with a log can be asked (D23). It stops waiting after the election timeout, so that a majority
    can begin a new quorum.
    """
    if state.log.end_offset > 0 or current.skips_pre_votes:
        return False
    return bool(current.election.unrecorded())


def is_refused_as_empty(state: QuorumState, current: Prospective) -> bool:
    """Return whether a voter refused a replica without a log: it may have one itself (D23).

    One that says that it has none, and is only in doubt of what it had, is no reason: else a
    majority that is certain of having acknowledged nothing would wait for it for ever.
    """
    election = current.election
    return state.log.end_offset == 0 and bool(election.rejected - election.without_log)


def become_candidate(state: QuorumState, now_ms: int) -> None:
    """Begin the next epoch if the log is on disk; else flush it, and stay prospective until then.

    So a replica whose disk hangs does not use up epochs.
    """
    current = state.current
    assert isinstance(current, Prospective)
    silent = current.election.unrecorded()
    if state.log.end_offset == 0 and silent and not current.skips_pre_votes:
        if not state.config.new_quorum:
            warn_of_new_log(state, silent)
    if state.log.ackable_end_offset() == state.log.end_offset:
        transition_to_candidate(state, now_ms)
    else:
        flush_follower(state)


def give_up_campaign(state: QuorumState, now_ms: int) -> None:
    """Follow the leader again, if there is one, after a pre-vote that was lost or ran out of time.

    A leader that the kernel said is dead is none: the next campaign comes soon. Nor is the own
    name, of an only voter that resigned and waits for its disk.
    """
    leader_id = state.leader_id
    if (
        leader_id not in (NO_NODE, state.local.id)
        and state.is_reachable(leader_id, state.leader_endpoints)
        and not state.peers.is_ended(leader_id)
    ):
        if not may_still_follow(state):  # its disk was replaced since (D23)
            transition_to_unattached(state, state.epoch, NO_NODE, now_ms)
            return
        transition_to_follower(state, state.epoch, leader_id, state.leader_endpoints, now_ms)
    else:
        transition_to_unattached(state, state.epoch, leader_id, now_ms)
