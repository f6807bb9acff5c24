"""Executors that are processes of their own, one killed meanwhile; and Spark Connect."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import kraftfast  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.sessions.local_session import why_not  # noqa: E402
from tests.spark.kit import LogFiles, rows_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.processes]

CONNECT = """
import sys
from pyspark.sql import SparkSession
from kraftfast.errors import CorruptLog, InvalidOption
from kraftfast.spark import audit, register, told
from kraftfast.spark.sessions import local_session
local_session.environment(quiet=False)
spark = register(SparkSession.builder.remote("local[2]").getOrCreate())
log, mark = sys.argv[1:]
found = spark.read.format("kraftfast").load(log)
assert found.where("offset >= 100").count() == 20
assert found.limit(3).toArrow().num_rows == 3
query = (
    spark.readStream.format("kraftfast").option("maxRecordsPerTrigger", 50).load(log)
    .writeStream.format("parquet").option("path", mark + "/out")
    .option("checkpointLocation", mark + "/mark").trigger(availableNow=True).start()
)
query.awaitTermination()
assert spark.read.parquet(mark + "/out").count() == 120
assert audit(spark, [log]).ok
try:
    with told():
        spark.read.format("kraftfast").option("startOfset", 1).load(log).count()
except InvalidOption as error:
    assert "startOffset" in str(error)
    print("connected")
spark.stop()
"""


def run(*args: object) -> subprocess.CompletedProcess[str]:
    if why_not():
        pytest.skip(why_not())
    return subprocess.run(
        [sys.executable, *map(str, args)], capture_output=True, text=True, timeout=280,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.long
def test_workers_and_executors_are_killed_while_they_write(log: LogFiles, tmp_path: Path) -> None:
    small = {"stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20}
    path = tmp_path / "quorum"
    with kraftfast.LocalQuorum(path, 1, durability="memory", **small):  # type: ignore[arg-type]
        job = Path(__file__).with_name("cluster_job.py")
        done = run(job, log.path, path, tmp_path / "parquet")
        assert done.returncode == 0, done.stdout + done.stderr
        for mode in ("staged", "direct"):
            assert f"{mode} killed worker executor" in done.stdout
        stored = [row["value"] for row in rows_of(LogSource({"path": str(path)}))]
    assert sorted(stored) == sorted(
        b"%s %d" % (mode, n) for mode in (b"staged", b"direct") for n in range(4000)
    )


def test_spark_connect(log: LogFiles, tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "google.rpc"):
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            pytest.skip(f"Spark Connect needs {name}: pip install 'pyspark[connect]'")
    done = run("-c", CONNECT, log.path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "connected" in done.stdout
