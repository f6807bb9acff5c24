"""What tasks stage and the driver's commit appends: once, for any plan, without a JVM."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.spark.reading.arrow_batches import HEADER_TYPE  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.streaming.direct_notes import finished_end, note_finished  # noqa: E402
from kraftfast.spark.writing import staging  # noqa: E402
from kraftfast.spark.writing.appending import append_rows  # noqa: E402
from kraftfast.spark.writing.destination import SinkOptions  # noqa: E402
from kraftfast.spark.writing.sink import BatchWriter, StreamWriter, task_name  # noqa: E402
from kraftfast.spark.writing.staging import Job, Staged, claim, publish, stage  # noqa: E402
from tests.spark.kit import rows_of  # noqa: E402

pytestmark = pytest.mark.processes
NAMES_MAX = 8
SETTINGS: dict[str, Any] = {
    "durability": "memory", "producers_max": NAMES_MAX, "stride_bytes": 1 << 20,
    "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip
VALUE = StructType([StructField("value", BinaryType())])
Batches = Iterator[pa.RecordBatch]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftfast.LocalQuorum]:
    with kraftfast.LocalQuorum(tmp_path_factory.mktemp("staging"), 1, **SETTINGS) as found:
        yield found


def options(quorum: kraftfast.LocalQuorum, **more: Any) -> SinkOptions:
    return SinkOptions.of({"path": str(quorum.path), **more}, "kraftfast")


def batches(values: list[bytes], rows: int = 10) -> Batches:
    for at in range(0, len(values), rows):
        yield pa.record_batch({"value": pa.array(values[at : at + rows], pa.binary())})


def values(word: bytes, count: int) -> list[bytes]:
    return [b"%s %d" % (word, number) for number in range(count)]


def stored(quorum: kraftfast.LocalQuorum, word: bytes) -> list[bytes]:
    rows = rows_of(LogSource({"path": str(quorum.path)}))
    return [row["value"] for row in rows if row["value"].startswith(word + b" ")]


def stage_all(job: Job, rows: list[bytes], tasks: int) -> list[Staged]:
    size = -(-len(rows) // tasks)
    return [stage(job, batches(rows[at : at + size])) for at in range(0, len(rows), size)]


def run(writer: BatchWriter, rows: list[bytes], tasks: int = 3) -> None:
    size = -(-len(rows) // tasks) or 1
    parts = [batches(rows[at : at + size]) for at in range(0, len(rows), size)]
    writer.commit([writer.write(part) for part in [*parts, batches([])]])


def a_query(quorum: kraftfast.LocalQuorum, mark: Path, query: str, batch: int) -> Job:
    writer = StreamWriter(options(quorum, checkpointLocation=str(mark)), VALUE, False)
    return writer.job_of(query, batch)


def forget_names(quorum: kraftfast.LocalQuorum) -> None:
    for number in range(NAMES_MAX + 1):
        with quorum.producer(name=f"other {number}") as producer:
            producer.append(b"other")


class Died(Exception):
    pass


def dies_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The driver's commit ends where it is about to call this function of ``staging``."""

    def die(*_: Any) -> None:
        raise Died

    monkeypatch.setattr(staging, name, die)


def dies_after(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    """The driver's commit ends with so many records of the job committed."""
    handed = staging.hand_over

    def counting(producer: Any, *rest: Any) -> None:
        if producer.outcomes.next_ticket == records:
            producer.flush()
            raise Died
        handed(producer, *rest)

    monkeypatch.setattr(staging, "hand_over", counting)


def test_a_job_leaves_its_rows_in_order_and_nothing_else(quorum: kraftfast.LocalQuorum) -> None:
    rows = values(b"whole", 100)
    run(BatchWriter(options(quorum), VALUE, False), rows)
    run(BatchWriter(options(quorum), VALUE, False), [])
    assert stored(quorum, b"whole") == rows
    assert not (Path(quorum.path) / "spark-sink").exists()


def test_what_a_failed_attempt_staged_is_not_appended(quorum: kraftfast.LocalQuorum) -> None:
    writer = BatchWriter(options(quorum), VALUE, False)
    rows = values(b"attempt", 50)

    def failing() -> Batches:
        yield from batches(rows[:30])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(failing())
    given_up = writer.write(batches(rows[::-1]))  # by a speculative copy, for one
    assert isinstance(given_up, Staged)
    random.Random(1).shuffle(rows)
    writer.commit([writer.write(batches(rows))])
    assert stored(quorum, b"attempt") == rows
    assert not os.path.exists(writer.job.directory)


def test_keys_and_headers_of_some_rows(quorum: kraftfast.LocalQuorum) -> None:
    writer = BatchWriter(options(quorum), VALUE, False)
    first = pa.record_batch(
        {
            "key": pa.array([None, None], pa.binary()),
            "headers": pa.array([None, []], HEADER_TYPE),
            "value": pa.array(["some 1", "some 2"], pa.large_string()),
        }
    )
    headers = pa.array([[{"key": "h", "value": None}], None], HEADER_TYPE)
    second = first.set_column(0, "key", pa.array([b"k", None], pa.binary()))
    second = second.set_column(1, "headers", headers)
    writer.commit([writer.write(iter([first, second]))])
    rows = rows_of(LogSource({"path": str(quorum.path)}))
    assert [(row["key"], row["headers"]) for row in rows if row["value"].startswith(b"some ")] == [
        (None, None), (None, None), (b"k", [{"key": "h", "value": None}]), (None, None),
    ]  # fmt: skip
    bad = pa.array([[{"key": None, "value": b""}]], HEADER_TYPE)
    wrong = pa.record_batch({"value": pa.array([b"some 3"], pa.binary()), "headers": bad})
    with pytest.raises(errors.InvalidOption, match="whose key is null"):
        writer.write(iter([wrong]))


@pytest.mark.parametrize("at", ["_append_files", "settle_all", "_finish", "_clean"])
def test_a_micro_batch_comes_again_in_another_order(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The driver dies anywhere in its commit; the replay has other partitions and another order."""
    word = at.encode()
    made = options(quorum)
    for number in (0, 1):
        job = a_query(quorum, tmp_path, f"query {at}", number)
        rows = values(b"%s %d" % (word, number), 100)
        staged = stage_all(job, rows, 4)
        if number:
            with monkeypatch.context() as patched:
                dies_at(patched, at)
                with pytest.raises(Died):
                    publish(made, staged)
            again = rows[:]
            random.Random(1).shuffle(again)
            publish(made, stage_all(job, again, 7))
        else:
            publish(made, staged)
        assert stored(quorum, b"%s %d" % (word, number)) == rows, "those of the first attempt"
        publish(made, stage_all(job, rows[:10], 1))
        assert stored(quorum, b"%s %d" % (word, number)) == rows, "it is done"
    assert set(os.listdir(job.directory)) <= {"done.json", "mode"}


def test_it_dies_in_the_middle_of_the_records(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, rows = a_query(quorum, tmp_path, "middle", 0), values(b"middle", 100)
    with monkeypatch.context() as patched:
        dies_after(patched, 20)
        with pytest.raises(Died):
            publish(options(quorum), stage_all(job, rows, 3))
    assert stored(quorum, b"middle") == rows[:20]
    done = publish(options(quorum), stage_all(job, rows[::-1], 5))
    assert (done.rows, done.resumed) == (100, 20)
    assert stored(quorum, b"middle") == rows


def test_a_forgotten_name_is_told(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, rows = a_query(quorum, tmp_path, "forgotten", 0), values(b"forgotten", 20)
    publish(options(quorum), stage_all(job, rows[:10], 1))
    job = a_query(quorum, tmp_path, "forgotten", 1)
    with monkeypatch.context() as patched:
        dies_at(patched, "_finish")
        with pytest.raises(Died):
            publish(options(quorum), stage_all(job, rows[10:], 1))
    forget_names(quorum)
    with pytest.raises(errors.UnknownOutcome, match="forgot that name"):
        publish(options(quorum), stage_all(job, rows[10:], 1))
    assert stored(quorum, b"forgotten") == rows

    job = a_query(quorum, tmp_path, "silent", 0)
    publish(options(quorum), stage_all(job, values(b"silent", 10), 1))
    forget_names(quorum)
    job = a_query(quorum, tmp_path, "silent", 1)
    publish(options(quorum), stage_all(job, values(b"silent", 20)[10:], 1))
    assert stored(quorum, b"silent") == values(b"silent", 20), "nothing of it was begun"


def test_a_name_that_was_forgotten_with_its_first_records(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies with all records of the first micro-batch appended, and nothing noted."""
    job, rows = a_query(quorum, tmp_path, "first", 0), values(b"first", 20)
    with monkeypatch.context() as patched:
        dies_at(patched, "_finish")
        with pytest.raises(Died):
            publish(options(quorum), stage_all(job, rows, 2))
    forget_names(quorum)
    with pytest.raises(errors.UnknownOutcome, match="may have forgotten it"):
        publish(options(quorum), stage_all(job, rows, 2))
    assert stored(quorum, b"first") == rows


def test_a_name_is_one_job(quorum: kraftfast.LocalQuorum) -> None:
    def daily() -> BatchWriter:
        return BatchWriter(options(quorum, producerName="daily", neverRun="true"), VALUE, False)

    rows = values(b"daily", 100)
    run(daily(), rows)
    run(daily(), rows[::-1], 5)
    assert stored(quorum, b"daily") == rows
    for other in (values(b"other", 150), [*rows, b"daily 100"], rows[:-1], []):
        with pytest.raises(errors.InputError, match="another job wants another name"):
            run(daily(), other)
    assert stored(quorum, b"daily") == rows and not stored(quorum, b"other")


def test_a_named_job_is_finished_before_another_is_refused(
    quorum: kraftfast.LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = options(quorum, producerName="half", neverRun="true")
    rows = values(b"half", 100)
    with monkeypatch.context() as patched:
        dies_at(patched, "_append_files")
        with pytest.raises(Died):
            run(BatchWriter(made, VALUE, False), rows)
    with pytest.raises(errors.InputError, match="nothing of this one is appended"):
        run(BatchWriter(made, VALUE, False), values(b"half", 101))
    assert stored(quorum, b"half") == rows


def test_a_name_whose_notes_and_records_nobody_knows_any_more(
    quorum: kraftfast.LocalQuorum,
) -> None:
    """The user removed the notes, the quorum forgot the name: the rows may be there already."""
    for mode in ("staged", "direct"):
        word = b"nightly-" + mode.encode()
        made = options(quorum, producerName=f"nightly {mode}", writeMode=mode)
        rows = values(word, 30)
        asserted = options(quorum, producerName=f"nightly {mode}", writeMode=mode, neverRun="true")
        run(BatchWriter(asserted, VALUE, False), rows, 1)
        shutil.rmtree(BatchWriter(made, VALUE, False).job.directory)
        forget_names(quorum)
        for _ in range(2):  # the refusal itself leaves nothing that would be taken for a note
            with pytest.raises(
                errors.UnknownOutcome, match="does not know nightly .* neverRun=true"
            ):
                run(BatchWriter(made, VALUE, False), rows, 1)
        assert stored(quorum, word) == rows


def test_a_named_job_without_rows_leaves_its_name_free(quorum: kraftfast.LocalQuorum) -> None:
    made = options(quorum, producerName="hourly", neverRun="true")
    run(BatchWriter(made, VALUE, False), [])
    rows = values(b"hourly", 10)
    run(BatchWriter(made, VALUE, False), rows)
    assert stored(quorum, b"hourly") == rows
    with pytest.raises(errors.InputError, match="a job of producerName hourly has committed 10"):
        run(BatchWriter(made, VALUE, False), [])


def test_what_was_staged_is_damaged_before_it_was_appended(
    quorum: kraftfast.LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is committed yet: any rows may take its place, and damage is never appended."""
    made, rows = options(quorum, producerName="spoilt", neverRun="true"), values(b"spoilt", 60)
    writer = BatchWriter(made, VALUE, False)
    with monkeypatch.context() as patched:
        dies_at(patched, "_append_files")
        with pytest.raises(Died):
            run(writer, rows)
    flip_a_value(writer.job, b"spoilt 7")
    again = [*rows[30:], *rows[:20]]
    run(BatchWriter(made, VALUE, False), again, 2)
    assert stored(quorum, b"spoilt") == again


def test_what_was_staged_is_damaged_with_some_of_it_appended(
    quorum: kraftfast.LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rows = options(quorum, producerName="partly", neverRun="true"), values(b"partly", 60)
    writer = BatchWriter(made, VALUE, False)
    with monkeypatch.context() as patched:
        dies_after(patched, 10)
        with pytest.raises(Died):
            run(writer, rows)
    assert stored(quorum, b"partly") == rows[:10]
    (job, damaged), word = (writer.job, "10 of the 60 rows of partly are committed"), b"partly 45"
    for path in Path(job.directory).glob("*.arrow"):
        if word in path.read_bytes():
            path.write_bytes(path.read_bytes()[:-40])
    for other in (rows[::-1], rows[:-1], []):
        with pytest.raises(errors.InputError, match=f"{damaged}: run it again with the same rows"):
            run(BatchWriter(made, VALUE, False), other)
    run(BatchWriter(made, VALUE, False), rows, 4)
    run(BatchWriter(made, VALUE, False), rows[::-1], 1)
    assert stored(quorum, b"partly") == rows


def flip_a_value(job: Job, word: bytes) -> None:
    for path in Path(job.directory).glob("*.arrow"):
        data = path.read_bytes()
        path.write_bytes(data.replace(word, word[:-1] + b"!"))


def test_a_staging_directory_that_cannot_be_one(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    rows = values(b"nowhere", 5)
    for place in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nowhere"):
        named = options(quorum, stagingDir=str(place), producerName="nowhere", neverRun="true")
        with pytest.raises(errors.StorageError, match="^cannot stage rows in /"):
            BatchWriter(named, VALUE, False)
        with pytest.raises(errors.StorageError, match="^cannot stage rows in /"):
            run(BatchWriter(options(quorum, stagingDir=str(place)), VALUE, False), rows)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = BatchWriter(options(quorum), VALUE, False)
    for name in ("_put", "_write"):
        with monkeypatch.context() as patched:
            patched.setattr(staging, name, full)
            with pytest.raises(errors.DiskFull, match="no space left: cannot stage rows in"):
                run(writer, rows)
    assert not stored(quorum, b"nowhere")


def test_the_directory_of_one_replica_stands_for_its_quorum(quorum: kraftfast.LocalQuorum) -> None:
    made = SinkOptions.of({"path": os.path.join(quorum.path, "1")}, "kraftfast")
    assert made == options(quorum)
    with pytest.raises(errors.InvalidOption, match="bootstrap.servers: 'here' is not host:port"):
        SinkOptions.of({"bootstrap.servers": "here"}, "kraftfast")


def test_a_job_without_a_name_says_what_it_leaves(
    quorum: kraftfast.LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_leader(*_: Any) -> None:
        raise errors.NoQuorum("no leader within 3 s")

    writer = BatchWriter(options(quorum), VALUE, False)
    staged = stage_all(writer.job, values(b"unnamed", 20), 2)
    monkeypatch.setattr(staging, "settle_all", no_leader)
    with pytest.raises(errors.UnknownOutcome, match="of 20 rows .* no producerName: no leader"):
        writer.commit(staged)
    writer.abort(staged)
    assert not os.path.exists(writer.job.directory)


def test_another_quorum_is_told(quorum: kraftfast.LocalQuorum, tmp_path: Path) -> None:
    job = a_query(quorum, tmp_path, "moved", 0)
    publish(options(quorum), stage_all(job, values(b"moved", 3), 1))
    with kraftfast.LocalQuorum(tmp_path / "anew", 1, **SETTINGS) as anew:
        with pytest.raises(errors.InputError, match="is of the quorum"):
            publish(options(anew), stage_all(job, values(b"moved", 3), 1))
        direct = replace(job, name="moved directly", batch=1)
        claim(direct, "direct")
        note_finished(direct, options(quorum))
        later = replace(direct, batch=2)
        assert 0 < finished_end(later, options(quorum)) <= options(quorum).committed_end()
        assert finished_end(direct, options(quorum)) == -1, "its own rows may be there"
        with pytest.raises(errors.InputError, match="is of the quorum"):
            finished_end(later, options(anew))


def test_a_file_that_is_not_there_is_told_before_any_of_it(quorum: kraftfast.LocalQuorum) -> None:
    writer = BatchWriter(options(quorum), VALUE, False)
    staged = stage_all(writer.job, values(b"gone", 50), 3)
    os.unlink(os.path.join(writer.job.directory, staged[2].file))
    with pytest.raises(errors.InputError, match="that all hosts mount by stagingDir"):
        writer.commit(staged)
    writer.abort(staged)
    assert not stored(quorum, b"gone") and not os.path.exists(writer.job.directory)


def test_where_it_is_staged(quorum: kraftfast.LocalQuorum, tmp_path: Path) -> None:
    host, port = "localhost", 1
    servers = {"bootstrap.servers": f"{host}:{port}"}
    for stream, more in ((True, {}), (False, {"producerName": "x"})):
        with pytest.raises(errors.InvalidOption, match="name it by stagingDir"):
            SinkOptions.of(servers | more, "kraftfast").staging_root(stream)
    made = SinkOptions.of(servers | {"stagingDir": "file:///a/b"}, "kraftfast")
    assert made.staging_root(True) == made.staging_root(False) == "/a/b"
    with pytest.raises(errors.InvalidOption, match="is not on this file system"):
        SinkOptions.of(servers | {"stagingDir": "hdfs://a/b"}, "kraftfast")
    remote = SinkOptions.of(servers | {"checkpointLocation": "s3a://a/b"}, "kraftfast")
    with pytest.raises(errors.InvalidOption, match="checkpointLocation"):
        remote.staging_root(True)
    assert SinkOptions.of({"path": "here"}, "kraftfast").path == os.path.abspath("here")


# --- directly, a name a task ----------------------------------------------------------------------


def test_rows_in_another_order_are_an_error(quorum: kraftfast.LocalQuorum) -> None:
    made, rows = options(quorum), values(b"shuffled", 100)

    def failing() -> Batches:
        yield from batches(rows[:60])
        raise ZeroDivisionError

    since = made.committed_end()
    with pytest.raises(ZeroDivisionError):
        append_rows(made, "shuffled-0", failing(), since)
    again = [*rows[:37], *rows[:36:-1]]
    with pytest.raises(errors.InputError, match="row 37 of shuffled-0 is not the record"):
        append_rows(made, "shuffled-0", batches(again, 7), since)
    done = append_rows(made, "shuffled-0", batches(rows, 7), since)
    assert done.resumed == 60 and stored(quorum, b"shuffled") == rows
    with pytest.raises(errors.InputError, match="row 0 of shuffled-0"):
        append_rows(made, "shuffled-0", batches(values(b"day2", 150)))
    assert not stored(quorum, b"day2")


def test_keys_and_headers_are_compared_too(quorum: kraftfast.LocalQuorum) -> None:
    def rows(key: bytes | None, header: bytes | None) -> Batches:
        headers: list[Any] = [[{"key": "h", "value": header}], []]
        yield pa.record_batch(
            {
                "key": pa.array([key, None], pa.binary()),
                "value": pa.array([b"compared 0", b"compared 1"], pa.binary()),
                "headers": pa.array(headers, HEADER_TYPE),
            }
        )

    made = options(quorum)
    since = made.committed_end()
    append_rows(made, "compared-0", rows(b"k", b""), since)
    assert append_rows(made, "compared-0", rows(b"k", b""), since).resumed == 2
    for other in (rows(None, b""), rows(b"k", None), batches(values(b"compared", 2))):
        with pytest.raises(errors.InputError, match="row 0 of compared-0"):
            append_rows(made, "compared-0", other, since)


def test_more_names_than_the_quorum_remembers_are_an_error(quorum: kraftfast.LocalQuorum) -> None:
    """All tasks of a micro-batch, then, as its driver died, all of them again."""
    made, told = options(quorum), 0
    since = made.committed_end()
    for _ in range(2):
        for part in range(3 * NAMES_MAX):
            rows = [b"many %d" % part]
            try:
                append_rows(made, task_name("many", part), batches(rows), since)
            except errors.UnknownOutcome as error:
                assert "kraftfast.producers.max" in str(error)
                told += 1
    assert told and len(stored(quorum, b"many")) == len(set(stored(quorum, b"many")))


def test_a_job_keeps_its_way_of_writing(quorum: kraftfast.LocalQuorum) -> None:
    def writer(mode: str) -> BatchWriter:
        made = options(quorum, producerName="mode", writeMode=mode)
        return BatchWriter(made, VALUE, False)

    writer("staged")
    with pytest.raises(errors.InputError, match="writeMode=staged: go on with that"):
        writer("direct")
