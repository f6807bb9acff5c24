"""Tick arrives: what each role does by itself, and when.

The timers of a role stand in one table, in the order in which they are looked at. ``poll`` also
runs after every change of role, so that what a new role has to do is done in the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kraftfast import limits
from kraftfast.core.effects import Send
from kraftfast.core.elections.begin_quorum_epoch import begin_quorum_epoch
from kraftfast.core.elections.campaigning import (
    awaits_answers,
    begin_campaign,
    decide,
    give_up_campaign,
    request_votes,
)
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.leader_identity import (
    displacement_warning,
    identity_of_leader,
    is_displaced,
)
from kraftfast.core.elections.leadership_transfer import tend_transfer
from kraftfast.core.elections.on_shutdown import finish_shutdown
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.changes import change_due_ms, removed_itself, tend_change
from kraftfast.core.membership.joining import membership_due_ms, tend_membership
from kraftfast.core.membership.on_add_voter import tend_addition
from kraftfast.core.membership.reassignment import reassignment_due_ms, tend_reassignment
from kraftfast.core.messages import EndQuorumEpochRequest
from kraftfast.core.read_barrier import (
    barriers_due_ms,
    leader_barriers_due_ms,
    tend_barriers,
    tend_leader_barriers,
)
from kraftfast.core.replication.fetch_answers import answer_parked, push_all, push_due_ms
from kraftfast.core.replication.fetching import (
    close_stream,
    fetch_due_ms,
    fetch_next,
    retry_later,
    send_keep_alive,
    update_stream,
)
from kraftfast.core.replication.flush_policy import flush_follower, flush_leader
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Leader
from kraftfast.core.replication.on_append import request_drain
from kraftfast.core.snapshots.leases import expire
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import transition_to_resigned, transition_to_unattached
from kraftfast.core.warning import warn, warn_of_no_leader
from kraftfast.types import NO_NODE

AT_ONCE_MS = 0


class Timer(NamedTuple):
    """What a role does by itself.

    ``run`` is called once ``due_ms`` has come. With ``every_poll`` it is called whenever ``poll``
    runs, and must look itself whether there is something to do: an event may have made it so.
    """

    due_ms: Callable[[QuorumState, Any], int]
    run: Callable[[QuorumState, Any, int], object]
    every_poll: bool = False


class Timers(NamedTuple):
    """The timers of a role in the order in which they are looked at, and when each is due."""

    rows: tuple[Timer, ...]
    due: tuple[Callable[[QuorumState, Any], int], ...]


def poll(state: QuorumState, now_ms: int) -> None:
    """Do what is due now."""
    fetching = state.peers.fetching
    state.peers.expire(now_ms)
    if fetching is not None and state.peers.fetching is None:
        retry_later(state, now_ms, fetching.id)
    current = state.current
    for due_ms_of, run, every_poll in timers_of(state).rows:
        if every_poll or now_ms >= due_ms_of(state, current):
            run(state, current, now_ms)
            if state.current is not current:
                return


def due_ms(state: QuorumState) -> int:
    """Return when ``poll`` is due at the latest."""
    current = state.current
    least = NEVER_MS
    for due_ms_of in timers_of(state).due:
        due = due_ms_of(state, current)
        if due < least:
            least = due
    return least


def timers_of(state: QuorumState) -> Timers:
    """Return the timers of the present role; ``WRITING`` for a follower that is writing."""
    if state.follower is not None:
        download = state.follower.download
        if state.writing or (download is not None and download.busy):
            return WRITING
    return TIMERS[type(state.current)]


def never_ms(state: QuorumState, current: Any) -> int:
    """Return NEVER_MS: the due time of what only events start."""
    return NEVER_MS


def may_campaign_now(state: QuorumState) -> bool:
    """Return whether an expired timer makes this replica campaign.

    Observers, witnesses and a replica that is shutting down do not, nor does any in the last epoch.
    """
    if state.shutting_down or state.epoch >= limits.EPOCH_MAX:
        return False
    return state.config.campaign and state.counts_as_voter()


def is_only_witness(state: QuorumState) -> bool:
    """Return whether the only voter is a witness, so that there will be no leader."""
    return not state.config.campaign and state.voters.is_only_voter(state.local)


def campaign(state: QuorumState, current: Any, now_ms: int) -> None:
    """Ask for votes in another election."""
    begin_campaign(state, now_ms)


def fetch(state: QuorumState, current: Any, now_ms: int) -> None:
    """Fetch from the leader, or look for one."""
    fetch_next(state, now_ms)


# --- every role -------------------------------------------------------------------------------


def shutdown_due_ms(state: QuorumState, current: Any) -> int:
    """Return when a graceful end has waited long enough."""
    return NEVER_MS if state.stopped else state.shutdown_deadline_ms


def end(state: QuorumState, current: Any, now_ms: int) -> None:
    """End although no other replica leads yet; ``Replica`` also checks that after each step."""
    finish_shutdown(state, now_ms)


# --- unattached -------------------------------------------------------------------------------


def report_displaced(state: QuorumState, current: Unattached, now_ms: int) -> None:
    """Report why no leader may be elected."""
    if is_displaced(state):
        warn(state, displacement_warning(state))
    elif is_only_witness(state):
        warn_of_no_leader(state)


def campaign_due_ms(state: QuorumState, current: Unattached) -> int:
    """Return when an unattached voter campaigns."""
    if not may_campaign_now(state):
        return NEVER_MS
    if state.voters.is_only_voter(state.local):
        return campaign_alone_ms(state)
    return current.election_deadline_ms


def campaign_alone_ms(state: QuorumState) -> int:
    """Return when the only voter campaigns: at once, unless it has no log or a rival calls it.

    Without one it first asks the peers that it knows for a quorum of its cluster. One that only
    the configuration names may know none: at its first start it waits to be called (D23).
    """
    is_first_start = state.history.latest is None and state.epoch == 0
    if state.log.end_offset == 0 and (state.unheard or is_first_start):
        return state.ask_until_ms
    return state.rival_until_ms


# --- follower ---------------------------------------------------------------------------------


def fetch_timeout_due_ms(state: QuorumState, follower: Follower) -> int:
    """Return when the fetch timeout expires, if this replica may campaign then."""
    return follower.fetch_deadline_ms if may_campaign_now(state) else NEVER_MS


def watch_leader(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Campaign if the fetch timeout expired, or at once if this replica has become the only voter.

    A replica that must not campaign reports why no leader may be elected.
    """
    silent = now_ms >= follower.fetch_deadline_ms
    if may_campaign_now(state):
        if silent or state.voters.is_only_voter(state.local):
            begin_campaign(state, now_ms)
    elif silent and is_only_witness(state):
        warn_of_no_leader(state)
    elif silent and is_displaced(state):
        warn(state, displacement_warning(state))


def stream_due_ms(state: QuorumState, follower: Follower) -> int:
    """Return when nothing came on the open stream for too long."""
    return follower.stream_deadline_ms if follower.stream else NEVER_MS


def give_up_stream(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Close the stream, and ask another replica next."""
    close_stream(state, follower, now_ms)
    retry_later(state, now_ms, state.leader_id)


def download_due_ms(state: QuorumState, follower: Follower) -> int:
    """Return when no slice of the leader's snapshot came for too long."""
    return NEVER_MS if follower.download is None else follower.fetch_deadline_ms


def give_up_download(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Ask others: an observer has no election to find another leader by."""
    follower.download = None
    state.ask_others = True


def keep_alive_due_ms(state: QuorumState, follower: Follower) -> int:
    """Return when the next keep-alive is sent."""
    return follower.update_at_ms


def keep_alive(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Send a keep-alive: while this replica writes to its disk, it sends no other Fetch."""
    follower.update_at_ms = now_ms + state.config.fetch_max_wait_ms
    if follower.stream:
        update_stream(state, follower)
    elif follower.download is not None:
        send_keep_alive(state, now_ms)


# --- prospective, candidate -------------------------------------------------------------------


def election_due_ms(state: QuorumState, current: Prospective | Candidate) -> int:
    """Return when the election is over. A nominee that is shutting down begins nothing new."""
    return NEVER_MS if state.shutting_down else current.election_deadline_ms


def end_election(state: QuorumState, current: Prospective | Candidate, now_ms: int) -> None:
    """Begin another, or stand down."""
    if isinstance(current, Candidate):
        begin_campaign(state, now_ms)
        return
    decide(state, now_ms)  # a replica without a log has waited for all answers
    if state.current is current:
        give_up_campaign(state, now_ms)


def votes_due_ms(state: QuorumState, current: Prospective | Candidate) -> int:
    """Return when there is a voter to ask, or an answer to look at."""
    due = NEVER_MS
    begun_ms = current.campaign_at_ms if isinstance(current, Prospective) else 0
    election = current.election
    if isinstance(current, Prospective) and (
        election.is_lost()
        or current.may_begin_epoch()
        and not (state.log.flushing or awaits_answers(state, current))
    ):
        due = begun_ms  # answers that came while another went first
    if not election.is_lost():
        for voter_id in election.unrecorded():
            due = min(due, max(begun_ms, state.peers.due_ms(voter_id)))
    return due


def seek_votes(state: QuorumState, current: Prospective | Candidate, now_ms: int) -> None:
    """Ask for votes until the election is decided."""
    if not isinstance(current, Prospective) or now_ms >= current.campaign_at_ms:
        decide(state, now_ms)
        if state.current is current and not current.election.is_lost():
            request_votes(state, now_ms)
    if state.current is current:
        flush_follower(state)  # behind the pre-votes: the disk and the others work side by side


# --- resigned ---------------------------------------------------------------------------------


def is_alone(state: QuorumState) -> bool:
    """Return whether only this replica can lead again."""
    return state.voters.is_only_voter(state.local) and may_campaign_now(state)


def lead_again_due_ms(state: QuorumState, current: Resigned) -> int:
    """Return when the only voter leads again: not while a rival claims to lead."""
    return state.rival_until_ms if is_alone(state) else NEVER_MS


def next_epoch_due_ms(state: QuorumState, current: Resigned) -> int:
    """Return when a resigned leader gives up waiting for a successor."""
    if state.shutting_down or is_alone(state):
        return NEVER_MS
    return current.election_deadline_ms


def begin_next_epoch(state: QuorumState, current: Resigned, now_ms: int) -> None:
    """Enter the next epoch as unattached, if there is one: no successor was elected in time."""
    if is_only_witness(state):
        warn_of_no_leader(state)  # it would take an epoch that does not name it for another's (D23)
    elif state.epoch < limits.EPOCH_MAX:
        transition_to_unattached(state, state.epoch + 1, NO_NODE, now_ms)  # which campaigns at once
    current.election_deadline_ms = NEVER_MS


def end_quorum_epoch_due_ms(state: QuorumState, current: Resigned) -> int:
    """Return when EndQuorumEpoch can be sent to a voter that has not acknowledged it."""
    return min(map(state.peers.due_ms, current.unacknowledged), default=NEVER_MS)


def send_end_quorum_epochs(state: QuorumState, current: Resigned, now_ms: int) -> None:
    """Send EndQuorumEpoch to each voter until it acknowledges."""
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


def flush_tail(state: QuorumState, current: Resigned, now_ms: int) -> None:
    """Flush the tail of its leadership (D14)."""
    flush_follower(state)


# --- leader -----------------------------------------------------------------------------------


def resign_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when a leader resigns: asked to, removed, or without its quorum or its own disk."""
    if state.shutting_down or removed_itself(state, leader):
        return AT_ONCE_MS
    return min(leader.check_quorum_deadline_ms, flush_deadline_ms(state, leader))


def flush_deadline_ms(state: QuorumState, leader: Leader) -> int:
    """Return when the own disk holds up commits for too long: this leader must resign (D13).

    The flush is timed, not its records: they waited for the flush before, of a disk that is slow.
    With durability=memory it is long because of all that the page cache holds, and is awaited only
    by a change of voters, which the others commit without this disk if they can.
    """
    log = state.log
    if leader.needed_of_others <= 0 or not log.flushing or log.in_memory:
        return NEVER_MS
    return leader.flush_began_ms + state.config.fetch_timeout_ms


def resign(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Step down; EndQuorumEpoch names the successors."""
    transition_to_resigned(state, now_ms)


def transfer_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when a transfer of leadership times out."""
    return NEVER_MS if leader.transfer is None else leader.transfer.deadline_ms


def resign_for_successor(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Resign once the successor has the whole log; after the time-out resign or lead on."""
    tend_transfer(state, leader, now_ms)


def add_probed(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Append the set with the new voter, once it has answered the probe and fetched since."""
    tend_addition(state, leader)


def begin_quorum_epoch_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when BeginQuorumEpoch is sent next."""
    return leader.begin_quorum_epoch_at_ms


def send_begin_quorum_epochs(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Send BeginQuorumEpoch to each voter that has not fetched for a while; forget observers that
    ended, and drop leases that expired.
    """
    leader.begin_quorum_epoch_at_ms = now_ms + state.config.begin_quorum_epoch_ms
    for voter_id, progress in leader.voters.items():
        silent_ms = now_ms - progress.last_fetch_ms
        if progress.last_fetch_ms < 0 or silent_ms >= state.config.begin_quorum_epoch_ms:
            begin_quorum_epoch(state, voter_id, now_ms)
    for observer in list(leader.observers.values()):
        if now_ms - observer.last_heard_ms >= limits.OBSERVER_AGE_MS_MAX:
            leader.forget(observer)
    expire(leader, state.log.end_offset, now_ms)


def parked_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when the first parked Fetch must be answered, even without records."""
    return leader.parked_deadline_ms


def answer_late(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Answer the parked Fetches whose time is over."""
    answer_parked(state, leader, False, now_ms)


def flush_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when what is not on disk is too old (D14)."""
    log = state.log
    if log.flushing or log.unflushed_bytes <= 0:
        return NEVER_MS
    return log.unflushed_since_ms + state.config.unflushed_age_ms_max


def flush(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Flush by the leader's policy."""
    flush_leader(state, leader, False, now_ms)


# --- the timers of each role ------------------------------------------------------------------

BARRIERS = Timer(barriers_due_ms, tend_barriers, every_poll=True)
SHUTDOWN = Timer(shutdown_due_ms, end)


def timers(*rows: Timer) -> Timers:
    """Return the timers of a role."""
    rows = (BARRIERS, *rows, SHUTDOWN)
    for each in rows:
        assert each.every_poll or each.due_ms is not never_ms, "nothing runs this timer"
    return Timers(rows, tuple([each.due_ms for each in rows if each.due_ms is not never_ms]))


ELECTION = timers(
    Timer(election_due_ms, end_election),
    Timer(votes_due_ms, seek_votes, every_poll=True),
)
TIMERS: dict[type, Timers] = {
    Unattached: timers(
        Timer(never_ms, report_displaced, every_poll=True),
        Timer(campaign_due_ms, campaign),
        Timer(fetch_due_ms, fetch, every_poll=True),
    ),
    Follower: timers(
        Timer(fetch_timeout_due_ms, watch_leader, every_poll=True),
        Timer(stream_due_ms, give_up_stream),
        Timer(download_due_ms, give_up_download),
        Timer(membership_due_ms, tend_membership, every_poll=True),
        Timer(fetch_due_ms, fetch, every_poll=True),
    ),
    Prospective: ELECTION,
    Candidate: ELECTION,
    Resigned: timers(
        Timer(lead_again_due_ms, campaign),
        Timer(next_epoch_due_ms, begin_next_epoch),
        Timer(end_quorum_epoch_due_ms, send_end_quorum_epochs, every_poll=True),
        Timer(never_ms, flush_tail, every_poll=True),
    ),
    Leader: timers(
        Timer(change_due_ms, tend_change, every_poll=True),
        Timer(resign_due_ms, resign),
        Timer(transfer_due_ms, resign_for_successor, every_poll=True),
        Timer(leader_barriers_due_ms, tend_leader_barriers, every_poll=True),
        Timer(never_ms, add_probed, every_poll=True),
        Timer(reassignment_due_ms, tend_reassignment, every_poll=True),
        Timer(begin_quorum_epoch_due_ms, send_begin_quorum_epochs),
        Timer(parked_due_ms, answer_late),
        Timer(push_due_ms, push_all, every_poll=True),
        Timer(flush_due_ms, flush, every_poll=True),
        Timer(never_ms, request_drain, every_poll=True),
    ),
}
WRITING = timers(Timer(keep_alive_due_ms, keep_alive))
"""The timers of a follower that writes fetched records, or a slice of a snapshot.

It must not take its own disk for silence of the leader, so it does not campaign; it may vote.
"""
