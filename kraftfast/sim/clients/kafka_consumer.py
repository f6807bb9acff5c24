"""A consumer like Kafka's: it lists offsets, asks where an epoch ends, then fetches (I20).

The answers are those of the node's own ``PartitionLeader``. Any process may be asked that says it
leads: a deposed one too, which knows less, and a fresh one, which has committed nothing yet.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from kraftfast.errors import CorruptLog, ErrorCode
from kraftfast.node.tcp.partition_leader import EARLIEST, LATEST, OffsetAt, PartitionLeader
from kraftfast.sim.clients.clients import checked
from kraftfast.sim.require import require
from kraftfast.types import NO_EPOCH

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

EVERY_US = 30_000
VERSION = 7  # of ListOffsets


def found(search: Generator[int, None, tuple[ErrorCode, OffsetAt]]) -> tuple[ErrorCode, OffsetAt]:
    """Take all turns of a search, and return what it found."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            answer: tuple[ErrorCode, OffsetAt] = end.value
            return answer


class KafkaConsumer:
    """Reads on from ``position``; ``last_epoch`` is of the record before it, -1 at first."""

    position: int
    last_epoch: int

    def __init__(self, world: World) -> None:
        self.world = world
        self.position, self.last_epoch = 0, NO_EPOCH

    def start(self) -> None:
        """Ask from now on, again and again."""
        self.world.later(self.world.random.randint(1, EVERY_US), self._again)

    def _again(self) -> None:
        running = [each.process for each in self.world.machines if each.process is not None]
        leading = [each for each in running if each.core.role == "leader"]
        if leading:
            target = self.world.random.choice(leading)
            target.enter(self.ask, target)
        self.start()

    def ask(self, process: Process) -> None:
        """Ask everything a client asks after it has learned who leads."""
        door, epoch = PartitionLeader(process), process.core.epoch
        if door.refusal(epoch) is not ErrorCode.NONE:
            return
        world, oracle = self.world, self.world.oracle
        newest = epoch == max(oracle.leaders)
        world.count("leaders asked by consumers")
        if newest and door.lags:
            world.count("fresh leaders asked by consumers")
        require(
            door.high_watermark <= oracle.committed_end,
            f"I20: {process.id} tells consumers {door.high_watermark}, committed is "
            f"{oracle.committed_end}",
        )
        self._list(process, door, newest)
        if newest:
            self._compare(process, door)
        self._fetch(process, door)

    def _list(self, process: Process, door: PartitionLeader, newest: bool) -> None:
        """ListOffsets: a fresh leader says that it does not know yet, no less (KIP-207)."""
        oracle = self.world.oracle
        error, (start, _, _) = found(door.offset_at(EARLIEST, VERSION, True))
        require(
            error is ErrorCode.NONE and start == process.log.log_start_offset,
            f"I20: {process.id} says that its log begins at {start}: {error.name}",
        )
        error, (latest, _, _) = found(door.offset_at(LATEST, VERSION, True))
        if error is not ErrorCode.NONE:
            committed = oracle.committed[-1].epoch if oracle.committed else NO_EPOCH
            require(
                door.lags and (committed < process.core.epoch or not newest),
                f"I20: {process.id} does not tell its latest offset: {error.name}",
            )
            return
        least = self.world.acknowledged_end if newest else 0
        require(
            least <= latest <= self.world.oracle.committed_end,
            f"I20: {process.id} says that the latest offset is {latest}; {least} is acknowledged, "
            f"{self.world.oracle.committed_end} committed",
        )

    def _compare(self, process: Process, door: PartitionLeader) -> None:
        """OffsetForLeaderEpoch, and the check of a Fetch: what was read is never taken back."""
        if self.position <= process.log.log_start_offset or self.last_epoch == NO_EPOCH:
            return
        epoch, end_offset = door.end_offset_for_epoch(self.last_epoch)
        require(
            epoch == self.last_epoch and end_offset >= self.position,
            f"I20: {process.id} says that epoch {self.last_epoch} ends at {end_offset} of {epoch}; "
            f"a consumer read up to {self.position} in it",
        )
        for last_epoch in (NO_EPOCH, self.last_epoch):
            error, diverging = door.check_position(self.position, last_epoch)
            require(
                error is ErrorCode.NONE and diverging is None,
                f"I20: {process.id} sends a consumer away from {self.position}, which it read up "
                f"to: {error.name}, {diverging}",
            )

    def _fetch(self, process: Process, door: PartitionLeader) -> None:
        """Fetch: only what is committed, in order."""
        if self.position < process.log.log_start_offset:
            self.position, self.last_epoch = process.log.log_start_offset, NO_EPOCH
        if self.position > process.log.end_offset:
            return  # a deposed leader
        try:
            data = door.read(self.position, self.world.random.choice((1, 20_000)))
        except CorruptLog:
            require(process.machine.rotten, f"L5: {process.id} finds damage where none is")
            self.world.count("damage found for a consumer")
            return  # another one is to lead
        for batch in checked(data, process):
            self.world.oracle.was_read(batch.base_offset, batch.end_offset, batch.crc)
            if batch.base_offset <= self.position < batch.end_offset:
                self.position, self.last_epoch = batch.end_offset, batch.leader_epoch
