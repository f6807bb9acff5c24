"""The leader's end of a producer's ring: what it takes, and what cuts a producer off."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.ring_sender import RingSender
from kraftfast.errors import UnknownOutcome
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, decode_hello
from kraftfast.link.memory_file import receive_with_fds
from kraftfast.link.ring_link import OwnDoorbell, RingOffer, accept_rings
from kraftfast.link.stats import Stats
from kraftfast.log.disk import Disk
from kraftfast.log.nursery import PreparerThread
from kraftfast.log.recovery import LogSettings, open_log
from kraftfast.log.small_files.directory import (
    LogOptions,
    MetaProperties,
    ReplicaDirectory,
    format_directory,
)
from kraftfast.node.idle import Idle
from kraftfast.node.rings.ring_producers import RingProducer, RingProducers
from kraftfast.node.threads.flusher import Flusher
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record


class OneReplica:
    """A replica's log and ring producers without its loop, and one over a real pair of rings."""

    def __init__(self, path: Path) -> None:
        disk = Disk()
        format_directory(
            disk, str(path), MetaProperties("cluster", 1, bytes(range(16))), LogOptions()
        )
        self.directory = ReplicaDirectory(disk, str(path))
        self.bell = OwnDoorbell()
        preparer = PreparerThread(self.bell.bell.address, self.bell.bell.fd)
        settings = LogSettings(segment_bytes=8 << 20, stride_bytes=1 << 20, prepare_bytes=1 << 20)
        self.log = open_log(disk, self.directory, settings, preparer).log
        self.flusher = Flusher(self.bell.bell.address, self.bell.bell.fd)
        self.idle = Idle(self.bell.bell, self.flusher.address)
        self.ring_producers, self.stats, self.outcomes = RingProducers(), Stats(), Outcomes()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        doorbell = OwnDoorbell()
        offer = RingOffer(ours, doorbell, Hello(kind="producer"), 1 << 20, 1 << 16)
        data, fds = receive_with_fds(theirs, HELLO_BYTES_MAX)
        hello = Hello(node_id=1, epoch=1, records="any")
        self.producer = RingProducer(
            accept_rings(theirs, self.bell, decode_hello(data), fds, hello)
        )
        self.ring_producers.add(self.producer, self.idle)
        self.sender = RingSender(offer.finish(*offer.receive()), doorbell, self.outcomes, 4096, 8)

    def drain(self, epoch: int) -> int:
        """What one turn of a leader takes, in records."""
        before = self.log.end_offset
        self.ring_producers.drain(self.log, epoch, 1 << 20, self.stats)
        return self.log.end_offset - before

    def close(self) -> None:
        self.ring_producers.remove(self.producer, self.idle)
        self.producer.close()
        self.sender.close()
        self.log.close()
        self.flusher.close()
        self.idle.close()
        self.directory.close()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[OneReplica]:
    replica = OneReplica(tmp_path / "one")
    yield replica
    replica.close()


@pytest.mark.parametrize("muted", [False, True])
def test_a_ring_is_never_read_again_once_its_producer_was_told_to_go(
    replica: OneReplica, muted: bool
) -> None:
    """The producer hands the rest to another leader; a replica that leads again would double it."""
    sender = replica.sender
    sender.append(b"taken")
    assert replica.drain(epoch=1) == 1
    sender.append(b"left in the ring")
    sender.seal()
    if muted:
        replica.ring_producers.mute(replica.idle)
    replica.ring_producers.say_not_leader(2, replica.idle)
    replica.ring_producers.publish()
    if muted:
        replica.ring_producers.unmute(replica.idle)
    assert not replica.ring_producers.waiting(), "what lies there is no work"
    assert replica.idle.spin(1000) is None, "nor does it keep the loop awake"
    assert replica.drain(epoch=3) == 0
    sender.poll()
    back = sender.give_up(UnknownOutcome("lost"))
    assert len(back) == 1 and replica.outcomes.resolved == 1
    assert replica.drain(epoch=3) == 0


def test_a_batch_that_no_reader_takes_cuts_its_producer_off(replica: OneReplica) -> None:
    """It would be committed, and stop every reader and state machine behind it."""
    data = bytearray(encode_batch([Record(0, 1, None, b"value")]))
    struct.pack_into(">h", data, 21, 5)  # no codec has this number
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    replica.sender.take_over([(bytes(data), 0, 1, 0)])
    replica.sender.poll()
    assert replica.drain(epoch=1) == 0 and not replica.log.end_offset
    assert "unknown codec" in replica.producer.cut_off
    assert replica.ring_producers.dismissed() == [replica.producer]


def with_records(records: bytes, count: int, attributes: int = 0) -> bytes:
    """A batch whose header and CRC hold, whatever these are."""
    data = bytearray(encode_batch([Record(n, 1, None, b"v" * 40) for n in range(count)]))
    data[61:] = records
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "count", "attributes"),
    [
        (b"\x0e\0\0\0\x01\x08v\0", 1, 0),  # a value that is longer than its record
        (b"\x0e\0\0\x02\x01\x02v\0", 1, 0),  # the second without a first
        (b"\x0e\0\0\0\x01\x02v\x02", 1, 0),  # a header that is not there
        (b"\x0e\0\0\0\x01\x02v\0" * 2, 1, 0),  # bytes behind the last
        (b"\xff" * 40, 2, 0),
        (b"no frame of zstd", 1, 4),
    ],
)
def test_records_that_no_reader_takes_cut_their_producer_off(
    replica: OneReplica, records: bytes, count: int, attributes: int
) -> None:
    """Its CRC holds: it would be committed, and end each state machine that comes to it."""
    replica.sender.take_over([(with_records(records, count, attributes), 0, count, 0)])
    replica.sender.poll()
    assert replica.drain(epoch=1) == 0 and not replica.log.end_offset
    assert "its batch does not check" in replica.producer.cut_off
    assert replica.ring_producers.dismissed() == [replica.producer]


def test_records_of_an_unusual_form_are_appended(replica: OneReplica) -> None:
    far = encode_batch([Record(0, 2**41, None, b"a"), Record(1, 5, None, b"b")])
    packed = with_records(gzip.compress(b"\x0e\0\0\0\x01\x02v\0"), 1, Codec.GZIP)
    replica.sender.take_over([(bytes(far), 0, 2, 0), (packed, 2, 1, 0)])
    replica.sender.poll()
    assert replica.drain(epoch=1) == 3 and replica.producer.cut_off is None
