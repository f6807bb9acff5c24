"""Time passes: what each role does when one of its timers is due, and when that is.

``poll`` is also run after every change of role, so that what a new role has to do is done in the
same step.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.campaigning import (
    awaits_answers,
    begin_campaign,
    decide,
    request_votes,
    stand_down,
)
from kraftfast.core.candidate import Candidate
from kraftfast.core.effects import Send
from kraftfast.core.fetching import (
    close_stream,
    fetch_due_ms,
    fetch_next,
    retry_later,
    update_stream,
)
from kraftfast.core.flush_policy import flush_follower, flush_leader
from kraftfast.core.follower import Follower
from kraftfast.core.heartbeat import begin_quorum_epoch
from kraftfast.core.joining import membership_due_ms, tend_membership
from kraftfast.core.leader import Leader
from kraftfast.core.leader_identity import (
    identity_of_leader,
    is_displaced,
    told_of_displacement,
)
from kraftfast.core.leases import expire
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership import change_due_ms, removed_itself, tend_change
from kraftfast.core.messages import EndQuorumEpochRequest
from kraftfast.core.on_add_voter import tend_addition
from kraftfast.core.prospective import Prospective
from kraftfast.core.read_barrier import (
    barriers_due_ms,
    leader_barriers_due_ms,
    tend_barriers,
    tend_leader_barriers,
)
from kraftfast.core.reassignment import reassignment_due_ms, tend_reassignment
from kraftfast.core.refusing import warn, warn_of_no_leader
from kraftfast.core.resigned import Resigned
from kraftfast.core.serving import answer_parked, drain, push_all, push_due_ms
from kraftfast.core.state import ReplicaState
from kraftfast.core.transfer import tend_transfer
from kraftfast.core.unattached import Unattached
from kraftfast.types import NO_NODE


def poll(state: ReplicaState, now_ms: int) -> None:
    """Do what is due now."""
    fetching = state.peers.fetching
    state.peers.expire(now_ms)
    if fetching is not None and state.peers.fetching is None:
        retry_later(state, now_ms, fetching.id)
    if state.barriers:
        tend_barriers(state, now_ms)
    current = state.current
    if isinstance(current, Follower):
        poll_follower(state, current, now_ms)
    elif isinstance(current, Leader):
        poll_leader(state, current, now_ms)
    elif isinstance(current, Unattached):
        poll_unattached(state, current, now_ms)
    elif isinstance(current, Resigned):
        poll_resigned(state, current, now_ms)
    else:
        poll_nominee(state, current, now_ms)


def due_ms(state: ReplicaState) -> int:
    """When ``poll`` is due at the latest."""
    current = state.current
    if isinstance(current, Follower):
        if state.writing:
            due = current.update_at_ms
        elif current.download is not None and current.download.busy:
            due = NEVER_MS
        else:
            timed = campaigns(state) or current.download is not None
            timer_ms = current.fetch_deadline_ms if timed else NEVER_MS
            due = min(timer_ms, fetch_due_ms(state), membership_due_ms(state, current))
    elif isinstance(current, Leader):
        due = leader_due_ms(state, current)
    elif isinstance(current, Unattached):
        timer_ms = campaign_due_ms(state, current) if campaigns(state) else NEVER_MS
        due = min(timer_ms, fetch_due_ms(state))
    elif isinstance(current, Resigned):
        only = state.voters.is_only_voter(state.local) and campaigns(state)
        timer_ms = current.rival_until_ms if only else current.election_deadline_ms
        due = NEVER_MS if state.shutting_down else timer_ms
        for voter_id in current.unacknowledged:
            due = min(due, state.peers.due_ms(voter_id))
    else:
        due = nominee_due_ms(state, current)
    if state.barriers:
        due = min(due, barriers_due_ms(state))
    if not state.stopped:
        due = min(due, state.shutdown_deadline_ms)
    return due


def campaigns(state: ReplicaState) -> bool:
    """Return whether this replica's timers lead to an election: not those of observers, of
    witnesses, and of a replica that is shutting down."""
    return state.config.campaign and state.may_campaign() and not state.shutting_down


def is_only_witness(state: ReplicaState) -> bool:
    """Return whether the only voter never campaigns, so that nobody will lead."""
    return not state.config.campaign and state.voters.is_only_voter(state.local)


# --- unattached, follower ---------------------------------------------------------------------


def poll_unattached(state: ReplicaState, current: Unattached, now_ms: int) -> None:
    """Campaign when the timer is over; until then look for a leader.

    The only voter has nobody to wait for.
    """
    if is_displaced(state):
        warn(state, told_of_displacement(state))
    elif campaigns(state) and now_ms >= campaign_due_ms(state, current):
        begin_campaign(state, now_ms)
    elif is_only_witness(state):
        warn_of_no_leader(state)
    fetch_next(state, now_ms)


def campaign_due_ms(state: ReplicaState, current: Unattached) -> int:
    """Return when an unattached voter campaigns: the only voter at once, unless it has no log.

    Without one it first asks the peers that it knows for a quorum of its cluster. One that only
    the configuration names may know none: at its first start it waits to be called (D23).
    """
    if not state.voters.is_only_voter(state.local):
        return current.election_deadline_ms
    is_first_start = state.history.latest is None and state.epoch == 0
    if state.log.end_offset == 0 and (state.unheard or is_first_start):
        return state.ask_until_ms
    return 0


def poll_follower(state: ReplicaState, current: Follower, now_ms: int) -> None:
    """Campaign when the leader is silent for too long; until then fetch."""
    if state.writing:
        poll_writing(state, current, now_ms)
        return
    if current.download is not None and current.download.busy:
        return  # the snapshot is being written: this is no silence of the leader
    if campaigns(state) and (
        now_ms >= current.fetch_deadline_ms or state.voters.is_only_voter(state.local)
    ):
        begin_campaign(state, now_ms)
        return
    if is_only_witness(state) and now_ms >= current.fetch_deadline_ms:
        warn_of_no_leader(state)
    elif is_displaced(state) and now_ms >= current.fetch_deadline_ms:
        warn(state, told_of_displacement(state))
    if current.stream and now_ms >= current.stream_deadline_ms:
        close_stream(state, current, now_ms)
        retry_later(state, now_ms, state.leader_id)
    if current.download is not None and now_ms >= current.fetch_deadline_ms:
        current.download = None  # an observer has no election to find another leader by
        state.ask_others = True
    tend_membership(state, current, now_ms)
    fetch_next(state, now_ms)


def poll_writing(state: ReplicaState, current: Follower, now_ms: int) -> None:
    """Send a keep-alive: a Fetch waits for log space here, which is no silence of the leader."""
    if now_ms >= current.update_at_ms:
        current.update_at_ms = now_ms + state.config.fetch_max_wait_ms
        if current.stream:
            update_stream(state, current)


# --- prospective, candidate -------------------------------------------------------------------


def poll_nominee(state: ReplicaState, current: Prospective | Candidate, now_ms: int) -> None:
    """Ask for votes until the election is decided or its time is over.

    A nominee that is shutting down goes on asking, but begins nothing new.
    """
    if now_ms >= current.election_deadline_ms and not state.shutting_down:
        if isinstance(current, Candidate):
            begin_campaign(state, now_ms)
            return
        decide(state, now_ms)  # a replica without a log has waited for all answers
        if state.current is current:
            stand_down(state, now_ms)
        return
    if not isinstance(current, Prospective) or now_ms >= current.campaign_at_ms:
        decide(state, now_ms)
        if state.current is current and not current.election.is_lost():
            request_votes(state, now_ms)
    if state.current is current:
        flush_follower(state)  # behind the pre-votes: the disk and the others work side by side


def nominee_due_ms(state: ReplicaState, current: Prospective | Candidate) -> int:
    """When a nominee has something to do."""
    due = NEVER_MS if state.shutting_down else current.election_deadline_ms
    begun_ms = current.campaign_at_ms if isinstance(current, Prospective) else 0
    election = current.election
    if isinstance(current, Prospective) and (
        election.is_lost()
        or current.may_campaign()
        and not (state.log.flushing or awaits_answers(state, current))
    ):
        due = min(due, begun_ms)  # answers that came while another went first
    if not election.is_lost():
        for voter_id in election.unrecorded():
            due = min(due, max(begun_ms, state.peers.due_ms(voter_id)))
    return due


# --- resigned ---------------------------------------------------------------------------------


def poll_resigned(state: ReplicaState, current: Resigned, now_ms: int) -> None:
    """Tell the voters; then go on in the next epoch, if at all."""
    if state.voters.is_only_voter(state.local) and campaigns(state):
        if now_ms >= current.rival_until_ms:
            begin_campaign(state, now_ms)
        else:
            flush_follower(state)  # D14
        return
    if now_ms >= current.election_deadline_ms and not state.shutting_down:
        if is_only_witness(state):
            warn_of_no_leader(state)  # an epoch without its name would be another's (D23)
        elif state.epoch < limits.EPOCH_MAX:
            state.to_unattached(state.epoch + 1, NO_NODE, now_ms)
        current.election_deadline_ms = NEVER_MS
        return
    for voter_id in sorted(current.unacknowledged):
        if not state.peers.is_ready(voter_id, now_ms):
            continue
        request = EndQuorumEpochRequest(
            epoch=state.epoch,
            leader_id=state.local.id,
            preferred_candidates=current.successors,
            leader_endpoints=state.leader_endpoints,
            leader_identity=identity_of_leader(state),
            cluster_id=state.cluster_id,
        )
        correlation = state.peers.sent(voter_id, now_ms)
        state.effects.append(Send(voter_id, correlation, request))
    flush_follower(state)  # D14: the tail of its leadership


# --- leader -----------------------------------------------------------------------------------


def poll_leader(state: ReplicaState, leader: Leader, now_ms: int) -> None:
    """Resign if the quorum or the own disk is out of reach; else keep everybody served."""
    tend_change(state, leader, now_ms)
    if (
        now_ms >= leader.check_quorum_deadline_ms
        or is_flush_stuck(state, leader, now_ms)
        or removed_itself(state, leader)
        or state.shutting_down
    ):
        state.to_resigned(now_ms)
        return
    if tend_transfer(state, leader, now_ms):
        return
    tend_leader_barriers(state, leader, now_ms)
    tend_addition(state, leader)
    tend_reassignment(state, leader, now_ms)
    if now_ms >= leader.heartbeat_at_ms:
        leader.heartbeat_at_ms = now_ms + state.config.heartbeat_ms
        for voter_id, progress in leader.voters.items():
            silent_ms = now_ms - progress.last_fetch_ms
            if progress.last_fetch_ms < 0 or silent_ms >= state.config.heartbeat_ms:
                begin_quorum_epoch(state, voter_id, now_ms)
        for observer in list(leader.observers.values()):
            if now_ms - observer.last_heard_ms >= limits.OBSERVER_AGE_MS_MAX:
                leader.forget(observer)
        expire(leader, now_ms)
    if now_ms >= leader.parked_deadline_ms:
        answer_parked(state, leader, False, now_ms)
    push_all(state, leader, now_ms)
    flush_leader(state, leader, False, now_ms)
    drain(state, leader, now_ms)


def is_flush_stuck(state: ReplicaState, leader: Leader, now_ms: int) -> bool:
    """Return whether the own disk holds up commits: then this leader must resign (D13).

    The flush is timed, not its records: they waited for the flush before, of a disk that is slow.
    """
    if leader.needed_of_others <= 0 or not state.log.flushing:
        return False
    return now_ms - leader.flush_began_ms >= state.config.fetch_timeout_ms


def leader_due_ms(state: ReplicaState, leader: Leader) -> int:
    """When a leader has something to do."""
    log = state.log
    due = min(
        leader.check_quorum_deadline_ms,
        leader.heartbeat_at_ms,
        leader.parked_deadline_ms,
        push_due_ms(state, leader),
    )
    if leader.change is not None:
        due = min(due, change_due_ms(leader.change))
    if leader.transfer is not None:
        due = min(due, leader.transfer.deadline_ms)
    if leader.barriers:
        due = min(due, leader_barriers_due_ms(state, leader))
    if leader.assigning:
        due = min(due, reassignment_due_ms(state, leader))
    if log.flushing:
        if leader.needed_of_others > 0:
            due = min(due, leader.flush_began_ms + state.config.fetch_timeout_ms)
    elif log.unflushed_bytes > 0:
        due = min(due, log.unflushed_since_ms + state.config.unflushed_age_ms_max)
    return due
