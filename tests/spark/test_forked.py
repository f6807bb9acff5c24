"""What a process does for itself that PySpark started; elsewhere nothing of it happens."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kit import LogFiles

AS_DAEMON = (
    "import sys, traceback, types\n"
    "sys.modules['__main__'].__spec__ = types.SimpleNamespace(name='pyspark.daemon')\n"
    "from kraftfast.spark.sessions.forked import settle\n"
)


def run(program: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("error, lines", [("BrokenPipeError", 0), ("ZeroDivisionError", 3)])
def test_a_worker_whose_answer_nobody_takes_says_nothing(error: str, lines: int) -> None:
    raising = f"try:\n    raise {error}\nexcept BaseException:\n    traceback.print_exc()"
    assert len(run(f"{AS_DAEMON}settle()\n{raising}").stderr.splitlines()) == lines
    program = f"{AS_DAEMON}settle()\nraise {error}"
    uncaught = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert uncaught.returncode and len(uncaught.stderr.splitlines()) == lines


def test_the_process_of_a_stream_whose_query_ended_says_nothing(
    tmp_path: Path, log: LogFiles
) -> None:
    """Spark closes the connection first and ends the process a moment later."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    from pyspark.sql.types import BinaryType, StructType

    from kraftfast.spark.reading.sources import LogSource

    schema = StructType().add("value", BinaryType()).json()
    said = (
        framed(b"%d.%d" % sys.version_info[:2]),
        framed(os.fsencode(tmp_path)) + struct.pack(">i", 0),  # no files are included
        framed(cloudpickle.dumps(LogSource({"path": str(log.path)}))),
        framed(schema.encode()) + struct.pack(">i", 1000),  # rows of an Arrow batch
    )
    door = tmp_path / "worker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
        listener.listen()
        listener.settimeout(60)
        runner = subprocess.Popen(
            [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env=os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(door)},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(60)
            connection.sendall(b"".join(said))
            with connection.makefile("rb") as answers:
                pid, made = struct.unpack(">ii", answers.read(8))
    assert (pid, made) == (runner.pid, 0)
    assert runner.communicate(timeout=60)[1] == ""


def test_only_forked_workers_are_settled() -> None:
    pytest.importorskip("pyspark")
    from kraftfast.spark.reading import sources
    from kraftfast.spark.sessions import forked

    assert sources.settle is forked.settle
    assert traceback.print_exc is not forked.print_unless_gone
    assert sys.excepthook is not forked.end_unless_gone


def test_what_is_imported_later_is_left_alone_too_and_what_tasks_leave_is_not() -> None:
    run(
        f"{AS_DAEMON}import gc\n"
        "settle(); first = gc.get_freeze_count()\n"
        "left = [[] for _ in range(1000)]; settle()\n"
        "assert 0 < gc.get_freeze_count() <= first, 'nothing was imported'\n"
        "import fractions, csv, configparser; settle()\n"
        "assert gc.get_freeze_count() > first + 500"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's mallopt")
def test_memory_that_is_freed_is_kept() -> None:
    """Blocks of 1 MiB, as a record batch has, again and again: no page of them is cleared anew."""
    program = (
        "import resource\n"
        "def faults():\n"
        "    began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20):\n"
        "        held = [bytearray(1 << 20) for _ in range(8)]\n"
        "        for each in held: each[:] = each[::-1]\n"
        "        del held\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began\n"
        "before = faults(); settle(); faults(); after = faults()\n"
        "print(before, after)"
    )
    before, after = map(int, run(AS_DAEMON + program).stdout.split())
    assert after < before / 10, (before, after)


@pytest.mark.spark
def test_the_collector_leaves_alone_what_a_worker_imported(spark: Any, log: LogFiles) -> None:
    frame = spark.read.format("kraftfast").load(str(log.path))
    counted = frame.mapInArrow(_frozen, "frozen long").toPandas()
    assert frame.count() == 120 and len(counted) and (counted["frozen"] > 10_000).all()


def _frozen(batches: Any) -> Any:
    import gc

    import pyarrow as pa

    from kraftfast.spark.reading import sources  # noqa: F401 - as a task of a source does

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})
