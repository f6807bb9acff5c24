"""Replicas for tests that compare effects: ``assert replica.step(event, now) == [...]``."""

from __future__ import annotations

from random import Random
from typing import Any

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.core.voters import VoterSet
from kraftfast.types import ReplicaKey
from tests.core.disk import NoJitter


def directory(id: int) -> bytes:
    return bytes([64 + id]) * 16


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, directory(id))


def replica(
    id: int = 1,
    voters: VoterSet | None = None,
    *,
    epoch: int = 0,
    leader: int = -1,
    voted: int | None = None,
    log: tuple[tuple[int, int], ...] = (),
    flushed: int | None = None,
    config: QuorumConfig | None = None,
    random: Random | None = None,
    replica_class: type = Replica,
    **options: Any,
) -> Replica:
    """A replica that has not started; ``log`` is a run of (epoch, end offset)."""
    trail = EpochTrail()
    end_offset = 0
    for log_epoch, log_end in log:
        trail.assign(log_epoch, end_offset)
        end_offset = log_end
    stored = QuorumState(epoch, leader, None if voted is None else key(voted))
    return replica_class(
        config or QuorumConfig(),
        key(id),
        VoterSet.of(1, 2, 3) if voters is None else voters,
        random or NoJitter(),
        0,
        stored,
        trail,
        end_offset,
        end_offset if flushed is None else flushed,
        **options,
    )


def started(*args: Any, **options: Any) -> Replica:
    it = replica(*args, **options)
    it.start(0)
    it.check_invariants()
    return it


def leader(id: int = 1, epoch: int = 4, voters: VoterSet | None = None, **options: Any) -> Replica:
    """A leader whose LeaderChange is appended and flushed; nothing is committed yet."""
    it = started(id, voters, epoch=epoch, voted=id, **options)
    for other in (voters or VoterSet.of(1, 2, 3)).others(key(id)):
        if it.role == "leader":
            break
        correlation = correlation_of(it, other)
        vote = msg.VoteResponse(leader_epoch=epoch, vote_granted=True)
        it.step(ev.ResponseReceived(other, correlation, vote), 0)
    assert it.role == "leader"
    end_offset = it.end_offset + 1
    it.step(ev.Appended(epoch, end_offset, 100), 0)
    it.step(ev.Flushed(end_offset, 0), 0)
    it.check_invariants()
    return it


def correlation_of(it: Replica, peer_id: int) -> int:
    """Of the request in flight to that peer."""
    return it._state.peers.peer(peer_id).correlation


def fetch(id: int, epoch: int, offset: int, last_epoch: int, **options: Any) -> ev.RequestReceived:
    request = msg.FetchRequest(epoch, key(id), offset, last_epoch, **options)
    return ev.RequestReceived(("from", id), request)


def vote(id: int, epoch: int, offset: int, last_epoch: int, **options: Any) -> ev.RequestReceived:
    request = msg.VoteRequest(epoch, key(id), last_epoch, offset, **options)
    return ev.RequestReceived(("from", id), request)
