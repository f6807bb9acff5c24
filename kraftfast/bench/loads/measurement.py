"""One measurement: a quorum of its own, a load, and whether all of it came back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kraftfast.bench import same_logs
from kraftfast.bench.loads import other_clients, retained
from kraftfast.bench.loads.drives import Drive, watched
from kraftfast.bench.results import report
from kraftfast.errors import InvalidOption
from kraftfast.limits import SEGMENT_BYTES_MAX
from kraftfast.log.mounts import filesystem_of

Around = Callable[[Any, Any], AbstractContextManager[Any]]
MIB = 1 << 20
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 16
SLACK_BYTES = 32 * MIB
LATENCY_PREPARE_BYTES = 32 * MIB
GROWN = ("observers", "connections", "retained_producers")
"""Options that say what else a quorum has to bear; 0 where a command has none of them."""


def kept_bytes(asked: dict[str, Any]) -> int:
    """Return how many bytes of log each replica will hold at least."""
    appended = (asked["total"] or 0) + (asked.get("warm_up") or 0)
    kept = appended if asked["retention"] is None else asked["retention"]
    return int(max(kept, asked["prepare"] or 0) * MIB)


def prepared(mode: str, asked: dict[str, Any]) -> int:
    """Return how many bytes of log to prepare before the clock starts: a segment at most.

    Raises InvalidOption.
    """
    if asked["prepare"] is not None:
        wanted = int(asked["prepare"] * MIB)
        if wanted > SEGMENT_BYTES_MAX:
            most = SEGMENT_BYTES_MAX // MIB
            raise InvalidOption(f"--prepare is at most {most} MiB, not {asked['prepare']:g}")
        return wanted
    if asked["count"] is None:
        return LATENCY_PREPARE_BYTES if mode == "latency" else 0
    overhead = RECORD_OVERHEAD_BYTES + (BATCH_OVERHEAD_BYTES if mode == "latency" else 1)
    wanted = int(asked["count"] * (asked["record_size"] + overhead)) + SLACK_BYTES
    wanted += int((asked.get("warm_up") or 0) * MIB * (1 + overhead / asked["record_size"]))
    return min(wanted, SEGMENT_BYTES_MAX)


def measure(
    quorum: Any,
    mode: str,
    rows: Any,
    prepare_bytes: int,
    asked: dict[str, Any],
    around: Around | None = None,
) -> tuple[list[dict[str, Any]], str]:
    """Return (the lines of the result, what the verification found wrong or "").

    There is one line, but for ``load``: that has one for each rate. ``quorum``: fresh, with
    ``prepare_bytes`` of log prepared. ``around``: called with the quorum and the producer; what it
    returns is entered while the load runs.
    """
    retained.append_once_each(quorum, asked.get("retained_producers", 0))
    names = ("batch_bytes", "window", "compression", "compression_level")
    settings = {name: asked[name] for name in names}
    with (
        quorum.producer(record_bytes_max=rows.size, **settings) as producer,
        watched(quorum) as views,
    ):
        first_offset = end_of(quorum)
        with other_clients.connected(quorum, asked) as others:
            drive = Drive(quorum, producer, rows, views, asked, others)
            with nullcontext() if around is None else around(quorum, producer):
                measured = list(drive.run(mode))
        end_offset = end_of(quorum)
        _, problem = same_logs.verify(quorum, first_offset, end_offset, drive.checker)
        kept_from = max(view["log_start_offset"] for view in views.values())
    durability = quorum.description.durability
    configuration = {
        "durability": durability,
        **{name: asked[name] for name in ("flush", "transport", "idle", "batch_bytes")},
        **{name: asked[name] for name in ("compression", "values")},
        "prepared_mib": round(prepare_bytes / MIB),
        "retention_mib": asked["retention"],
        "warm_up_mib": asked.get("warm_up"),
        "verified_records": end_offset - max(first_offset, kept_from),
        "filesystem": filesystem_of(next(iter(quorum.directories.values()))),
        "producers": asked.get("producers", 1),
        **{name: asked.get(name, 0) for name in GROWN},
        **others.told,
    }
    lines = []
    for run, more in measured:
        line = report.bench_line(
            run,
            mode=mode,
            voters=asked["voters"],
            durability=durability,
            value_bytes=rows.size,
            window=asked["window"],
            verified=not problem,
        )
        lines.append(line | configuration | more)
    return lines, problem


def end_of(quorum: Any) -> int:
    """Return the end of what is committed, as the replica knows it that knows most."""
    return max(int(status["high_watermark"]) for status in quorum.statuses().values())
