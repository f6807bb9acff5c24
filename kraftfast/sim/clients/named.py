"""A producer with a name: the next with this name goes on behind its last record (D22).

The node's own ``ProducerIds`` grants names. The producer ends now and then and forgets all; what it
is told then has to be what the committed log holds: every record of the name once, in order, none
of what was acknowledged missing. What its former processes sent late is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.node.requests.producer_ids import Asked, Granted
from kraftfast.record import pure
from kraftfast.sim.clients.idempotent import PENDING_MAX, Attempt, IdempotentProducer, SentBatch
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

AGAIN_MS = 50
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class NamedProducer(IdempotentProducer):
    """Its records are named by their sequences: ``n1:17:`` is the 18th of name 1.

    Invariants: ``granted`` is None while it has no name; ``acknowledged`` never falls.
    """

    granted: Granted | None
    grants: list[Granted]
    fences: int  # how often the log refused the epoch under which it appends
    acknowledged: int  # the sequence of the last record of which any of its processes learnt

    def __init__(self, world: World, id: int) -> None:
        super().__init__(world, id)
        self.granted, self.grants, self.acknowledged = None, [], -1
        self.fences = 0
        self._question = 0  # the number of the last one; 0 while none is open
        self._questions = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self.pending and not self._question

    def restart(self) -> None:
        """Begin another process after its own ended: it knows its name, and nothing else."""
        self.generation += 1
        self.pending.clear()
        self.sent, self.granted = 0, None
        self._take()

    # --- the name ---------------------------------------------------------------------------------

    def _take(self) -> None:
        """Ask a replica for the name."""
        running = [each.process for each in self.world.machines if each.process is not None]
        self._questions += 1
        number = self._question = self._questions
        self.world.later(self.world.settings.answer_ms * 1000, self._ask_again, number)
        if running:
            target = self.world.leader() or self.world.random.choice(running)
            target.enter(self._ask, target, number)

    def _ask(self, target: Process, number: int) -> None:
        asked = Asked(f"name-{self.id}", resumes=True)
        target.producer_ids.ask(asked, lambda granted: self._answered(number, granted, target))

    def _ask_again(self, number: int) -> None:
        if number == self._question:
            self._take()

    def _answered(self, number: int, granted: Granted, target: Process) -> None:
        if number != self._question:
            return  # it was given up
        if granted.error is not ErrorCode.NONE:
            delay_us = self.world.random.randint(1, AGAIN_MS) * 1000
            self.world.later(delay_us, self._ask_again, number)
            return
        require(
            granted.last_sequence >= self.acknowledged,
            f"D22: name {self.id} is told {granted.last_sequence}; "
            f"{self.acknowledged} was acknowledged",
        )
        require(
            granted.last_offset < target.door.answered,
            f"I23: name {self.id} is told of {granted.last_offset}, which {target.id} does not "
            f"acknowledge: it does up to {target.door.answered}",
        )
        self._question = 0
        self.granted, self.leader_id = granted, target.id  # a deposed one knows less of the name
        self.grants.append(granted)
        self.world.count("names taken")
        self._sequence = granted.last_sequence + 1

    # --- its records ------------------------------------------------------------------------------

    def append(self) -> None:
        """Append one more batch, once it has its name."""
        granted, world = self.granted, self.world
        if granted is None:
            if not self._question:
                self._take()
            return
        if len(self.pending) >= PENDING_MAX:
            return
        count = world.random.randint(1, world.settings.values_max)
        sequences = range(self._sequence, self._sequence + count)
        values = [b"n%d:%d:" % (self.id, each) for each in sequences]
        logical = SentBatch(self._sequence, values, self._sequence, world)
        records = pure.values_to_records(values, world.now_us // 1000)
        logical.data = pure.encode_batch(
            records,
            producer_id=granted.id,
            producer_epoch=granted.epoch,
            base_sequence=self._sequence,
        )
        self._sequence += count
        self.pending.append(logical)
        self._send_on()

    def ended(self, attempt: Attempt) -> None:
        """Note the outcome of an attempt; a fenced producer takes its name again."""
        if attempt.error in FENCED:
            if attempt.generation == self.generation:
                self.world.count("names fenced")
                self.fences += 1
                given_up = self._questions - len(self.grants)
                require(
                    self.fences <= given_up,
                    f"D22: name {self.id} is fenced {self.fences} times, and {given_up} of its "
                    f"questions may have granted it to somebody else",
                )
                self.restart()
            return
        super().ended(attempt)

    def _acknowledged(self, attempt: Attempt) -> None:
        last = attempt.logical.sequence + len(attempt.logical.values) - 1
        self.acknowledged = max(self.acknowledged, last)
        super()._acknowledged(attempt)

    # --- at the end -------------------------------------------------------------------------------

    def check(self, places: dict[bytes, int]) -> int:
        """I23, D22: its records must be in the log once, in order, at the offsets it was told."""
        prefix = b"n%d:" % self.id
        found = [value for value in places if value.startswith(prefix)]
        found.sort(key=lambda value: places[value])
        expected = [b"n%d:%d:" % (self.id, sequence) for sequence in range(len(found))]
        require(found == expected, f"I23: the records of name {self.id} are {found}")
        require(
            self.acknowledged < len(found),
            f"I23: record {self.acknowledged} of name {self.id} was acknowledged, and is gone",
        )
        for granted in self.grants:
            last = b"n%d:%d:" % (self.id, granted.last_sequence)
            require(
                granted.last_sequence < 0 or places.get(last, -1) == granted.last_offset,
                f"D22: name {self.id} is told that {last!r} stands at {granted.last_offset}, "
                f"it stands at {places.get(last)}",
            )
        return len(found)
