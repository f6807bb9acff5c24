"""Spark over logs, beside what else reads or writes the same bytes: medians of interleaved runs.

    python bench/spark.py [--quick] [--rounds N] [--only read,audit] [--dir DIR] > spark.json

``read``: a log of 100 B records and one of 1 KiB records (500 MB each, or a tenth with --quick),
by turns as ``kraftfast`` and as ``spark.read.parquet`` of the same data, as Spark writes it and as
``convert`` does: whole rows (noop sink), count, sum of lengths, one per cent by offset. ``audit``:
three replicas. ``convert``: by turns with Spark's own Parquet writer. ``sink``: records of 100 B
into a durable quorum of three voters, also with keys, and with two headers, in both modes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kraftfast
from kraftfast.record import batch, builder
from kraftfast.spark import audit, convert, get_spark

SEGMENT_BYTES = 64 << 20
BATCH_VALUE_BYTES = 60_000
ROUNDS = 5
LOG_BYTES = 500 << 20
SINK_RECORDS = 2_000_000
VALUE, KEY = "lpad(string(id), 100, 'x') as value", "string(id) as key"
HEADER = "named_struct('key', '{0}', 'value', cast(string(id) as binary))"
SINK_COLUMNS = {
    "value": [VALUE],
    "key": [VALUE, KEY],
    "headers": [VALUE, KEY, f"array({HEADER.format('trace')}, {HEADER.format('v')}) as headers"],
}
"""What the sink is given: values, values with keys, and those with two headers besides."""


def write_log(
    path: Path, size: int, total: int, segment_bytes: int = SEGMENT_BYTES
) -> tuple[int, int]:
    """Segments of batches of random letters, no two records alike; (records, bytes)."""
    place = path / "__cluster_metadata-0"
    place.mkdir(parents=True)
    letters = np.random.default_rng(1)
    each = max(1, BATCH_VALUE_BYTES // size)
    buffer = bytearray(1 << 20)
    offset = written = in_segment = 0
    file = None
    while written < total:
        values = letters.integers(97, 123, (each, size), dtype=np.uint8)
        settings = builder.Settings(timestamp=1_700_000_000_000 + offset)
        used, count = builder.Values(values).encode_into(buffer, settings)
        assert count == each
        batch.stamp(buffer, offset, 1)
        if file is None or in_segment + used > segment_bytes:
            if file is not None:
                file.close()
            file, in_segment = (place / f"{offset:020d}.log").open("wb"), 0
        file.write(memoryview(buffer)[:used])
        offset, written, in_segment = offset + each, written + used, in_segment + used
    assert file is not None
    file.close()
    return offset, written


def by_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each; every round runs all of them, and one before that warms up.

    What one leaves to the disk is there before the next one begins, which may wait for the disk.
    """
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            os.sync()
            began = time.perf_counter()
            way()
            if number:
                took[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in took.items()}


def noop(frame: Any) -> Callable[[], Any]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def read(spark: Any, place: Path, size: int, total: int, rounds: int) -> dict[str, Any]:
    """Seconds and rates of the four questions, and Parquet's by their side."""
    path, written, converted = (place / f"{name}-{size}" for name in ("log", "spark", "converted"))
    records, stored = write_log(path, size, total)
    log = spark.read.format("kraftfast").load(str(path))
    assert log.count() == records
    log.write.parquet(str(written))
    convert(spark, str(path), str(converted), compression="snappy")
    meta = spark.read.format("kraftfast").option("columns", "meta").load(str(path))
    pushed = spark.read.format("kraftfast").option("pushFilters", "true").load(str(path))
    late = f"offset >= {records - records // 100}"
    ways: dict[str, Callable[[], Any]] = {
        "noop": noop(log), "count": log.count, "sum": sum_of(log),
        "count_meta": meta.count, "one_per_cent": pushed.where(late).count,
    }  # fmt: skip
    for kind, folder in {"parquet": written, "converted": converted}.items():
        table = spark.read.parquet(str(folder))
        ways |= {
            f"noop_{kind}": noop(table), f"count_{kind}": table.count, f"sum_{kind}": sum_of(table),
            f"one_per_cent_{kind}": table.where(late).count,
        }  # fmt: skip
    took = by_turns(ways, rounds)
    assert log.count() == records, "every round read everything"
    asked = ("noop", "count", "sum", "one_per_cent")
    return {
        "record_bytes": size, "records": records, "bytes": stored,
        "seconds": took,
        "rows_per_s": {name: records / took[name] for name in asked[:3]},
        "bytes_per_s": {name: stored / took[name] for name in asked[:3]},
        "parquet_ratio": {name: took[f"{name}_parquet"] / took[name] for name in asked},
        "converted_ratio": {name: took[f"{name}_converted"] / took[name] for name in asked},
    }  # fmt: skip


def sum_of(frame: Any) -> Callable[[], Any]:
    return lambda: frame.selectExpr("sum(length(value))").collect()  # a query that ran is kept


def audit_three(spark: Any, place: Path, total: int, rounds: int) -> dict[str, Any]:
    paths = [place / f"replica-{number}" for number in range(3)]
    _, stored = write_log(paths[0], 100, total)
    for other in paths[1:]:
        shutil.copytree(paths[0], other)
    names = [str(path) for path in paths]

    others = [place / f"rolled-{number}" for number in range(3)]
    for number, other in enumerate(others):
        behind = total // 20 if number == 2 else 0
        write_log(other, 100, total - behind, SEGMENT_BYTES - number * (7 << 20))
    apart = [str(path) for path in others]

    def run(paths: list[str]) -> Callable[[], None]:
        def once() -> None:
            assert audit(spark, paths).ok

        return once

    took = by_turns({"copies": run(names), "rolled": run(apart)}, rounds)
    return {
        "bytes": 3 * stored, "seconds": took,
        "bytes_per_s": {name: 3 * stored / seconds for name, seconds in took.items()},
    }  # fmt: skip


def convert_beside(spark: Any, place: Path, total: int, rounds: int) -> dict[str, Any]:
    path = place / "to-convert"
    _, stored = write_log(path, 100, total)
    ours, theirs = place / "ours", place / "theirs"

    def convert_ours() -> None:
        shutil.rmtree(ours, ignore_errors=True)
        convert(spark, str(path), str(ours), compression="snappy")

    def convert_theirs() -> None:
        frame = spark.read.format("kraftfast").load(str(path))
        frame.write.mode("overwrite").parquet(str(theirs))

    took = by_turns({"convert": convert_ours, "spark_writer": convert_theirs}, rounds)
    return {
        "bytes": stored, "seconds": took, "bytes_per_s": stored / took["convert"],
        "ratio": took["spark_writer"] / took["convert"],
    }  # fmt: skip


def sink(spark: Any, place: Path, records: int, rounds: int) -> dict[str, Any]:
    with kraftfast.LocalQuorum(place / "quorum", 3, segment_bytes=256 << 20) as quorum:
        ways: dict[str, Callable[[], Any]] = {}
        for name, columns in SINK_COLUMNS.items():
            frame = spark.range(0, records, 1, 2).selectExpr(*columns).cache()
            frame.count()
            for mode in ("staged", "direct"):
                writer = frame.write.format("kraftfast").option("writeMode", mode).mode("append")
                ways[f"{name}_{mode}"] = lambda out=writer: out.save(str(quorum.path))
        took = by_turns(ways, rounds)
    return {
        "records": records, "durability": "majority", "seconds": took,
        "records_per_s": {name: records / seconds for name, seconds in took.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, three rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which medians are taken")
    parser.add_argument("--only", default="read,audit,convert,sink")
    parser.add_argument("--dir", default="/var/tmp", help="work below this directory")
    options = parser.parse_args()
    total, records, rounds = LOG_BYTES, SINK_RECORDS, options.rounds
    if options.quick:
        total, records, rounds = total // 10, records // 10, min(3, rounds)
    spark = get_spark("local[2]", memory="4g")
    found: dict[str, Any] = {"spark": spark.version, "cpus": os.cpu_count(), "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="kraftfast-spark-", dir=options.dir) as name:
        place = Path(name)
        jobs: dict[str, Callable[[], Any]] = {
            "read": lambda: [read(spark, place, size, total, rounds) for size in (100, 1024)],
            "audit": lambda: audit_three(spark, place, total, rounds),
            "convert": lambda: convert_beside(spark, place, total, rounds),
            "sink": lambda: sink(spark, place, records, rounds),
        }
        for job in options.only.split(","):
            if job not in jobs:
                sys.exit(f"bench/spark.py: no job {job!r}: {', '.join(jobs)}")
            found[job] = jobs[job]()
            print(f"{job}: {json.dumps(found[job])}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
