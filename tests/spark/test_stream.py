"""The stream source: offsets, admission, replays, data that is gone; then on Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import (  # noqa: E402
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
)

from kraftfast import errors  # noqa: E402
from kraftfast.log.reading.extents import LogExtents  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.streaming.lineage import positions  # noqa: E402
from kraftfast.spark.streaming.stream import StreamReader  # noqa: E402
from tests.spark.kit import LogFiles, read_all, struct  # noqa: E402

FIELDS = ["offset", "value"]


def reader(path: Any, **options: Any) -> StreamReader:
    found: StreamReader = LogSource({"path": str(path), **options}).streamReader(struct(FIELDS))
    return found


def ends(found: Any) -> Any:
    """The offsets alone, without the words on which logs they are of."""
    return found and positions(found)


def offsets(found: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    return [row["offset"] for row in read_all(found, found.partitions(start, end))]


def test_a_growing_directory(log: LogFiles) -> None:
    found = reader(log.path)
    name = str(log.path)
    start = found.initialOffset()
    assert start == {name: 0}
    end = found.latestOffset(start, ReadAllAvailable())
    assert ends(end) == {name: 120} == found.reportLatestOffset()
    assert offsets(found, start, end) == list(range(120))
    log.fill(1, 2, 4)
    later = found.latestOffset(end, ReadAllAvailable())
    assert offsets(found, end, later) == list(range(120, 128))
    assert found.latestOffset(later, ReadAllAvailable()) == later
    assert offsets(found, later, later) == []
    assert offsets(reader(log.path), start, end) == list(range(120)), "a replay is the same"


def test_a_torn_tail_waits_until_it_is_whole(log: LogFiles) -> None:
    file, position, data = log.batches[-1]
    os.truncate(file, position + 20)
    found = reader(log.path)
    name = str(log.path)
    assert ends(found.latestOffset({name: 100}, ReadAllAvailable())) == {name: 116}
    file.write_bytes(file.read_bytes()[:position] + data)
    assert ends(found.latestOffset({name: 116}, ReadAllAvailable())) == {name: 120}


def test_admission_by_records_and_by_bytes(log: LogFiles) -> None:
    name = str(log.path)
    found = reader(log.path, maxRecordsPerTrigger="50")
    assert found.getDefaultReadLimit() == ReadMaxRows(50)
    assert ends(found.latestOffset({name: 0}, ReadMaxRows(50))) == {name: 50}
    assert offsets(found, {name: 45}, {name: 50}) == [45, 46, 47, 48, 49]
    size = [len(each[2]) for each in log.batches]
    by_bytes = reader(log.path, maxBytesPerTrigger="1000")
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(1000)
    assert ends(by_bytes.latestOffset({name: 0}, ReadMaxBytes(sum(size[:3])))) == {name: 12}
    least = by_bytes.latestOffset({name: 0}, ReadMaxBytes(1))
    assert ends(least) == {name: 4}, "at least one batch"
    some = by_bytes.latestOffset({name: 36}, ReadMaxBytes(sum(size[9:11]) + 20))
    assert ends(some) == {name: 44}
    assert ends(reader(log.path).latestOffset({name: 0}, ReadMaxBytes(10**9))) == {name: 120}
    assert reader(log.path).getDefaultReadLimit() == ReadAllAvailable()


def test_an_end_inside_a_batch_is_found_in_a_log(log: LogFiles) -> None:
    for end in (45, 46, 47):
        extents = LogExtents(str(log.log_path))
        assert extents.look(end).epoch_at(end - 1) == 2, "a batch of offsets 44 to 47"
        assert extents.look().end_offset == 120


def test_of_two_limits_the_smaller_is_kept(log: LogFiles) -> None:
    name = str(log.path)
    size = sum(len(each[2]) for each in log.batches[:3])
    for rows, bytes_max, expected in (("5000", size, 12), ("7", 10 * size, 7)):
        found = reader(log.path, maxRecordsPerTrigger=rows, maxBytesPerTrigger=str(bytes_max))
        end = found.latestOffset({name: 0}, found.getDefaultReadLimit())
        assert ends(end) == {name: expected}


def test_available_now_does_not_run_after_what_comes_later(log: LogFiles) -> None:
    name = str(log.path)
    found = reader(log.path)
    found.prepareForTriggerAvailableNow()
    log.fill(1, 2, 4)
    assert ends(found.latestOffset({name: 0}, ReadAllAvailable())) == {name: 120}
    assert found.reportLatestOffset() == {name: 128}, "the lag is told of all the same"


def test_where_it_begins(log: LogFiles) -> None:
    name = str(log.path)
    assert reader(log.path, startOffset="latest").initialOffset() == {name: 120}
    assert reader(log.path, startOffset="7").initialOffset() == {name: 7}
    with pytest.raises(errors.InvalidOption, match="startOffset=121: .* up to offset 120"):
        reader(log.path, startOffset="121").initialOffset()
    with pytest.raises(errors.InvalidOption, match="startOffset=latest is a stream's"):
        LogSource({"path": name, "startOffset": "latest"}).reader(struct(FIELDS))


def test_several_directories_each_have_their_offset(log: LogFiles, tmp_path: Path) -> None:
    other = log.copy(tmp_path / "replica2")
    found = reader(tmp_path / "replica*")
    names = [str(log.path), str(other.path)]
    end = ends(found.latestOffset({names[0]: 0, names[1]: 100}, ReadMaxRows(60)))
    assert end == {names[0]: 52, names[1]: 108} or sum(end.values()) == 160
    found_offsets = offsets(found, {names[0]: 0}, {names[0]: 2, names[1]: 3})
    assert found_offsets == [0, 1, 0, 1, 2], "a log that came later is read from its start"


def test_data_that_is_gone(log: LogFiles) -> None:
    """Fails by default; or goes on with the snapshot that stands for it."""
    name = str(log.path)
    log.snapshot(40, [(b"k", b"state")])
    os.unlink(log.log_path / f"{0:020d}.log")
    with pytest.raises(errors.OffsetOutOfRange, match="starts at offset 40 by now"):
        reader(log.path).partitions({name: 8}, {name: 60})
    found = reader(log.path, failOnDataLoss="false")
    rows = read_all(found, found.partitions({name: 8}, {name: 44}))
    assert [(row["offset"], row["value"]) for row in rows] == [
        (39, b"state"), *((n, b"value %d" % n) for n in range(40, 44)),
    ]  # fmt: skip
    assert found.initialOffset() == {name: 40}


def test_data_that_is_gone_before_several_snapshots(log: LogFiles) -> None:
    """A trim that waits has a later one, and one that has not ended an earlier one."""
    name = str(log.path)
    for end, epoch in ((20, 1), (40, 1), (80, 2)):
        log.snapshot(end, [(b"k", b"state %d" % end)], epoch)
    os.unlink(log.log_path / f"{0:020d}.log")
    found = reader(log.path, failOnDataLoss="false")
    rows = read_all(found, found.partitions({name: 8}, {name: 120}))
    assert (rows[0]["offset"], rows[0]["value"]) == (39, b"state 40")
    assert [row["offset"] for row in rows[1:]] == list(range(40, 120)), "all that is there"


def test_damage_in_a_stream(log: LogFiles) -> None:
    name = str(log.path)
    log.flip(13)
    with pytest.raises(errors.CorruptLog):
        offsets(reader(log.path), {name: 40}, {name: 80})
    kept = offsets(reader(log.path, onCorrupt="skip"), {name: 48}, {name: 60})
    assert kept == [48, 49, 50, 51, 56, 57, 58, 59]


def test_a_quorum_that_does_not_answer_has_nothing_new() -> None:
    made = LogSource({"bootstrap.servers": "127.0.0.1:1", "timeout": "0.1"})
    found = made.streamReader(struct(FIELDS))
    assert found.latestOffset({"quorum": 5}, ReadAllAvailable()) == {"quorum": 5}
    assert found.reportLatestOffset() is None


@pytest.mark.spark
def test_micro_batches_of_what_is_admitted(spark: Any, log: LogFiles, tmp_path: Path) -> None:
    def run() -> Any:
        source = spark.readStream.format("kraftfast").option("maxRecordsPerTrigger", 50)
        frame = source.load(str(log.path)).select("offset", "value")
        sink = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = sink.option("checkpointLocation", str(tmp_path / "mark")).trigger(availableNow=True)
        started = query.start()
        started.awaitTermination()
        return started

    progress = [each for each in run().recentProgress if each.numInputRows]
    assert [each.numInputRows for each in progress] == [50, 50, 20]
    log.fill(1, 2, 4)
    assert [each.numInputRows for each in run().recentProgress if each.numInputRows] == [8]
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.offset for row in found] == list(range(128))
