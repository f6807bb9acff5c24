"""What a log and its newest snapshot are to each other, and where such a log starts.

Source: Kafka's ``KafkaRaftLog.recoverSnapshots`` and ``truncateToLatestSnapshot``, whose rule
(ahead by epoch, or by offset in the same epoch) misses a log whose tail is of a later epoch than
the snapshot and never was committed; here the record before the snapshot's end decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftfast.types import OffsetAndEpoch

Epochs = Sequence[tuple[int, int]]
"""(epoch, start offset), rising."""


def holds(newest: OffsetAndEpoch, base_offset: int, end_offset: int, epochs: Epochs) -> bool:
    """Return whether a log from ``base_offset`` to ``end_offset`` has the record before a
    snapshot's end.

    Or begins behind it. One that does not is behind the snapshot, or beside it.

    >>> holds(OffsetAndEpoch(10, 3), 0, 12, [(1, 0), (3, 5)])
    True
    >>> holds(OffsetAndEpoch(10, 4), 0, 12, [(1, 0), (3, 5)])
    False
    """
    offset, epoch = newest
    if offset <= base_offset:
        return True
    before = [entry for entry in epochs if entry[1] < offset]
    return end_offset >= offset and bool(before) and before[-1][0] == epoch


def surpasses(newest: OffsetAndEpoch, had: Iterable[OffsetAndEpoch]) -> bool:
    """Return whether a log of which only these ends are known had nothing that the snapshot has
    not.

    Committed records below its end are in it, and what was of epochs before its own beyond it was
    never committed.
    """
    ends = list(had)
    return newest.offset >= max(end.offset for end in ends) or newest.epoch > max(
        end.epoch for end in ends
    )


def log_start(base_offset: int, snapshots: Iterable[OffsetAndEpoch]) -> OffsetAndEpoch:
    """Return where a log starts whose first segment begins at ``base_offset``, and the epoch
    before.

    At 0, or where the first snapshot ends that reaches that far: the start is not stored.

    >>> log_start(8, [OffsetAndEpoch(10, 1), OffsetAndEpoch(20, 1)])
    OffsetAndEpoch(offset=10, epoch=1)
    """
    later = [each for each in snapshots if each.offset >= base_offset]
    return min(later) if base_offset and later else OffsetAndEpoch(base_offset, 0)


def clip(entries: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return epoch entries as a log from ``start`` to ``end`` shows them."""
    entries = list(entries)
    below = [epoch for epoch, offset in entries if offset <= start]
    inside = [(epoch, offset) for epoch, offset in entries if start < offset < end]
    return ([(below[-1], start)] if below and end > start else []) + inside
