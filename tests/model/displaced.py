"""Check what a replica must not do by an outdated voter set (D23), and how it learns of that.

A disk that was replaced may be given an old configuration. Whatever shows it that the cluster has a
quorum, or voters in its log, it keeps; until it knows them itself it neither campaigns nor, where
it was told of voters, helps another that counts by a configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, ReplicaKey
from tests.model import timeless
from tests.model.moving import may_count

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.core.messages import Response
    from kraftfast.types import VoterSet
    from tests.model.alone import Lone

ASKS_OR_LEADS = ("prospective", "candidate", "leader")
CALLS = (msg.VoteRequest, msg.BeginQuorumEpochRequest, msg.EndQuorumEpochRequest, msg.FetchRequest)


class Heard:
    """What one event tells a replica, judged once it was taken."""

    def __init__(self, host: Lone, event: ev.Event) -> None:
        self.host, self.event = host, event
        self.alone = leads_alone(host)
        self.empty = not host.disk.records
        self.quorum = self.voters = self.offered = self.refused = False
        if counts_by_configuration(host):
            self._listen(event)
        if isinstance(event, ev.ResponseReceived):
            self._take_vote(event)

    def _listen(self, event: ev.Event) -> None:
        host = self.host
        if isinstance(event, ev.RequestReceived) and self.empty:
            asked: Any = event.request
            self.voters = calls_another(host, asked)
            self.quorum = is_only_voter(host) and shows_quorum(host, asked)
        elif isinstance(event, ev.ResponseReceived) and is_waited_for(host, event):
            answer: Any = event.response
            if isinstance(answer, msg.VoteResponse):
                self.voters = not answer.error and answer.voters_committed
            elif isinstance(answer, msg.FetchResponse) and not answer.error:
                self.offered = not answer.partition_error and answer.leader_identity.committed

    def _take_vote(self, event: ev.ResponseReceived) -> None:
        """A replica without a log is refused by one that does not say that it has none either."""
        answer, replica = event.response, self.host.replica
        if not isinstance(answer, msg.VoteResponse) or not self.empty or replica is None:
            return
        fine = not answer.error and not answer.partition_error and is_waited_for(self.host, event)
        if fine and replica.role == "prospective" and answer.leader_epoch == replica.epoch:
            self.refused = not answer.vote_granted and not answer.has_no_log

    def taken(self) -> None:
        """Keep it, and assert what a replica owes to it at once."""
        host = self.host
        replica = host.replica
        if replica is None:
            return
        host.told_quorum |= self.quorum
        host.told_voters |= self.voters or self.offered and follows(host, self.event)
        host.refused |= self.refused
        if replica.role not in ("prospective", "candidate"):
            host.refused = False
        if self.alone:
            stays_alone(host, self.event)


def counts_by_configuration(host: Lone) -> bool:
    """Return whether no voters are in the log, and those that are given name this replica."""
    history = host.disk.history()
    if history.latest_offset >= 0:
        return False
    return voters_of(host).is_voter(key_of(host))


def voters_of(host: Lone) -> VoterSet:
    latest = host.disk.history().latest
    return host.world.voters if latest is None else latest.voters


def key_of(host: Lone) -> ReplicaKey:
    return ReplicaKey(host.id, host.directory_id)


def is_only_voter(host: Lone) -> bool:
    return voters_of(host).ids == (host.id,)


def is_waited_for(host: Lone, event: ev.ResponseReceived) -> bool:
    """Return whether the request that it answers is under way, or the stream that it belongs to."""
    if host.replica is None:
        return False
    state = timeless.state_of(host.replica)
    if event.correlation:
        peer = state.peers._peers.get(event.peer_id)
        return peer is not None and peer.correlation == event.correlation
    follower = state.follower
    if follower is None or not isinstance(event.response, msg.FetchResponse):
        return False
    return bool(follower.stream == event.response.stream != 0)


def follows(host: Lone, event: Any) -> bool:
    """Return whether the replica follows who gave this answer."""
    replica, answer = host.replica, event.response
    assert replica is not None
    there = replica.epoch, replica.leader_id
    return replica.role == "follower" and there == (answer.leader_epoch, answer.leader_id)


def calls_another(host: Lone, asked: Any) -> bool:
    """Return whether a leader, or who has voters in its log, calls this id by another directory."""
    if isinstance(asked, msg.VoteRequest):
        if asked.voters_at.offset < 0:
            return False
    elif not isinstance(asked, msg.BeginQuorumEpochRequest):
        return False
    voter = asked.voter
    return voter.id == host.id and voter.directory_id not in (ZERO_UUID, host.directory_id)


def shows_quorum(host: Lone, asked: Any) -> bool:
    """Return whether a request shows a later epoch of the cluster, which others led."""
    assert host.replica is not None
    if not isinstance(asked, CALLS) or asked.epoch <= host.replica.epoch:
        return False
    if isinstance(asked, msg.VoteRequest):
        return asked.last_offset > 0
    return not isinstance(asked, msg.FetchRequest) or not asked.stream or asked.opens


def leads_alone(host: Lone) -> bool:
    """Return whether this replica began the log that it has, as the only voter it was told of."""
    if not host.began or not host.disk.records or host.told_quorum or host.told_voters:
        return False
    return is_only_voter(host) and counts_by_configuration(host)


def stays_alone(host: Lone, event: ev.Event) -> None:
    """Assert that an only voter stops leading once a quorum names another directory for its id, and
    never follows: what it acknowledged would be gone, or be in no log of the quorum."""
    replica, looked = host.replica, host.world.looked
    assert replica is not None
    looked["led alone"] += 1
    asked = event.request if isinstance(event, ev.RequestReceived) else None
    if isinstance(asked, msg.BeginQuorumEpochRequest) and calls_another(host, asked):
        looked["rival heard"] += 1
        assert replica.role != "leader", f"D23: {host.id} leads beside a quorum that calls its id"
    voted = timeless.state_of(replica).voted
    fine = replica.role != "follower" or (voted is not None and voted.id == replica.leader_id)
    assert fine, f"D23: {host.id}, the only voter of its log, follows {replica.leader_id}"


def keeps_to_what_it_was_told(host: Lone) -> None:
    """Assert it after a turn."""
    replica, looked = host.replica, host.world.looked
    if replica is None:
        return
    if (host.told_quorum or host.told_voters) and counts_by_configuration(host):
        looked["told of a quorum"] += 1
        assert replica.role not in ASKS_OR_LEADS, (
            f"D23: {host.id}, told that its configuration counts no more, is a {replica.role}"
        )
    if host.refused:
        looked["refused without a log"] += 1
        assert replica.role == "prospective", (
            f"D23: {host.id} has no log, and goes on as {replica.role} though one may have"
        )


def begins_a_log(host: Lone) -> None:
    """Assert, of one that is elected without a log, that it listened if it may know nobody."""
    if host.disk.records:
        return
    host.began = True
    if host.disk.history().latest is None and is_only_voter(host):
        host.world.looked["log begun alone"] += 1
        assert host.listened, f"D23: {host.id} begins a log before anybody could call it"


def helps_nobody_of_old(host: Lone, request: msg.VoteRequest) -> None:
    """Assert that a vote, or a pre-vote, is for nobody who counts by voters that are gone."""
    latest = host.disk.history().latest
    entry = None if latest is None else latest.voters.get(request.replica.id)
    if entry is not None and entry.directory_id not in (ZERO_UUID, request.replica.directory_id):
        host.world.looked["another disk granted"] += 1
        assert request.voters_at.offset > host.disk.history().latest_offset, (
            f"D23: {host.id} grants {request.replica}, whose id has another directory here"
        )
    if host.told_voters and counts_by_configuration(host):
        host.world.looked["granted as told"] += 1
        assert request.voters_at.offset >= 0, (
            f"D23: {host.id} grants {request.replica}, which counts by a configuration"
        )


def says_what_is_committed(host: Lone, effect: AnswerFetch) -> None:
    """Assert that a leader whose floor covers voters of its log tells that they are committed."""
    identity = effect.response.leader_identity
    first = next((at for at, _ in host.disk.history().voter_sets if at >= 0), None)
    if first is None or first >= host.disk.floor or identity.directory_id != host.directory_id:
        return
    host.world.looked["told by the floor"] += 1
    assert identity.committed, f"D23: {host.id} does not say that the voters at {first} count"


def hears_its_leader(host: Lone, asked: msg.BeginQuorumEpochRequest, answer: Response) -> None:
    """Assert that no leader is refused whom voters name that may count: a removal may be undone.

    The only voter of a log follows whom it voted for, whatever the voters before it were.
    """
    key = ReplicaKey(asked.leader_id, asked.leader_identity.directory_id)
    if not isinstance(answer, msg.QuorumEpochResponse) or key.directory_id == ZERO_UUID:
        return
    if is_only_voter(host) or not host.disk.history().voter_sets or not may_count(host, key):
        return
    host.world.looked["leader that may count"] += 1
    assert answer.partition_error != ErrorCode.INVALID_REQUEST, (
        f"D23: {host.id} refuses {key} as a leader, whom voters name that may count"
    )
