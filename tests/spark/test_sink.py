"""The sink: once each, whatever is tried again; and what does not fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.client.producer.sender import RECORD_BYTES_MAX  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.sessions.local_session import why_not  # noqa: E402
from kraftfast.spark.writing.direct_tasks import note_rows  # noqa: E402
from kraftfast.spark.writing.outgoing import check_schema  # noqa: E402
from kraftfast.spark.writing.sink import (  # noqa: E402
    BatchWriter,
    RowsAppended,
    SinkOptions,
    append_rows,
)
from kraftfast.spark.writing.staging import Job, stage  # noqa: E402
from tests.spark.kit import LogFiles, rows_of  # noqa: E402

pytestmark = pytest.mark.processes
SMALL: dict[str, Any] = {
    "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftfast.LocalQuorum]:
    path = tmp_path_factory.mktemp("sink")
    with kraftfast.LocalQuorum(path, 1, transport="socket", durability="memory", **SMALL) as found:
        yield found


def options(quorum: kraftfast.LocalQuorum, **more: Any) -> SinkOptions:
    return SinkOptions.of({"path": str(quorum.path), **more}, "kraftfast")


def batches(values: list[bytes], rows: int = 10) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(values), rows):
        yield pa.record_batch({"value": pa.array(values[at : at + rows], pa.binary())})


def stored(quorum: kraftfast.LocalQuorum, prefix: bytes) -> list[bytes]:
    rows = rows_of(LogSource({"path": str(quorum.path)}))
    return [row["value"] for row in rows if row["value"].startswith(prefix)]


def test_an_attempt_goes_on_where_the_one_before_ended(quorum: kraftfast.LocalQuorum) -> None:
    values = [b"retry %d" % n for n in range(100)]

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(values[:30])
        time.sleep(0.3)  # what was handed over is committed by now
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        append_rows(options(quorum), "retry-0", failing())
    done = append_rows(options(quorum), "retry-0", batches(values))
    assert (done.rows, done.resumed) == (100, 30)
    assert done.end_offset - done.first_offset == 70
    again = append_rows(options(quorum), "retry-0", batches(values, rows=7))
    assert (again.rows, again.resumed, again.first_offset) == (100, 100, -1)
    assert stored(quorum, b"retry") == values


def test_a_damaged_note_of_a_job_is_told(quorum: kraftfast.LocalQuorum, tmp_path: Path) -> None:
    """Taken for none, it would let a job that was done store its rows again."""
    made = options(quorum, writeMode="direct", producerName="noted", stagingDir=str(tmp_path))
    value = StructType([StructField("value", StringType())])
    job = BatchWriter(made, value, False).job
    note_rows(job, made, None, [RowsAppended(3, 0, 0, 3), RowsAppended(4, 0, 3, 7)])
    assert BatchWriter(made, value, False).noted == [3, 4]
    (note,) = Path(job.directory).glob("direct.json")
    note.write_bytes(b"")
    with pytest.raises(errors.InputError, match="does not parse"):
        BatchWriter(made, value, False)


def test_a_row_that_no_log_takes_is_refused_before_any_is_appended(tmp_path: Path) -> None:
    """By the task that has it; the commit comes after all tasks."""
    job = Job(str(tmp_path), "once", "spark-once-large")
    largest = b"v" * RECORD_BYTES_MAX
    assert stage(job, batches([b"small", largest], rows=1)).rows == 2
    (kept,) = Path(job.directory).iterdir()
    with pytest.raises(errors.RecordTooLarge, match=f"at most {RECORD_BYTES_MAX} can be sent"):
        stage(job, batches([b"small", largest + b"v"], rows=1))
    assert list(Path(job.directory).iterdir()) == [kept]


def test_two_attempts_at_once_store_each_row_once(quorum: kraftfast.LocalQuorum) -> None:
    """As speculation runs them: the later one goes on from anywhere, the earlier one is fenced."""
    values = [b"twice %d" % n for n in range(200)]
    made = options(quorum, writeMode="direct")
    writer = BatchWriter(made, StructType([StructField("value", BinaryType())]), False)
    taken_over, outcomes = threading.Event(), list[Any]()

    def slow() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(values)):
            if number == 9:
                begun.set()
                assert taken_over.wait(20)
            yield batch

    def quick() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(values, rows=7)):
            if number == 20:
                taken_over.set()  # from here on both append
            yield batch

    def attempt(rows: Iterator[pa.RecordBatch]) -> None:
        try:
            outcomes.append(writer.write(rows))
        except errors.KraftfastError as error:
            outcomes.append(error)

    begun = threading.Event()
    earlier = threading.Thread(target=attempt, args=(slow(),))
    earlier.start()
    assert begun.wait(20)
    attempt(quick())
    earlier.join(20)
    done = [each for each in outcomes if isinstance(each, RowsAppended)]
    fenced = [each for each in outcomes if not isinstance(each, RowsAppended)]
    assert [(each.rows, each.resumed <= 90) for each in done] == [(200, True)]
    assert [type(each) for each in fenced] == [errors.ProducerFenced]
    assert stored(quorum, b"twice") == values


def test_over_sockets_with_keys_and_headers(quorum: kraftfast.LocalQuorum) -> None:
    host, port = quorum.addresses[1]
    made = SinkOptions.of({"bootstrap.servers": f"{host}:{port}"}, "kraftfast")
    batch = pa.record_batch(
        {
            "key": pa.array([b"k1", None], pa.binary()),
            "value": pa.array(["socket 1", "socket 2"], pa.string()),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    append_rows(made, "socket-0", iter([batch]))
    rows = rows_of(LogSource({"path": str(quorum.path)}))
    rows = [row for row in rows if row["value"].startswith(b"socket")]
    assert [(row["key"], row["headers"]) for row in rows] == [
        (b"k1", [{"key": "h", "value": b"x"}]), (None, None),
    ]  # fmt: skip


def test_a_task_without_rows_takes_no_name(tmp_path: Path) -> None:
    done = append_rows(SinkOptions.of({"path": str(tmp_path)}, "x"), "n", batches([]))
    assert (done.rows, done.first_offset) == (0, -1)


def test_another_input_under_the_same_name_is_refused(quorum: kraftfast.LocalQuorum) -> None:
    append_rows(options(quorum), "shorter-0", batches([b"shorter"] * 20))
    with pytest.raises(errors.InputError, match="20 records of shorter-0 are committed"):
        append_rows(options(quorum), "shorter-0", batches([b"shorter"] * 5))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"word": StringType()}, "a column named value is wanted"),
        ({"value": LongType()}, "column value is bigint: cast it to binary"),
        ({"value": BinaryType(), "offset": LongType()}, "not offset: select those"),
        ({"value": BinaryType(), "headers": StringType()}, "is string; array<struct"),
    ],
)
def test_schemas_that_do_not_fit(fields: dict[str, Any], message: str) -> None:
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    with pytest.raises(errors.InvalidOption, match=message):
        check_schema(schema, False)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"producerName": "two\nlines"}, "characters that cannot be printed"),
        ({"producerName": "\ud800"}, "characters that cannot be printed"),
        ({"stagingDir": "/a\0b"}, "has a zero byte"),
        ({"path": "a\0b"}, "has a zero byte"),
    ],
)
def test_options_that_no_file_and_no_line_can_hold(options: dict[str, str], message: str) -> None:
    with pytest.raises(errors.InvalidOption, match=message) as refused:
        SinkOptions.of({"path": "q"} | options, "kraftfast")
    assert str(refused.value).startswith(f"{next(iter(options))}='")
    assert str(refused.value).isprintable()


def test_a_log_is_not_overwritten(tmp_path: Path) -> None:
    value = StructType([StructField("value", BinaryType())])
    with pytest.raises(errors.InvalidOption, match="cannot be overwritten: .* outputMode"):
        check_schema(value, True)
    with pytest.raises(errors.NotFormatted, match="holds no quorum: there is no quorum.json"):
        SinkOptions.of({"path": str(tmp_path)}, "x").check_place()
    with pytest.raises(errors.InvalidOption, match="neverRun is of the job that producerName"):
        BatchWriter(SinkOptions.of({"path": "q", "neverRun": "true"}, "x"), value, False)
    with pytest.raises(errors.InvalidOption, match="did you mean producerName"):
        SinkOptions.of({"path": "x", "producername": "y", "producer": "z"}, "x")


@pytest.mark.spark
def test_a_data_frame_is_appended_and_a_failed_task_tried_again(
    spark: Any, quorum: kraftfast.LocalQuorum, tmp_path: Path
) -> None:
    mark = str(tmp_path / "failed")

    def fail_once(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in parts:
            yield batch.slice(0, 500)
            if batch.column(0)[0].as_py().startswith("frame 0") and not os.path.exists(mark):
                open(mark, "w").close()
                time.sleep(0.5)
                raise ZeroDivisionError("once")
            yield batch.slice(500)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
    frame = spark.range(0, 4000, 1, 2).selectExpr("concat('frame ', id) as value")
    frame = frame.mapInArrow(fail_once, "value string")
    for mode in ("direct", "staged"):
        if os.path.exists(mark):
            os.unlink(mark)
        out = frame.write.format("kraftfast").option("writeMode", mode).mode("append")
        out.save(str(quorum.path))
        assert os.path.exists(mark)
    assert sorted(stored(quorum, b"frame")) == sorted(2 * [b"frame %d" % n for n in range(4000)])
    assert not (Path(quorum.path) / "spark-sink").exists(), "nothing stays of what was staged"


@pytest.mark.spark
def test_a_named_job_that_is_cut_into_other_tasks_stores_no_row_twice(
    spark: Any, quorum: kraftfast.LocalQuorum
) -> None:
    """Each task looked for its rows under its own name, and found those of another missing."""

    def load(rows: int, tasks: int, name: str = "cut") -> None:
        frame = spark.range(0, rows, 1, tasks).selectExpr("concat('cut ', id) as value")
        out = frame.write.format("kraftfast").mode("append").option("writeMode", "direct")
        out.option("producerName", name).save(str(quorum.path))

    load(10, 2)
    whole = sorted(b"cut %d" % number for number in range(10))
    for rows, tasks in ((10, 1), (10, 3), (12, 2), (12, 1), (8, 2)):
        with pytest.raises(Exception, match="another job wants another producerName"):
            load(rows, tasks)
        assert sorted(stored(quorum, b"cut ")) == whole, (rows, tasks)
    load(10, 2)
    assert sorted(stored(quorum, b"cut ")) == whole


@pytest.mark.spark
def test_a_named_job_without_rows_leaves_its_name_free(
    spark: Any, quorum: kraftfast.LocalQuorum
) -> None:
    for rows in (0, 7, 7):
        frame = spark.range(0, rows, 1, 2).selectExpr("concat('free ', id) as value")
        out = frame.write.format("kraftfast").mode("append").option("writeMode", "direct")
        out.option("producerName", "free").save(str(quorum.path))
    assert len(stored(quorum, b"free ")) == 7


@pytest.mark.spark
@pytest.mark.parametrize("named", [False, True])
def test_nothing_stays_of_what_a_failed_job_staged(
    spark: Any, quorum: kraftfast.LocalQuorum, tmp_path: Path, named: bool
) -> None:
    """Files of attempts whose rows ended in an error of the JVM stayed for ever."""
    frame = spark.range(0, 20_000, 1, 2).selectExpr(
        "if(id = 19999, raise_error('no'), 'x') as value"
    )
    out = frame.write.format("kraftfast").mode("append").option("stagingDir", str(tmp_path / "s"))
    if named:
        out = out.option("producerName", "failed")
    with pytest.raises(Exception, match="no"):
        out.save(str(quorum.path))
    if named:  # another driver may run a job of this name: the next commit removes them
        spark.range(0, 3).selectExpr("'y' as value").write.format("kraftfast").mode(
            "append"
        ).options(stagingDir=str(tmp_path / "s"), producerName="failed").save(str(quorum.path))
    assert [each.name for each in tmp_path.rglob("*.arrow")] == []


KILLED = """
import sys
from pyspark.sql import functions as F
from kraftfast.spark import get_spark
log, quorum, mark = sys.argv[1:]
spark = get_spark("local[2,4]", short=True, memory="1g")
frame = spark.readStream.format("kraftfast").option("maxRecordsPerTrigger", 40).load(log)
query = (
    frame.select("key", "value", F.rand().alias("r")).repartition(5, "r").select("key", "value")
    .writeStream.format("kraftfast")
    .option("checkpointLocation", mark).trigger(availableNow=True).start(quorum)
)
query.awaitTermination()
print("done")
"""


def run_stream(*args: str) -> subprocess.Popen[str]:
    """A driver of its own, in a process group of its own with its JVM and workers."""
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, *args], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
def test_kill_9_of_everything_loses_and_doubles_nothing(
    quorum: kraftfast.LocalQuorum, log: LogFiles, tmp_path: Path
) -> None:
    """A stream from a directory into a quorum, its rows in another order each time; driver, JVM and
    workers are killed in the middle of a commit, so that the last micro-batch comes again."""
    if why_not():
        pytest.skip(why_not())
    log.fill(2, 50, 4)
    mark = tmp_path / "mark"
    args = (str(log.path), str(quorum.path), str(mark))
    process = run_stream(*args)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if list(mark.glob("spark-sink/*/plan.json")) and (mark / "commits" / "1").exists():
            break
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = len(stored(quorum, b"value"))
    assert 0 < before < 520, "it was killed in the middle"
    again = run_stream(*args)
    assert again.communicate(timeout=200)[0].strip().endswith("done")
    assert sorted(stored(quorum, b"value")) == sorted(b"value %d" % n for n in range(520))
