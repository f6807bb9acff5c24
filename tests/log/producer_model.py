"""What a log knows of producers, in plain Python: worked out anew from everything that it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftfast import limits
from kraftfast.errors import ErrorCode
from kraftfast.log.idempotence.forgotten import Forgotten

SPACE = 2**31
CLOCK_ID = 2**62
NAMED_BIT = 2**30


class Appended(NamedTuple):
    """A batch of a producer."""

    id: int
    epoch: int
    sequence: int
    records: int
    offset: int = -1

    @property
    def end(self) -> int:
        return self.offset + self.records


class Named(NamedTuple):
    """A record that gives a name to a producer."""

    id: int
    epoch: int
    resumes: bool
    name: str
    offset: int = -1
    records: int = 1


@dataclass
class Known:
    """One producer: every batch of its run of sequences, in order."""

    id: int
    epoch: int = 0
    name: str | None = None
    touched: int = -1
    batches: list[Appended] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        return (self.batches[-1].sequence + self.batches[-1].records) % SPACE


class Memory(dict[int, Known]):
    """Those that are known; ``forgotten``: of the others, the highest epoch by id.

    ``name_lost``: the last offset at which any of the names was used that are known no more.
    """

    def __init__(self) -> None:
        self.forgotten: dict[int, int] = {}
        self.name_lost = -1

    def forget(self, id: int) -> None:
        gone = self.pop(id)
        self.forgotten[id] = max(self.forgotten.get(id, -1), gone.epoch)

    def may_begin(self, id: int, epoch: int, leader_epoch: int) -> bool:
        if id in self.forgotten:
            return epoch > self.forgotten[id]
        if id >= CLOCK_ID:
            return any(id < other for other in self.forgotten)
        same = [each for each in self.forgotten if each < CLOCK_ID and not (each ^ id) & NAMED_BIT]
        return id < max(same, default=-1) or id >> 31 <= leader_epoch


def replay(entries: Iterable[Appended | Named], producers_max: int) -> Memory:
    """The producers known behind these entries of the log."""
    known = Memory()
    for entry in entries:
        if isinstance(entry, Named):
            for other in [each for each in known.values() if each.name == entry.name]:
                if other.id != entry.id:  # another id for all that it was
                    known.forget(other.id)
                    other.id = entry.id
                    known[entry.id] = other
        producer = known.setdefault(entry.id, Known(entry.id))
        if isinstance(entry, Named):
            producer.name, producer.epoch = entry.name, entry.epoch
            if not entry.resumes:
                producer.batches = []
        else:
            follows = entry.epoch == producer.epoch and entry.sequence == producer.next_sequence
            producer.epoch = entry.epoch
            producer.batches = [*(producer.batches if follows else []), entry]
        producer.touched = entry.offset + entry.records - 1
        if len(known) > producers_max:
            others = [each for each in known.values() if each.id != entry.id]
            nameless = [each for each in others if each.name is None]
            oldest = min(nameless or others, key=lambda each: each.touched)
            known.forget(oldest.id)
            if oldest.name is not None:
                known.name_lost = max(known.name_lost, oldest.touched)
    return known


def one_by_one(found: Forgotten) -> dict[int, int]:
    """What a log says of those that it has forgotten, so few that it knows each."""
    assert set(found.epochs) == {-1}
    return {id: epoch for kind in found.apart for id, epoch in kind.items()}


class Verdict(NamedTuple):
    """What a leader says to a batch."""

    error: ErrorCode
    offsets: list[int] = []
    """Of a duplicate: where its records stand."""
    remembered: bool = False
    """It is among the last batches, so that its offset is told."""


def judge(known: Memory, batch: Appended, leader_epoch: int = 1) -> Verdict:
    """What is to be said to a batch that comes now."""
    producer = known.get(batch.id)
    if producer is None:
        if not known.may_begin(batch.id, batch.epoch, leader_epoch):
            return Verdict(ErrorCode.UNKNOWN_PRODUCER_ID)
        return Verdict(ErrorCode.UNKNOWN_PRODUCER_ID if batch.sequence else ErrorCode.NONE)
    if batch.epoch < producer.epoch:
        return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
    fresh = 0 if batch.epoch > producer.epoch else producer.next_sequence
    if batch.sequence == fresh:
        return Verdict(ErrorCode.NONE)
    wanted = [(batch.sequence + i) % SPACE for i in range(batch.records)]
    held = {
        (each.sequence + i) % SPACE: each.offset + i
        for each in producer.batches
        for i in range(each.records)
    }
    if batch.epoch > producer.epoch or not all(sequence in held for sequence in wanted):
        return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    last = producer.batches[-limits.PRODUCER_BATCHES :]
    remembered = any(each[2:4] == batch[2:4] for each in last)
    offsets = [held[sequence] for sequence in wanted]
    return Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offsets, remembered)
