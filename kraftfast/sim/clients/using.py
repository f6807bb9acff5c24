"""Programs that use all that a quorum offers: fields of records, short times, closed clients.

Each makes a quorum, by addresses or by the directories of this host, and works with it for a while.
What it is told of its records is held against the committed log, what it reads at once.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kraftfast.client.quorum_base import Quorum
from kraftfast.client.remote_quorum import connect_servers
from kraftfast.errors import (
    Closed,
    InvalidOption,
    KraftfastError,
    LocalError,
    OffsetOutOfRange,
    RequestRefused,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.node.storage.local_layout import LiveDirectories
from kraftfast.sim.clients.async_clients import QuorumOfProgram
from kraftfast.sim.clients.clients import FAILED, UNKNOWN, Told
from kraftfast.sim.clients.local_clients import LocalClient
from kraftfast.sim.clients.program_producers import RECORDS_MAX, SHORT_S, Producing
from kraftfast.sim.clients.remote_clients import CALL_S, RemoteProducer
from kraftfast.sim.clients.watched_consumers import ReadingHost
from kraftfast.sim.machines.quorum_disk import QUORUM
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from kraftfast.client.producer.producer import Producer
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

MANY_MAX = 400
"""Records of one call that has little time: more than fit into a small window."""
READ_MAX = 20
BEYOND = 1_000_000
NO_TIME: Any = "1"
WRONG: tuple[Any, ...] = ("host", "host:0", "host:99999", "", ":9", [("host", "x")], [7], 7)
"""What is no address of a server."""


class Using(Producing):
    """A producer with all that it may be asked for, and what stands beside it in a quorum."""

    def ways(self) -> tuple[Callable[[Producer], None], ...]:
        return (*super().ways(), self._fields, self._try, self._in_a_hurry, self._asked_wrong)

    def _fields(self, producer: Producer) -> None:
        """Append with a key, headers and a time of its own, and read it back later."""
        (told,) = self._note([self._value()])
        told.outcome = UNKNOWN
        random = self._random
        fields: dict[str, Any] = {
            "key": random.choice((None, b"", b"key" * 20)),
            "headers": random.choice(((), [("a", b"1"), ("b", None)], (("c", b"x" * 300),))),
            "timestamp": random.choice((0, 1, self._world.now_us // 1000)),
        }
        self._acknowledge(told, producer.append_wait(told.values[0], timeout=CALL_S, **fields))

    def _try(self, producer: Producer) -> None:
        """Append without any wait."""
        for _ in range(self._random.randint(1, RECORDS_MAX)):
            (told,) = self._note([self._value()])
            try:
                ticket = producer.try_append(told.values[0], headers=[("h", b"v")])
            except KraftfastError as error:
                told.outcome = FAILED
                if not isinstance(error, (WouldBlock, LocalError)):
                    raise
                return
            self._told[ticket] = told

    def _in_a_hurry(self, producer: Producer) -> None:
        """Hand over more than there may be time for: it is told which records were (D24)."""
        told = self._note([self._value() for _ in range(self._random.randint(1, MANY_MAX))])
        values = [each.values[0] for each in told]
        try:
            tickets = producer.append_many_nowait(values, timeout=self._random.random() * SHORT_S)
        except UnknownOutcome as error:
            tickets, handed_over = list(error.tickets), error.handed_over
            expect(
                0 < handed_over < len(told) and sum(map(len, tickets)) == handed_over,
                f"D24: {handed_over} of {len(told)} were handed over, by {tickets}",
            )
            self._world.count("calls cut short")
        except KraftfastError:
            tickets = []
            self._end_all(told)
        found = [ticket for part in tickets for ticket in part]
        for ticket, each in zip(found, told, strict=False):
            self._told[ticket] = each
        self._end_all(told[len(found) :])

    def _end_all(self, told: list[Told]) -> None:
        """Note that none of these was handed over."""
        for each in told:
            each.outcome = FAILED

    def _asked_wrong(self, producer: Producer) -> None:
        """What a program must not ask for is refused, and changes nothing."""
        random = self._random
        wrong: tuple[tuple[Callable[[], object], type[Exception]], ...] = (
            (lambda: producer.wait(BEYOND, timeout=SHORT_S), LocalError),
            (lambda: producer.append(b"late", offset=3), TypeError),  # type: ignore[call-arg]
            (lambda: producer.append(b"late", timeout=float("nan")), InvalidOption),
            (lambda: producer.append(b"late", timeout=NO_TIME), InvalidOption),
            (lambda: producer.append(b"late", headers=[("a",)]), InvalidOption),  # type: ignore
            (lambda: producer.on_commit("call"), InvalidOption),  # type: ignore[arg-type]
            (lambda: producer.close(timeout=NO_TIME), InvalidOption),
        )
        call, kind = random.choice(wrong)
        try:
            call()
        except kind:
            self._world.count("wrong calls refused")
            return
        expect(False, f"{kind.__name__} was to be raised by the producer of {self._name}")

    def run(self) -> None:
        super().run()
        if self._random.random() < 0.3:
            self._forget_one()

    def _forget_one(self) -> None:
        """Make a producer, append, and forget it: it is closed once it is collected."""
        producer = self._quorum.producer(timeout=CALL_S, connect=self._random.random() < 0.7)
        (told,) = self._note([self._value()])
        told.outcome = UNKNOWN
        try:
            producer.append(told.values[0], timeout=CALL_S)
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del producer
        self._world.count("producers forgotten")

    # --- beside the producer ----------------------------------------------------------------------

    def look(self) -> None:
        """Read, and ask, as a program does that knows no more than the quorum."""
        quorum, random, world = self._quorum, self._random, self._world
        what = random.choice(("describe", "barrier", "read", "beyond", "identify", "close"))
        world.count(f"looked at a quorum: {what}")
        if what == "describe":
            info = quorum.describe(timeout=CALL_S)
            voters = {*info.voter_ids}
            known = all(info.find(id) is not None for id in voters)
            expect(known, f"of {voters} not all are described")
        elif what == "barrier":
            floor = world.oracle.committed_end
            said = quorum.read_barrier(timeout=random.choice((CALL_S, SHORT_S)))
            expect(said >= floor, f"a read barrier says {said}, {floor} was committed")
        elif what == "identify":
            expect(quorum.topic == "__cluster_metadata", f"its topic is {quorum.topic}")
        else:
            self._read(BEYOND if what == "beyond" else random.randint(0, 50), what == "close")

    def _read(self, begin: int, early: bool) -> None:
        """Read from an offset on; ``early``: the consumer is closed in between, and says so."""
        world = self._world
        floor = world.oracle.committed_end
        consumer = self._quorum.consumer(begin, timeout=CALL_S)
        try:
            expect(consumer.high_watermark <= world.oracle.committed_end, "I6: it knows too much")
            if early:
                consumer.close()
            for record in itertools.islice(consumer, READ_MAX):
                expect(
                    begin <= record.offset < world.oracle.committed_end,
                    f"I20: {record.offset} is read from {begin} on",
                )
            expect(not early and begin < BEYOND, f"a consumer reads on at {begin}, {early}")
        except Closed:
            if not early:  # its quorum was closed under it
                raise
        except OffsetOutOfRange as error:
            too_far = begin > floor
            expect(too_far or error.log_start_offset > begin, f"{begin} is out of range: {error}")
        finally:
            consumer.close()


class UsingHere(Using):
    """The same through the directories of this host."""

    _quorum: QuorumOfProgram

    def look(self) -> None:
        quorum, random, world = self._quorum, self._random, self._world
        id = random.choice(list(quorum.directories))
        what = random.choice(("status", "watch", "query", "leader", "replica", "rest"))
        if what == "rest":
            super().look()
            return
        world.count(f"looked at a quorum: {what}")
        if what == "status":
            told = quorum.status(id)["high_watermark"]
            expect(told <= world.oracle.committed_end, f"I6: {id} tells of {told}")
        elif what == "leader":
            quorum.leader()
        elif what == "replica":
            floor = world.oracle.committed_end
            said = quorum.read_barrier(id, timeout=random.choice((CALL_S, SHORT_S)))
            expect(said >= floor, f"a read barrier of {id} says {said}, {floor} was committed")
        elif what == "watch":
            watch = quorum.watch(id)
            try:
                watch.wait_beyond(watch.high_watermark, SHORT_S)
            finally:
                watch.close()
        else:
            self._query(id)

    def _query(self, id: int) -> None:
        """Ask the state machine for what it cannot answer: it says why."""
        quorum, random = self._quorum, self._random
        what = random.choice(("wrong", "none", "late", "many"))
        try:
            if what == "none":
                quorum.query(id, object())
            elif what == "late":
                quorum.query(id, 0, at_least=BEYOND, timeout=SHORT_S)
            elif what == "many":
                quorum.query(id, *([b"x" * 9_000] * 9), timeout=CALL_S)
            else:
                quorum.query(id, "no number", timeout=CALL_S)
        except InvalidOption:
            gone = id not in quorum.directories  # its supervisor has stopped it for good
            expect(gone or what == "none", f"a question is refused that can be asked: {what}")
        except (RequestRefused, TimedOut):
            return
        else:
            expect(False, f"a state machine answers what it was not asked: {what}")


class RemoteUser(RemoteProducer):
    """A program that reaches the quorum by addresses, uses it, and reaches it anew."""

    using: type[Using] = Using

    def __init__(self, world: World, id: int) -> None:
        self.chance = Random(world.seed * 2 + 1 + (1 << 58))
        super().__init__(world, id, True)

    def quorum(self) -> Quorum:
        """Return the quorum. Raises NoQuorum."""
        count = self.chance.randint(1, len(self.world.machines))
        places = [each.endpoints[0] for each in self.chance.sample(self.world.machines, count)]
        if self.chance.random() < 0.2:
            self._reach_wrong()
        text: Any = ",".join(f"{each.host}:{each.port}" for each in places)
        if self.chance.random() < 0.3:
            text = [(each.host, each.port) for each in places]
        return connect_servers(text, timeout=CALL_S, host=self.host)

    def _reach_wrong(self) -> None:
        """What is no address is refused."""
        try:
            connect_servers(self.chance.choice(WRONG), timeout=SHORT_S, host=self.host)
        except InvalidOption:
            return
        except KraftfastError:
            return  # one that may be an address, where no process listens
        expect(False, "a quorum is reached where none is")

    def act(self) -> None:
        self.busy = True
        try:
            with self.quorum() as quorum:
                for _ in range(self.chance.randint(1, 6)):
                    self._producers += 1
                    using = self.using(self, quorum, self.chance, self._producers)
                    try:
                        using.look() if self.chance.random() < 0.4 else using.run()
                    except KraftfastError as error:
                        self.world.count(f"{type(self).__name__}: {type(error).__name__}")
                    self.done()
                    if not self.running and not self.wanted:
                        break
                    self.pause()
            self._ask_closed(quorum)
        finally:
            self.busy = False

    def _ask_closed(self, quorum: Quorum) -> None:
        for call in (quorum.producer, quorum.admin, quorum.consumer):
            try:
                call()
            except Closed:
                continue
            expect(False, "a closed quorum makes another client")


class LocalUser(LocalClient, RemoteUser):
    """The same on the host of the replicas."""

    using = UsingHere
    host: Any  # a ReadingHost

    def begin_anew(self) -> None:
        super().begin_anew()
        self.host = ReadingHost(self)

    def end(self) -> None:
        super().end()
        self.host.disk.end()

    def lost_power(self, machine: Machine) -> None:
        if self.host.disk.reads(machine):
            self.restart()

    def directories(self) -> Any:
        """Return where the replicas are; where a supervisor runs them, by what its quorum says."""
        supervising = self.world.supervising
        if supervising is None:
            return super().directories()
        return LiveDirectories(QUORUM, SimpleNamespace(disk=supervising.own_disk))

    def quorum(self) -> Quorum:
        return QuorumOfProgram(self)

    def _ask_closed(self, quorum: Quorum) -> None:
        """It is never closed: others run it."""
