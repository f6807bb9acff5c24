"""Events of the search, as they happen at one replica."""

from __future__ import annotations

from typing import Any

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_EPOCH, OffsetAndEpoch, ReplicaKey
from tests.core.disk import Disk, Message, Origin, voter_of
from tests.model import timeless
from tests.model.alone import OUTSIDE, Lone, Violation
from tests.model.batches import ends_connection

TICKS_MAX = 12
STRANGER = ReplicaKey(9, b"I" * 16)
"""Has no link: what it is answered goes nowhere."""

Arrived = tuple[str, int, Message]
"""What comes over a link: its kind, its correlation, and the message if it is one."""


def in_flight(host: Lone) -> dict[int, int]:
    """Return the correlation of the request to each peer that owes an answer."""
    if host.replica is None:
        return {}
    peers = timeless.state_of(host.replica).peers._peers
    return {id: peer.correlation for id, peer in peers.items() if peer.correlation}


def happen(host: Lone, event: tuple[Any, ...], arrived: Arrived | None = None) -> None:
    """Let one event happen at a replica."""
    kind = event[0]
    if kind != "crash" and host.replica is not None and not host.replica.in_doubt:
        host.phantom = None  # its mark has served: it is removed, if power lasts so long
        host.memory_lost = False
    if kind == "start":
        start(host, event[1])
        return
    if kind == "crash":
        crash(host, event[1], event[2])
        return
    replica = host.replica
    assert replica is not None
    if kind == "deliver":
        assert arrived is not None
        deliver(host, event[1], arrived)
    elif kind == "stranger":
        deliver(host, STRANGER.id, stranger_asks(host))
    elif kind == "up":
        host.step(ev.LinkUp(event[1], host.world.setting.streaming, True, event[2]))
    elif kind == "fail":
        correlation = in_flight(host).get(event[1], 0)
        host.step(ev.RequestFailed(event[1], correlation, ErrorCode.REQUEST_TIMED_OUT))
    elif kind == "append":
        host.queued += 1
        host.step(ev.AppendsQueued())
    elif kind == "flushed":
        host.finish_flush()
    elif kind == "timer":
        timeless.let_be_over(replica, event[1])
        host.listened |= event[1] == "ask_until_ms"
        host.step(ev.Tick())
    elif kind == "resign":
        host.step(ev.ResignRequested(replica.epoch))
    elif kind == "transfer":
        host.step(ev.TransferRequested(Origin(OUTSIDE, 0), event[1]))
    elif kind == "barrier":
        host.step(ev.ReadBarrierRequested((host.id, event[1]), 1000))
    elif kind == "consume":
        consumer = ReplicaKey(OUTSIDE, bytes(16))
        known = replica.high_watermark
        for offset in {max(known - 1, host.disk.start), max(known, 0)}:  # the last, and beyond it
            request = msg.FetchRequest(NO_EPOCH, consumer, offset, NO_EPOCH)
            host.step(ev.RequestReceived(Origin(OUTSIDE, 0), request))
    elif kind == "snapshot":
        host.make_snapshot(event[1])
    elif kind == "retain":
        host.step(ev.RetentionDue(max(host.disk.snapshots)))
    elif kind == "probed":
        probing, host.probing, host.fetched = host.probing, None, False
        assert probing is not None
        host.step(ev.Probed(probing.probe, event[1], *((0, 1) if not event[1] else ())))
    else:
        host.step(ev.RequestReceived(Origin(OUTSIDE, 0), request_of(event)))


def stranger_asks(host: Lone) -> Arrived:
    """A Vote of the next epoch, from a replica without a log that no voter set names."""
    assert host.replica is not None
    here = ReplicaKey(host.id, host.directory_id)
    vote = msg.VoteRequest(host.replica.epoch + 1, STRANGER, 0, 0, voter=here)
    return "ask", STRANGER.id, Message(STRANGER.id, host.id, STRANGER.id, vote, True)


def request_of(event: tuple[Any, ...]) -> msg.Request:
    """Return what an operator asks."""
    kind, *words = event
    if kind == "add":
        return msg.AddRaftVoterRequest(words[0], voter_of(words[0]).endpoints, 0, True, None)
    if kind == "remove":
        return msg.RemoveRaftVoterRequest(words[0], None)
    if kind == "assign":
        return msg.AlterPartitionReassignmentsRequest(words[0])
    if kind == "upgrade":
        return msg.UpdateFeaturesRequest(1)
    raise AssertionError(kind)


def start(host: Lone, linked: tuple[tuple[int, bytes], ...]) -> None:
    """A process begins; what it had on disk decides how."""
    host.lives += 1
    host.was_voter = False
    host.start(phantom_tail=host.phantom, memory_lost=host.memory_lost)
    streaming = host.world.setting.streaming
    for peer_id, directory_id in linked:
        host.step(ev.LinkUp(peer_id, streaming, True, directory_id))


def crash(host: Lone, keep: int, damaged: int) -> None:
    """Power is lost: ``keep`` unflushed records survive; ``damaged`` flushed ones are unreadable.

    What may have been acknowledged is then known by the mark alone (D10). A process that ends alone
    loses nothing of a memory that outlives it: there all is kept.
    """
    disk = host.disk
    if host.id in host.world.setting.in_memory and (not keep or keep < unflushed(disk)):
        host.memory_lost = True
    host.queued, host.flushing, host.stalled, host.refused = 0, None, None, False
    host.probing, host.fetched_content = None, ()
    host.fetched_bytes = host.slices_held = 0
    host.crash(keep)
    if damaged:
        end, known = disk.flushed, host.phantom
        lost = OffsetAndEpoch(end, disk.records[end - 1].epoch)
        if known is None or (lost.epoch, lost.offset) > (known.epoch, known.offset):
            host.phantom = lost
        disk.lose_flushed(damaged)
    disk.truncations = 0


def unflushed(disk: Disk) -> int:
    return len(disk.records) - disk.flushed


def deliver(host: Lone, peer_id: int, arrived: Arrived) -> None:
    """What a peer sent, or what is told of the link to it."""
    kind, correlation, message = arrived
    if kind == "down":
        host.step(ev.LinkDown(peer_id))
    elif kind == "ended":
        host.step(ev.PeerEnded(peer_id))
    elif kind == "failed":
        waited = in_flight(host).get(peer_id, 0)
        host.step(ev.RequestFailed(peer_id, waited, ErrorCode.BROKER_NOT_AVAILABLE))
    elif kind == "ask":
        host.step(ev.RequestReceived(Origin(peer_id, correlation), message.body))
    else:
        if isinstance(message.body, msg.FetchResponse):
            assert host.replica is not None
            if ends_connection(host.replica, host.disk, message.body):
                host.step(ev.RequestFailed(peer_id, correlation, ErrorCode.CORRUPT_MESSAGE))
                return
        host.step(ev.ResponseReceived(peer_id, correlation, message.body, message))


def settle(host: Lone) -> None:
    """Pauses are over at once."""
    for _ in range(TICKS_MAX):
        if host.replica is None:
            return
        timeless.rest(host.replica)
        if host.replica.deadline_ms > timeless.NOW_MS:
            return
        host.step(ev.Tick())
    raise Violation(f"L7: replica {host.id} is busy for ever")
