"""Clients that append and read, and the answers that they got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.messages import NO_REPLICA, FetchRequest, FetchResponse, ReadBarrierResponse
from kraftfast.errors import CorruptBatch, ErrorCode
from kraftfast.record import pure
from kraftfast.sim.require import require
from kraftfast.types import NO_EPOCH

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.log.log import Log
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

WINDOW = 40
BARRIER_TIMEOUT_MS = 1_000
BARRIER_LATE_US = 500_000

ACKNOWLEDGED, FAILED, UNKNOWN = "acknowledged", "failed", "unknown"


class Append:
    """One batch of a producer, from the call to its outcome.

    Invariants: ``outcome`` is set once; ``base_offset`` and ``end_offset`` once a log took it.
    """

    __slots__ = (
        "producer",
        "number",
        "values",
        "batch",
        "poisoned",
        "invoked_us",
        "floor",
        "base_offset",
        "end_offset",
        "outcome",
        "ended_us",
        "ring",
    )

    def __init__(
        self, producer: SimProducer, number: int, values: list[bytes], batch: bytes, poisoned: bool
    ) -> None:
        self.producer, self.number, self.values = producer, number, values
        self.batch, self.poisoned = batch, poisoned
        self.invoked_us = producer.world.now_us
        self.floor = producer.world.acknowledged_end  # acknowledged before this was invoked
        self.base_offset = self.end_offset = -1
        self.outcome = ""
        self.ended_us = -1
        self.ring = (producer.id, producer.ring)

    def taken(self, base_offset: int, end_offset: int) -> None:
        """Note that the leader's log has it."""
        self.base_offset, self.end_offset = base_offset, end_offset

    def acknowledged(self, now_us: int) -> None:
        """Committed."""
        self._end(ACKNOWLEDGED, now_us)
        self.producer.world.note_acknowledged(self)

    def refused(self, now_us: int, leader_id: int = -1) -> None:
        """Note that it was not appended, for certain."""
        self.producer.leader_id = leader_id
        self._end(FAILED, now_us)

    def refused_by(self, error: ErrorCode, now_us: int) -> None:
        """The log takes every batch that names no producer."""
        raise AssertionError(f"a batch without a sequence is refused: {error.name}")

    def lost_sight_of(self, now_us: int) -> None:
        """Note that it may or may not be committed."""
        self.producer.leader_id = -1
        self._end(UNKNOWN, now_us)

    def _end(self, outcome: str, now_us: int) -> None:
        assert not self.outcome, f"{self.outcome} already, now {outcome}"
        self.outcome, self.ended_us = outcome, now_us
        self.producer.outstanding -= 1


class Told:
    """One record of a producer, from the call to its outcome: see :class:`Append`.

    ``ring``: its program, negative, and which of the producers that were made there.
    """

    __slots__ = ("values", "floor", "base_offset", "end_offset", "outcome", "ring", "ticket")

    def __init__(self, world: World, value: bytes, ring: tuple[int, int]) -> None:
        self.values, self.ring = [value], ring
        self.floor = world.acknowledged_end
        self.base_offset = self.end_offset = self.ticket = -1
        self.outcome = ""


class SimProducer:
    """Appends values that no other client appends: ``p3:17:...`` is the 17th of producer 3."""

    leader_id: int  # the presumed leader, -1: none
    outstanding: int  # batches without an outcome
    poisonous: bool  # now and then it sends a batch that does not check
    running: bool  # appends of its own account
    ring: int  # how often it has changed the process that it appends to: each has a ring, in order

    def __init__(self, world: World, id: int) -> None:
        self.world, self.id = world, id
        self.leader_id = -1
        self.outstanding = 0
        self.poisonous = False
        self.running = True
        self.ring = 0
        self._target: Process | None = None
        self._number = 0
        self._handed_us = 0

    @property
    def is_idle(self) -> bool:
        """Whether every batch has its outcome."""
        return not self.outstanding

    def start(self) -> None:
        """Append from now on, again and again."""
        mean_us = self.world.settings.append_every_ms * 1000
        self.world.later(1 + int(self.world.random.expovariate(1.0) * mean_us), self._again)

    def _again(self) -> None:
        if self.running:
            if self.outstanding < WINDOW:
                self.append()
            self.start()

    def append(self) -> None:
        """Hand one batch to the presumed leader."""
        world, random = self.world, self.world.random
        running = [machine.process for machine in world.machines if machine.process is not None]
        if not running:
            return
        leader = [process for process in running if process.id == self.leader_id]
        target = leader[0] if leader else random.choice(running)
        self.leader_id = target.id
        if target is not self._target:
            self._target, self.ring = target, self.ring + 1
        append = self._next(target)
        self.outstanding += 1
        world.history.append(append)
        self._handed_us = max(self._handed_us, world.now_us + random.randint(1, 500))
        world.at(self._handed_us, self._hand_over, target, append)

    def _hand_over(self, target: Process, append: Append) -> None:
        if target.alive:
            target.offer(append)
        else:
            append.refused(self.world.now_us)

    def _next(self, target: Process) -> Append:
        world, random = self.world, self.world.random
        settings = world.settings
        poisoned = self.poisonous and random.random() < 0.1
        values = []
        for _ in range(random.randint(1, settings.values_max)):
            self._number += 1
            name = b"p%d:%d:" % (self.id, self._number)
            values.append(name + bytes(random.randint(0, settings.value_bytes_max)))
        if poisoned:
            values = [b"poison:" + self._forged(target)]
        now_ms = world.now_us // 1000
        room = settings.segment_bytes - 1_000
        while True:
            batch = pure.encode_batch(pure.values_to_records(values, now_ms))
            if len(batch) <= room:
                break
            values = values[: len(values) // 2] or [values[0][: room // 2]]
        if poisoned:
            place = random.randrange(61, len(batch))
            batch = batch[:place] + bytes([batch[place] ^ 0x40]) + batch[place + 1 :]
        return Append(self, self._number, values, batch, poisoned)

    def _forged(self, target: Process) -> bytes:
        """Well-formed batches that would fit the target's log, as a value (D20)."""
        random, log = self.world.random, target.log
        forged = b""
        for ahead in range(random.randint(1, 4)):
            records = pure.values_to_records([b"forged"], 0, log.end_offset + ahead)
            forged += pure.encode_batch(records, leader_epoch=target.core.epoch)
            forged += bytes(random.randint(0, 9))
        return forged


class SimReader:
    """A consumer without a replica id: reads what is committed, from the leader (I20)."""

    position: int  # the next offset it reads

    def __init__(self, world: World) -> None:
        self.world = world
        self.position = 0

    def start(self) -> None:
        """Read from now on, again and again."""
        self.world.later(self.world.random.randint(1, 60_000), self._again)

    def _again(self) -> None:
        running = [each.process for each in self.world.machines if each.process is not None]
        if running:
            target = self.world.random.choice(running)
            target.enter(self._ask, target)
        self.start()

    def _ask(self, target: Process) -> None:
        request = FetchRequest(
            epoch=NO_EPOCH,
            replica=NO_REPLICA,
            fetch_offset=self.position,
            last_fetched_epoch=NO_EPOCH,
            max_wait_ms=self.world.random.choice((0, 50)),
            max_bytes=self.world.random.choice((1, 100_000)),
        )
        target.step(ev.RequestReceived(ReaderSource(self, target, request), request))


class BarrierReader:
    """Asks any replica up to where it must read to see all that was committed before."""

    questions: list[SimQuestion]
    running: bool  # asks of its own account

    def __init__(self, world: World) -> None:
        self.world = world
        self.questions = []
        self.running = True

    def start(self) -> None:
        """Ask from now on, again and again."""
        mean_us = self.world.settings.barrier_every_ms * 1000
        self.world.later(1 + int(self.world.random.expovariate(1.0) * mean_us), self._again)

    def _again(self) -> None:
        if not self.running:
            return
        running = [each.process for each in self.world.machines if each.process is not None]
        if running:
            self.ask(self.world.random.choice(running))
        self.start()

    def ask(self, target: Process) -> SimQuestion:
        """Ask one replica one question."""
        question = SimQuestion(self.world, target)
        self.questions.append(question)
        target.enter(target.step, ev.ReadBarrierRequested(question, BARRIER_TIMEOUT_MS))
        return question

    def check(self) -> None:
        """L2: every question has its answer in time, or the process it was put to is gone."""
        for each in self.questions:
            if each.offset is None and each.process.alive:
                due_us = each.asked_us + BARRIER_TIMEOUT_MS * 1000
                late = self.world.now_us > due_us + BARRIER_LATE_US
                require(not late, f"L2: {each.process.id} never answered a read barrier")


class SimQuestion:
    """One read barrier, from the question to its answer."""

    __slots__ = ("world", "process", "floor", "asked_us", "offset", "error")

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process
        self.floor = world.oracle.committed_end  # a reader may have seen all of it
        self.asked_us = world.now_us
        self.offset: int | None = None
        self.error = ErrorCode.NONE

    def failed(self, error: Exception) -> None:
        """Fail: nothing that a session raises is expected here."""
        raise error

    def reply(self, answer: ReadBarrierResponse) -> None:
        """Check that the offset covers everything committed before the question was asked."""
        offset, error = answer.offset, answer.error
        require(self.offset is None, "a read barrier is answered twice")
        self.offset, self.error = offset, error
        self.world.count("read barriers" if error is ErrorCode.NONE else "read barriers refused")
        if error is ErrorCode.NONE:
            require(
                self.floor <= offset <= self.world.oracle.committed_end,
                f"a read barrier of {self.process.id} says {offset}; {self.floor} was committed "
                f"before it was asked for, {self.world.oracle.committed_end} is committed",
            )


class ReaderSource:
    """Where a reader's answer goes: it reads at once what the leader's log shows."""

    correlation = 1

    def __init__(self, reader: SimReader, target: Process, request: FetchRequest) -> None:
        self.reader, self.target, self.request = reader, target, request
        self.peer_id = NO_REPLICA.id

    def failed(self, error: Exception) -> None:
        """Fail: nothing that a session raises is expected here."""
        raise error

    def answer_fetch(self, response: FetchResponse, log: Log, effect: AnswerFetch) -> None:
        """Answer with the log's bytes."""
        self.reply(response, read_answer(self.target, effect))

    def reply(self, response: FetchResponse, records: Any = None) -> None:
        """Check the answer: only committed records, in order, the same for every reader."""
        reader = self.reader
        if response.partition_error == ErrorCode.OFFSET_OUT_OF_RANGE:
            reader.position = max(reader.position, self.target.log.log_start_offset)
        if response.partition_error != ErrorCode.NONE or records is None:
            return
        for batch in checked(records, self.target):
            reader.world.oracle.was_read(batch.base_offset, batch.end_offset, batch.crc)
            if batch.base_offset <= reader.position < batch.end_offset:
                reader.position = batch.end_offset


def checked(data: bytes, process: Process) -> list[pure.Batch]:
    """Return the batches that were read; none if the disk that they come from is damaged."""
    try:
        batches = list(pure.batches(data))
        for batch in batches:
            batch.check()
    except CorruptBatch:
        if not process.machine.rotten:
            raise
        process.world.count("damage found by a reader")
        return []
    return batches


def read_answer(process: Process, effect: AnswerFetch) -> bytes | None:
    """Read what answers a Fetch that is none of a stream, perhaps cut short; None: nothing."""
    if effect.read_offset < 0:
        return None
    bound = min(effect.max_bytes, process.settings.fetch_max_bytes)
    found = process.log.locate(effect.read_offset, bound, effect.end_offset_max)
    if found is None:
        return None
    segment, position, length = found
    return bytes(segment.file.view(position, position + length))
