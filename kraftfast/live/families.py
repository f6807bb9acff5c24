"""What Prometheus reads: the families of metrics, from samples of replicas.

Names follow Prometheus's conventions: base units, ``_total`` for counters. Labels are few and
bounded: the replica, a role, a stage, a trouble. Counters begin at 0 with each start of a replica,
as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kraftfast import __version__
from kraftfast.link.stats import ROLES, STAGES, TROUBLES, bucket_tops
from kraftfast.live.facts import LogPlace, ReplicaProcess
from kraftfast.live.pages import NS_PER_S, Sample, StageFigures
from kraftfast.live.readiness import why_not_ready

REPLICA = "replica"
OCTAVES = range(10, 34)
"""Buckets from 2^10 ns (1 us) to 2^34 ns (17 s), two to a doubling."""
BOUNDS_NS = [bound for octave in OCTAVES for bound in (1 << octave, 3 << (octave - 1))] + [1 << 34]
TOPS_NS = np.array(bucket_tops(), np.float64)
LAST_OF_BOUND = np.searchsorted(TOPS_NS, np.array(BOUNDS_NS) - 1)
"""For each bound the last bucket of a page that lies below it: the bounds are ends of buckets."""
LE = [repr(bound / NS_PER_S) for bound in BOUNDS_NS]


class Word(NamedTuple):
    """One family with a value for each replica whose page was seen."""

    name: str
    help: str
    value: Callable[[Sample], float | None]


def word(name: str) -> Callable[[Sample], float]:
    return lambda sample: sample.words[name]


def noted(name: str) -> Callable[[Sample], float]:
    return lambda sample: sample.noted[name]


GAUGES = (
    Word("epoch", "The epoch that the replica is in.", word("epoch")),
    Word(
        "leader_id",
        "The leader that answers the replica, -1 if none.",
        lambda sample: sample.leader_id,
    ),
    Word("high_watermark", "Records below this offset are committed.", word("high_watermark")),
    Word("log_end_offset", "The end of the replica's log.", word("end_offset")),
    Word(
        "log_flushed_end_offset",
        "Records below this offset are on the replica's disk.",
        word("flushed_end_offset"),
    ),
    Word("log_start_offset", "The first record that is kept.", word("log_start_offset")),
    Word(
        "log_prepared_bytes",
        "What is written with zeros ahead of the end of the log.",
        word("prepared_bytes"),
    ),
    Word(
        "snapshot_end_offset",
        "The end of the newest snapshot, 0 if there is none.",
        noted("snapshot_end_offset"),
    ),
    Word(
        "lag_records",
        "Committed records, by the leader's word, that are not in this replica's log.",
        lambda sample: sample.lag_records,
    ),
    Word("voters", "Replicas that vote, as far as the replica knows.", noted("voters")),
    Word("voter", "1 if the replica votes, 0 if it observes.", noted("is_voter")),
    Word("producers", "Producers over shared memory.", noted("producers")),
    Word(
        "ring_fill_ratio",
        "How much of the fullest ring of a producer waits to be taken, 0 to 1.",
        lambda sample: sample.noted["ring_fill_permille"] / 1000,
    ),
    Word("watchers", "Consumers and others that map the replica's page.", noted("watchers")),
    Word("connections", "Connections over TCP, from clients and replicas.", noted("connections")),
    Word(
        "loop_age_seconds",
        "How long ago the replica's loop last showed that it turns.",
        lambda sample: sample.loop_age_s,
    ),
)
COUNTERS = (
    Word(
        "ring_records",
        "Records that producers over shared memory appended, at the leader.",
        word("records"),
    ),
    Word("ring_batches", "Their batches.", word("batches")),
    Word("ring_bytes", "The bytes of their batches.", word("bytes")),
    Word("flushes", "Flushes of the log.", word("flushes")),
    Word(
        "other_flushes",
        "Flushes of prepared files, indexes, checkpoints and names.",
        noted("other_flushes"),
    ),
    Word("truncations", "How often the end of the log was cut off.", noted("truncations")),
    Word("elections", "Campaigns of the replica after which it knew a leader.", noted("elections")),
    Word("leaderships", "How often the replica became the leader.", noted("leaderships")),
)
OF_THE_PROCESS: tuple[tuple[bool, str, str, Callable[[ReplicaProcess], float]], ...] = (
    (True, "process_cpu_seconds", "CPU time, user and system.", lambda it: it.cpu_s),
    (True, "process_minor_faults", "Page faults without a read.", lambda it: it.minor_faults),
    (True, "process_major_faults", "Page faults with a read.", lambda it: it.major_faults),
    (True, "process_written_bytes", "Handed to the disk.", lambda it: it.written_bytes),
    (False, "process_resident_memory_bytes", "Resident memory.", lambda it: it.resident_bytes),
    (False, "process_threads", "Threads.", lambda it: it.threads),
    (False, "process_start_time_seconds", "Start, since 1970.", lambda it: it.started_s),
)
OF_THE_PLACE: tuple[tuple[str, str, Callable[[LogPlace], float]], ...] = (
    ("log_bytes", "What the files of the log take, prepared ones too.", lambda it: it.log_bytes),
    ("log_segments", "Segments of the log.", lambda it: it.segments),
    ("disk_free_bytes", "Free space of the log's file system.", lambda it: it.free_bytes),
    ("disk_size_bytes", "Size of the log's file system.", lambda it: it.size_bytes),
)


def families(samples: list[Sample], cluster_id: str) -> Iterator[Any]:
    """Yield families of ``prometheus_client``; a replica never seen has ``kraftfast_up`` alone."""
    yield _of("gauge", "build_info", "The version, 1.", ("version",), [((__version__,), 1)])
    yield _of("gauge", "quorum_info", "The quorum, 1.", ("cluster_id",), [((cluster_id,), 1)])
    yield _each("gauge", "up", "1 if the replica's process runs.", samples, lambda it: it.up)
    text = "1 if the replica is ready, as /readyz tells."
    yield _each("gauge", "ready", text, samples, lambda it: not why_not_ready(it))
    seen = [sample for sample in samples if sample.words]
    for each in GAUGES:
        yield _each("gauge", each.name, each.help, seen, each.value)
    for each in COUNTERS:
        yield _each("counter", each.name, each.help, seen, each.value)
    yield _states(
        "role",
        "1 for the role that the replica has.",
        ROLES,
        seen,
        lambda it: [] if it.hangs else [it.role],
    )
    text = "1 for what is wrong, by the replica's own word."
    yield _states("trouble", text, TROUBLES, seen, lambda it: it.troubles)
    yield from _of_host(seen)
    yield stages(seen)


def _of_host(seen: list[Sample]) -> Iterator[Any]:
    for counts, name, text, of_process in OF_THE_PROCESS:
        values = [((str(it.id),), of_process(it.process)) for it in seen if it.process is not None]
        known = [each for each in values if each[1] >= 0]
        yield _of("counter" if counts else "gauge", name, text, (REPLICA,), known)
    for name, text, of_place in OF_THE_PLACE:
        places = [((str(it.id),), of_place(it.place)) for it in seen if it.place is not None]
        yield _of("gauge", name, text, (REPLICA,), places)


def stages(seen: list[Sample]) -> Any:
    """Return the histogram of the stages of a commit."""
    from prometheus_client.core import HistogramMetricFamily

    text = "How long a batch, or a flush, took in a stage of a commit."
    family = HistogramMetricFamily(
        "kraftfast_stage_duration_seconds", text, labels=(REPLICA, "stage")
    )
    for sample in seen:
        for name in STAGES:
            stage = sample.stages[name]
            buckets, sum_s = list(zip(LE, counts(stage))), stage.sum_ns / NS_PER_S
            buckets.append(("+Inf", total(stage)))
            family.add_metric((str(sample.id), name), buckets, sum_s)
    return family


def counts(stage: StageFigures) -> list[int]:
    """Return how many samples lie below each of ``BOUNDS_NS``."""
    below = np.cumsum(np.frombuffer(stage.buckets, np.uint64))
    return [int(count) for count in below[LAST_OF_BOUND]]


def total(stage: StageFigures) -> int:
    """Return how many samples there are."""
    return int(np.frombuffer(stage.buckets, np.uint64).sum())


def _each(
    kind: str, name: str, text: str, samples: list[Sample], value: Callable[[Sample], float | None]
) -> Any:
    """Return a family; a replica of which the value is not known has none."""
    known: list[tuple[tuple[str, ...], float]] = []
    for it in samples:
        found = value(it)
        if found is not None:
            known.append(((str(it.id),), found))
    return _of(kind, name, text, (REPLICA,), known)


def _states(
    name: str,
    text: str,
    known: tuple[str, ...],
    samples: list[Sample],
    are: Callable[[Sample], list[str]],
) -> Any:
    values = [((str(it.id), each), float(each in are(it))) for it in samples for each in known]
    return _of("gauge", name, text, (REPLICA, name), values)


def _of(
    kind: str,
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], float]],
) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = made(f"kraftfast_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


class FamilyCollector:
    """What a registry of ``prometheus_client`` asks at each scrape."""

    # look: returns the samples. cluster_id: of the quorum.

    def __init__(self, look: Callable[[], list[Sample]], cluster_id: str) -> None:
        self.look, self.cluster_id = look, cluster_id

    def collect(self) -> Iterator[Any]:
        """Yield all families, of one look."""
        return families(self.look(), self.cluster_id)


def registry(look: Callable[[], list[Sample]], cluster_id: str) -> Any:
    """Return a registry that looks at each scrape."""
    from prometheus_client import CollectorRegistry

    made = CollectorRegistry(auto_describe=False)
    made.register(FamilyCollector(look, cluster_id))
    return made
