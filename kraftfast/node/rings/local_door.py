"""The door for processes of this host: a UNIX socket in the replica's directory.

A process that connects says what it is: a replica (``peer``), a ``producer``, a ``watch`` (reads
the committed log from its segments), a reader of ``events``, a question (``status``, or ``query``
to the state machine), a ``request`` of Kafka's, or a ``poke`` (a replica of this host has started).
Only processes of the same user or of root, by the kernel's word, get in, and none that wants
another quorum.
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING

import msgspec

from kraftfast.errors import CannotListen, PeerGone
from kraftfast.link.hello import (
    HELLO_BYTES_MAX,
    Hello,
    decode_hello,
    encode_hello,
    layout_refusal,
)
from kraftfast.link.ring_link import SOCKET_NAME, accept_rings, close_all
from kraftfast.link.timed_events import Events
from kraftfast.node.acceptor import Acceptor
from kraftfast.node.replica_status import status
from kraftfast.node.rings import local_request, questions
from kraftfast.node.rings.ring_producers import RingProducer
from kraftfast.node.slots import TOO_FEW, Slots
from kraftfast.node.witness import PRODUCES_NOTHING
from kraftfast.ring.spsc import PAGE_BYTES, PeerDoorbell
from kraftfast.wire.repeated import Repeated

if TYPE_CHECKING:
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node

HANDSHAKE_MS_MAX = 2000
KEPT_MS_MAX = 10_000
"""How long a connection may stay that has been answered and wants to ask again (I25)."""
MAPPED = ("peer", "producer", "watch", "events")
"""Kinds of connections whose two sides map memory of each other."""
ASKED_MS_MAX = 300_000
"""How long a request may stay unanswered (I25); the state machine bounds its own questions."""


class Watcher:
    """A process that is told when the high watermark moves."""

    def __init__(self, sock: socket.socket, bell: PeerDoorbell, pid: int) -> None:
        self.sock, self.bell, self.pid = sock, bell, pid


class LocalEventReader:
    """A process that reads the events of this replica; they are noted while it is there."""

    def __init__(self, sock: socket.socket, events: Events, pid: int) -> None:
        self.sock, self.events, self.pid = sock, events, pid


class PendingConnection:
    """A connection that has not said what it is for, or not what it is for next (``kept``)."""

    def __init__(self, sock: socket.socket, until_ms: int, pid: int, kept: bool) -> None:
        self.sock, self.until_ms, self.pid, self.kept = sock, until_ms, pid, kept


class LocalDoor:
    """The listening socket and every connection that it accepted."""

    # node, loop: whose. acceptor: the listener, None while closed.
    # pending: by descriptor, oldest first. slots: how many there may be of each kind.
    # producers: descriptor -> RingProducer. watchers: descriptor -> Watcher.
    # readers: descriptor -> LocalEventReader.
    # asking: socket of a question that is not answered yet -> (its kind, process id).
    # keeping: those among them that are kept for another one.
    # asked_until: socket of a request that is not answered yet -> until ms, oldest first.
    # repeated: what was last said at this door. local: processes of this host.

    def __init__(self, node: Node, loop: Loop) -> None:
        self.node, self.loop, self.local = node, loop, node.host.local
        self.path = os.path.join(node.config.directory, SOCKET_NAME)
        self.acceptor: Acceptor | None = None
        self.pending: dict[int, PendingConnection] = {}
        self.slots = Slots()
        self.producers: dict[int, RingProducer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.readers: dict[int, LocalEventReader] = {}
        self.asking: dict[socket.socket, tuple[str, int]] = {}
        self.keeping: set[socket.socket] = set()
        self.asked_until: dict[socket.socket, int] = {}
        self.repeated = Repeated()

    def open(self) -> None:
        """Listen. Raises StorageError."""
        place = self.node.host.disk.at(self.path)
        try:
            sock = self.local.listen(place)
        except CannotListen as error:
            raise CannotListen(str(error).replace(place, self.path)) from None
        self.acceptor = Acceptor(self.loop, sock, self._accepted)
        self.node.on_commit.append(self._committed)

    def _accepted(self, sock: socket.socket, _address: object) -> None:
        sock.setblocking(False)
        try:
            pid = self.local.credentials(sock).pid
        except PeerGone:
            sock.close()
            return
        self._await_hello(sock, pid, HANDSHAKE_MS_MAX)

    def _await_hello(self, sock: socket.socket, pid: int, ms: int, kept: bool = False) -> None:
        """Wait until the other side says what the connection is for."""
        if self.slots.refusal("pending", pid):
            self._drop_pending(self._oldest_of_the_largest_share())
        fd = sock.fileno()
        self.slots.take("pending", pid)
        self.pending[fd] = PendingConnection(sock, self.node.now_ms() + ms, pid, kept)
        self.loop.watch(fd, select.EPOLLIN, lambda _events: self._on_hello(fd))

    def _oldest_of_the_largest_share(self) -> int:
        """Return the oldest of the process that has most of them: it must not lock out others."""
        shares = self.slots.shares
        return max(self.pending, key=lambda fd: shares["pending", self.pending[fd].pid])

    def _forget_pending(self, fd: int) -> PendingConnection:
        pending = self.pending.pop(fd)
        self.loop.unwatch(fd)
        self.slots.give("pending", pending.pid)
        return pending

    def _drop_pending(self, fd: int) -> None:
        self._forget_pending(fd).sock.close()

    def _on_hello(self, fd: int) -> None:
        pending = self._forget_pending(fd)
        sock = pending.sock
        try:
            data, fds = self.local.receive(sock, HELLO_BYTES_MAX)
            if pending.kept and not data:
                close_all(fds, self.local)  # an empty message may carry some
                sock.close()  # nothing more is asked
                return
            self._dispatch(sock, data, fds, pending.pid)
        except Exception as error:
            if pending.kept and isinstance(error, ConnectionResetError):
                sock.close()  # nothing more is asked, and the last answer was not waited for
                return
            self.node.failures.end(error, "a local connection", sock.close)

    def _dispatch(self, sock: socket.socket, data: bytes, fds: list[int], pid: int) -> None:
        """Dispatch by what the connection is for. The handler owns ``fds``, also on error."""
        try:
            hello = decode_hello(data)
            refusal = self._refusal(hello, pid, max([sock.fileno(), *fds]))
            if refusal:
                told = Hello(error=refusal, cluster_id=self.node.cluster_id)
                self.local.send(sock, encode_hello(told), [])
                raise PeerGone(refusal)
        except BaseException:
            close_all(fds, self.local)
            raise
        if hello.kind == "peer":
            self.loop.ring_peers.accept(sock, hello, fds)
        elif hello.kind == "producer":
            self._accept_producer(sock, hello, fds)
        elif hello.kind == "watch":
            self._accept_watcher(sock, fds, pid)
        elif hello.kind == "events":
            close_all(fds, self.local)
            self._accept_reader(sock, pid)
        elif hello.kind == "query":
            self._query(sock, hello, fds, pid)
        else:
            close_all(fds, self.local)
            if hello.kind == "poke":
                self.loop.ring_peers.poked(hello)
                sock.close()
            else:
                self._answer_question(sock, hello, pid)

    def _refusal(self, hello: Hello, pid: int, fd_max: int) -> str:
        """Return why a connection is not let in, "" if it is."""
        own = self.node.cluster_id
        if hello.kind != "peer" and hello.cluster_id not in ("", own):
            return f"{self.node.config.directory} belongs to another quorum: {own}"
        refusal = layout_refusal(hello) if hello.kind in MAPPED else ""
        if refusal:
            if hello.kind == "peer" and hello.cluster_id == own:
                self.loop.ring_peers.forget(hello.node_id)
            return refusal
        if hello.kind not in self.slots.room:
            return ""
        return TOO_FEW if self.node.host.is_kept(fd_max) else self.slots.refusal(hello.kind, pid)

    # --- producers --------------------------------------------------------------------------------

    def _accept_producer(self, sock: socket.socket, hello: Hello, fds: list[int]) -> None:
        node = self.node
        leads = node.core.role == "leader"
        answer = msgspec.structs.replace(
            self.loop.ring_peers.hello("producer"),
            leader_id=node.core.leader_id,
            epoch=node.core.epoch,
            leads=leads,
            not_leader=not leads,
            records=node.directory.options.records,
            error=PRODUCES_NOTHING if node.witness else "",
        )
        if node.witness or not leads:
            close_all(fds, self.local)
            self.local.send(sock, encode_hello(answer), [])
            sock.close()
            return
        link = accept_rings(sock, node.doorbell, hello, fds, answer, self.local)
        producer = RingProducer(link)
        node.ring_producers.add(producer, node.idle)
        fd = sock.fileno()
        self.producers[fd] = producer
        self.slots.take("producer", link.pid)
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(fd, events, lambda _events: self.drop_producer(fd))
        self.loop.watch(link.pidfd, select.EPOLLIN, lambda _events: self.drop_producer(fd))

    def drop_producer(self, fd: int) -> None:
        """Drop the ring of a producer that is gone, or broke the rules: the whole of it (R4)."""
        producer = self.producers.pop(fd)
        self.slots.give("producer", producer.link.pid)
        self.loop.unwatch(fd)
        self.loop.unwatch(producer.link.pidfd)
        self.node.ring_producers.remove(producer, self.node.idle)
        producer.close()

    # --- watchers ---------------------------------------------------------------------------------

    def _accept_watcher(self, sock: socket.socket, fds: list[int], pid: int) -> None:
        left = list(fds)
        try:
            if len(fds) != 2:
                raise PeerGone("a watcher passes the flag and the pipe of its doorbell")
            flag = self.local.map_peer_file(left.pop(0), PAGE_BYTES)
            bell = self.local.peer_bell(flag, left.pop(0))
            answer = self.loop.ring_peers.hello("watch")
            self.local.send(sock, encode_hello(answer), [self.node.stats.file.fd])
        except BaseException:
            close_all(left, self.local)
            raise
        watcher = Watcher(sock, bell, pid)
        self.slots.take("watch", pid)
        fd = sock.fileno()
        self.watchers[fd] = watcher
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(fd, events, lambda _events: self._drop_watcher(fd))
        self.node.stats.note({"watchers": len(self.watchers)})

    def _drop_watcher(self, fd: int) -> None:
        watcher = self.watchers.pop(fd)
        self.slots.give("watch", watcher.pid)
        self.loop.unwatch(fd)
        self.node.stats.note({"watchers": len(self.watchers)})
        watcher.bell.close()
        watcher.sock.close()

    def _committed(self, _offset: int) -> None:
        for watcher in self.watchers.values():
            watcher.bell.ring()

    # --- readers of events ------------------------------------------------------------------------

    def _accept_reader(self, sock: socket.socket, pid: int) -> None:
        """Record events until the other side hangs up; the kernel does that for a killed one."""
        events = self.node.stats.record()
        try:
            answer = self.loop.ring_peers.hello("events")
            self.local.send(sock, encode_hello(answer), [events.file.fd])
        except BaseException:
            events.end()
            raise
        self.slots.take("events", pid)
        fd = sock.fileno()
        self.readers[fd] = LocalEventReader(sock, events, pid)
        hung_up = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(fd, hung_up, lambda _events: self._drop_reader(fd))

    def _drop_reader(self, fd: int) -> None:
        reader = self.readers.pop(fd)
        self.slots.give("events", reader.pid)
        self.loop.unwatch(fd)
        reader.events.end()
        reader.sock.close()

    # --- questions --------------------------------------------------------------------------------

    def _answer_question(self, sock: socket.socket, question: Hello, pid: int) -> None:
        """Answer one question with one message; hang up, unless it says that another may come."""
        if question.kind == "request":
            self._count_question(sock, question.kind, pid)
            if question.again:
                self.keeping.add(sock)
            self.asked_until[sock] = self.node.now_ms() + ASKED_MS_MAX
            try:
                local_request.take(self.node, sock, question.args, self._answered, self.repeated)
            except BaseException:
                self._answered(sock, False)
                raise
            return
        known = question.kind == "status"
        answer = status(self.node) if known else {"error": f"unknown question {question.kind!r}"}
        try:
            self.local.send(sock, msgspec.json.encode(answer), [])
        finally:
            sock.close()

    def _count_question(self, sock: socket.socket, kind: str, pid: int) -> None:
        self.asking[sock] = kind, pid
        self.slots.take(kind, pid)

    def _answered(self, sock: socket.socket, well: bool = True) -> None:
        """End a question, and its connection unless it is kept; not ``well``: without an answer."""
        asked = self.asking.pop(sock, None)
        self.asked_until.pop(sock, None)
        kept = sock in self.keeping
        self.keeping.discard(sock)
        if asked is None:
            sock.close()
            return
        self.slots.give(*asked)
        if kept and well and self.acceptor is not None:
            self._await_hello(sock, asked[1], KEPT_MS_MAX, True)
        else:
            sock.close()

    def _query(self, sock: socket.socket, question: Hello, fds: list[int], pid: int) -> None:
        """Pass a question to the state machine; its thread answers. Takes over ``fds``."""
        self._count_question(sock, question.kind, pid)
        try:
            args = questions.arguments(question, fds, self.local)
        except BaseException:
            self._answered(sock)
            raise
        answering = questions.Answering(self.node, sock, lambda: self._answered(sock))
        if self.node.applier is None:
            answering({"error": "this replica has no state machine"})
        else:
            self.node.applier.ask(args, question.at_least, answering)

    # --- time and end -----------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Close connections that did not say in time what they are for, and dismissed producers."""
        if self.acceptor is not None:
            self.acceptor.tend(now_ms)
        for fd, pending in list(self.pending.items()):
            if now_ms >= pending.until_ms:
                self._drop_pending(fd)
        while self.asked_until and now_ms >= next(iter(self.asked_until.values())):
            self._answered(next(iter(self.asked_until)), False)
        for producer in self.node.ring_producers.dismissed():
            if producer.cut_off is not None:
                self.node.tell("producer_dropped", pid=producer.link.pid, why=producer.cut_off)
            self.drop_producer(producer.link.sock.fileno())

    def due_ms(self, default: int) -> int:
        """Return when ``tend`` has something to do."""
        if self.acceptor is not None:
            default = min(default, self.acceptor.due_ms(default))
        if self.asked_until:
            default = min(default, next(iter(self.asked_until.values())))
        return min((each.until_ms for each in self.pending.values()), default=default)

    def close(self) -> None:
        """Stop listening, and close every connection."""
        if self.acceptor is None:
            return
        self.acceptor.close()
        self.acceptor = None
        self.local.unlink(self.node.host.disk.at(self.path))
        for fd in list(self.producers):
            self.drop_producer(fd)
        for fd in list(self.watchers):
            self._drop_watcher(fd)
        for fd in list(self.readers):
            self._drop_reader(fd)
        for fd in list(self.pending):
            self._drop_pending(fd)
        for sock in list(self.asking):
            self._answered(sock, False)
