"""Transactions in a Kafka partition's log: which records were aborted, and where one is open.

A batch says that it belongs to a transaction, and of which producer; a control batch behind it says
how that ended. Source: Kafka's ``ProducerStateManager`` and ``EndTransactionMarker`` (KIP-98).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kraftfast.errors import CorruptBatch
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.reading.reader import LogReader
from kraftfast.record.shapes import CONTROL, TRANSACTIONAL

ABORT, COMMIT = 0, 1
CHUNK_BATCHES = 1 << 14

Aborted = tuple[int, int, int]
"""Producer id, first offset, end offset: its transactional batches there are void."""


@dataclass(slots=True)
class _Reached:
    """How far a segment was walked."""

    position: int = 0
    offset: int = 0


class Transactions:
    """Those of one log, asked for again and again: only what came since is walked.

    Nothing before the first offset that was asked for is looked at.
    """

    # reader: lists the segments. reached: by base offset. whole: those walked to their end.
    # aborted: found so far. open: first offset of each producer's transaction that has not ended.

    def __init__(self, log_path: str) -> None:
        self.reader = LogReader(log_path)
        self.reached: dict[int, _Reached] = {}
        self.whole: set[int] = set()
        self.aborted: list[Aborted] = []
        self.open: dict[int, int] = {}

    def stable_end(self, start: int, end: int) -> int:
        """Return up to where every transaction has ended, ``end`` at most. Raises StorageError.

        ``start``: where reading begins. Kafka calls it the last stable offset.
        """
        bases = [base for base, _ in self.reader.segments()]
        for base, after in zip(bases, [*bases[1:], None]):
            wanted = base < end and base not in self.whole and (after is None or after > start)
            if wanted and self._walk(base, end) and after is not None:
                self.whole.add(base)
        return min([end, *self.open.values()])

    def between(self, start: int, end: int) -> tuple[Aborted, ...]:
        """Return what was aborted in a range, as far as it was walked."""
        return tuple(each for each in self.aborted if each[1] < end and each[2] > start)

    def _walk(self, base: int, end: int) -> bool:
        """Walk on in a segment, below ``end``; return whether all that is there was met."""
        reached = self.reached.setdefault(base, _Reached(0, base))
        try:
            segment = HeldSegment(self.reader.log_path, base)
        except FileNotFoundError:
            return True  # given up meanwhile
        limit = segment.limit
        while reached.position < limit:
            found = segment.headers(reached.position, limit, batches_max=CHUNK_BATCHES)
            rows = found.rows[found.rows["base_offset"] < end]
            for row in rows[rows["attributes"] & TRANSACTIONAL != 0]:
                self._meet(segment, row)
            if len(rows):
                last = rows[-1]
                reached.position = int(last["position"] + last["size"])
                reached.offset = int(last["end_offset"])
            if len(rows) < len(found.rows):
                return False
            if not len(rows):
                break
        return True

    def _meet(self, segment: HeldSegment, row: Any) -> None:
        producer, base = int(row["producer_id"]), int(row["base_offset"])
        if not row["attributes"] & CONTROL:
            self.open.setdefault(producer, base)
            return
        first = self.open.pop(producer, base)
        if _marker(segment, int(row["position"])) == ABORT and first < base:
            self.aborted.append((producer, first, base))


def _marker(segment: HeldSegment, position: int) -> int:
    """Return what a control batch of a transaction says; COMMIT for what does not decode.

    Damage is found when the batch is read.
    """
    try:
        record = next(iter(segment.batch(position, segment.limit).records()))
    except (CorruptBatch, StopIteration):
        return COMMIT
    key = bytes(record.key or b"")
    return int.from_bytes(key[2:4], "big") if len(key) >= 4 else COMMIT


def void(rows: Any, aborted: tuple[Aborted, ...]) -> Any:
    """Return which of some rows were aborted, as a mask; None if none was."""
    if not aborted or not len(rows.offsets):
        return None
    offsets, last = rows.offsets, int(rows.offsets[-1])
    near = [each for each in aborted if each[1] <= last and each[2] > int(offsets[0])]
    if not near:
        return None
    producers = rows.spread("producer_id")
    mask = np.zeros(len(offsets), bool)
    for producer, first, end in near:
        mask |= (producers == producer) & (offsets >= first) & (offsets < end)
    mask &= rows.spread("attributes") & TRANSACTIONAL != 0
    return mask if mask.any() else None
