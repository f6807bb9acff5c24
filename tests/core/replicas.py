"""Replicas for tests that compare effects: ``assert replica.step(event, now) == [...]``."""

from __future__ import annotations

from random import Random
from typing import Any

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.types import ElectionState, ReplicaKey, VoterSet
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
    now_ms: int = 0,
    replica_class: type = Replica,
    **options: Any,
) -> Replica:
    """A replica that has not started; ``log`` is a run of (epoch, end offset)."""
    trail = EpochTrail()
    end_offset = 0
    for log_epoch, log_end in log:
        trail.assign(log_epoch, end_offset)
        end_offset = log_end
    stored = ElectionState(epoch, leader, None if voted is None else key(voted))
    return replica_class(
        config or QuorumConfig(),
        key(id),
        VoterSet.of(1, 2, 3) if voters is None else voters,
        random or NoJitter(),
        now_ms,
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


def candidate(
    id: int = 1, epoch: int = 4, voters: VoterSet | None = None, **options: Any
) -> Replica:
    """A candidate of that epoch at time 0, which has just won its pre-votes."""
    it = nominated(id, voters, epoch=epoch, **options)
    assert it.role == "candidate"
    return it


def nominated(id: int, voters: VoterSet | None, epoch: int, **options: Any) -> Replica:
    """A replica that started 2 s ago, in the epoch before, and campaigns; alone, it leads."""
    if voters is not None and len(voters) == 1:
        options.setdefault("voted", id)  # else another made that epoch (D23)
    it = replica(id, voters, epoch=epoch - 1, now_ms=-2000, **options)
    it.start(-2000)
    it.step(ev.Tick(), 0)
    if it.role == "prospective":
        win(it, id, voters, "candidate")
    it.check_invariants()
    return it


def win(it: Replica, id: int, voters: VoterSet | None, role: str, now_ms: int = 0) -> None:
    """Let as many voters grant as it takes to be that."""
    for other in (voters or VoterSet.of(1, 2, 3)).others(key(id)):
        if it.role == role:
            break
        vote = msg.VoteResponse(leader_epoch=it.epoch, vote_granted=True)
        it.step(ev.ResponseReceived(other, correlation_of(it, other), vote), now_ms)


def leader(id: int = 1, epoch: int = 4, voters: VoterSet | None = None, **options: Any) -> Replica:
    """A leader whose LeaderChange is appended and flushed; nothing is committed yet."""
    it = nominated(id, voters, epoch=epoch, **options)
    win(it, id, voters, "leader")
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
