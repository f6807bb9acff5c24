"""D24: what may be sent again is what was appended, byte for byte, for as long as it may be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftfast.client.producer.identity import Identity
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.remote_connector import connect_producer
from kraftfast.errors import ErrorCode, UnknownOutcome
from kraftfast.ring.spsc import PAGE_BYTES
from kraftfast.types import METADATA_TOPIC
from tests.client.kit import ScriptedReplica, ScriptedServer, values_of, wait_until
from tests.client.test_identity import Quorum, failures, says, send

LOST = UnknownOutcome("lost")


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    found = Quorum()
    yield found
    found.close()


def fill(replica: ScriptedReplica, first: int, size: int = 6000) -> int:
    """Append numbered values while the sender takes them, to a replica that releases each batch."""
    number = first
    while replica.sender.append(b"%06d" % number * (size // 6)) >= 0:
        replica.sender.seal()
        replica.look()
        replica.release()
        number += 1
    return number


def test_a_ring_is_not_overwritten_before_its_batches_are_acknowledged(quorum: Quorum) -> None:
    """The leader took more than the ring holds, acknowledged little, and was lost."""
    room = {"ring_bytes": 1 << 16, "batch_bytes": 8192, "window": 64}
    leader = quorum.lead(**room)
    end = fill(leader, 0)
    assert end < 64, "the ring is full before the window is"
    for _ in range(3):
        leader.acknowledge(2)
        leader.sender.poll()
        end = fill(leader, end)
    sent = says(leader)
    quorum.lose()
    following = quorum.lead(**room)
    assert says(following) == sent[6:]
    following.acknowledge(end - 6)
    following.sender.poll()
    assert failures(quorum) == [None] * end


def damage(replica: ScriptedReplica, value: bytes) -> None:
    """Change a value where it lies in the ring."""
    memory = replica.producers_memory
    at = memory.find(value, PAGE_BYTES)
    assert at > 0
    memory[at] ^= 1


def test_damaged_bytes_are_not_sent_under_a_fresh_checksum(quorum: Quorum) -> None:
    """Their outcome is unknown, and so is that of what the leader looked at; the rest goes on."""
    leader = quorum.lead()
    send(leader, b"aaaa", b"bbbb", b"cccc", b"dddd")
    leader.look(3)
    damage(leader, b"bbbb")
    leader.leave()
    leader.sender.poll()
    quorum.lose()
    following = quorum.lead()
    assert says(following) == [(7, 1, 0, [b"dddd"])]
    following.acknowledge(1)
    following.sender.poll()
    assert failures(quorum) == [UnknownOutcome] * 3 + [None]


def test_damaged_bytes_are_not_sent_by_a_producer_without_an_identity() -> None:
    outcomes = Outcomes()
    leader = ScriptedReplica(outcomes)
    send(leader, b"aaaa", b"bbbb", b"cccc")
    leader.look(1)
    damage(leader, b"bbbb")
    leader.leave()
    leader.sender.poll()
    back = leader.sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == [[b"cccc"]] and outcomes.resolved == 2
    for ticket in (0, 1):
        with pytest.raises(UnknownOutcome):
            outcomes.offset_of(ticket)


def test_another_batch_in_a_slot_is_not_sent_in_its_place(quorum: Quorum) -> None:
    """It is whole, and not the one that the tickets stand for."""
    leader = quorum.lead()
    send(leader, b"aaaa", b"bbbb")
    first, second = (bytes(batch) for batch in leader.look())
    memory = leader.producers_memory
    at = memory.find(first, PAGE_BYTES)
    memory[at : at + len(second)] = second
    quorum.lose()
    assert says(quorum.lead()) == [] and failures(quorum) == [UnknownOutcome] * 2


def test_a_wish_for_room_does_not_keep_a_poller_awake() -> None:
    """A large record found no room, a small one would: an event loop must not spin on that."""
    replica = ScriptedReplica(Outcomes(), ring_bytes=1 << 16, batch_bytes=1000, window=64)
    sender = replica.sender
    for _ in range(2):
        assert sender.append(b"v" * 25_000) >= 0
        sender.seal()
    assert sender.append(b"v" * 30_000) == -1
    sender.want_room()
    assert sender.going_to_sleep()


@pytest.mark.parametrize("size", [3000, 1 << 20])
def test_a_request_stays_in_memory_until_its_tickets_are_resolved(size: int) -> None:
    """An answer that settles nothing does not free it: it goes to the next leader."""
    server = ScriptedServer(lambda number, _: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    outcomes, identity = Outcomes(), Identity()
    identity.begin(7, 0, 0, 0)
    batch_bytes = max(4096, size // 4)
    sender = connect_producer([server.address], METADATA_TOPIC, outcomes, batch_bytes, 16)
    sender.identity = identity
    values = [b"%06d" % number * (size // 6) for number in range(3)]
    for value in values:
        assert sender.append(value) >= 0
        sender.seal()
    wait_until(lambda: sender.poll() or sender.broken)
    back = sender.give_up(LOST)
    server.close()
    assert [values_of(batch)[0] for batch, *_ in back] == values and outcomes.resolved == 0
