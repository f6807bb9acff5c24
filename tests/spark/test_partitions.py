"""Copies of Kafka partitions: gaps, compaction, transactions; and places that are no local path."""

from __future__ import annotations

import struct as structs
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes  # noqa: E402

from kraftfast import errors  # noqa: E402
from kraftfast.record import pure  # noqa: E402
from kraftfast.record.shapes import Record  # noqa: E402
from kraftfast.spark.jobs.conversion import convert  # noqa: E402
from kraftfast.spark.reading.remote_ranges import _until  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.streaming.lineage import positions  # noqa: E402
from tests.spark.kit import TIMESTAMP, read_all, rows_of, struct  # noqa: E402

ABORT, COMMIT = 0, 1


class Partition:
    """A partition's directory beside a broker's checkpoint files."""

    def __init__(self, path: Path) -> None:
        self.path = path / "orders-0"
        self.path.mkdir()
        self.file = self.path / f"{0:020d}.log"
        self.file.touch()

    def roll(self, offset: int) -> None:
        self.file = self.path / f"{offset:020d}.log"

    def append(self, *offsets: int, producer: int = -1, transactional: bool = False) -> bytes:
        values = [Record(n, TIMESTAMP + n, b"k", b"value %d" % n) for n in offsets]
        data = pure.encode_batch(
            values, leader_epoch=1, producer_id=producer, transactional=transactional,
            producer_epoch=0 if producer >= 0 else -1, base_sequence=0 if producer >= 0 else -1,
        )  # fmt: skip
        return self.put(data)

    def ends(self, offset: int, producer: int, how: int) -> None:
        """The marker that a coordinator writes behind a transaction."""
        record = Record(offset, TIMESTAMP, structs.pack(">hh", 0, how), structs.pack(">hi", 0, 0))
        self.put(
            pure.encode_batch(
                [record], leader_epoch=1, control=True, transactional=True, producer_id=producer,
                producer_epoch=0,
            )
        )  # fmt: skip

    def put(self, data: bytes) -> bytes:
        with self.file.open("ab") as file:
            file.write(data)
        return data


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def offsets(path: Any, **options: Any) -> list[int]:
    return [row["offset"] for row in rows_of(LogSource({"path": str(path), **options}))]


def stream(path: Any, **options: Any) -> Any:
    return LogSource({"path": str(path), **options}).streamReader(struct(["offset"]))


# --- gaps -----------------------------------------------------------------------------------------


def compacted(partition: Partition) -> list[int]:
    """Batches 0 to 9, 20 to 29 without 23 and 27, and in another segment 41 to 43."""
    kept = [*range(20, 23), 24, 25, 26, 28, 29]
    partition.append(*range(10))
    partition.append(*kept)
    partition.roll(35)
    partition.append(41, 42, 43)
    return [*range(10), *kept, 41, 42, 43]


def test_sound_batches_behind_a_gap_are_kept(partition: Partition) -> None:
    partition.append(*range(10))
    partition.append(*range(20, 30))
    partition.append(31, 32)
    with pytest.raises(errors.CorruptLog, match="if the topic is compacted, set compacted to true"):
        offsets(partition.path)
    there = [*range(10), *range(20, 30), 31, 32]
    assert offsets(partition.path, onCorrupt="skip") == there
    rows = rows_of(LogSource({"path": str(partition.path), "onCorrupt": "report"}))
    assert [row["offset"] for row in rows if row["damage"] is None] == there
    told = [row["damage"] for row in rows if row["damage"] is not None]
    assert len(told) == 2 and "offsets 10 to 19 lost" in told[0] and "offset 30 lost" in told[1]


def test_a_compacted_topic_is_no_damage(partition: Partition) -> None:
    there = compacted(partition)
    assert offsets(partition.path, compacted="true") == there
    with pytest.raises(errors.CorruptLog):
        offsets(partition.path)
    cleaned = partition.path.parent / "cleaner-offset-checkpoint"
    cleaned.write_text("0\n1\norders 0 35\n")
    assert offsets(partition.path) == there, "the broker says so"
    with pytest.raises(errors.CorruptLog):
        offsets(partition.path, compacted="false")


def test_a_stream_of_a_compacted_topic(partition: Partition) -> None:
    there = compacted(partition)
    one, name, start = stream(partition.path, compacted="true"), str(partition.path), {}
    found = list[int]()
    start = one.initialOffset()
    for limit in (ReadMaxBytes(1), ReadMaxBytes(1), ReadAllAvailable()):
        end = one.latestOffset(start, limit)
        found += [row["offset"] for row in read_all(one, one.partitions(start, end))]
        start = end
    assert found == there and positions(start) == {name: 44}


# --- transactions ---------------------------------------------------------------------------------


def transactions(partition: Partition) -> None:
    """Producer 7 commits, 8 aborts across two segments, 9 has not ended."""
    partition.append(0, 1)
    partition.append(2, 3, producer=8, transactional=True)
    partition.append(4, producer=7, transactional=True)
    partition.append(5, 6, producer=8)  # the same producer, outside of any
    partition.roll(7)
    partition.append(7, producer=8, transactional=True)
    partition.ends(8, 7, COMMIT)
    partition.ends(9, 8, ABORT)
    partition.append(10, producer=8, transactional=True)
    partition.ends(11, 8, COMMIT)
    partition.append(12, producer=9, transactional=True)
    partition.append(13)


def test_aborted_records_are_no_rows(partition: Partition) -> None:
    transactions(partition)
    with pytest.warns(RuntimeWarning, match="from offset 12 .* a transaction has not ended"):
        assert offsets(partition.path) == [0, 1, 4, 5, 6, 10], "up to the one that is open"
    everything = offsets(partition.path, isolationLevel="read_uncommitted")
    assert everything == [0, 1, 2, 3, 4, 5, 6, 7, 10, 12, 13]
    with pytest.warns(RuntimeWarning):
        assert offsets(partition.path, startOffset="3", endOffset="6") == [4, 5]


def test_a_stream_waits_for_the_end_of_a_transaction(partition: Partition) -> None:
    partition.append(0, 1)
    partition.append(2, 3, producer=8, transactional=True)
    partition.append(4)
    one, name = stream(partition.path), str(partition.path)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert positions(end) == {name: 2}
    partition.ends(5, 8, ABORT)
    partition.append(6)
    later = one.latestOffset(end, ReadAllAvailable())
    assert positions(later) == {name: 7}
    assert [row["offset"] for row in read_all(one, one.partitions(end, later))] == [4, 6]
    again = stream(partition.path)
    assert [row["offset"] for row in read_all(again, again.partitions(end, later))] == [4, 6]


def test_transactions_of_servers_are_refused_rather_than_guessed(partition: Partition) -> None:
    from kraftfast.record.batch import batches

    data = partition.append(0, producer=8, transactional=True)

    class Consumer:
        def batches(self) -> Any:
            return batches(data)

    with pytest.raises(errors.InputError, match="isolationLevel to read_uncommitted"):
        list(_until(Consumer(), 1, 1.0, False))  # type: ignore[arg-type]
    assert len(list(_until(Consumer(), 1, 1.0, True))) == 1  # type: ignore[arg-type]


# --- places ---------------------------------------------------------------------------------------


def test_a_uri_is_a_local_path_or_refused(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.append(0, 1, 2)
    assert offsets(f"file://{partition.path}") == offsets(f"file:{partition.path}") == [0, 1, 2]
    monkeypatch.chdir(tmp_path)
    for place in ("s3a://bucket/log", "hdfs://nn:8020/log", "file://host/log", "s3:/x"):
        with pytest.raises(errors.InvalidOption, match="is not on this file system"):
            offsets(place)
        with pytest.raises(errors.InvalidOption, match="is not on this file system"):
            convert(None, str(partition.path), place)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-0"], "nothing was made"
