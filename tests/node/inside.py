"""A replica with its loop and all its doors in the process of the test, which runs its turns."""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path
from typing import Any

from kraftfast.link.hello import Hello
from kraftfast.link.memory_file import receive_with_fds
from kraftfast.link.ring_link import OwnDoorbell, RingLink, RingOffer
from kraftfast.link.unix_socket import connect
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.event_log import WARNING, Entry
from kraftfast.node.loop import Loop
from kraftfast.node.node import Node
from kraftfast.node.node_config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.node.storage.local_layout import format_quorum
from kraftfast.types import SOCKET_NAME, uuid_text
from kraftfast.wire import frame
from tests.node.kit import TIMEOUT_S

SMALL = {"segment_bytes": 4 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20}


class Inside:
    """Replica 1 of ``voters``; the others do not run. ``raised``: what its sessions raised.

    ``settings``: of NodeConfig.
    """

    def __init__(self, path: Path, voters: int = 1, records: str = "any", **settings: Any) -> None:
        description = format_quorum(str(path), voters, records=records)
        self.directory = str(path / "1")
        defaults = SMALL | {"listeners": [ListenerConfig("CONTROLLER", "127.0.0.1", 0)]}
        others = [VoterConfig(id, "127.0.0.1", 1) for id in range(2, voters + 1)]
        self.node: Any = Node(
            NodeConfig(
                node_id=1,
                directory=self.directory,
                voters=[VoterConfig(1, "127.0.0.1", 9), *others],
                idle="block",
                **(defaults | settings),
            )
        )
        self.cluster_id = description.cluster_id
        self.directory_id = read_meta(Disk(), self.directory).directory_id
        self.loop: Any = Loop(self.node)
        self.loop.sockets.open()
        self.loop.door.open()
        self.raised: list[Exception] = []
        self.lines: list[str] = []
        end = self.node.failures.end

        def note(error: Exception, who: str, close: Any) -> None:
            self.raised.append(error)
            end(error, who, close)

        self.node.failures.end = note
        show = self.node.event_log.show

        def told(entry: Entry) -> None:
            show(entry)
            if entry.kind.level >= WARNING and entry.kind.part == "node":
                self.lines.append(entry.message)

        self.node.event_log.show = told
        self.node.start()
        self.loop.ring_peers.start()
        self.loop.sockets.start()
        if voters == 1 and self.node.quorum_config.campaign:
            self.until(lambda: self.node.core.role == "leader")
            self.until(lambda: self.node.core.high_watermark > 0)

    def turn(self) -> None:
        """One turn of the loop; it waits only where nothing is to be done."""
        if not self.loop.turn():
            self.loop._rest()

    def until(self, happened: Any) -> None:
        """Run until it happened."""
        deadline = time.monotonic() + TIMEOUT_S
        while not happened():
            assert time.monotonic() < deadline, "it does not happen"
            self.turn()

    def connect(self, listener: str = "CONTROLLER") -> socket.socket:
        """A connection over TCP, not blocking."""
        sock = socket.create_connection(("127.0.0.1", self.loop.sockets.ports()[listener]))
        sock.setblocking(False)
        return sock

    def local(self) -> socket.socket:
        """A connection at the local door, not blocking."""
        return connect(os.path.join(self.directory, SOCKET_NAME), 0)

    def passed(self, sock: socket.socket) -> tuple[bytes, list[int]]:
        """The next message at a connection, and the descriptors that came with it."""
        found: list[tuple[bytes, list[int]]] = []

        def come() -> bool:
            try:
                found.append(receive_with_fds(sock, 1 << 16))
            except BlockingIOError:
                return False
            return True

        self.until(come)
        return found[0]

    def message(self, sock: socket.socket) -> bytes:
        """The next message at a local connection; b"" once the replica hung up."""
        found: list[bytes] = []

        def come() -> bool:
            try:
                found.append(sock.recv(1 << 20))
            except BlockingIOError:
                return False
            return True

        self.until(come)
        return found[0]

    def exchange(self, sock: socket.socket, data: bytes) -> bytes | None:
        """Send a frame; its answer without the length, None for a hang-up."""
        answers = self.answers(sock, data, -1)
        return answers[0] if answers else None

    def answers(self, sock: socket.socket, data: bytes, last: int) -> list[bytes]:
        """Send frames; answers without their lengths, up to that to the request ``last`` (-1: any).

        There are fewer after a hang-up.
        """
        found: list[bytes] = []
        received, waiting, ended = bytearray(), memoryview(data), False

        def look() -> bool:
            nonlocal waiting, ended
            try:
                if waiting:
                    waiting = waiting[sock.send(waiting) :]
                piece = sock.recv(1 << 20)
                ended = not piece
                received.extend(piece)
            except BlockingIOError:
                return False
            except ConnectionError:
                ended = True
            while len(received) >= frame.LENGTH_BYTES:
                end = frame.LENGTH_BYTES + int.from_bytes(received[:4], "big")
                if len(received) < end:
                    break
                found.append(bytes(received[frame.LENGTH_BYTES : end]))
                del received[:end]
            return ended or bool(found) and last in (-1, int.from_bytes(found[-1][:4], "big"))

        self.until(look)
        assert not received, "half an answer"
        return found

    def close(self) -> None:
        """Let go of everything."""
        self.loop._close_doors()
        self.node.abandon()


def attached(replica: Inside, doorbell: OwnDoorbell, kind: str, place: str = "/q/2") -> RingLink:
    """Rings with the replica, as another replica or as a producer."""
    sock = replica.local()
    hello = Hello(
        kind=kind,
        node_id=2,
        directory_id=uuid_text(bytes(range(16))),
        cluster_id=replica.cluster_id,
        durability=replica.node.durability,
        directory=place,
        log=place,
    )
    offer = RingOffer(sock, doorbell, hello, 1 << 16, 1 << 16)
    replica.until(lambda: select.select([sock], [], [], 0)[0])
    return offer.finish(*offer.receive())
