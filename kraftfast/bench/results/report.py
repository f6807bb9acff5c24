"""Where the time went: what a run measured and what the replicas counted meanwhile."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kraftfast import __version__
from kraftfast.bench.loads.load import LoadRun, percentiles

LEADER_STAGES = ("queue", "append", "leader_flush", "commit")
FOLLOWER_STAGES = ("travel", "follower_flush")
ORDER = ("queue", "append", "travel", "follower_flush", "leader_flush", "commit", "callback")
MEANINGS = {
    "queue": "handed to the ring -> taken by the leader",
    "append": "checked and copied into the leader's log",
    "travel": "leader's log -> follower's log",
    "follower_flush": "one flush of a follower's log",
    "leader_flush": "one flush of the leader's log",
    "commit": "in the leader's log -> committed",
    "callback": "committed -> known to the producer",
}


SURVIVES = {
    "majority": ("fdatasync of a majority, grouped", "a power cut of all voters"),
    "all": ("fdatasync of every voter, grouped", "a power cut of all voters"),
    "memory": ("none", "the end of every process, no power cut"),
}
"""By durability: what is flushed before an acknowledgement, and what a record has survived then."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """The latency of one stage on one replica, microseconds; ``replica`` 0 is the producer."""

    name: str
    replica: int
    count: int
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica at the end of a run. ``flushes``: since the run began."""

    id: int
    role: str
    end_offset: int
    high_watermark: int
    flushes: int


@dataclass(slots=True)
class LoadReport:
    """What ``kraftfast demo`` shows. ``problem`` is "" if everything was verified."""

    run: LoadRun
    voters: int
    durability: str
    flush: str
    transport: str
    window: int
    batch_bytes: int
    filesystem: str
    stages: list[StageRow] = field(default_factory=list)
    replicas: list[ReplicaReport] = field(default_factory=list)
    first_offset: int = -1
    end_offset: int = -1
    compared_bytes: int = 0
    problem: str = ""

    @property
    def fsyncs_per_1000_records(self) -> float:
        """Flushes of all replicas together."""
        flushes = sum(replica.flushes for replica in self.replicas)
        return 1000 * flushes / self.run.records if self.run.records else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        run = self.run
        return {
            "version": __version__,
            "verified": not self.problem,
            "problem": self.problem,
            "voters": self.voters,
            "durability": self.durability,
            "flush": self.flush,
            "transport": self.transport,
            "filesystem": self.filesystem,
            "batch_bytes": self.batch_bytes,
            "window": self.window,
            "records": run.records,
            "value_bytes": run.value_bytes,
            "seconds": run.seconds,
            "records_per_s": run.records_per_s,
            "mb_per_s": run.megabytes_per_s,
            "first_offset": self.first_offset,
            "end_offset": self.end_offset,
            **asdict(run.latency),
            "fsyncs_per_1000_records": self.fsyncs_per_1000_records,
            "compared_bytes": self.compared_bytes,
            "stages": [asdict(stage) for stage in self.stages],
            "replicas": [asdict(replica) for replica in self.replicas],
        }


def stages(statuses: dict[int, dict[str, Any]], producer: Any) -> list[StageRow]:
    """Return the stages in the order in which a record passes them; of a replica those it took part
    in.

    One that led before an election, and follows now, has the stages of both roles.
    """
    names = (*LEADER_STAGES, *FOLLOWER_STAGES)
    found = [
        _stage(name, id, status["stages"][name])
        for id, status in statuses.items()
        for name in names
    ]
    found.append(_stage("callback", 0, producer.latencies.callback_latency()))
    found = [stage for stage in found if stage.count]
    return sorted(found, key=lambda stage: (ORDER.index(stage.name), stage.replica))


def _stage(name: str, replica: int, sampled: dict[str, float]) -> StageRow:
    return StageRow(
        name, replica, int(sampled["count"]), **percentiles(sampled), max_us=sampled["max_us"]
    )


def replicas(
    before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]]
) -> list[ReplicaReport]:
    """Return each replica that answers now; one that was started again meanwhile counts from 0."""
    found = []
    for id, status in after.items():
        earlier = before.get(id, {})
        same_process = earlier.get("pid") == status["pid"]
        flushes = status["flushes"] - (earlier["flushes"] if same_process else 0)
        role, end = status["role"], status["end_offset"]
        found.append(ReplicaReport(id, role, end, status["high_watermark"], flushes))
    return found


def bench_line(
    run: LoadRun,
    *,
    mode: str,
    voters: int,
    durability: str,
    value_bytes: int,
    window: int,
    verified: bool,
) -> dict[str, Any]:
    """Return the keys that every harness of a comparison prints, in their order."""
    return {
        "peer": "kraftfast",
        "version": __version__,
        "voters": voters,
        "processes": voters + 1,
        "sync": durability != "memory",
        "value_bytes": value_bytes,
        "mode": mode,
        "window": window,
        "seconds": round(run.seconds, 6),
        "records": run.records,
        "records_per_s": round(run.records_per_s, 1),
        **{
            name: None if us is None else round(us, 1)
            for name, us in asdict(run.latency).items()
            if name != "samples"
        },
        "verified": verified,
        **dict(zip(("fsync", "survives"), SURVIVES[durability])),
        "client": "own process",
    }
