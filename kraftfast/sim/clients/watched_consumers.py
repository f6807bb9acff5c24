"""Consumers as they are, of this host and over TCP, and what they are held to (I20).

What one hands out is the committed log from its position on: each batch and each record once, in
order, with the bytes that were committed there. It leaves something out only where it says so, and
where a log begins later. A program that dies goes on from the position that it had come to.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.consumer.consumer import Consumer, RecordStream
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.watch import Watch
from kraftfast.errors import (
    CorruptBatch,
    CorruptLog,
    DirectoryMoved,
    OffsetOutOfRange,
    PeerGone,
    StorageError,
    TimedOut,
)
from kraftfast.record import pure
from kraftfast.sim.clients.local_clients import LocalClient, LocalClientHost
from kraftfast.sim.clients.remote_clients import CALL_S, RemoteClient
from kraftfast.sim.machines.program_disk import ProgramDisk
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

WAYS = "batches", "records", "read"
FOLLOWS_SHARE = 0.25
LEAVES_SHARE = 0.02
"""How often a program turns away from a consumer that would go on for ever."""
READS_MAX = 20
WAIT_S = 0.2
CATCH_UP_MS = 20_000
"""Some of it a call to a replica that is gone, some a program that begins anew."""
PAUSES_SHARE = 0.05
"""How often a program rests between two batches or records that it is given."""


class Reading(RemoteClient):
    """Reads the log by a consumer, in one way or another, again and again."""

    # position: what the program noted; below it everything was handed out, or is gone.
    # consumer: of now; it may know of control records behind that.
    # _decoded: base offset and records of one committed batch, None for control records.
    # chance: of its own, so that a run without consumers draws what it drew before.
    # rests: whether it pauses now and then.

    position: int
    rests = True
    consumer: RecordStream | None = None
    _decoded: tuple[int, list[Any]] = -1, []

    def __init__(self, world: World, id: int) -> None:
        self.chance = Random((world.seed << 16) + id)
        self.position = 0
        super().__init__(world, id)

    @property
    def reached(self) -> int:
        """Below this everything was handed out that is no control record."""
        return max(self.position, self.consumer.position if self.consumer is not None else 0)

    def start(self) -> None:
        self.world.later(self.chance.randint(1, 60_000), self._begin)

    def lost(self) -> None:
        self.consumer = None
        super().lost()

    def made(self, follow: bool) -> RecordStream:
        """Return a consumer that begins at ``position``."""
        raise NotImplementedError

    def act(self) -> None:
        if self.chance.random() < 0.1:
            self.position = 0  # a program without a memory
        try:
            follow = self.chance.random() < FOLLOWS_SHARE
            self.consumer = self.made(follow)
            for _ in range(self.chance.randint(1, READS_MAX)):
                self._read("records" if follow else self.chance.choice(WAYS), self.consumer)
                self.done()
        except OffsetOutOfRange as error:
            self._told_to_go_on(error.log_start_offset)
        except (CorruptBatch, CorruptLog, StorageError) as error:
            if isinstance(error, DirectoryMoved) and self.world.counts["disks replaced"]:
                raise  # another disk is there by now: no damage, the program goes elsewhere
            if not self._may_be_damaged():
                raise AssertionError("a consumer reads damage, and nothing is damaged") from None
            self.world.count("damage found by consumers")
        finally:
            self.busy = False
            consumer, self.consumer = self.consumer, None
            if consumer is not None and self.alive:
                consumer.close()
            elif consumer is not None:
                consumer.disown()

    def _may_be_damaged(self) -> bool:
        return any(each.rotten for each in self.world.machines)

    def _read(self, way: str, consumer: RecordStream) -> None:
        if way != "read" and not consumer.wait(timeout=WAIT_S):
            return
        if way == "batches":
            for batch in consumer.batches():
                self.take_batch(batch)
        elif way == "read":
            self._read_some(consumer)
        else:
            for record in consumer:
                self.take_record(record)
                if consumer.follow and self.chance.random() < LEAVES_SHARE:
                    return
        self.position = max(self.position, consumer.position)

    def _read_some(self, consumer: RecordStream) -> None:
        """Read so many records, or none of them."""
        began = consumer.position
        try:
            found = consumer.read(self.chance.randint(1, 5), timeout=WAIT_S)
        except TimedOut:
            require(
                consumer.position == began,
                f"I20: a consumer that read nothing at {began} goes on at {consumer.position}",
            )
            self._read("batches", consumer)
            return
        for record in found:
            self.take_record(record)

    # --- what it is held to -----------------------------------------------------------------------

    def take_batch(self, batch: Any) -> None:
        """I20: the next one, as it was committed."""
        world = self.world
        if world.survivors is not None:
            return
        world.oracle.was_read(batch.base_offset, batch.end_offset, batch.crc)
        require(
            batch.base_offset <= self.position < batch.end_offset,
            f"I20: a consumer at {self.position} is given [{batch.base_offset}, "
            f"{batch.end_offset})",
        )
        require(
            bytes(batch.data) == self._committed_bytes(batch.base_offset),
            f"I20: a consumer is given other bytes at {batch.base_offset} than were committed",
        )
        self.position = batch.end_offset
        world.count("batches handed out")
        self._rest()

    def take_record(self, record: Any) -> None:
        """I20: the next one that is no control record, as it was committed."""
        world = self.world
        if world.survivors is not None:
            return
        expected = self._next_offset()
        require(
            record.offset == expected,
            f"I20: a consumer at {self.position} is given record {record.offset}, not {expected}",
        )
        told = record.key, record.value, record.timestamp
        require(
            told == self._decoded[1][expected - self._decoded[0]],
            f"I20: a consumer is given another record at {record.offset} than was committed",
        )
        self.position = record.offset + 1
        world.count("records handed out")
        self._rest()

    def _rest(self) -> None:
        if self.rests and self.chance.random() < PAUSES_SHARE:
            self.host.sleep(self.chance.random() * WAIT_S)

    def _committed_bytes(self, offset: int) -> bytes:
        oracle = self.world.oracle
        index = bisect_right(oracle.committed, offset, key=lambda each: each.base_offset) - 1
        return oracle.bytes_of(oracle.committed[index])

    def _next_offset(self) -> int:
        """Return the offset of the first committed record from ``position`` on; -1: none."""
        offset, end = self.position, self.world.oracle.committed_end
        while offset < end:
            if not self._decoded[0] <= offset < self._decoded[0] + len(self._decoded[1]):
                (batch,) = pure.batches(self._committed_bytes(offset))
                told = [(each.key, each.value, each.timestamp) for each in batch.records()]
                records = [None if batch.is_control else each for each in told]
                self._decoded = batch.base_offset, records
            if self._decoded[1][offset - self._decoded[0]] is not None:
                return offset
            offset = self._decoded[0] + len(self._decoded[1])
        return -1

    def _told_to_go_on(self, start: int) -> None:
        """Go on where a log begins, which really begins there."""
        if self.world.survivors is not None:
            return
        reached = self.reached
        running = [each.process for each in self.world.machines]
        begin = max((each.log.log_start_offset for each in running if each is not None), default=0)
        require(
            reached < start <= self.world.oracle.committed_end
            and (start <= begin or None in running),
            f"I20: a consumer at {reached} is told that the log begins at {start}; it begins at "
            f"{begin}",
        )
        self.position = start
        self.world.count("consumers that were too late")


class RemoteReading(Reading):
    """Over TCP, from the leader."""

    def made(self, follow: bool) -> RemoteConsumer:
        fetch_bytes = self.chance.choice((1, 2_000, 20_000))
        return RemoteConsumer(
            self.cluster(), self.position, follow=follow, timeout=CALL_S, fetch_bytes=fetch_bytes
        )

    def _may_be_damaged(self) -> bool:
        return super()._may_be_damaged() or "corrupt_network" in self.world.settings.faults


class ReadingHost(LocalClientHost):
    """With the disks of the replicas."""

    def __init__(self, program: Any) -> None:
        super().__init__(program, program.world.local)
        self.disk: Any = ProgramDisk(program.world, program.chance, self.sleep)


class LocalReading(LocalClient, Reading):
    """From the segments of a replica of this host. Power that goes takes its readers with it."""

    host: Any  # a ReadingHost

    def begin_anew(self) -> None:
        super().begin_anew()
        self.host = ReadingHost(self)

    def end(self) -> None:
        super().end()
        self.host.disk.end()

    def lost_power(self, machine: Machine) -> None:
        if self.host.disk.reads(machine):
            self.world.count("consumers that lost their power")
            self.restart()

    def made(self, follow: bool) -> Consumer:
        return Consumer(
            self.directories(),
            self.position,
            follow=follow,
            timeout=CALL_S,
            cluster_id=self.world.cluster_id,
            host=self.host,
        )


class LocalWatcher(LocalClient, Reading):
    """Waits by a watch until a replica says that more is committed, which it then is (I6, D11)."""

    def act(self) -> None:
        world = self.world
        watch = Watch(self.chance.choice(world.machines).path, world.cluster_id, self.host)
        try:
            for _ in range(self.chance.randint(1, READS_MAX)):
                before = watch.high_watermark
                moved = watch.wait_beyond(before, WAIT_S)
                told = watch.high_watermark
                if world.survivors is None:
                    end = world.oracle.committed_end
                    require(told <= end, f"I6: a watch tells of {told}, committed is {end}")
                require(
                    told >= before and (not moved or told > before),
                    f"I6: a watch that told of {before} tells of {told}",
                )
                world.counts["high watermarks seen by watches"] += moved
                self.position = max(self.position, told)
                if not watch.alive():
                    return
        except PeerGone:
            world.count("watches of replicas that ended")
        finally:
            if self.alive:
                watch.close()
            else:
                watch.disown()

    @property
    def reached(self) -> int:
        return self.position


def check_caught_up(world: World, end: int) -> None:
    """L2: every consumer comes to the end of a log that is at rest, at some moment."""
    readers = [each for each in world.programs if isinstance(each, Reading)]
    behind = list(readers)

    def everybody() -> bool:
        behind[:] = [each for each in behind if each.reached < end]
        return not behind

    if not everybody() and not world.run(CATCH_UP_MS, everybody):
        for each in behind:
            each.rests = False  # else its rests alone may take longer, for a long log
        world.run(CATCH_UP_MS, everybody)
    for each in behind:
        require(
            False,
            f"L2: {type(each).__name__} {each.id} comes to {each.reached} only; {end} is committed",
        )
    world.counts["consumers that have everything"] += len(readers)
