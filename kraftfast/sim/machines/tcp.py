"""Stream sockets between simulated hosts: bytes in order, late, in pieces, or not at all.

A segment that is lost comes later, and all behind it; over a path that is cut everything waits
until it is not. Buffers are bounded, so that senders take a part of what they are given. A process
that ends hangs up; a machine without power says nothing until it is asked.
"""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kraftfast.errors import CorruptBatch
from kraftfast.limits import BATCH_HEADER_BYTES
from kraftfast.record.batch import check_batch
from kraftfast.sim.machines.files import File, Files
from kraftfast.sim.swarm import SHORTER_FROM

if TYPE_CHECKING:
    from kraftfast.sim.world import World

FIN = b""
"""Goes behind the last bytes of a stream."""
BUFFERS = (4_096, 65_536, 65_536, 1_000_000)
"""What one direction of a connection holds that was not read, bytes."""
WRITABLE_SHARE = 3
"""A socket is writable once a third of its buffer is free, as on Linux; in earlier seeds a byte."""
RESEND_US = 10_000, 250_000
"""A segment that is lost comes so much later."""
CUT_US_MIN, CUT_US_MAX = 5_000, 200_000
"""How often a sender tries a path that is cut."""
CONNECT_US = 250_000
"""After a connection failed, until the next attempt; four times."""
CONNECTS_MAX = 5
SHORT_WRITES = 0.03
SPLITS = 0.05
"""How often a sender is taken less from than there is room for, and a segment comes in two."""
MAGIC_AT = 16  # in a batch
HOST = "host-"


class Tcp:
    """All connections, and where each process listens."""

    listeners: dict[tuple[str, int], TcpStream]
    streams: dict[TcpStream, None]  # asking ends of connections that stand

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners = {}
        self.streams = {}

    # --- names and paths --------------------------------------------------------------------------

    def addresses(self, host: str | None, port: int, flags: int) -> list[tuple[Any, ...]]:
        """``getaddrinfo``: no host is called by a number."""
        if flags & socket.AI_NUMERICHOST or host is None or not host.startswith(HOST):
            raise socket.gaierror(socket.EAI_NONAME, f"no such host: {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def is_lost(self, source: int, target: int) -> bool:
        """Return whether what one host sends does not arrive at the other now."""
        world = self.world
        dark = target <= len(world.machines) and world.machine(target).dark
        return dark or world.network.is_cut(source, target)

    def _delay_us(self) -> int:
        delay_us: int = self.world.network_delays.draw(self.world.random)
        return delay_us

    # --- connections ------------------------------------------------------------------------------

    def ask(self, stream: TcpStream, place: tuple[str, int], tries: int = 1) -> None:
        """Send a SYN."""
        self.world.later(self._delay_us(), self._asked, stream, place, tries)

    def _asked(self, stream: TcpStream, place: tuple[str, int], tries: int) -> None:
        if stream.state != "connecting":
            return
        world, source, target = self.world, stream.files.host, int(place[0][len(HOST) :])
        listener = self.listeners.get(place)
        full = listener is not None and len(listener.backlog) >= listener.backlog_max
        lost = self.is_lost(source, target) or self.is_lost(target, source) or full
        if lost or world.random.random() < world.drop:
            if tries < CONNECTS_MAX:
                world.later(CONNECT_US * tries, self.ask, stream, place, tries + 1)
            else:
                stream.fail(errno.ETIMEDOUT)
        elif listener is None:
            world.later(self._delay_us(), stream.fail, errno.ECONNREFUSED)
        else:
            other = TcpStream(listener.files, self)
            other.state, other.peer = "open", stream
            stream.peer = other
            other.room = stream.room = world.random.choice(BUFFERS)
            if world.seed >= SHORTER_FROM:
                other.writable = stream.writable = other.room // WRITABLE_SHARE
            listener.backlog.append(other)
            listener.changed()
            world.later(self._delay_us(), self._connected, stream)

    def _connected(self, stream: TcpStream) -> None:
        assert stream.peer is not None
        if stream.state == "connecting":
            stream.state = "open"
            self.streams[stream] = None
            stream.changed()
        else:
            self.reset(stream.peer)

    def break_off(self, stream: TcpStream) -> None:
        """Both ends of a connection learn that it is no more, each in its time."""
        self.reset(stream)
        if stream.peer is not None:
            self.reset(stream.peer)

    def reset(self, stream: TcpStream) -> None:
        """Send an RST."""
        self.world.later(self._delay_us(), self._reset, stream)

    def _reset(self, stream: TcpStream) -> None:
        peer = stream.peer
        if peer is not None and not self.is_lost(peer.files.host, stream.files.host):
            stream.fail(errno.ECONNRESET)

    # --- bytes ------------------------------------------------------------------------------------

    def send(self, stream: TcpStream, data: bytes) -> None:
        """Put bytes on their way, or the end of them."""
        world = self.world
        if data and stream.flight and stream.sent_us == world.now_us and stream.flight[-1]:
            stream.flight[-1] += data  # one segment
            return
        if len(data) > 1 and world.random.random() < SPLITS:
            half = world.random.randrange(1, len(data))
            self._send(stream, data[:half])
            data = data[half:]
        self._send(stream, data)

    def _send(self, stream: TcpStream, data: bytes) -> None:
        world, delay_us = self.world, self._delay_us()
        if world.random.random() < world.drop:
            delay_us += world.random.randint(*RESEND_US)
        if world.random.random() < world.resets:
            self.break_off(stream)
        stream.sent_us = world.now_us
        stream.due_us = max(stream.due_us, world.now_us + delay_us)
        stream.flight.append(data)
        world.at(stream.due_us, self._arrive, stream)

    def _arrive(self, stream: TcpStream) -> None:
        data, peer = stream.flight.popleft(), stream.peer
        assert peer is not None
        if stream.held or self.is_lost(stream.files.host, peer.files.host):
            if not stream.held:
                self.world.later(CUT_US_MIN, self._try_again, stream, CUT_US_MIN)
            stream.held.append(data)
        else:
            self._deliver(stream, peer, data)

    def _try_again(self, stream: TcpStream, waited_us: int) -> None:
        peer = stream.peer
        assert peer is not None
        if stream.held and self.is_lost(stream.files.host, peer.files.host):
            waited_us = min(waited_us * 2, CUT_US_MAX)
            self.world.later(waited_us, self._try_again, stream, waited_us)
            return
        held, stream.held = stream.held, []
        for data in held:
            self._deliver(stream, peer, data)

    def _deliver(self, stream: TcpStream, peer: TcpStream, data: bytes) -> None:
        if peer.fd >= 0:
            peer.arrived(data)
        elif data:
            self.reset(stream)  # no process is there now

    def took(self, stream: TcpStream, count: int) -> None:
        """Note that a reader took so many bytes: the sender has more room once it learns."""
        sender = stream.peer
        if sender is None:
            return
        if self.is_lost(stream.files.host, sender.files.host):
            self.world.later(CUT_US_MAX, self.took, stream, count)
        elif sender.room - sender.unread < sender.writable:
            self.world.later(self._delay_us(), sender.relieve, count)
        else:
            sender.unread -= count


class TcpStream(File):
    """A TCP socket, as ``socket.socket`` is used by the links. It never waits."""

    # state: new, listening, connecting, open or ended (by an error). peer: the other end.
    # inbox: what arrived and was not read. at_end: nothing comes behind it. error: an errno that
    # nobody was told yet. room: of the buffer that it sends into; unread: how much of it is full;
    # writable: how much must be free for epoll to say so.
    # flight: segments on their way; due_us, sent_us: of the last. held: those that a cut keeps
    # back. backlog: connections that are not accepted yet. place: where it listens.

    def __init__(self, files: Files, tcp: Tcp) -> None:
        super().__init__(files)
        self.tcp = tcp
        self.state = "new"
        self.peer: TcpStream | None = None
        self.inbox = bytearray()
        self.at_end = False
        self.error = self.unread = self.due_us = 0
        self.room, self.writable = BUFFERS[0], 1
        self.sent_us = -1
        self.flight: deque[bytes] = deque()
        self.held: list[bytes] = []
        self.backlog: deque[TcpStream] = deque()
        self.backlog_max = 0
        self.place = ("", 0)

    def readiness(self) -> int:
        if self.state == "listening":
            return select.EPOLLIN if self.backlog else 0
        if self.state == "ended":
            return (
                select.EPOLLIN
                | select.EPOLLOUT
                | select.EPOLLERR
                | select.EPOLLHUP
                | select.EPOLLRDHUP
            )
        if self.state != "open":
            return 0
        events = select.EPOLLOUT if self.room - self.unread >= self.writable else 0
        if self.inbox or self.at_end:
            events |= select.EPOLLIN
        return events | (select.EPOLLRDHUP if self.at_end else 0)

    # --- as the other side has it -----------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        """Take bytes that arrived, or the end of them."""
        if self.state == "open":
            self.inbox += data
            self.at_end |= not data
            self.changed()

    def fail(self, code: int) -> None:
        """End the connection, or note that it never was."""
        if self.fd >= 0 and self.state in ("connecting", "open"):
            self.state, self.error = "ended", code
            self.tcp.streams.pop(self, None)
            self.changed()

    def relieve(self, count: int) -> None:
        """Note that the other side took so many bytes."""
        self.unread -= count
        if self.fd >= 0:
            self.changed()

    # --- as ``socket.socket`` has it --------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        assert not flag, "a loop never waits for one socket"

    def setsockopt(self, *_words: Any) -> None:
        pass

    def getsockopt(self, _level: int, option: int) -> int:
        assert option == socket.SO_ERROR
        error, self.error = self.error, 0
        return error

    def getsockname(self) -> tuple[str, int]:
        return self.place

    def bind(self, place: tuple[str, int]) -> None:
        if place in self.tcp.listeners:
            raise OSError(errno.EADDRINUSE, "in use")
        self.place = place

    def listen(self, backlog: int) -> None:
        self.state, self.backlog_max = "listening", backlog
        self.tcp.listeners[self.place] = self

    def accept(self) -> tuple[TcpStream, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody")
        self.files.check_room()
        stream = self.backlog.popleft()
        assert stream.peer is not None
        return stream, (f"{HOST}{stream.peer.files.host}", 0)

    def connect_ex(self, place: tuple[str, int]) -> int:
        self.state = "connecting"
        self.tcp.ask(self, place)
        return errno.EINPROGRESS

    def recv_into(self, buffer: Any) -> int:
        if self.inbox:
            count = min(len(buffer), len(self.inbox))
            buffer[:count] = self.inbox[:count]
            del self.inbox[:count]
            self.tcp.took(self, count)
            return count
        if self.at_end:
            return 0
        self._check()
        raise BlockingIOError(errno.EAGAIN, "nothing")

    def sendmsg(self, pieces: Iterable[Any]) -> int:
        self._check()
        room = self.room - self.unread
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "no room")
        world = self.files.world
        if world.nemesis.corrupting:
            data = b"".join(map(self._on_the_wire, pieces))[:room]
        else:
            data = _first_bytes(pieces, room)
        if world.random.random() < SHORT_WRITES:
            data = data[: world.random.randint(1, len(data))]
        self.unread += len(data)
        self.tcp.send(self, data)
        return len(data)

    def _on_the_wire(self, piece: Any) -> bytes:
        """Return what arrives of it: of records, perhaps others than those that were sent (D20)."""
        data = bytes(piece)
        nemesis = self.files.world.nemesis
        if nemesis.corrupting and _begins_with_a_batch(data):
            return nemesis.flip(data)
        return data

    def _check(self) -> None:
        """Raise what the connection ended with."""
        if self.state != "open":
            code = self.error or errno.EPIPE
            self.error = 0
            raise OSError(code, errno.errorcode[code])

    def close(self) -> None:
        """Hang up, or stop listening: what is not accepted by now never is."""
        if self.fd < 0:
            return
        super().close()
        if self.state == "listening":
            del self.tcp.listeners[self.place]
            for each in self.backlog:
                each.close()
        elif self.state == "open":
            if self.inbox:
                assert self.peer is not None
                self.tcp.reset(self.peer)
            else:
                self.tcp.send(self, FIN)
        self.state = "closed"
        self.tcp.streams.pop(self, None)

    def vanish(self, power: bool) -> None:
        self.held.clear()
        if power and self.state != "listening":
            super().close()
            self.state = "closed"
            self.tcp.streams.pop(self, None)
        else:
            self.close()


def _first_bytes(pieces: Iterable[Any], room: int) -> bytes:
    """Return the first bytes of them, joined: what there is no room for is not copied."""
    parts = []
    for piece in pieces:
        part = bytes(piece) if len(piece) <= room else bytes(memoryview(piece)[:room])
        parts.append(part)
        room -= len(part)
        if room <= 0:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _begins_with_a_batch(data: bytes) -> bool:
    """Return whether these are records: the rest of a frame is in TCP's checksum alone."""
    if len(data) <= BATCH_HEADER_BYTES or data[MAGIC_AT] != 2:
        return False
    try:
        check_batch(data)
    except CorruptBatch:
        return False
    return True


class SimNetwork:
    """The sockets of one process: :class:`kraftfast.link.host_ports.Network`."""

    def __init__(self, files: Files, tcp: Tcp) -> None:
        self._files, self._tcp = files, tcp

    def socket(self, _family: int, _kind: int, _protocol: int = 0) -> TcpStream:
        self._files.check_room()
        return TcpStream(self._files, self._tcp)

    def getaddrinfo(
        self, host: str | None, port: int, *, type: int, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        return self._tcp.addresses(host, port, flags)
