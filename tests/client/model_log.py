"""A quorum's log as a producer meets it, in plain Python.

It appends what comes in order, answers what came before with its first offset, and loses any part
of what is not committed when a leader is lost. Clients' property tests run against it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from kraftfast.errors import ErrorCode
from kraftfast.record.batch import batch_at
from tests.client.kit import values_of

SEQUENCES = 1 << 31


@dataclass(slots=True)
class Stored:
    """A batch in the log."""

    base_offset: int
    values: list[bytes]
    producer: tuple[int, int, int]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(slots=True)
class Verdict:
    """What becomes of a batch: where it stands, or Kafka's code."""

    error: int = 0
    base_offset: int = -1
    end_offset: int = -1


class ModelLog:
    """The log of whoever leads; ``committed``: records below are in every leader's log."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.stored: list[Stored] = []
        self.committed = 0
        self.names: dict[str, tuple[int, int]] = {}

    @property
    def end_offset(self) -> int:
        return self.stored[-1].end_offset if self.stored else 0

    def append(self, data: bytes) -> Verdict:
        """Judge one batch by its producer's sequence, and append it if it is next."""
        batch = batch_at(data)
        id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        values: Any = values_of(data)
        if id >= 0:
            mine = [each for each in self.stored if each.producer[0] == id]
            latest = max((each.producer[1] for each in mine), default=epoch)
            if epoch < latest:
                return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
            mine = [each for each in mine if each.producer[1] == epoch]
            for each in mine:
                if each.producer[2] == sequence:
                    assert each.values == values, "one sequence stands for one batch"
                    return Verdict(0, each.base_offset, each.end_offset)
            behind = (mine[-1].producer[2] + len(mine[-1].values)) % SEQUENCES if mine else 0
            if sequence != behind:
                return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        base = self.end_offset
        self.stored.append(Stored(base, values, (id, epoch, sequence)))
        return Verdict(0, base, base + len(values))

    def commit_some(self) -> None:
        """The majority has more of it, or less than all."""
        ends = [each.end_offset for each in self.stored if each.end_offset > self.committed]
        if ends:
            self.committed = self.chance.choice(ends)

    def lose_some(self) -> None:
        """Another replica leads: it has what is committed and a part of the rest."""
        sure = sum(each.end_offset <= self.committed for each in self.stored)
        del self.stored[self.chance.randint(sure, len(self.stored)) :]

    def records(self) -> list[tuple[int, bytes]]:
        """(offset, value) of all that stands in it."""
        return [
            (stored.base_offset + number, value)
            for stored in self.stored
            for number, value in enumerate(stored.values)
        ]
