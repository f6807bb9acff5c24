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
    """So that there is a middle in which to kill; the first attempt of a task is a straggler."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    straggler = context.partitionId() == 0 and context.attemptNumber() == 0
    for batch in parts:
        for at in range(0, len(batch), 100):
            time.sleep(1.0 if straggler else 0.1)
            yield batch.slice(at, 100)


def workers() -> list[int]:
    """The Python processes of executors that run a task now."""
    daemons = [each for executor in executors() for each in children(executor)]
    return [each for daemon in daemons for each in children(daemon)]


def kill_some(killed: list[str]) -> None:
    """A Python worker, then an executor with all that it has."""
    for name, find in (("worker", workers), ("executor", executors)):
        deadline = time.monotonic() + 20
        while not (found := find()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.8)
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(name)


def main(log: str, quorum: str, target: str) -> None:
    more = {"spark.speculation": "true", "spark.speculation.multiplier": "1.2",
            "spark.speculation.quantile": "0.3", "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "100ms"}  # fmt: skip
    spark = get_spark("local-cluster[2,2,1024]", short=True, memory="1g", **more)
    os.chdir(os.path.dirname(quorum))
    try:
        assert spark.read.format("kraftfast").load(log).count() == 120
        assert convert(spark, log, target).rows == 120
        for mode in ("staged", "direct"):
            killed: list[str] = []
            killer = threading.Thread(target=kill_some, args=(killed,))
            frame = spark.range(0, ROWS, 1, 4).selectExpr(f"concat('{mode} ', id) as value")
            killer.start()
            slow = frame.mapInArrow(slowly, "value string")
            if mode == "staged":  # in another order each time
                slow = slow.selectExpr("value", "rand() as r").repartition(3, "r").select("value")
            out = slow.write.format("kraftfast").option("writeMode", mode).mode("append")
            out.save(quorum)
            killer.join()
            print(mode, "killed", *killed)
    finally:
        spark.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
