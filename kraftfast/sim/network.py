"""Rings between replicas of one host, as ordered streams of messages; and who is cut off.

A ring loses nothing while it stands and has bounded room; it breaks and is replaced by a fresh
one. No message outlives the processes at both ends. Sockets are in ``tcp``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.effects import AnswerFetch
from kraftfast.core.messages import FetchResponse, Request, Response
from kraftfast.node.translate_snapshot import Slice
from kraftfast.sim.records import Records, Reference, read_answer

if TYPE_CHECKING:
    from kraftfast.sim.process import Process
    from kraftfast.sim.world import World

RETRY_US_MIN, RETRY_US_MAX = 10_000, 500_000
CUT_RETRY_US = 20_000
INLINE_BYTES_MAX = 512  # answers up to here travel as bytes


class Message:
    """On its way. ``correlation`` 0 belongs to a stream; ``records`` are those of a Fetch answer,
    or the bytes of a slice of a snapshot."""

    __slots__ = ("correlation", "body", "records", "is_request")

    def __init__(
        self,
        correlation: int,
        body: Request | Response,
        records: Records | bytes | None,
        is_request: bool,
    ) -> None:
        self.correlation, self.body = correlation, body
        self.records, self.is_request = records, is_request


class Source:
    """What a request's ``source`` is: where its answer goes."""

    __slots__ = ("link", "process", "correlation", "request")
    slice_bytes_max = 1 << 20

    def __init__(self, link: Link, process: Process, message: Message) -> None:
        self.link, self.process = link, process
        self.correlation, self.request = message.correlation, message.body

    @property
    def peer_id(self) -> int:
        """Who asked."""
        return self.link.other(self.process).id

    def failed(self, error: Exception) -> None:
        """Nothing that a session raises is expected here."""
        raise error

    def answer_fetch(self, response: FetchResponse, log: Any, effect: AnswerFetch) -> None:
        """Answer with the log's bytes."""
        self._answer(response, read_answer(self.process, effect))

    def answer_stream(self, effect: AnswerFetch) -> None:
        """Push onto a ring, and tell the core how far the records go that it took."""
        end_offset = self._push(effect.response, effect)
        if effect.read_offset >= 0:
            self.process.core.sent(self.peer_id, effect.response.stream, end_offset)

    def _push(self, response: FetchResponse, effect: AnswerFetch) -> int:
        process, read_offset = self.process, effect.read_offset
        log, end_offset = process.log, read_offset
        records: Records | None = None
        if not self.link.has_room(process):
            return read_offset
        if 0 <= read_offset < log.end_offset:
            below = effect.read_end_offset
            found = log.locate(read_offset, effect.max_bytes, below)
            if found is None:
                return read_offset
            segment, position, length = found
            end_offset = log.span(segment, position, length, below)[1]
            by_reference = process.settings.references and segment is log.active
            if by_reference and length > INLINE_BYTES_MAX:
                records = Reference(process.machine, segment, position, length)
                response.records_bytes = length
            else:
                records = Records(bytes(segment.file.view(position, position + length)), True)
        self._answer(response, records)
        return end_offset

    def _answer(self, response: FetchResponse, records: Records | None) -> None:
        if records is not None and records.data:
            records.data = self.process.world.nemesis.on_the_wire(self, records.data)
            response.records_bytes = len(records.data)
        self.reply(response, records)

    def reply(self, answer: Response | Slice, records: Records | None = None) -> bool:
        """Answer it; False if a ring has no room for the slice of a snapshot."""
        if not isinstance(answer, Slice):
            self.link.send(self.process, Message(self.correlation, answer, records, False))
            return True
        if self.link.open and not self.link.has_room(self.process):
            return False
        response = answer.response
        data = self.link.network.world.nemesis.on_the_wire(self, answer.data, False)
        response.records_bytes = len(data)
        self.link.send(self.process, Message(self.correlation, response, data, False))
        return True


class Link:
    """One pair of rings between two running processes, until it breaks."""

    ends: tuple[Process, Process]
    open: bool
    attached: set[int]  # ids of the ends that know of it: who does not, reads nothing
    queues: dict[int, deque[Message]]  # by receiver: what has not been read
    arrived: dict[int, int]  # by receiver: how many of them it may read

    def __init__(self, network: Network, first: Process, second: Process) -> None:
        self.network = network
        self.ends = (first, second)
        self.open = True
        self.attached = set()
        self.queues = {first.id: deque(), second.id: deque()}
        self.arrived = {first.id: 0, second.id: 0}
        self._last_us = {first.id: 0, second.id: 0}

    def other(self, process: Process) -> Process:
        """The process at the other end."""
        return self.ends[1] if process is self.ends[0] else self.ends[0]

    def has_room(self, sender: Process) -> bool:
        """Whether the ring takes another message from this end."""
        receiver = self.other(sender).id
        return len(self.queues[receiver]) < self.network.settings.ring_messages

    def ask(self, sender: Process, correlation: int, request: Request) -> bool:
        """Send a request; False if it cannot go out now."""
        if not self.open or not self.has_room(sender):
            return False
        self.send(sender, Message(correlation, request, None, True))
        return True

    def send(self, sender: Process, message: Message) -> None:
        """Put it on its way; lost if the link is gone by now or the ring is full."""
        if not self.open or not self.has_room(sender):
            return
        world, receiver = self.network.world, self.other(sender)
        delay_us = world.network_delays.draw(world.random)
        due_us = max(world.now_us + delay_us, self._last_us[receiver.id])
        self._last_us[receiver.id] = due_us
        self.queues[receiver.id].append(message)
        world.at(due_us, self._arrive, receiver)

    def _arrive(self, receiver: Process) -> None:
        """One more message of a ring may be read; a ring over a cut stands still."""
        if not self.open:
            return
        if self.network.is_cut(self.other(receiver).id, receiver.id):
            self.network.world.later(CUT_RETRY_US, self._arrive, receiver)
            return
        self.arrived[receiver.id] += 1
        self.read(receiver)

    def read(self, receiver: Process) -> None:
        """Let the receiver read what has arrived, as far as it can now."""
        while (
            self.open
            and self.arrived[receiver.id]
            and receiver.id in self.attached
            and receiver.can_read()
        ):
            self.arrived[receiver.id] -= 1
            message = self.queues[receiver.id].popleft()
            receiver.enter(receiver.receive, self, message)

    def close(self) -> None:
        """Nothing more comes over it."""
        self.open = False
        for queue in self.queues.values():
            queue.clear()


class Network:
    """All rings, who is cut off from whom, and the making of rings."""

    world: World
    cut: set[tuple[int, int]]  # (from, to) that does not get through
    links: dict[tuple[int, int], Link]  # rings by (lower, higher)

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = world.settings
        self.cut = set()
        self.links = {}
        self.rings: dict[tuple[int, int], bool] = {}
        self._connecting: set[tuple[int, int]] = set()
        self._pause_us: dict[tuple[int, int], int] = {}

    def is_ring(self, one: int, other: int) -> bool:
        """Whether these two talk over rings."""
        pair = (min(one, other), max(one, other))
        if pair not in self.rings:
            kinds = {"ring": (True,), "socket": (False,), "mixed": (True, False)}
            self.rings[pair] = self.world.random.choice(kinds[self.settings.transport])
        return self.rings[pair]

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing gets from one to the other."""
        return (source, target) in self.cut

    # --- making links -------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        """A process has begun: rings with others on its host are made."""
        for other in self.world.machines:
            if other.id != process.id and self.is_ring(process.id, other.id):
                pair = (min(process.id, other.id), max(process.id, other.id))
                self._pause_us[pair] = RETRY_US_MIN
                self.connect_later(pair, self.world.random.randint(1, 3_000))

    def connect_later(self, pair: tuple[int, int], delay_us: int) -> None:
        """Try to make this link after a while."""
        if pair not in self._connecting:
            self._connecting.add(pair)
            self.world.later(delay_us, self._connect, pair)

    def _connect(self, pair: tuple[int, int]) -> None:
        self._connecting.discard(pair)
        link = self.links.get(pair)
        asker, asked = (self.world.machine(id).process for id in pair)
        if asker is None or (link is not None and link.open):
            return
        pause_us = self._pause_us.get(pair, RETRY_US_MIN)
        self._pause_us[pair] = min(pause_us * 2, RETRY_US_MAX)
        if self.is_cut(*pair) or self.is_cut(pair[1], pair[0]):
            self.connect_later(pair, CUT_RETRY_US)
        elif asked is None:
            self.connect_later(pair, pause_us)
            asker.enter(asker.step, ev.PeerEnded(pair[1]))  # refused: nobody listens there
        else:
            self._open(pair, asker, asked)

    def _open(self, pair: tuple[int, int], asker: Process, asked: Process) -> None:
        link = self.links[pair] = Link(self, asker, asked)
        self._pause_us[pair] = RETRY_US_MIN
        random = self.world.random
        self.world.later(random.randint(1, 500), asker.enter, asker.attach_ring, link)
        self.world.later(random.randint(1, 500), asked.enter, asked.attach_ring, link)

    # --- ends ---------------------------------------------------------------------------------

    def ended(self, process: Process, silent: bool) -> None:
        """A process is gone. ``silent``: its machine too, and perhaps nobody is told why."""
        for pair, link in list(self.links.items()):
            if process in link.ends and link.open:
                link.close()
                self._tell(link, ended=not silent or self.world.random.random() < 0.8)
                self.connect_later(pair, RETRY_US_MIN)

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of replicas with a link between them: (asker, asked) of those over sockets."""
        streams = {
            (each.files.host, each.peer.files.host) for each in self.world.tcp.streams if each.peer
        }
        return sorted({*(pair for pair, link in self.links.items() if link.open), *streams})

    def reset(self, pair: tuple[int, int]) -> None:
        """Links break; the processes live on."""
        link = self.links.get(pair)
        if link is not None and link.open:
            link.close()
            self._tell(link, ended=False)
            self.connect_later(pair, self.world.random.randint(500, 30_000))
        for stream in list(self.world.tcp.streams):
            assert stream.peer is not None
            if (stream.files.host, stream.peer.files.host) == pair:
                self.world.tcp.break_off(stream)

    def _tell(self, link: Link, ended: bool) -> None:
        """The ends learn that the link broke, and perhaps that the other process is gone."""
        for end in link.ends:
            news = ended and not link.other(end).alive
            delay_us = self.world.random.randint(1, 2_000)
            self.world.later(delay_us, end.enter, end.detach_ring, link, news)

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self.cut.clear()

    def state(self) -> dict[str, Any]:
        """For reports."""
        return {"cut": sorted(self.cut), "links": self.pairs()}
