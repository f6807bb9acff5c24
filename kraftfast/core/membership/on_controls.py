"""Control records were appended, or undone: another voter set is in force (KIP-853, D16)."""

from __future__ import annotations

from kraftfast.core.effects import VotersChanged
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import transition_to_unattached


def on_controls(state: QuorumState, controls: VoterControls, now_ms: int) -> None:
    """Let records of voters and versions count as soon as they are appended, committed or not."""
    for offset, control in controls:
        state.history.add(offset, control)
    adopt(state, now_ms)


def hold_for_voters(state: QuorumState, controls: VoterControls, from_offset: int) -> None:
    """Acknowledge what was appended from ``from_offset`` on only once it is on disk, if it has a
    record of voters or versions, or if an earlier one is not known to be committed.

    Whatever the durability: a replica that lost its memory goes by the voter set that its disk has,
    and a voter of both sets must be able to tell it that another is committed (D10). So the first
    record of an epoch is kept likewise behind a change that may be committed by it: logs are
    compared by their last epoch first.
    """
    if controls or state.history.last_offset >= max(state.uncuttable_offset(), 0):
        state.log.hold(from_offset)


def on_cut(state: QuorumState, now_ms: int) -> None:
    """Drop the records of voters and versions that were cut with the end of the log."""
    if state.history.truncate_to(state.log.end_offset):
        adopt(state, now_ms)


def adopt(state: QuorumState, now_ms: int) -> None:
    """Let the voter set in force be that of the history, and every role know it."""
    voters = state.voters_in_force()
    kraft_version = state.history.kraft_version
    if voters == state.voters and kraft_version == state.kraft_version:
        return
    campaigned = state.counts_as_voter()
    state.voters = voters
    state.kraft_version = kraft_version
    told = state.tells_endpoints
    state.tells_endpoints = state.could_be_voter()
    if state.follower is not None and state.tells_endpoints and not told:
        state.follower.stream = 0  # an observer now: a new stream says where it can be reached
    state.effects.append(VotersChanged(kraft_version, voters))
    leader = state.leader
    current = state.current
    if leader is not None:
        leader.adopt(voters, state.local, state.log.ackable_end_offset())
        if leader.needed_of_others <= 0:
            leader.check_quorum_deadline_ms = NEVER_MS
        elif leader.check_quorum_deadline_ms == NEVER_MS:
            leader.check_quorum_deadline_ms = now_ms + state.config.check_quorum_timeout_ms
    elif isinstance(current, Prospective | Candidate):
        if state.counts_as_voter():
            current.election.adopt(voters, state.local)
        else:
            transition_to_unattached(state, state.epoch, state.leader_id, now_ms)
    elif isinstance(current, Unattached) and state.counts_as_voter() != campaigned:
        timeout_ms = NEVER_MS - now_ms if campaigned else state.election_timeout_ms()
        current.election_deadline_ms = now_ms + timeout_ms
    state.poll_due = True
