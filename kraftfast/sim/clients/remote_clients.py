"""Producers, consumers and admins as they are, over simulated sockets; and what they are held to.

Each is a program of its own that may be killed at any moment, and begins again. What a producer is
told is held against the committed log at the end (``oracles.history``); what a consumer reads and
what a barrier says, at once.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin import Admin
from kraftfast.client.admin.admin_ways import RemoteWay
from kraftfast.client.cluster import Cluster
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.producer.producer import Producer as RealProducer
from kraftfast.client.remote_connector import RemoteConnector
from kraftfast.errors import (
    CorruptBatch,
    KraftfastError,
    OffsetOutOfRange,
    ProducerFenced,
    UnknownOutcome,
)
from kraftfast.sim.clients.clients import ACKNOWLEDGED, FAILED, UNKNOWN, Told
from kraftfast.sim.clients.program import SimProgram
from kraftfast.sim.require import require
from kraftfast.sim.settings import OPERATED_FROM
from kraftfast.types import METADATA_TOPIC

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

CALL_S = 3.0
"""How long a call may take."""
PAUSE_S = 0.05
TICKETS_MAX = 60
LIVES_APPENDS = 400
LARGE_SHARE, LARGE_BYTES = 0.02, (20_000, 70_000)
"""How many values need another ring, and how large they are."""


class RemoteClient(SimProgram):
    """Does something again and again while the world lets it; ``idle``: it waits for nothing."""

    running: bool  # acts of its own account
    wanted: int  # actions that are asked for beside that
    appends = False

    def __init__(self, world: World, id: int) -> None:
        self.lives, self.wanted, self.busy = 0, 0, False
        self.running = True
        super().__init__(world, id)

    def start(self) -> None:
        """Begin."""
        self.world.later(self.world.random.randint(1, 60_000), self._begin)

    def _begin(self) -> None:
        if not self.stacks:  # else it has died already, and begun again
            self.run(self._live)

    def restart(self) -> None:
        """Die, and begin again: whatever it had under way has an unknown outcome."""
        self.end()
        self.lost()
        self.begin_anew()
        self.run(self._live)

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it did is without an outcome."""
        return not self.wanted and not self.busy

    def append(self) -> None:
        """Act once more."""
        self.wanted += 1

    def cluster(self) -> Cluster:
        """Return its way to the quorum, by some of the addresses of now."""
        machines = self.world.machines
        known = self.world.random.sample(machines, self.world.random.randint(1, len(machines)))
        places = [(each.endpoints[0].host, each.endpoints[0].port) for each in known]
        return Cluster(places, METADATA_TOPIC, self.host)

    def connector(self, batch_bytes: int, window: int) -> Any:
        """Return what connects its producers."""
        return RemoteConnector(self.cluster(), batch_bytes, window)

    def way(self) -> Any:
        """Return how its admins reach the leader."""
        return RemoteWay(self.cluster())

    def lost_power(self, machine: Machine) -> None:
        """Note that a machine lost its power, which may be that of this program."""

    def lost(self) -> None:
        """Note what its end leaves open."""
        self.busy = False

    def _live(self) -> None:
        self.lives += 1
        while True:
            if not self.running and not self.wanted:
                self.host.sleep(PAUSE_S)
                continue
            try:
                self.act()
            except KraftfastError as error:
                self.world.count(f"{type(self).__name__}: {type(error).__name__}")
                self.host.sleep(PAUSE_S)

    def act(self) -> None:
        """Use clients until one of them fails."""
        raise NotImplementedError

    def done(self) -> None:
        """Note that an action that was asked for is over."""
        self.wanted = max(0, self.wanted - 1)

    def pause(self) -> None:
        """Wait as a user does between two calls."""
        mean_s = self.world.settings.append_every_ms / 1000
        self.host.sleep(self.world.random.expovariate(1.0) * mean_s)


class RemoteProducer(RemoteClient):
    """Appends values that no other appends, and learns the fate of each (I23, I24)."""

    leader_id = -1
    poisonous = False
    appends = True

    def __init__(self, world: World, id: int, idempotent: bool) -> None:
        super().__init__(world, id)
        self.idempotent, self._number, self._producers = idempotent, 0, 0
        self._open: list[Told] = []

    def act(self) -> None:
        random, world = self.world.random, self.world
        connector = self.connector(random.choice((400, 4_000, 65_536)), 16)
        producer = RealProducer(connector, timeout=CALL_S, idempotent=self.idempotent)
        self._producers += 1
        world.count("real producers")
        try:
            for _ in range(random.randint(1, LIVES_APPENDS)):
                if not self.running and not self.wanted and not self._open:
                    return
                if (self.running or self.wanted) and len(self._open) < TICKETS_MAX:
                    self._append(producer)
                if random.random() < 0.2 or not self.running or len(self._open) >= TICKETS_MAX:
                    self._await(producer)
                self.pause()
        finally:
            self._settle(producer)

    def _append(self, producer: RealProducer) -> None:
        world, settings = self.world, self.world.settings
        self._number += 1
        size = world.random.randint(0, settings.value_bytes_max)
        if world.seed >= OPERATED_FROM and world.random.random() < LARGE_SHARE:
            size = world.random.choice(LARGE_BYTES)
        value = b"r%d:%d:" % (self.id, self._number) + bytes(size)
        told = Told(world, value, (-self.id, self._producers))
        self.busy = True
        self._open.append(told)
        world.history.append(told)
        try:
            told.ticket = producer.append(value, timeout=CALL_S)
        except KraftfastError:
            self._end(told, FAILED)  # it was not handed over
            raise
        finally:
            self.done()

    def _await(self, producer: RealProducer) -> None:
        """Wait for all that is open."""
        while self._open:
            told = self._open[0]
            if told.ticket < 0:
                break
            try:
                offset = producer.wait(told.ticket, timeout=CALL_S)
            except UnknownOutcome:
                self._end(told, UNKNOWN)
                continue
            except KraftfastError:
                self._end(told, FAILED)
                continue
            told.base_offset, told.end_offset = offset, offset + 1
            self._end(told, ACKNOWLEDGED)
            self.world.note_acknowledged(told)

    def _settle(self, producer: RealProducer) -> None:
        if not self.alive:
            producer.disown()
            return
        self._await(producer)
        producer.close(timeout=self.world.random.choice((0.0, 1.0)))

    def _end(self, told: Told, outcome: str) -> None:
        told.outcome = outcome
        self._open.remove(told)
        self.busy = bool(self._open)

    def lost(self) -> None:
        for told in list(self._open):
            self._end(told, UNKNOWN)
        super().lost()


class RemoteNamed(RemoteClient):
    """Goes on by its name: its records are there once and in order, whatever happens (D22, I23).

    Its values are named by their numbers. One record at a time, so that a refusal leaves no gap.
    """

    leader_id = -1
    poisonous = False
    appends = True
    acknowledged = -1  # number of the last record of which any of its lives learnt
    _producers = 0

    def act(self) -> None:
        world, random = self.world, self.world.random
        self._producers += 1
        connector = self.connector(4_000, 8)
        producer = RealProducer(connector, timeout=CALL_S, name=f"real-{self.id}")
        try:
            number = producer.last_sequence(timeout=CALL_S) + 1
            require(
                number > self.acknowledged,
                f"D22: real name {self.id} is told {number - 1}; {self.acknowledged} was "
                "acknowledged",
            )
            world.count("real names taken")
            for _ in range(random.randint(1, 60)):
                if not self.running and not self.wanted:
                    return
                self.busy = True
                value = b"m%d:%d:" % (self.id, number)
                told = Told(world, value, (-self.id, self._producers))
                told.outcome = UNKNOWN
                world.history.append(told)
                offset = producer.append_wait(value, timeout=CALL_S)
                told.base_offset, told.end_offset = offset, offset + 1
                told.outcome = ACKNOWLEDGED
                world.note_acknowledged(told)
                self.acknowledged, number = number, number + 1
                self.busy = False
                self.done()
                self.pause()
        except ProducerFenced:
            world.count("real names fenced")
        finally:
            self.busy = False
            if self.alive:
                producer.close(timeout=1.0)
            else:
                producer.disown()

    def check(self, places: dict[bytes, int]) -> int:
        """I23: its records are there once, in order, none missing up to the last."""
        prefix = b"m%d:" % self.id
        found = sorted((v for v in places if v.startswith(prefix)), key=lambda v: places[v])
        expected = [b"m%d:%d:" % (self.id, number) for number in range(len(found))]
        require(found == expected, f"I23: the records of real name {self.id} are {found}")
        require(
            self.acknowledged < len(found),
            f"I23: record {self.acknowledged} of real name {self.id} is gone",
        )
        return len(found)


class RemoteReader(RemoteClient):
    """Reads on from ``position`` with a consumer (I20)."""

    position = 0

    def act(self) -> None:
        random = self.world.random
        consumer = RemoteConsumer(
            self.cluster(), self.position, timeout=CALL_S, fetch_bytes=random.choice((1, 20_000))
        )
        try:
            for _ in range(random.randint(1, 50)):
                if consumer.wait(timeout=0.2):
                    self._read(consumer)
                self.done()
                if not self.running:
                    return
        except OffsetOutOfRange as error:
            self.position = max(self.position, error.log_start_offset)
        except CorruptBatch:
            rotten = any(each.rotten for each in self.world.machines)
            if not rotten and "corrupt_network" not in self.world.settings.faults:
                raise AssertionError("a consumer reads damage, and nothing is damaged") from None
        finally:
            if self.alive:
                consumer.close()
            else:
                consumer.disown()

    def _read(self, consumer: Any) -> None:
        world = self.world
        for batch in consumer.batches():
            world.oracle.was_read(batch.base_offset, batch.end_offset, batch.crc)
            require(
                batch.base_offset <= self.position or self.position == 0,
                f"I20: a consumer at {self.position} reads on at {batch.base_offset}",
            )
            self.position = batch.end_offset
            world.count("batches read by consumers")


class RemoteAdmin(RemoteClient):
    """Asks for the leader, and up to where must be read to miss nothing that was committed."""

    def act(self) -> None:
        with closing(self.way()) as way:  # or the collector hangs up, whenever it comes by
            self._ask(Admin(way))

    def _ask(self, admin: Admin) -> None:
        world = self.world
        for _ in range(world.random.randint(1, 50)):
            floor = world.oracle.committed_end
            offset = admin.read_barrier(timeout=CALL_S)
            require(
                floor <= offset <= world.oracle.committed_end,
                f"a real read barrier says {offset}; {floor} was committed before it was asked "
                f"for, {world.oracle.committed_end} is committed",
            )
            world.count("real read barriers")
            info = admin.describe(timeout=CALL_S)
            require(
                info.high_watermark <= world.oracle.committed_end,
                f"I6: an admin is told of {info.high_watermark}, committed is "
                f"{world.oracle.committed_end}",
            )
            self.also(admin)
            self.done()
            if not self.running and not self.wanted:
                return
            self.host.sleep(PAUSE_S)

    def also(self, admin: Admin) -> None:
        """Do more with an admin."""


def programs(world: World) -> list[RemoteClient]:
    """Return those of the settings, each on a host of its own behind those of the machines."""
    from kraftfast.sim.clients import local_clients as local  # which are made of these
    from kraftfast.sim.clients import watched_consumers

    settings, first = world.settings, len(world.machines) + 1
    kinds: list[Any] = [
        lambda id, even=number % 2: RemoteProducer(world, id, bool(even))
        for number in range(settings.real_producers)
    ]
    kinds += [lambda id: RemoteNamed(world, id)] * settings.real_named
    kinds += [lambda id: RemoteReader(world, id)] * settings.real_readers
    kinds += [lambda id: RemoteAdmin(world, id)] * settings.real_admins
    kinds += [
        lambda id, even=number % 2: local.LocalProducer(world, id, bool(even))
        for number in range(settings.local_producers)
    ]
    kinds += [lambda id: local.LocalNamed(world, id)] * settings.local_named
    kinds += [lambda id: local.LocalAdmin(world, id)] * settings.local_admins
    if settings.snapshots == "machine":
        kinds += [lambda id: local.LocalAsker(world, id)] * settings.local_askers
    kinds += [lambda id: watched_consumers.RemoteReading(world, id)] * settings.real_consumers
    kinds += [lambda id: watched_consumers.LocalReading(world, id)] * settings.local_consumers
    kinds += [lambda id: watched_consumers.LocalWatcher(world, id)] * settings.local_watchers
    if settings.strangers:
        from kraftfast.sim.strangers.bold_strangers import BoldStranger
        from kraftfast.sim.strangers.strangers import Stranger

        stranger = BoldStranger if world.seed >= OPERATED_FROM else Stranger
        kinds += [lambda id: stranger(world, id)] * settings.strangers
    if settings.local_strangers:
        from kraftfast.sim.strangers.local_strangers import LocalStranger

        kinds += [lambda id: LocalStranger(world, id)] * settings.local_strangers
    if settings.async_producers:
        from kraftfast.sim.clients import async_clients, async_more

        more, here = world.seed >= OPERATED_FROM, settings.async_producers == "local"
        found = (
            (async_clients.AsyncRemoteProducer, async_clients.AsyncLocalProducer),
            (async_more.MoreAsync, async_more.MoreAsyncHere),
        )
        made: Any = found[more][here]
        kinds += [lambda id: made(world, id, bool(world.seed % 2))]
    if settings.user:
        from kraftfast.sim.clients.using import LocalUser, RemoteUser

        user: Any = LocalUser if settings.user == "local" else RemoteUser
        kinds += [lambda id: user(world, id)]
    return [make(first + number) for number, make in enumerate(kinds)]
