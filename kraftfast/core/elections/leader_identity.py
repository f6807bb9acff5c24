"""Who may be followed: a leader is an id and a directory id, wherever both are known (D23).

A replica on a replaced disk may believe an old voter set and lead by it. So leaders say which
directory they are and where their voter set stands in the log; a replica whose own set names
another directory, or does not name the leader, follows only if the leader's set is the later one.
Kafka's controllers say neither: they are followed as before, and the committed floor still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.elections.superseded import (
    is_superseded,
    knows_committed_voters,
    superseded_warning,
)
from kraftfast.core.messages import (
    UNSAID,
    LeaderIdentity,
    VoteRequest,
)
from kraftfast.core.warning import warn
from kraftfast.types import NO_NODE, NO_OFFSET, ZERO_UUID, OffsetAndEpoch, VoterSet, uuid_text

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState

NOT_IN_THE_LOG = OffsetAndEpoch(NO_OFFSET, NO_OFFSET)


def voters_place(state: QuorumState) -> OffsetAndEpoch:
    """Return where the voter set in force stands in the log; offset -1 for one that is not there.

    One that a snapshot holds counts as its last record, so it is never behind its real place.
    """
    offset = state.history.latest_offset
    if offset < 0:
        return NOT_IN_THE_LOG
    epoch = state.log.trail.epoch_at(offset)
    if epoch < 0 and state.log.snapshots:
        epoch = state.log.snapshots[0].epoch
    return OffsetAndEpoch(offset, epoch)


def identity_of_leader(state: QuorumState) -> LeaderIdentity:
    """Return the identity that messages of this replica give for the leader that they name."""
    place, committed = voters_place(state), knows_committed_voters(state)
    if state.leader_id == state.local.id:
        return LeaderIdentity(state.local.directory_id, place, committed)
    told, follower = state.leader_identity, state.follower
    directory_id = told.directory_id
    if directory_id == ZERO_UUID and follower is not None and follower.has_fetched:
        directory_id = state.peers.directory_of(state.leader_id)  # answers over a ring say neither
    if directory_id == ZERO_UUID:
        return UNSAID
    return LeaderIdentity(directory_id, max(place, told.voters_at), committed)


def as_linked(state: QuorumState, leader_id: int, told: LeaderIdentity) -> LeaderIdentity:
    """Return what holds of a leader that a message names: the own link tells the directory that
    would be fetched from, and where the voters of another one stand says nothing of it (D23)."""
    linked = state.peers.directory_of(leader_id)
    if linked in (ZERO_UUID, told.directory_id):
        return told
    return UNSAID._replace(directory_id=linked)


def is_displaced(state: QuorumState) -> bool:
    """Return whether this replica must not lead although its configuration names it (D23).

    Another has led its cluster beside the only voter, whose disk was replaced then; or the cluster
    has voters in its log.
    """
    return (state.displaced and is_unconfirmed(state)) or is_superseded(state)


def is_unconfirmed(state: QuorumState) -> bool:
    """Return whether only the configuration or the bootstrap snapshot names this one voter."""
    if state.history.latest_offset != NO_OFFSET:
        return False
    return state.voters.is_only_voter(state.local)


def another_made_epoch(state: QuorumState) -> bool:
    """Return whether the present epoch is not this replica's own, as an only voter's must be.

    Its quorum-state names itself, as candidate or leader. One that names no replica in the epoch of
    the log's last record was lost. A log proves nothing: it may have been fetched from voters whose
    record it does not reach.
    """
    if state.epoch == 0 or not is_unconfirmed(state):
        return False
    if state.leader_id != NO_NODE:
        return state.leader_id != state.local.id
    if state.voted is not None:
        return state.voted.id != state.local.id
    return state.epoch > state.log.last_epoch()


def listening_ms(state: QuorumState) -> int:
    """Return how long an only voter without a log listens before it leads (D23).

    Peers that it knows answer within the fetch timeout. One that only the configuration names may
    know none: the voters of its cluster call it, which takes them an election at most.
    """
    config = state.config
    if state.history.latest is not None:
        return config.fetch_timeout_ms
    return config.fetch_timeout_ms + 2 * config.election_timeout_ms


def may_follow(state: QuorumState, epoch: int, leader_id: int, identity: LeaderIdentity) -> bool:
    """Return whether this replica may follow a leader that a message names; report it if not."""
    if leader_id in (NO_NODE, state.local.id) or not state.voters:
        return True
    identity = as_linked(state, leader_id, identity)
    directory_id = identity.directory_id
    if begun_alone(state):
        follows = has_voted_for(state, epoch, leader_id) or is_same_set(state, identity)
        if not follows:
            warn(state, rival_warning(state, epoch, leader_id))
        return follows
    if directory_id == ZERO_UUID or may_be_voter(state, leader_id, directory_id):
        return True
    follows = shows_later_set(state, leader_id, identity)
    if not follows:
        warn(state, stranger_warning(state, epoch, leader_id, directory_id))
    return follows


def may_still_follow(state: QuorumState) -> bool:
    """Return whether the leader that this replica remembers may be followed, with the directory
    that its link names now."""
    return may_follow(state, state.epoch, state.leader_id, state.leader_identity)


def begun_alone(state: QuorumState) -> bool:
    """Return whether this replica is the only voter and has a log: only its own vote can elect
    another, since no later voter set can be committed without it."""
    if state.log.end_offset == 0 or not state.voters.is_only_voter(state.local):
        return False
    return not is_displaced(state)


def has_voted_for(state: QuorumState, epoch: int, leader_id: int) -> bool:
    """Return whether this replica gave that leader its vote."""
    return state.epoch == epoch and state.voted is not None and state.voted.id == leader_id


def is_same_set(state: QuorumState, identity: LeaderIdentity) -> bool:
    """Return whether the leader counts by the very set in force here: it removed itself (I17)."""
    place = voters_place(state)
    return place.offset >= 0 and identity.voters_at == place


def may_be_voter(state: QuorumState, leader_id: int, directory_id: bytes) -> bool:
    """Return whether a set that may count names that replica: the newest that is known to be
    committed, or one after it.

    Those after it may be undone: a leader that this replica was about to remove, before the others
    elected that one, would else never be followed. Static voters do not count beside a set of the
    log: they name no directories, and a replaced disk would be followed (D23).
    """
    committed_end = state.uncuttable_offset()
    for offset, record in reversed(state.history.voter_sets):
        if is_named(record.voters, leader_id, directory_id):
            return True
        if offset < committed_end:
            return False
    return is_named(state.voters, leader_id, directory_id)


def is_named(voters: VoterSet, leader_id: int, directory_id: bytes) -> bool:
    """Return whether the set names that replica, or its id without a directory."""
    entry = voters.get(leader_id)
    return entry is not None and entry.directory_id in (ZERO_UUID, directory_id)


def shows_later_set(state: QuorumState, leader_id: int, identity: LeaderIdentity) -> bool:
    """Return whether the leader's voter set is later than the one in force here.

    An equal one will do for a leader that the set does not name at all: one that removed itself.
    One that is not known to be committed may be undone by leaders of later epochs, and theirs must
    only stand behind all that is: else this replica would never cut its own (L1). Where nothing is
    known to be committed, a set of a second log would pass for later than any.
    """
    place, told = voters_place(state), identity.voters_at
    committed_end = state.uncuttable_offset()
    if told.epoch > place.epoch and place.offset >= committed_end > 0:
        return told.offset >= committed_end
    if told.offset == place.offset:
        return told.epoch == place.epoch and leader_id not in state.voters
    return told.offset > place.offset and told.epoch >= place.epoch


def is_impostor(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether a candidate has a voter's id, but another directory than the sets name that
    may count, and shows no later set. The only voter of a static set votes for no other replica."""
    entry = state.voters.get(request.replica.id)
    if entry is None:
        static = state.kraft_version == 0 and state.voters.is_only_voter(state.local)
        return static and not is_displaced(state)
    if may_be_voter(state, request.replica.id, request.replica.directory_id):
        return False
    told = request.voters_at
    if told == UNSAID.voters_at:
        return False  # Kafka sends none; the logs are compared
    identity = LeaderIdentity(request.replica.directory_id, told)
    return not shows_later_set(state, request.replica.id, identity)


def displacement_warning(state: QuorumState) -> str:
    """Return the warning of a configured voter that must not lead."""
    if is_superseded(state) and not is_unconfirmed(state):
        return superseded_warning(state)
    others = f"reached epoch {state.epoch}" if state.epoch else "has a quorum"
    who = f", as replica {state.displaced_by} says" if state.displaced_by != NO_NODE else ""
    told = f"this replica is configured as the only voter, but its cluster {others} without it{who}"
    if state.log.end_offset > 0:  # it may be all that is left
        return (
            f"{told}: it does not lead by the part of the log that it has. If it does not find a "
            "leader, start the others; if they are lost for good, stop it and run kraftfast "
            "storage recover"
        )
    return (
        f"{told}: its disk was replaced, and it does not lead. If it does not find a leader, stop "
        "it and format it with --no-initial-controllers; if no other voter is left, kraftfast "
        "storage recover lets a replica go on alone by the log that it has; if all logs are given "
        "up, stop all of them before this replica is formatted again"
    )


def rival_warning(state: QuorumState, epoch: int, leader_id: int) -> str:
    """Return the warning of an only voter that another replica claims to lead."""
    return (
        f"replica {leader_id} claims to lead epoch {epoch} of this cluster, but this replica is "
        "its only voter and has a log of its own: refused, and it does not lead while that quorum "
        "has its id with another directory. If this disk replaces another, stop this replica, keep "
        "its directory for the records that it took, and format another with "
        "--no-initial-controllers; else stop that quorum"
    )


def stranger_warning(state: QuorumState, epoch: int, leader_id: int, directory_id: bytes) -> str:
    """Return the warning about a leader that the voter set does not name."""
    entry = state.voters.get(leader_id)
    here = "do not name it" if entry is None else f"name {uuid_text(entry.directory_id)}"
    return (
        f"replica {leader_id} with directory {uuid_text(directory_id)} claims to lead epoch "
        f"{epoch}, but the voters here {here}: refused. If its disk was replaced, stop it and "
        "format it with --no-initial-controllers"
    )
