"""Run by test_cluster: jobs on two executor processes, one of which is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark

from kraftfast.spark import convert, get_spark

ROWS = 4000


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().split()[-49]) == pid:
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def executors() -> list[int]:
    """The JVMs of executors: those that this process's JVM started."""
    found = []
    for jvm in children(os.getpid()):
        for each in children(jvm):
            command = Path(f"/proc/{each}/cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command:
                found.append(each)
    return found


def slowly(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """So that there is a middle in which to kill."""
    for batch in parts:
        for at in range(0, len(batch), 100):
            time.sleep(0.1)
            yield batch.slice(at, 100)


def kill_one(killed: list[int]) -> None:
    time.sleep(1.5)
    for pid in executors()[:1]:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)


def main(log: str, quorum: str, target: str) -> None:
    spark = get_spark("local-cluster[2,1,1024]", short=True, memory="1g")
    try:
        assert spark.read.format("kraftfast").load(log).count() == 120
        assert convert(spark, log, target).rows == 120
        killed: list[int] = []
        killer = threading.Thread(target=kill_one, args=(killed,))
        frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('cluster ', id) as value")
        killer.start()
        slow = frame.mapInArrow(slowly, "value string")
        slow.write.format("kraftfast").mode("append").save(quorum)
        killer.join()
        print("killed", len(killed))
    finally:
        spark.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
