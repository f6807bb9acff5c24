"""What happened between two looks at a quorum: the figures that ``kraftfast top`` shows.

A figure that cannot be known is None: a rate of a replica that was started again meanwhile, a
stage of a quorum that is reached by its addresses.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kraftfast.link.percentiles import QUANTILES, TOPS_US, quantile_us
from kraftfast.link.stats import STAGES
from kraftfast.live.pages import NS_PER_S, Sample
from kraftfast.live.readiness import why_not_ready

FLUSHES = ("leader_flush", "follower_flush")


@dataclass(frozen=True, slots=True)
class StageView:
    """How long a stage took, of all replicas; None without a sample. At most 1.6 % too long."""

    count: int
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float | None


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica. ``why_not_ready``: "" if it is. ``cpu``: processors that it used."""

    id: int
    pid: int
    up: bool
    role: str
    why_not_ready: str
    end_offset: int | None
    unflushed_records: int | None
    lag_records: int | None
    flushes_per_s: float | None
    flush_p99_us: float | None
    producers: int | None
    watchers: int | None
    connections: int | None
    ring_fill: float | None
    """Of the producer's ring that is fullest, 0 to 1."""
    elections: int | None
    log_bytes: int | None
    segments: int | None
    free_bytes: int | None
    cpu: float | None
    resident_bytes: int | None


@dataclass(frozen=True, slots=True)
class View:
    """A quorum over ``seconds``. ``leader_id`` -1: none is known. ``elections``: since the starts
    of the replicas. ``bytes_per_s``: of producers over shared memory."""

    seconds: float
    leader_id: int
    epoch: int
    high_watermark: int
    records_per_s: float | None
    bytes_per_s: float | None
    batches_per_s: float | None
    elections: int | None
    stages: dict[str, StageView]
    replicas: tuple[ReplicaView, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def view(before: list[Sample], after: list[Sample]) -> View:
    """Return what happened between two looks."""
    earlier = {sample.id: sample for sample in before}
    pairs = [(same_start(earlier.get(sample.id), sample), sample) for sample in after]
    seen = [sample for sample in after if sample.up and sample.words]
    newest = max(seen, key=lambda it: (it.words["epoch"], it.leader_id >= 0), default=None)
    told = [sample.noted["elections"] for sample in seen if "elections" in sample.noted]
    seconds = max((elapsed_s(a, b) for a, b in pairs if a is not None), default=0.0)
    return View(
        seconds=round(seconds, 3),
        leader_id=-1 if newest is None else newest.leader_id,
        epoch=-1 if newest is None else newest.words["epoch"],
        high_watermark=watermark(after),
        records_per_s=_committed(before, after, seconds),
        bytes_per_s=_sum_of_rates(pairs, "bytes"),
        batches_per_s=_sum_of_rates(pairs, "batches"),
        elections=sum(told) if told else None,
        stages={name: stage_view(pairs, name) for name in STAGES if any(s.stages for s in seen)},
        replicas=tuple(replica_view(a, b) for a, b in pairs),
    )


def same_start(before: Sample | None, after: Sample) -> Sample | None:
    """Return the earlier look if it was at the same process, which is what counters belong to."""
    if before is None or not before.words or not after.up or before.pid != after.pid:
        return None
    return before


def elapsed_s(before: Sample, after: Sample) -> float:
    return (after.at_ns - before.at_ns) / NS_PER_S


def watermark(samples: list[Sample]) -> int:
    """Return the highest high watermark, -1 if none is known."""
    return max((it.words["high_watermark"] for it in samples if it.words), default=-1)


def _committed(before: list[Sample], after: list[Sample], seconds: float) -> float | None:
    first, last = watermark(before), watermark(after)
    if seconds <= 0 or first < 0 or last < first:
        return None
    return round((last - first) / seconds, 1)


def rate(before: Sample | None, after: Sample, word: str) -> float | None:
    """Return by how much a counter grew a second."""
    if before is None or word not in after.words or word not in before.words:
        return None
    seconds = elapsed_s(before, after)
    grown = after.words[word] - before.words[word]
    return round(grown / seconds, 1) if seconds > 0 and grown >= 0 else None


def _sum_of_rates(pairs: list[tuple[Sample | None, Sample]], word: str) -> float | None:
    rates = [rate(before, after, word) for before, after in pairs]
    known = [each for each in rates if each is not None]
    return round(sum(known), 1) if known else None


def grown(before: Sample | None, after: Sample, stage: str) -> Any:
    """Return the counts that came to the buckets of a stage, None if that is not known."""
    if before is None or stage not in after.stages or stage not in before.stages:
        return None
    now = np.frombuffer(after.stages[stage].buckets, np.uint64)
    then = np.frombuffer(before.stages[stage].buckets, np.uint64)
    return np.maximum(now, then) - then


def stage_view(pairs: list[tuple[Sample | None, Sample]], stage: str) -> StageView:
    """Return how long a stage took, of all replicas together."""
    counts = np.zeros(len(TOPS_US), np.uint64)
    for before, after in pairs:
        came = grown(before, after, stage)
        if came is not None:
            counts = counts + came
    slow = {name: quantile_us(counts, quantile) for name, quantile in QUANTILES.items()}
    return StageView(int(counts.sum()), **slow)


def replica_view(before: Sample | None, after: Sample) -> ReplicaView:
    """Return one replica's line."""
    words, noted, process, place = after.words, after.noted, after.process, after.place
    known = after.up and bool(words)
    flushed = words.get("flushed_end_offset")
    came = [each for name in FLUSHES if (each := grown(before, after, name)) is not None]
    filled = noted.get("ring_fill_permille")
    cpu = None
    if before is not None and before.process is not None and process is not None:
        seconds = elapsed_s(before, after)
        cpu = round((process.cpu_s - before.process.cpu_s) / seconds, 3) if seconds > 0 else None
    return ReplicaView(
        id=after.id,
        pid=after.pid,
        up=after.up,
        role=after.role,
        why_not_ready=why_not_ready(after),
        end_offset=words.get("end_offset"),
        unflushed_records=words["end_offset"] - flushed if flushed is not None else None,
        lag_records=after.lag_records if known else None,
        flushes_per_s=rate(before, after, "flushes"),
        flush_p99_us=quantile_us(sum(came), QUANTILES["p99_us"]) if came else None,
        producers=noted.get("producers") if known else None,
        watchers=noted.get("watchers") if known else None,
        connections=noted.get("connections") if known else None,
        ring_fill=None if filled is None or not known else filled / 1000,
        elections=noted.get("elections"),
        log_bytes=place.log_bytes if place is not None else None,
        segments=place.segments if place is not None else None,
        free_bytes=place.free_bytes if place is not None else None,
        cpu=cpu,
        resident_bytes=process.resident_bytes if process is not None else None,
    )
