"""The door for processes of this host: a UNIX socket in the replica's directory.

Whoever connects says what it is: a replica (``peer``), a ``producer``, a ``watch`` (who reads the
committed log from the segments themselves), or a question (``status``). Only processes of the
same user, by the kernel's word, get in.
"""

from __future__ import annotations

import base64
import os
import select
import socket
from typing import Any

import msgspec

from kraftfast.errors import MalformedFrame, PeerGone
from kraftfast.link.memory_file import map_peer_file, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import (
    HELLO_BYTES_MAX,
    SOCKET_NAME,
    accept_rings,
    close_all,
    decode_hello,
)
from kraftfast.link.unix_socket import credentials, listen
from kraftfast.node.applier import Question
from kraftfast.node.intake import RingProducer
from kraftfast.node.status import status
from kraftfast.ring.spsc import PAGE_BYTES, PeerDoorbell

HANDSHAKE_MS_MAX = 2000
CONNECTIONS_MAX = 1024
ANSWER_TIMEOUT_S = 2.0


class Watcher:
    """A process that is told when the high watermark moves."""

    def __init__(self, sock: socket.socket, bell: PeerDoorbell) -> None:
        self.sock, self.bell = sock, bell


class LocalDoor:
    """The listening socket and everyone who came through it."""

    # node, loop: whose. strangers: descriptor -> (socket, until ms): they have not said who they are.
    # producers: descriptor -> RingProducer. watchers: descriptor -> Watcher.

    def __init__(self, node: Any, loop: Any) -> None:
        self.node, self.loop = node, loop
        self.path = os.path.join(node.config.directory, SOCKET_NAME)
        self.sock: socket.socket | None = None
        self.strangers: dict[int, tuple[socket.socket, int]] = {}
        self.producers: dict[int, RingProducer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.askers: dict[int, socket.socket] = {}

    def open(self) -> None:
        """Listen. Raises StorageError."""
        self.sock = listen(self.path)
        self.loop.watch(self.sock.fileno(), select.EPOLLIN, self._accept)
        self.node.on_commit.append(self._committed)

    def _accept(self, _events: int) -> None:
        assert self.sock is not None
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            try:
                credentials(sock)
            except PeerGone:
                sock.close()
                continue
            sock.setblocking(False)
            count = len(self.strangers) + len(self.producers) + len(self.watchers) + len(self.askers)
            if count >= CONNECTIONS_MAX:
                sock.close()
                continue
            fd = sock.fileno()
            self.strangers[fd] = (sock, self.node.now_ms() + HANDSHAKE_MS_MAX)
            self.loop.watch(fd, select.EPOLLIN, lambda _events, fd=fd: self._introduced(fd))

    def _introduced(self, fd: int) -> None:
        sock, _ = self.strangers.pop(fd)
        self.loop.unwatch(fd)
        fds: list[int] = []
        try:
            data, fds = receive_with_fds(sock, HELLO_BYTES_MAX)
            hello = decode_hello(data)
            kind = hello.get("kind")
            if kind == "peer":
                self.loop.mesh.accept(sock, hello, fds)
            elif kind == "producer":
                self._accept_producer(sock, hello, fds)
            elif kind == "watch":
                self._accept_watcher(sock, fds)
            elif kind == "poke":
                sock.close()
                self.loop.mesh.poked(hello.get("node_id"))
            else:
                close_all(fds)
                self._ask(sock, hello)
        except (PeerGone, MalformedFrame, OSError, KeyError, ValueError) as error:
            self.node.log_line(f"a local connection that fails: {error} -> closed")
            sock.close()

    # --- producers --------------------------------------------------------------------------------

    def _accept_producer(self, sock: socket.socket, hello: dict[str, Any], fds: list[int]) -> None:
        node = self.node
        answer = self.loop.mesh.hello("producer") | {
            "leader_id": node.core.leader_id,
            "epoch": node.core.epoch,
            "leads": node.core.role == "leader",
            "records": node.directory.options.records,
        }
        if not answer["leads"]:
            close_all(fds)
            send_with_fds(sock, msgspec.json.encode(answer | {"not_leader": True}), [])
            sock.close()
            return
        link = accept_rings(sock, node.doorbell, hello, fds, answer)
        producer = RingProducer(link)
        node.intake.add(producer, node.idle)
        sock.setblocking(False)
        fd = sock.fileno()
        self.producers[fd] = producer
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(fd, events, lambda _events: self.drop_producer(fd))
        self.loop.watch(link.pidfd, select.EPOLLIN, lambda _events: self.drop_producer(fd))

    def drop_producer(self, fd: int) -> None:
        """A producer is gone, or broke the rules: its ring is dropped whole (R4)."""
        producer = self.producers.pop(fd)
        self.loop.unwatch(fd)
        self.loop.unwatch(producer.link.pidfd)
        self.node.intake.remove(producer, self.node.idle)
        producer.close()

    # --- watchers ---------------------------------------------------------------------------------

    def _accept_watcher(self, sock: socket.socket, fds: list[int]) -> None:
        if len(fds) != 2:
            close_all(fds)
            raise PeerGone("a watcher passes the flag and the eventfd of its doorbell")
        try:
            flag = map_peer_file(fds[0], PAGE_BYTES)
        except PeerGone:
            os.close(fds[1])
            raise
        watcher = Watcher(sock, PeerDoorbell(flag, fds[1]))
        answer = self.loop.mesh.hello("watch")
        send_with_fds(sock, msgspec.json.encode(answer), [self.node.stats.file.fd])
        fd = sock.fileno()
        self.watchers[fd] = watcher
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(fd, events, lambda _events: self._drop_watcher(fd))

    def _drop_watcher(self, fd: int) -> None:
        watcher = self.watchers.pop(fd)
        self.loop.unwatch(fd)
        watcher.bell.close()
        watcher.sock.close()

    def _committed(self, _offset: int) -> None:
        for watcher in self.watchers.values():
            watcher.bell.ring()

    # --- questions --------------------------------------------------------------------------------

    def _ask(self, sock: socket.socket, question: dict[str, Any]) -> None:
        """Answer one question with one message, then hang up."""
        kind = question.get("kind")
        if kind == "query":
            self._query(sock, question)
            return
        answer = status(self.node) if kind == "status" else {"error": f"unknown question {kind!r}"}
        try:
            send_with_fds(sock, msgspec.json.encode(answer), [])
        finally:
            sock.close()

    def _query(self, sock: socket.socket, question: dict[str, Any]) -> None:
        """A question to the state machine; its thread answers."""

        def answer(result: dict[str, Any]) -> None:
            try:
                sock.setblocking(True)
                sock.settimeout(ANSWER_TIMEOUT_S)
                sock.send(msgspec.msgpack.encode(result))
            except (OSError, TypeError, OverflowError, msgspec.MsgspecError) as error:
                self.node.log_line(f"an answer of the state machine that cannot be sent: {error}")
            finally:
                sock.close()

        if self.node.applier is None:
            answer({"error": "this replica has no state machine"})
            return
        args = msgspec.msgpack.decode(base64.b64decode(question["args"]))
        self.node.applier.ask(Question(args, int(question.get("at_least", -1)), answer))

    # --- time and end -----------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Drop who does not say who it is, and producers that broke the rules."""
        for fd, (sock, until_ms) in list(self.strangers.items()):
            if now_ms >= until_ms:
                self.loop.unwatch(fd)
                del self.strangers[fd]
                sock.close()
        for producer in self.node.intake.cut_off():
            self.node.log_line(f"cutting off producer {producer.link.pid}: {producer.cut_off}")
            self.drop_producer(producer.link.sock.fileno())

    def due_ms(self, default: int) -> int:
        """When ``tend`` has something to do."""
        return min((until for _, until in self.strangers.values()), default=default)

    def close(self) -> None:
        """Nobody gets in any more; everyone inside sees the end of its connection."""
        if self.sock is None:
            return
        self.loop.unwatch(self.sock.fileno())
        self.sock.close()
        self.sock = None
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        for fd in list(self.producers):
            self.drop_producer(fd)
        for fd in list(self.watchers):
            self._drop_watcher(fd)
        for fd, (sock, _) in self.strangers.items():
            self.loop.unwatch(fd)
            sock.close()
        self.strangers.clear()
