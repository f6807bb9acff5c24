"""What the tests of the clients share: replicas and servers that answer as they are told to."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.ring_sender import RingSender
from kraftfast.errors import ErrorCode
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import map_peer_file, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import OwnDoorbell, RingFiles, RingOffer
from kraftfast.record.batch import batches
from kraftfast.record.builder import Settings, Values
from kraftfast.ring.spsc import PAGE_BYTES, PeerDoorbell, RingOut, producer_file_bytes
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.notation import Versions
from kraftfast.wire.versions import SERVED

# kraftfast/ring/layout.pxd
BATCH, ACK, REFUSED, NOT_LEADER = 16, 17, 18, 19
BATCH_HEAD = 16
PADDING = 0xFFFFFFFF
SLOT_HEAD = 16
HEAD_AT, TAIL_AT, TAKEN_AT = 128, 128, 256  # cext/ring.h


def wait_until(condition: Callable[[], Any], timeout: float = 10.0) -> Any:
    """The first true result. Fails after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)
    return found


def values_of(batch: Any) -> list[bytes | None]:
    """The values of the one batch in a buffer."""
    (found,) = batches(batch)
    assert found.crc_ok()
    return [record.value for record in found.records()]


def encode(values: list[bytes], base_offset: int = 0, epoch: int = 1) -> bytes:
    """A batch as a leader stored it."""
    out = bytearray(1 << 20)
    settings = Settings(1_700_000_000_000, base_offset=base_offset, leader_epoch=epoch)
    size, records = Values(values).encode_into(out, settings)
    assert records == len(values)
    return bytes(out[:size])


def ack(first_batch: int, batches: int, base_offset: int, end_offset: int) -> bytes:
    """An AckMessage of ``ring/layout.pxd``."""
    return struct.pack("<QQqqQ", first_batch, batches, base_offset, end_offset, time.monotonic_ns())


class ScriptedReplica:
    """The other end of a :class:`RingSender`, in this process: it reads the ring in plain Python.

    ``batches``: what was taken, as bytes. ``sender``: over the ring. ``producers_memory``: the
    ring as its producer may write it.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        *,
        ring_bytes: int = 1 << 20,
        batch_bytes: int = 4096,
        window: int = 8,
        records: str = "any",
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock = theirs
        doorbell = OwnDoorbell()
        offer = RingOffer(ours, doorbell, Hello(kind="producer"), ring_bytes, 1 << 16)
        data, fds = receive_with_fds(theirs, HELLO_BYTES_MAX)
        hello = decode_hello(data)
        self.capacity = ring_bytes
        files = RingFiles(hello.generation, 1 << 16, ring_bytes)
        self.own_doorbell = OwnDoorbell()
        answer = Hello(kind="producer", node_id=1, epoch=1, records=records)
        send_with_fds(theirs, encode_hello(answer), files.fds(self.own_doorbell))
        self.data = map_peer_file(fds[0], producer_file_bytes(ring_bytes))
        self.cursor = files.cursor.memory
        self.out = RingOut(files.data.memory, map_peer_file(fds[1], PAGE_BYTES))
        self.bell = PeerDoorbell(map_peer_file(fds[2], PAGE_BYTES), fds[3])
        self.producers_memory = offer.files.data.memory
        link = offer.finish(*offer.receive())
        files.close()
        ours.setblocking(False)
        self.sender = RingSender(link, doorbell, outcomes, batch_bytes, window)
        self.batches: list[bytes] = []
        self.offset = 100
        self.answered = 0
        self._tail = 0

    def look(self, count: int = 1 << 30) -> list[bytes]:
        """Take up to ``count`` batches; they stay in the ring until :meth:`release`."""
        (head,) = struct.unpack_from("<Q", self.data, HEAD_AT)
        found = []
        while self._tail < head and len(found) < count:
            at = PAGE_BYTES + self._tail % self.capacity
            length, _, kind, _ = struct.unpack_from("<IIII", self.data, at)
            self._tail += (length + SLOT_HEAD + 15) & ~15
            if kind == PADDING:
                continue
            assert kind == BATCH
            found.append(bytes(self.data[at + SLOT_HEAD + BATCH_HEAD : at + SLOT_HEAD + length]))
            struct.pack_into("<Q", self.cursor, TAKEN_AT, self._tail)
        self.batches += found
        return found

    def release(self) -> None:
        """Give the room of what was looked at back."""
        struct.pack_into("<Q", self.cursor, TAIL_AT, self._tail)
        self.bell.ring()

    def say(self, kind: int, payload: bytes) -> None:
        """A message to the producer."""
        assert self.out.send(kind, payload)
        self.out.publish()
        self.bell.ring()

    def acknowledge(self, count: int) -> None:
        """The next ``count`` batches are committed, one behind the other."""
        records = sum(
            len(values_of(batch)) for batch in self.batches[self.answered : self.answered + count]
        )
        self.say(ACK, ack(self.answered, count, self.offset, self.offset + records))
        self.answered += count
        self.offset += records

    def refuse(self, first: int, count: int, error: int) -> None:
        """These batches were not appended."""
        self.say(REFUSED, struct.pack("<QQii", first, count, error, 0))

    def leave(self, leader_id: int = 2) -> None:
        """It does not lead any more."""
        self.say(NOT_LEADER, struct.pack("<i", leader_id))

    def close(self) -> None:
        """Hang up."""
        self.sock.close()


class ScriptedServer:
    """A server on loopback: greets, says who leads, and answers as ``on_produce``/``on_fetch`` say.

    ``on_produce(number, request)``: an error code, (base offset), "hold" (no answer), "hang up".
    ``produced``: every PartitionProduce that came whole, over all connections.
    """

    def __init__(
        self, on_produce: Any = None, *, versions: dict[int, Versions] | None = None
    ) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.address = self.sock.getsockname()
        self.on_produce = on_produce or self._commit
        self.on_fetch: Any = None
        self.leader: tuple[int, tuple[str, int]] = (1, self.address)
        self.epoch, self.cluster_id, self.topic = 1, "a-cluster", METADATA_TOPIC
        self.versions = versions or dict(SERVED)
        self.produced: list[Any] = []
        self.frames: list[bytes] = []
        self.connections: list[socket.socket] = []
        self.next_offset = 0
        self.mute = False
        self.greeting_max = 99
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            self.connections.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        splitter = frame.FrameSplitter(100 << 20)
        try:
            while data := sock.recv(1 << 20):
                for found in splitter.frames(data):
                    self.frames.append(bytes(found))
                    if self.mute or not self._answer(sock, bytes(found)):
                        continue
        except OSError:
            pass
        sock.close()

    def _answer(self, sock: socket.socket, data: bytes) -> bool:
        header = frame.decode_request_header(data)
        if header.api_key == ApiKey.PRODUCE:
            request = produce.decode_request(header.version, data, header.body_start)
            with self._lock:
                number = len(self.produced)
                self.produced.append(request)
                what = self.on_produce(number, request)
            if what == "hang up":
                sock.shutdown(socket.SHUT_RDWR)
                return False
            if what == "hold":
                return False
            code, base = (ErrorCode.NONE, what[0]) if isinstance(what, tuple) else (what, -1)
            answer = produce.PartitionProduced(
                topic=request.topic, topic_id=request.topic_id, error_code=code, base_offset=base
            )
            sock.sendall(produce.encode_response(header.version, header.correlation_id, answer))
            return True
        if header.api_key == ApiKey.FETCH:
            fetched = self.on_fetch(fetch.decode_request(header.version, data, header.body_start))
            if fetched is not None:
                sock.sendall(
                    b"".join(fetch.encode_response(header.version, header.correlation_id, fetched))
                )
            return True
        if header.api_key == ApiKey.API_VERSIONS:
            header, body = self._greeting(header)
        else:
            assert header.api_key == ApiKey.METADATA
            body = self._metadata()
        sock.sendall(
            frame.encode_response(header.api_key, header.version, header.correlation_id, body)
        )
        return True

    def _greeting(self, header: Any) -> tuple[Any, Any]:
        """ApiVersions, of one who knows no version above ``greeting_max`` of it (KIP-511)."""
        kind = wire.ApiVersionsResponse
        versions = self.versions
        code = ErrorCode.NONE
        if header.version > self.greeting_max:
            code, header = ErrorCode.UNSUPPORTED_VERSION, header._replace(version=0)
            versions = {ApiKey.API_VERSIONS: Versions(0, self.greeting_max)}
        return header, kind(
            code, [kind.ApiKey(key, *each) for key, each in sorted(versions.items())]
        )

    def _metadata(self) -> Any:
        kind = wire.MetadataResponse
        id, (host, port) = self.leader
        partition = kind.Partition(partition_index=0, leader_id=id, leader_epoch=self.epoch)
        code = ErrorCode.NONE if id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        topic = kind.Topic(code, self.topic, METADATA_TOPIC_ID, partitions=[partition])
        return kind(
            brokers=[kind.Broker(max(id, 0), host, port)],
            cluster_id=self.cluster_id,
            topics=[topic],
        )

    def _commit(self, _number: int, request: Any) -> tuple[int]:
        base, self.next_offset = (
            self.next_offset,
            self.next_offset + len(values_of(request.records)),
        )
        return (base,)

    def values(self) -> list[list[bytes | None]]:
        """The values of each batch that came."""
        return [values_of(request.records) for request in self.produced]

    def close(self) -> None:
        """Stop listening, hang up."""
        for sock in (self.sock, *self.connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # whoever waits in accept() or recv() ends, too
        self.sock.close()


def kill(pid: int, signo: int) -> None:
    """Send a signal to a process of this test's own."""
    os.kill(pid, signo)


def flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    """One list of all."""
    return [item for each in lists for item in each]
