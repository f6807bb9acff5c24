"""A leader on its way to a target set of voters, by single moves (KIP-642 on top of KIP-853).

The target stands in the voters record itself, so it is in force, undone and carried on like the
voters, and the next leader goes on. A voter is added only once it has caught up, one that is
not in the target removed only if the others can do without it, the leader itself last: it hands
over to a voter of the target, which then removes it. A voter of the target whose disk was replaced
is removed under its old directory id, then added under the one that it runs with.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.elections.leadership_transfer import begin_transfer
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED
from kraftfast.core.membership.voter_change import VoterChange
from kraftfast.core.messages import AddRaftVoterResponse, RemoveRaftVoterResponse
from kraftfast.core.replication.leader import Leader, Progress
from kraftfast.core.state import QuorumState
from kraftfast.types import Voter


def tend_reassignment(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Make the next move towards the target, if there is one and the last is committed (D17)."""
    latest = state.history.latest
    leader.assigning = latest is not None and latest.target is not None
    if not leader.assigning or now_ms < leader.move_at_ms:
        return
    if leader.transfer is not None or leader.slot < 0:
        return
    if (
        membership.check_nothing_pending(state) is not ACCEPTED
        or membership.check_set_committed(state) is not ACCEPTED
    ):
        return
    leader.move_at_ms = now_ms + state.config.move_period_ms
    assert latest is not None and latest.target is not None
    move(state, leader, frozenset(latest.target), now_ms)


def reassignment_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when to look again whether the awaited replica has caught up."""
    if not leader.assigning:
        return NEVER_MS
    if leader.change is not None or leader.transfer is not None or leader.slot < 0:
        return NEVER_MS
    if state.history.last_offset >= state.high_watermark:
        return NEVER_MS
    return leader.move_at_ms


def move(state: QuorumState, leader: Leader, target: frozenset[int], now_ms: int) -> None:
    """Remove a voter if there are too many, or as many as fit; else add one, else hand over."""
    ids = frozenset(state.voters.ids)
    missing, extra = target - ids, ids - target
    replaced = frozenset(id for id in ids & target if is_replaced(state, leader, id, now_ms))
    full = len(ids) >= limits.VOTERS_MAX
    if replaced or len(ids) > len(target) or not missing or full:
        victim = choose_victim(state, leader, replaced or extra, now_ms)
        if victim is not None:
            change = VoterChange(RemoveRaftVoterResponse, None, NEVER_MS, answered=True)
            voters = state.voters.without(victim)
            membership.append_voters(state, leader, change, voters)
            return
    for voter_id in () if full else sorted(missing):
        newcomer = ready_observer(state, leader, voter_id, now_ms)
        if newcomer is not None:
            add(state, leader, newcomer, now_ms)
            return
    if extra == {state.local.id} and (full or not missing):
        hand_over(state, leader, target, now_ms)


def choose_victim(
    state: QuorumState, leader: Leader, extra: frozenset[int], now_ms: int
) -> int | None:
    """Return, of those that are to go but the leader, the one that was silent for longest.

    A voter stays as long as the others have no majority without it.
    """
    others = [leader.voters[id] for id in extra if id in leader.voters]
    if not others:
        return None
    victim = min(others, key=lambda each: (each.last_fetch_ms, each.key.id))
    return victim.key.id if membership.goes_on_without(state, victim.key.id, now_ms) else None


def is_replaced(state: QuorumState, leader: Leader, voter_id: int, now_ms: int) -> bool:
    """Return whether this voter is silent and its id follows with another directory."""
    voter = leader.voters.get(voter_id)
    if voter is None:
        return False  # this leader
    silent_ms = now_ms - max(voter.last_fetch_ms, leader.began_ms)
    observer = ready_observer(state, leader, voter_id, now_ms)
    return silent_ms >= state.config.fetch_timeout_ms and observer is not None


def ready_observer(
    state: QuorumState, leader: Leader, voter_id: int, now_ms: int
) -> Progress | None:
    """Return the observer of this id, if it could be a voter now; None if two are alive."""
    since_ms = max(now_ms - state.config.fetch_timeout_ms, -1)
    named = [
        each
        for key, each in leader.observers.items()
        if key.id == voter_id and each.last_heard_ms > since_ms
    ]
    if len(named) != 1:
        return None
    progress = named[0]
    if progress.last_caught_up_ms <= since_ms:
        return None
    return progress if can_be_voter(state, progress) else None


def can_be_voter(state: QuorumState, progress: Progress) -> bool:
    """Return whether this observer told all that its entry needs: Kafka's do not."""
    if len(progress.kraft_versions) != 2:
        return False
    least, most = progress.kraft_versions
    return (
        least <= state.kraft_version <= most
        and membership.check_default_listener(state, progress.endpoints) is ACCEPTED
    )


def add(state: QuorumState, leader: Leader, progress: Progress, now_ms: int) -> None:
    """Add it as if it had asked by AddRaftVoter: it is asked at its endpoints first."""
    voter = Voter(progress.key.id, progress.key.directory_id, progress.endpoints)
    deadline_ms = now_ms + state.config.request_timeout_ms
    change = VoterChange(AddRaftVoterResponse, None, deadline_ms, voter, answered=True)
    membership.begin_probe(state, leader, change)


def hand_over(state: QuorumState, leader: Leader, target: frozenset[int], now_ms: int) -> None:
    """Hand over to the best voter of the target: the leader is the last voter to remove."""
    if now_ms - leader.handed_over_ms < state.config.election_timeout_ms:
        return
    successor = next(key for key in leader.successors() if key.id in target)
    begin_transfer(state, leader, successor.id, None, True, now_ms)
