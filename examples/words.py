"""A text goes through a quorum, its words are counted as it comes, and a damaged replica is found.

    python examples/words.py [TEXT...]

Without a TEXT, the sources of this Python's own library are taken. Three voters commit its lines;
a stream counts the words, with progress; then one byte of one replica is changed on purpose, and an
audit of the three says which batch of which replica it is. Wants ``pip install 'kraftfast[spark]'``
and Java 17.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

import kraftfast
from kraftfast.errors import KraftfastError
from kraftfast.record.headers import decode_headers
from kraftfast.spark import audit, get_spark, told

LINES_AT_ONCE = 2000
BYTES_MAX = 8 << 20


def text_lines(paths: list[str]) -> list[bytes]:
    """Lines that are not empty, of files given or of the library."""
    library = Path(sysconfig.get_path("stdlib"))
    files = [Path(path) for path in paths] or sorted(library.glob("*.py"))
    data = b"".join(file.read_bytes() for file in files)[:BYTES_MAX]
    return [line for line in data.splitlines() if line.strip()]


def append(quorum: kraftfast.LocalQuorum, lines: list[bytes]) -> None:
    """A little at a time, as a text comes that somebody writes."""
    with quorum.producer() as producer:
        for at in range(0, len(lines), LINES_AT_ONCE):
            producer.append_many(lines[at : at + LINES_AT_ONCE])
            time.sleep(0.05)


def count_words(spark: object, servers: str, total: int) -> dict[str, int]:
    """Follow the quorum until every line is counted; progress on the way."""
    source = spark.readStream.format("kraftfast").option("bootstrap.servers", servers)  # type: ignore[attr-defined]
    words = (
        source.option("maxRecordsPerTrigger", 40_000).load()
        .selectExpr("explode(split(lower(string(value)), '[^a-z]+')) as word", "offset")
        .where("length(word) > 3").groupBy("word").count()
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as mark:
        query = (
            words.writeStream.format("memory").queryName("words").outputMode("complete")
            .option("checkpointLocation", mark).trigger(processingTime="0.5 seconds").start()
        )  # fmt: skip
        seen, batch = 0, -1
        while seen < total and query.isActive:
            for each in query.recentProgress:
                if each.batchId > batch:
                    batch = each.batchId
                    seen += each.numInputRows
                    if each.numInputRows:
                        rate = each.processedRowsPerSecond
                        print(f"  {seen:,} of {total:,} lines, {rate:,.0f} a second", flush=True)
            time.sleep(0.2)
        if query.exception() is not None:
            raise query.exception()
        while query.status["isTriggerActive"]:  # Spark prints a traceback if it is asking just now
            time.sleep(0.02)
        query.stop()
    return {row.word: row["count"] for row in spark.table("words").collect()}  # type: ignore[attr-defined]


def damage(directory: str) -> tuple[str, int]:
    """Change one byte in the middle of a replica's log; (file, where its batch begins)."""
    file = sorted(Path(directory).glob("*-0/*.log"))[0]
    data = bytearray(file.read_bytes())
    rows = decode_headers(bytes(data)).rows
    row = rows[len(rows) // 2]
    begin, size = int(row["position"]), int(row["size"])
    data[begin + size // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(bytes(data))
    return str(file), begin


def main() -> int:
    lines = text_lines(sys.argv[1:])
    spark = get_spark()
    with tempfile.TemporaryDirectory(prefix="kraftfast-words-") as place:
        path = os.path.join(place, "quorum")
        with kraftfast.LocalQuorum(path, voters=3, transport="socket") as quorum:
            servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
            print(f"three voters at {servers} take {len(lines):,} lines")
            writer = threading.Thread(target=append, args=(quorum, lines))
            writer.start()
            counts = count_words(spark, servers, len(lines))
            writer.join()
        best = sorted(counts.items(), key=lambda each: -each[1])[:5]
        print("most frequent: " + ", ".join(f"{word} {count:,}" for word, count in best))
        file, position = damage(os.path.join(path, "2"))
        print(f"one byte of the batch at byte {position} of {file} is changed on purpose")
        report = audit(spark, path)
        print("\n".join(report.lines()))
        first = report.first
        found = first is not None and (first.position, first.replica) == (
            position, os.path.join(path, "2"),
        )  # fmt: skip
        print("the audit names the damaged batch" if found else "the audit did NOT find it")
        return 0 if found else 1


if __name__ == "__main__":
    try:
        with told():
            sys.exit(main())
    except KraftfastError as error:
        sys.exit(f"words: {error}")
