"""A producer that tries again until it is told: each of its records comes once, in order (I23).

Several batches are under way at once. After any failure it begins again with the first that was not
acknowledged, at the presumed leader; what is in the log already is answered as if it came now.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kraftfast.errors import ErrorCode
from kraftfast.record import pure
from kraftfast.record.shapes import Record
from kraftfast.sim.clients.clients import ACKNOWLEDGED, Append, SimProducer
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.world import World

IN_FLIGHT_MAX = 5
PENDING_MAX = 20
PRODUCER_ID = 1_000


class SentBatch:
    """A batch that must be in the log exactly once, from the call to the acknowledgement."""

    __slots__ = ("number", "values", "data", "sequence", "floor", "base_offset", "end_offset")

    def __init__(self, number: int, values: list[bytes], sequence: int, world: World) -> None:
        self.number, self.values, self.sequence = number, values, sequence
        self.floor = world.acknowledged_end
        self.base_offset = self.end_offset = -1
        self.data = b""


class Attempt(Append):
    """One sending of a batch."""

    __slots__ = ("logical", "generation", "error")

    def __init__(self, producer: IdempotentProducer, logical: SentBatch) -> None:
        super().__init__(producer, logical.number, logical.values, logical.data, False)
        self.logical, self.generation = logical, producer.generation
        self.error = ErrorCode.NONE

    def refused_by(self, error: ErrorCode, now_us: int) -> None:
        """The log does not take it."""
        self.error = error
        self.refused(now_us)

    def _end(self, outcome: str, now_us: int) -> None:
        super()._end(outcome, now_us)
        producer = self.producer
        assert isinstance(producer, IdempotentProducer)
        producer.ended(self)


class IdempotentProducer(SimProducer):
    """Numbers its records. ``sent`` of ``pending`` are under way in this ``generation``."""

    pending: deque[SentBatch]  # not acknowledged, in order
    sent: int
    generation: int  # how often it began again
    done: list[SentBatch]

    def __init__(self, world: World, id: int) -> None:
        super().__init__(world, id)
        self.pending, self.done = deque(), []
        self.sent = self.generation = 0
        self._sequence = 0
        self._due = False

    def append(self) -> None:
        """Append one more batch, if not too many wait."""
        if len(self.pending) >= PENDING_MAX:
            return
        world, settings = self.world, self.world.settings
        values = []
        for _ in range(world.random.randint(1, settings.values_max)):
            self._number += 1
            values.append(b"p%d:%d:" % (self.id, self._number))
        self.put(pure.values_to_records(values, world.now_us // 1000))

    def put(self, records: list[Record]) -> SentBatch:
        """Append a batch of these records, once the log has taken those before it."""
        values = [record.value or b"" for record in records]
        logical = SentBatch(self._number, values, self._sequence, self.world)
        logical.data = pure.encode_batch(
            records,
            producer_id=PRODUCER_ID + self.id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += len(values)
        self.pending.append(logical)
        self._send_on()
        return logical

    @property
    def is_idle(self) -> bool:
        """Whether everything is acknowledged."""
        return not self.pending

    def _send_on(self) -> None:
        """Hand over what may be under way."""
        if self._due or self.sent >= min(len(self.pending), IN_FLIGHT_MAX):
            return
        running = [each.process for each in self.world.machines if each.process is not None]
        target = next((each for each in running if each.id == self.leader_id), None)
        if self.sent and target is not self._target:
            self._begin_again()
            return
        if target is None:
            if not running:
                self._begin_again()
                return
            target = self.world.random.choice(running)
        self.leader_id, self._target = target.id, target
        world = self.world
        while self.sent < min(len(self.pending), IN_FLIGHT_MAX):
            attempt = Attempt(self, self.pending[self.sent])
            self.sent += 1
            self.outstanding += 1
            self._handed_us = max(
                self._handed_us, self.world.now_us + self.world.random.randint(1, 500)
            )
            self.world.at(self._handed_us, self._hand_over, target, attempt)
            self.world.later(world.settings.silence_ms * 1000, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        if not attempt.outcome and attempt.generation == self.generation:
            self._begin_again()

    def _begin_again(self) -> None:
        """Begin again with the first that was not acknowledged, after a while."""
        self.generation += 1
        self.sent = 0
        if not self._due:
            self._due = True
            most_ms = self.world.settings.producer_backoff_ms
            self.world.later(self.world.random.randint(1, most_ms) * 1000, self._again_now)

    def _again_now(self) -> None:
        self._due = False
        self._send_on()

    def ended(self, attempt: Attempt) -> None:
        """Handle the outcome of an attempt; one of an earlier generation may still acknowledge."""
        if attempt.outcome == ACKNOWLEDGED:
            self._acknowledged(attempt)
        elif attempt.generation == self.generation:
            first = bool(self.pending) and attempt.logical is self.pending[0]
            require(
                not first or attempt.error is ErrorCode.NONE,
                f"I23: batch {attempt.number} of {self.id} is refused: {attempt.error.name}",
            )
            self.world.count("batches tried again")
            self._begin_again()
        self._send_on()

    def _acknowledged(self, attempt: Attempt) -> None:
        logical = attempt.logical
        if logical not in self.pending:
            return  # by another attempt
        if attempt.base_offset >= 0:
            logical.base_offset, logical.end_offset = attempt.base_offset, attempt.end_offset
        require(
            self.pending[0] is logical or attempt.generation != self.generation,
            f"I23: {self.id} is told of {logical.number} before {self.pending[0].number}",
        )
        while self.pending and logical in self.pending:  # what came before is in the log too
            self.done.append(self.pending.popleft())
            self.sent = max(self.sent - 1, 0)

    # --- at the end -------------------------------------------------------------------------------

    def check(self, places: dict[bytes, int]) -> int:
        """I23: hold every batch against the committed log; returns how many are there."""
        checked, last = 0, -1
        for logical in (*self.done, *self.pending):
            found = [places.get(value, -1) for value in logical.values]
            if found[0] < 0:
                require(
                    logical in self.pending,
                    f"I23: batch {logical.number} of {self.id} was acknowledged and is gone",
                )
                last = 1 << 62  # nothing of a later one may be there
                continue
            expected = list(range(found[0], found[0] + len(found)))
            require(found == expected, f"I23: batch {logical.number} is torn apart: {found}")
            require(found[0] > last, f"I23: {logical.values[0]!r} at {found[0]} comes after {last}")
            require(
                logical.base_offset in (-1, found[0]) and found[0] >= logical.floor,
                f"I23: {logical.values[0]!r} stands at {found[0]}, not {logical.base_offset}; "
                f"{logical.floor} was acknowledged before it was begun",
            )
            last = found[-1]
            checked += 1
        return checked


def check_exactly_once(producers: list[Any], places: dict[bytes, int]) -> int:
    """I23: all that was acknowledged is there, where it was said to be, and all in order."""
    return sum(
        producer.check(places) for producer in producers if isinstance(producer, IdempotentProducer)
    )
