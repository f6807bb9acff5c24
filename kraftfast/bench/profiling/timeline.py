"""The commit timeline: what each process did, when, and to which batches.

Every time is one that a process noted; nothing is interpolated. A batch is known by its base
offset: where a stage took many at once, it names all that were in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kraftfast.bench.profiling.event_collector import Recorded, Recording
from kraftfast.link.stats import ROLES

IN_ORDER = ("claim", "queue", "append", "send", "travel", "copy", "flush", "acknowledge",
            "commit", "answer", "resolve", "callback")  # fmt: skip
"""The stages of a commit, as a timeline shows them from above."""
FOLLOWED = frozenset(IN_ORDER) - {"commit", "resolve"}
"""Stages that a flow passes; the two spans that enclose others are passed at their ends."""
NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class TimelineSlice:
    """Something that took time, ns. ``bases``: base offsets of the batches that were in it.

    ``stage``: of :data:`IN_ORDER`. ``offset``: of the first record, or the end of what was flushed
    or acknowledged. ``peer``: the id of the replica at the other side, or 0.
    """

    process: str
    stage: str
    began_ns: int
    ended_ns: int
    offset: int
    records: int
    bases: tuple[int, ...] = ()
    peer: int = 0

    @property
    def us(self) -> float:
        return (self.ended_ns - self.began_ns) / NS_PER_US


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: ``kind`` is high_watermark, role or epoch, ``value`` what it became."""

    process: str
    kind: str
    ns: int
    value: int

    @property
    def text(self) -> str:
        return ROLES[self.value] if self.kind == "role" else str(self.value)


@dataclass(slots=True)
class Timeline:
    """Slices and marks of all processes, and the batches that are known."""

    recording: Recording
    bases: list[int]
    slices: list[TimelineSlice] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def by_batch(self) -> dict[int, list[TimelineSlice]]:
        """Return the slices of each batch, in the order in which they began."""
        found: dict[int, list[TimelineSlice]] = defaultdict(list)
        for each in sorted(self.slices, key=lambda each: (each.began_ns, each.ended_ns)):
            for base in each.bases:
                found[base].append(each)
        return found


def timeline(recording: Recording) -> Timeline:
    """Return what a recording shows."""
    known: set[int] = set()
    for process in recording.processes:
        for kind in ("queue", "resolve"):
            known.update(process.of(kind)["offset"].tolist())
    made = Timeline(recording, sorted(known))
    for process in recording.processes:
        made.slices += _slices(process, made.bases)
        made.marks += _marks(process)
    made.slices += _claims(recording)
    return made


def _slices(process: Recorded, bases: list[int]) -> Iterator[TimelineSlice]:
    """Yield the spans that one process noted."""
    for stage in ("queue", "append", "travel", "copy", "commit", "answer", "resolve", "callback"):
        for ns, arg, offset, _, count in process.of(stage).tolist():
            if 0 < arg <= ns:  # the time of another process's claim is taken on trust
                within = _within(bases, offset, offset + count)
                yield TimelineSlice(process.name, stage, arg, ns, offset, count, within)
    for ns, arg, offset, _, count in process.of("send").tolist():
        within = _within(bases, offset, offset + count)
        yield TimelineSlice(process.name, "send", ns, ns, offset, count, within, peer=arg)
    yield from _flushes(process, bases)
    yield from _acknowledgements(process, bases)


def _within(bases: list[int], offset: int, end: int) -> tuple[int, ...]:
    return tuple(bases[bisect_left(bases, offset) : bisect_left(bases, end)])


def _stored(process: Recorded) -> Any:
    """Return (ns, base offset, end offset) of what came into a replica's log, in that order."""
    kept = np.concatenate([process.of("append"), process.of("copy")])
    kept = kept[np.argsort(kept["ns"], kind="stable")]
    return zip(kept["ns"].tolist(), kept["offset"].tolist(), kept["count"].tolist())


def _flushes(process: Recorded, bases: list[int]) -> Iterator[TimelineSlice]:
    """Yield the flushes, each with what was in the log when it began and on no disk before."""
    waiting = [(ns, offset, offset + count) for ns, offset, count in _stored(process)]
    at = 0
    for ns, began_ns, end, _, _ in process.of("flush").tolist():
        flushed: list[int] = []
        first, at_first = end, at
        while at < len(waiting) and waiting[at][0] <= began_ns and waiting[at][2] <= end:
            first = min(first, waiting[at][1])
            flushed += _within(bases, waiting[at][1], waiting[at][2])
            at += 1
        records = end - first if at > at_first else 0
        yield TimelineSlice(process.name, "flush", began_ns, ns, end, records, tuple(flushed))


def _acknowledgements(process: Recorded, bases: list[int]) -> Iterator[TimelineSlice]:
    """Yield what followers said of their disks; each names the batches that it is the first to
    acknowledge."""
    told: dict[int, int] = {}
    for ns, sent_ns, end, _, peer in process.of("acknowledge").tolist():
        before = told.get(peer)
        told[peer] = max(end, before or 0)
        if before is None or end <= before:
            continue  # nothing new, or it is not known what is
        within = _within(bases, before, end)
        yield TimelineSlice(
            process.name, "acknowledge", sent_ns, ns, end, end - before, within, peer
        )


def _claims(recording: Recording) -> Iterator[TimelineSlice]:
    """Yield the producer's part: from its first record to the moment at which a batch was sent."""
    sent: dict[int, int] = {}
    for process in recording.processes:
        queued = process.of("queue")
        sent.update(zip(queued["offset"].tolist(), queued["arg"].tolist()))
    for process in recording.processes:
        for _, began_ns, offset, _, count in process.of("resolve").tolist():
            if began_ns <= sent.get(offset, -1):
                base = (offset,)
                yield TimelineSlice(
                    process.name, "claim", began_ns, sent[offset], offset, count, base
                )


def _marks(process: Recorded) -> Iterator[Mark]:
    for kind in ("high_watermark", "role", "epoch"):
        for ns, _, value, _, _ in process.of(kind).tolist():
            yield Mark(process.name, kind, ns, value)
