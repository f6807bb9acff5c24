"""The door for processes of this host: a UNIX socket in the replica's directory.

Whoever connects says what it is: a replica (``peer``), a ``producer``, a ``watch`` (who reads the
committed log from the segments themselves), a question (``status``), or a request of Kafka's. Only
processes of the same user, by the kernel's word, get in.
"""

from __future__ import annotations

import base64
import os
import select
import socket
from typing import Any

import msgspec

from kraftfast.errors import PeerGone
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import check_eventfd, map_peer_file, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import SOCKET_NAME, accept_rings, close_all
from kraftfast.link.unix_socket import credentials, listen
from kraftfast.node import local_request
from kraftfast.node.acceptor import Acceptor
from kraftfast.node.failures import describe
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

    # node, loop: whose. acceptor: the listener, None while closed.
    # strangers: descriptor -> (socket, until ms): they have not said who they are.
    # producers: descriptor -> RingProducer. watchers: descriptor -> Watcher.
    # asking: sockets of questions that the state machine has not answered yet.

    def __init__(self, node: Any, loop: Any) -> None:
        self.node, self.loop = node, loop
        self.path = os.path.join(node.config.directory, SOCKET_NAME)
        self.acceptor: Acceptor | None = None
        self.strangers: dict[int, tuple[socket.socket, int]] = {}
        self.producers: dict[int, RingProducer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.asking: set[socket.socket] = set()

    def open(self) -> None:
        """Listen. Raises StorageError."""
        self.acceptor = Acceptor(self.loop, listen(self.path), self._accepted)
        self.node.on_commit.append(self._committed)

    def _accepted(self, sock: socket.socket, _address: Any) -> None:
        sock.setblocking(False)
        groups = (self.strangers, self.producers, self.watchers, self.asking)
        try:
            credentials(sock)
        except PeerGone:
            sock.close()
            return
        if sum(map(len, groups)) >= CONNECTIONS_MAX:  # I25
            sock.close()
            return
        fd = sock.fileno()
        self.strangers[fd] = (sock, self.node.now_ms() + HANDSHAKE_MS_MAX)
        self.loop.watch(fd, select.EPOLLIN, lambda _events: self._introduced(fd))

    def _introduced(self, fd: int) -> None:
        sock, _ = self.strangers.pop(fd)
        self.loop.unwatch(fd)
        try:
            data, fds = receive_with_fds(sock, HELLO_BYTES_MAX)
            self._let_in(sock, data, fds)
        except Exception as error:
            self.node.failures.end(error, "a local connection", sock.close)

    def _let_in(self, sock: socket.socket, data: bytes, fds: list[int]) -> None:
        """By what the connection is for; whoever takes ``fds`` closes them, also when it raises."""
        try:
            hello = decode_hello(data)
        except BaseException:
            close_all(fds)
            raise
        if hello.kind == "peer":
            self.loop.mesh.accept(sock, hello, fds)
        elif hello.kind == "producer":
            self._accept_producer(sock, hello, fds)
        elif hello.kind == "watch":
            self._accept_watcher(sock, fds)
        else:
            close_all(fds)
            if hello.kind == "poke":
                self.loop.mesh.poked(hello)
                sock.close()
            else:
                self._ask(sock, hello)

    # --- producers --------------------------------------------------------------------------------

    def _accept_producer(self, sock: socket.socket, hello: Hello, fds: list[int]) -> None:
        node = self.node
        leads = node.core.role == "leader"
        answer = msgspec.structs.replace(
            self.loop.mesh.hello("producer"),
            leader_id=node.core.leader_id,
            epoch=node.core.epoch,
            leads=leads,
            not_leader=not leads,
            records=node.directory.options.records,
        )
        if not leads:
            close_all(fds)
            send_with_fds(sock, encode_hello(answer), [])
            sock.close()
            return
        link = accept_rings(sock, node.doorbell, hello, fds, answer)
        producer = RingProducer(link)
        node.intake.add(producer, node.idle)
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
        left = list(fds)
        try:
            if len(fds) != 2:
                raise PeerGone("a watcher passes the flag and the eventfd of its doorbell")
            flag = map_peer_file(left.pop(0), PAGE_BYTES)
            check_eventfd(left[0])
            answer = self.loop.mesh.hello("watch")
            send_with_fds(sock, encode_hello(answer), [self.node.stats.file.fd])
        except (PeerGone, OSError):
            close_all(left)
            raise
        watcher = Watcher(sock, PeerDoorbell(flag, left[0]))
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

    def _ask(self, sock: socket.socket, question: Hello) -> None:
        """Answer one question with one message, then hang up."""
        if question.kind == "query":
            self._query(sock, question)
            return
        if question.kind == "request":
            self.asking.add(sock)
            try:
                local_request.take(self.node, sock, question.args, self._answered)
            except BaseException:
                self.asking.discard(sock)
                raise
            return
        known = question.kind == "status"
        answer = status(self.node) if known else {"error": f"unknown question {question.kind!r}"}
        try:
            send_with_fds(sock, msgspec.json.encode(answer), [])
        finally:
            sock.close()

    def _answered(self, sock: socket.socket) -> None:
        self.asking.discard(sock)
        sock.close()

    def _query(self, sock: socket.socket, question: Hello) -> None:
        """A question to the state machine; its thread answers."""

        def answer(result: dict[str, Any]) -> None:
            try:
                sock.settimeout(ANSWER_TIMEOUT_S)
                sock.send(msgspec.msgpack.encode(result))
            except Exception as error:  # it is the state machine's, in its thread
                text = f"an answer of the state machine that cannot be sent: {describe(error)}"
                self.node.beside.tell(lambda: self.node.failures.complain(text))
            finally:
                self.asking.discard(sock)
                sock.close()

        self.asking.add(sock)
        if self.node.applier is None:
            answer({"error": "this replica has no state machine"})
            return
        try:
            args = msgspec.msgpack.decode(base64.b64decode(question.args), type=list)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            answer({"error": f"arguments that do not decode: {error}"})
            return
        self.node.applier.ask(args, question.at_least, answer)

    # --- time and end -----------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Drop who does not say who it is, and producers that are not served any more."""
        if self.acceptor is not None:
            self.acceptor.tend(now_ms)
        for fd, (sock, until_ms) in list(self.strangers.items()):
            if now_ms >= until_ms:
                self.loop.unwatch(fd)
                del self.strangers[fd]
                sock.close()
        for producer in self.node.intake.dismissed():
            if producer.cut_off is not None:
                text = f"cutting off producer {producer.link.pid}: {producer.cut_off}"
                self.node.failures.complain(text)
            self.drop_producer(producer.link.sock.fileno())

    def due_ms(self, default: int) -> int:
        """When ``tend`` has something to do."""
        if self.acceptor is not None:
            default = min(default, self.acceptor.due_ms(default))
        return min((until for _, until in self.strangers.values()), default=default)

    def close(self) -> None:
        """Nobody gets in any more; everyone inside sees the end of its connection."""
        if self.acceptor is None:
            return
        self.acceptor.close()
        self.acceptor = None
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
