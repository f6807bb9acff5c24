"""A producer as a program makes it by its quorum: in all ways to append, and with callbacks.

What it is told is held against the committed log at the end, and against what its callback gets.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import (
    Closed,
    InvalidOption,
    KraftfastError,
    TimedOut,
    UnknownOutcome,
)
from kraftfast.sim.clients.clients import ACKNOWLEDGED, FAILED, UNKNOWN, Told
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from kraftfast.client.producer.producer import Producer
    from kraftfast.client.quorum_base import Quorum
    from kraftfast.sim.clients.program import SimProgram
    from kraftfast.sim.world import World

RECORDS_MAX = 12
LARGE_BYTES = 300_000
"""More than the usual ring takes: the producer gets a larger one."""
SHORT_S = 0.01


class Producing:
    """One producer of a quorum.

    ``number``: of it in its program. ``waits``: whether outcomes are waited for one by one; not
    where the quorum may need what its program does next, as its operator.
    """

    # told: by ticket. batches: what the callback got. size: of the values.

    def __init__(
        self,
        program: SimProgram,
        quorum: Quorum,
        random: Random,
        number: int,
        waits: Callable[[], bool] = lambda: True,
    ) -> None:
        self._world: World = program.world
        self._program, self._waits = program, waits
        self._random, self._ring = random, (-program.id, number)
        self._quorum, self._name = quorum, f"q{program.id}:{number}"
        self._count = 0
        self._told: dict[int, Told] = {}
        self._batches: list[TicketedBatch] = []

    def run(self) -> None:
        """Make it, append, and close it. Raises KraftfastError."""
        random = self._random
        settings: dict[str, Any] = {
            "batch_bytes": random.choice((1_000, 16_000)),
            "window": random.choice((1, 4, 64)),
            "compression": random.choice((None, None, "gzip")),
            "idempotent": random.choice((None, False)),
            "record_bytes_max": random.choice((0, 0, LARGE_BYTES)),
            "connect": random.random() < 0.7,
        }
        if random.random() < 0.3:
            settings |= {"name": self._name, "idempotent": True}
        with self._quorum.producer(timeout=CALL_S, **settings) as producer:
            if settings.get("name"):
                last = producer.last_sequence(timeout=CALL_S)
                expect(last < 0, f"D22: a new name has {last} records")
            self._use(producer)
            producer.close()  # its tickets say what became of the records
        self._refused(producer)

    def ways(self) -> tuple[Callable[[Producer], None], ...]:
        """Return what it may do with its producer."""
        return self._one, self._waiting, self._many, self._many_nowait

    def _use(self, producer: Producer) -> None:
        random = self._random
        calls_back = random.random() < 0.7
        if calls_back:
            producer.on_commit(self._batches.append)
            if random.random() < 0.2:
                producer.on_commit(lambda _batch: None)
        try:
            for _ in range(random.randint(1, 4)):
                random.choice(self.ways())(producer)
            if random.random() < 0.5:
                producer.flush(timeout=CALL_S)
            for ticket in list(self._told):
                if not self._waits():
                    break
                self._await(producer, ticket)
        finally:
            for told in self._told.values():
                told.outcome = told.outcome or UNKNOWN
        if calls_back:
            producer.close(timeout=CALL_S)
            self._check_batches()

    def _value(self) -> bytes:
        self._count += 1
        large = self._random.random() < 0.05
        size = LARGE_BYTES if large else self._random.randint(0, 200)
        return f"{self._name}:{self._count}:".encode() + bytes(size)

    def _note(self, values: list[bytes]) -> list[Told]:
        told = [Told(self._world, value, self._ring) for value in values]
        self._world.history.extend(told)
        return told

    def _one(self, producer: Producer) -> None:
        (told,) = self._note([self._value()])
        try:
            ticket = producer.append(
                told.values[0], key=None, timestamp=self._world.now_us // 1000, timeout=CALL_S
            )
            self._told[ticket] = told
        except KraftfastError:
            told.outcome = FAILED
            raise

    def _waiting(self, producer: Producer) -> None:
        (told,) = self._note([self._value()])
        told.outcome = UNKNOWN
        offset = producer.append_wait(told.values[0], timeout=self._random.choice((CALL_S, 0.05)))
        self._acknowledge(told, offset)

    def _many(self, producer: Producer) -> None:
        told = self._note([self._value() for _ in range(self._random.randint(1, RECORDS_MAX))])
        for each in told:
            each.outcome = UNKNOWN
        values = [each.values[0] for each in told]
        for each, offset in zip(told, producer.append_many(values, timeout=CALL_S), strict=True):
            self._acknowledge(each, offset)

    def _many_nowait(self, producer: Producer) -> None:
        told = self._note([self._value() for _ in range(self._random.randint(1, RECORDS_MAX))])
        for each in told:
            each.outcome = UNKNOWN
        values = [each.values[0] for each in told]
        tickets = producer.append_many_nowait(values, timeout=CALL_S)
        found = [ticket for part in tickets for ticket in part]
        for ticket, each in zip(found, told, strict=True):
            each.outcome = ""
            self._told[ticket] = each

    def _await(self, producer: Producer, ticket: int) -> None:
        told = self._told[ticket]
        try:
            offset = producer.wait(ticket, timeout=self._random.choice((CALL_S, SHORT_S)))
        except (UnknownOutcome, TimedOut):
            told.outcome = UNKNOWN
        except KraftfastError:
            told.outcome = FAILED
        else:
            expect(producer.resolved > ticket, f"D24: ticket {ticket} is resolved, and is not")
            self._acknowledge(told, offset)

    def _acknowledge(self, told: Told, offset: int) -> None:
        told.base_offset, told.end_offset, told.outcome = offset, offset + 1, ACKNOWLEDGED
        self._world.note_acknowledged(told)

    def _check_batches(self) -> None:
        """The callback got runs of tickets in order, and of each what its wait said."""
        ends = [0, *(each.end_ticket for each in self._batches)]
        for before, batch in zip(ends, self._batches, strict=False):
            expect(before <= batch.first_ticket, f"callbacks go back to {batch.first_ticket}")
            for ticket in range(batch.first_ticket, batch.end_ticket):
                told = self._told.get(ticket)
                if told is None or told.outcome != ACKNOWLEDGED or batch.error is not None:
                    continue
                offset = batch.base_offset + ticket - batch.first_ticket
                expect(
                    offset == told.base_offset,
                    f"I23: ticket {ticket} is at {told.base_offset}; its callback got {offset}",
                )

    def _refused(self, producer: Producer) -> None:
        """What is closed appends no more, and nothing is asked for that cannot be."""
        for call, kind in (
            (lambda: producer.append(b"late"), Closed),
            (lambda: self._quorum.producer(window=0), InvalidOption),
        ):
            try:
                call()
            except kind:
                continue
            expect(False, f"{kind.__name__} was to be raised")
