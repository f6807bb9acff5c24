"""The sources' own methods, without a JVM: what is planned, read, pruned, and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (  # noqa: E402
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kraftfast import errors  # noqa: E402
from kraftfast.record.shapes import Codec  # noqa: E402
from kraftfast.spark.reading.sources import BatchesSource, LogSource, SnapshotSource  # noqa: E402
from kraftfast.spark.writing.destination import SinkOptions  # noqa: E402
from tests.spark.kit import TIMESTAMP, LogFiles, read_all, rows_of, struct  # noqa: E402


def source(path: Any, **options: Any) -> LogSource:
    return LogSource({"path": str(path), **options})


def offsets(path: Any, **options: Any) -> list[int]:
    return [row["offset"] for row in rows_of(source(path, **options), ["offset"])]


# --- what is read ---------------------------------------------------------------------------------


def test_every_field_of_a_record_and_of_its_batch(log: LogFiles) -> None:
    rows = rows_of(source(log.path))
    assert [row["offset"] for row in rows] == list(range(120))
    row = rows[41]
    stamp = row.pop("timestamp")
    assert int(stamp.timestamp() * 1000) == TIMESTAMP + 10_001
    assert row == {
        "offset": 41, "epoch": 2, "attributes": 0, "control": False, "producerId": -1,
        "producerEpoch": -1, "sequence": -1, "key": b"key 1", "value": b"value 41", "headers": None,
    }  # fmt: skip


def test_headers_where_there_are_some(tmp_path: Path) -> None:
    from kraftfast.record import pure
    from kraftfast.record.shapes import Record

    headers = [(), (("a", b"1"), ("b", None)), (), (("c", b""), ("caf\udce9", b"2"))]
    records = [Record(n, TIMESTAMP, None, b"v", each) for n, each in enumerate(headers)]
    files = LogFiles(tmp_path / "replica")
    files.roll().write_bytes(pure.encode_batch(records, leader_epoch=1))
    assert [row["headers"] for row in rows_of(source(files.path), ["headers"])] == [
        None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None,
        [{"key": "c", "value": b""}, {"key": r"caf\xe9", "value": b"2"}],
    ]  # fmt: skip


@pytest.mark.parametrize("codec", list(Codec))
def test_all_codecs(codec: Codec, tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "replica")
    file = files.roll()
    data = [b"text " * 50] * 3
    if codec in (Codec.NONE, Codec.ZSTD):
        files.append(file, data, codec=codec)
    else:
        data_of = pytest.importorskip("tests.record.test_compression")
        file.write_bytes(compressed(codec, data))
        del data_of
    assert [row["value"] for row in rows_of(source(files.path))] == data


def compressed(codec: Codec, values: list[bytes]) -> bytes:
    """A batch of a codec that is only read: packed by the codec's own package."""
    import gzip
    import struct as structs

    from crc32c import crc32c

    from kraftfast.record import pure

    plain = pure.encode_batch(pure.values_to_records(values, TIMESTAMP, 0), leader_epoch=1)
    body = plain[61:]
    if codec == Codec.GZIP:
        packed = gzip.compress(body)
    elif codec == Codec.LZ4:
        packed = pytest.importorskip("lz4.frame").compress(body)
    else:
        packed = pytest.importorskip("snappy").compress(body)
    head = bytearray(plain[:61])
    head[8:12] = structs.pack(">i", 49 + len(packed))
    head[22] = codec
    crc = crc32c(bytes(head[21:]) + packed)
    head[17:21] = structs.pack(">I", crc)
    return bytes(head) + packed


def test_columns_that_are_not_wanted_are_not_built(log: LogFiles) -> None:
    made = source(log.path, columns="meta")
    assert "value" not in made.schema() and "`sequence` int" in made.schema()
    assert list(rows_of(made, ["epoch", "offset"])[119].items()) == [("epoch", 3), ("offset", 119)]
    reader = source(log.path).reader(struct(["offset"]))
    assert not reader.contents
    with pytest.raises(errors.InvalidOption, match="no column 'offst'"):
        source(log.path).reader(struct(["offst"]))


@pytest.mark.parametrize("made", [LogSource, SnapshotSource])
@pytest.mark.parametrize("name", ["key", "value"])
def test_bytes_asked_for_as_text_are_refused_before_anything_is_read(
    log: LogFiles, made: Any, name: str
) -> None:
    """Spark compares types first with what a task has read, and says so in sixteen lines."""
    found = made({"path": str(log.path)})
    found.reader(struct([name]))
    told = f"column {name} is binary, not string: leave the schema out, and cast in the query"
    with pytest.raises(errors.InvalidOption, match=told):
        found.reader(struct([name], {name: "string"}))
    if made is LogSource:
        with pytest.raises(errors.InvalidOption, match=told):
            found.streamReader(struct([name], {name: "string"}))


def test_several_replicas_are_told_apart(log: LogFiles, tmp_path: Path) -> None:
    log.copy(tmp_path / "replica2")
    rows = rows_of(source(tmp_path / "replica*"))
    assert len(rows) == 240
    assert {row["replica"] for row in rows} == {str(log.path), str(tmp_path / "replica2")}
    (tmp_path / "quorum.json").touch()  # as it stands beside a quorum's replicas
    assert len(rows_of(source(tmp_path / "*"))) == 240


def test_one_segment_alone(log: LogFiles) -> None:
    assert offsets(log.log_path / f"{40:020d}.log") == list(range(40, 80))


def test_batch_rows_bound_what_is_handed_out_at_once(log: LogFiles) -> None:
    reader = source(log.path, batchRows="4").reader(struct(["offset"]))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [len(batch) for batch in batches] == [4] * 30
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)


# --- pruning --------------------------------------------------------------------------------------


def test_a_segment_a_partition_and_large_ones_are_split_at_batches(log: LogFiles) -> None:
    reader = source(log.path).reader(struct(["offset"]))
    assert len(reader.partitions()) == 3
    split = source(log.path, splitBytes="4096").reader(struct(["offset"]))
    log.fill(segments=1, batches=200, records=4)
    parts = [part.value for part in split.partitions()]
    assert len(parts) > 6 and all(part.end - part.position <= 4096 for part in parts)
    assert [row["offset"] for row in read_all(split, split.partitions())] == list(range(920))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("offset",), 117)], [118, 119]),
        ([GreaterThanOrEqual(("offset",), 50), LessThan(("offset",), 53)], [50, 51, 52]),
        ([EqualTo(("offset",), 77)], [77]),
        ([LessThanOrEqual(("offset",), 1)], [0, 1]),
        ([GreaterThan(("offset",), 10**6)], []),
    ],
)
def test_offsets_are_cut_exactly(log: LogFiles, filters: list[Any], expected: list[int]) -> None:
    reader = source(log.path, pushFilters="true").reader(struct(["offset"]))
    assert list(reader.pushFilters(filters)) == []
    parts = reader.partitions()
    assert len(parts) <= 1, "the other segments are not looked at"
    assert [row["offset"] for row in read_all(reader, parts)] == expected


def test_epochs_and_times_prune_batches_and_stay_with_spark(log: LogFiles) -> None:
    from datetime import UTC, datetime

    reader = source(log.path, pushFilters="true").reader(struct(["offset"]))
    late = datetime.fromtimestamp((TIMESTAMP + 25_000) / 1000, UTC)
    filters = [EqualTo(("epoch",), 3), GreaterThanOrEqual(("timestamp",), late)]
    assert list(reader.pushFilters(filters)) == filters
    read = [row["offset"] for row in read_all(reader, reader.partitions())]
    assert read == list(range(100, 120))


def test_what_cannot_be_pushed_is_given_back(log: LogFiles) -> None:
    reader = source(log.path, pushFilters="true").reader(struct(["offset"]))
    filters = [EqualTo(("value",), b"x"), EqualTo(("control",), True)]
    assert list(reader.pushFilters(filters)) == filters
    plain = source(log.path).reader(struct(["offset"]))
    assert type(plain).pushFilters is DataSourceReader.pushFilters, "Spark does not ask it"


def test_options_bound_offsets(log: LogFiles) -> None:
    assert offsets(log.path, startOffset="39", endOffset="42") == [39, 40, 41]
    assert offsets(log.path, startOffset="119") == [119]
    assert offsets(log.path, startOffset="120") == []
    with pytest.raises(errors.InvalidOption, match="startOffset=121: .* up to offset 120"):
        offsets(log.path, startOffset="121")


def test_reading_does_not_import_pandas(log: LogFiles) -> None:
    """It takes half a second of each worker's first task, and slows all that follow."""
    program = (
        "import sys\n"
        "from kraftfast.spark.reading.sources import BatchesSource, LogSource\n"
        "from kraftfast.spark.reading.arrow_batches import BATCH_FIELDS, ROW_FIELDS\n"
        "from tests.spark.kit import struct\n"
        f"given = {{'path': {str(log.path)!r}}}\n"
        "for source, fields in (LogSource, ROW_FIELDS), (BatchesSource, BATCH_FIELDS):\n"
        "    reader = source(given).reader(struct(list(fields)))\n"
        "    assert sum(len(b) for part in reader.partitions() for b in reader.read(part)) > 29\n"
        "assert 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_partition_of_nothing_reads_nothing(log: LogFiles) -> None:
    for made in (source(log.path), BatchesSource({"path": str(log.path)})):
        reader = made.reader(struct(["epoch"]))
        assert read_all(reader, [InputPartition(None)]) == []


# --- damage ---------------------------------------------------------------------------------------


def test_a_flipped_byte_fails_with_its_place(log: LogFiles) -> None:
    file, position = log.flip(13)
    with pytest.raises(errors.CorruptLog, match="CRC-32C does not match") as caught:
        rows_of(source(log.path))
    assert (caught.value.path, caught.value.position) == (str(file), position)
    assert caught.value.offset == 52


def test_a_flipped_byte_skipped_and_reported(log: LogFiles) -> None:
    log.flip(13)
    rest = [offset for offset in range(120) if not 52 <= offset < 56]
    assert offsets(log.path, onCorrupt="skip") == rest
    rows = rows_of(source(log.path, onCorrupt="report"))
    told = [row for row in rows if row["damage"] is not None]
    assert [row["offset"] for row in rows if row["damage"] is None] == rest
    assert len(told) == 1 and told[0]["offset"] == 52
    assert "CRC-32C does not match; offsets 52 to 55 lost" in told[0]["damage"]
    assert len(offsets(log.path, verifyCrc="false")) == 120


@pytest.mark.parametrize("byte", [8, 16, 23, 3])
def test_a_header_that_is_none_is_passed_over(log: LogFiles, byte: int) -> None:
    log.flip(13, byte)
    with pytest.raises(errors.CorruptLog):
        rows_of(source(log.path))
    rest = [offset for offset in range(120) if not 52 <= offset < 56]
    assert offsets(log.path, onCorrupt="skip") == rest
    rows = rows_of(source(log.path, onCorrupt="report"))
    told = [row["damage"] for row in rows if row["damage"] is not None]
    assert len(told) == 1 and "offsets 52 to 55 lost" in told[0]


def test_a_torn_tail_is_not_read(log: LogFiles) -> None:
    file, position, data = log.batches[-1]
    os.truncate(file, position + len(data) - 3)
    assert offsets(log.path) == list(range(116))
    rows = rows_of(BatchesSource({"path": str(log.path)}))
    assert rows[-1]["trailing"] == len(data) - 3
    assert rows[-1]["damage"] == "behind it: the batch is longer than the bytes there are"


def test_a_truncated_segment_in_the_middle_is_damage(log: LogFiles) -> None:
    file, position, data = log.batches[19]
    os.truncate(file, position + len(data) - 3)
    with pytest.raises(errors.CorruptLog, match=f"{40:020d}.log is damaged at byte {position}"):
        rows_of(source(log.path))
    assert offsets(log.path, onCorrupt="skip") == [*range(76), *range(80, 120)]
    os.truncate(file, position)
    with pytest.raises(errors.CorruptLog, match="it ends at offset 76, and not at 80"):
        rows_of(source(log.path))


def test_zeros_behind_the_last_batch_are_no_damage(log: LogFiles) -> None:
    with log.batches[-1][0].open("ab") as file:
        file.write(bytes(5000))
    assert offsets(log.path) == list(range(120))
    assert rows_of(BatchesSource({"path": str(log.path)}))[-1]["trailing"] == 0


# --- headers --------------------------------------------------------------------------------------


def test_batches_tell_what_headers_say(log: LogFiles) -> None:
    log.flip(13)
    rows = rows_of(BatchesSource({"path": str(log.path)}))
    assert len(rows) == 30
    assert [row["baseOffset"] for row in rows] == list(range(0, 120, 4))
    assert [row["crcOk"] for row in rows] == [number != 13 for number in range(30)]
    assert rows[13]["damage"] == "CRC-32C does not match"
    assert {row["replica"] for row in rows} == {str(log.path)}
    assert rows[0]["segment"] == f"{0:020d}.log" and rows[0]["codec"] == "none"
    assert all(row["lastOffset"] - row["baseOffset"] + 1 == row["count"] == 4 for row in rows)


def test_batches_of_a_split_segment(log: LogFiles) -> None:
    log.fill(segments=1, batches=200, records=4)
    made = BatchesSource({"path": str(log.path), "splitBytes": "4096"})
    assert len(made.reader(struct(["count"])).partitions()) > 6
    assert [row["baseOffset"] for row in rows_of(made)] == list(range(0, 920, 4))


def test_batches_behind_a_broken_header_are_found_again(log: LogFiles) -> None:
    log.flip(13, 16)
    rows = rows_of(BatchesSource({"path": str(log.path)}))
    assert [row["baseOffset"] for row in rows] == [4 * n for n in range(30) if n != 13]
    told = [row for row in rows if row["damage"] is not None]
    assert len(told) == 1 and told[0]["trailing"] == len(log.batches[13][2])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startOfset": "1"}, "has no option 'startOfset'; did you mean startOffset"),
        ({"columns": "some"}, "it is one of full, meta"),
        ({"startOffset": "soon"}, "no whole number"),
        ({"startOffset": ""}, "startOffset is empty"),  # it was all of the log
        ({"topic": "orders"}, "topic goes with bootstrap.servers"),
        ({"endOffset": " "}, "endOffset is empty"),
        ({"startOffset": "5", "endOffset": "4"}, "startOffset=5 is beyond endOffset=4"),
        ({"path": "", "bootstrap.servers": "localhost"}, "bootstrap.servers: 'localhost' is not"),
        ({"path": "", "bootstrap.servers": "h:1,"}, "bootstrap.servers: '' is not host:port"),
        ({"splitBytes": "1"}, "from 4096"),
        ({"verifyCrc": "maybe"}, "true or false"),
        ({"timeout": "-1"}, "no number of seconds"),
        ({"bootstrap.servers": "localhost:1"}, "either a path or bootstrap.servers"),
    ],
)
def test_options_that_cannot_be(log: LogFiles, options: dict[str, str], message: str) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        LogSource({"path": str(log.path)} | options).schema()


@pytest.mark.parametrize("name, value", [("producerName", " "), ("topic", "orders")])
def test_a_sink_is_told_what_its_job_would_lose(tmp_path: Path, name: str, value: str) -> None:
    """Without its name a job's rows came again; rows for a topic went into the log there."""
    with pytest.raises(errors.InvalidOption, match="is empty|a path names its one log"):
        SinkOptions.of({"path": str(tmp_path), name: value}, "kraftfast")


def test_places_that_hold_no_log(tmp_path: Path, log: LogFiles) -> None:
    with pytest.raises(errors.InputError, match="does not exist$"):
        source(tmp_path / "nowhere").schema()
    with pytest.raises(errors.InputError, match=f"not exist: this process looks in {Path.cwd()}"):
        source(Path("nowhere")).schema()
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.NotFormatted, match="holds no log"):
        source(tmp_path / "empty").schema()
    (tmp_path / "text").write_text("no log")
    with pytest.raises(errors.InputError, match="no segment of a log"):
        source(tmp_path / "text").schema()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "meta.properties").write_text("version=9\n")
    with pytest.raises(errors.ForeignDirectory):
        source(tmp_path / "foreign").schema()


def test_an_offset_that_is_gone(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "replica")
    files.end_offset = 500
    files.fill(1, 2, 4)
    with pytest.raises(errors.OffsetOutOfRange, match="starts at offset 500, beyond offset 3"):
        rows_of(source(files.path, startOffset="3"))
    assert offsets(files.path) == list(range(500, 508))
    assert offsets(files.path, startOffset="3", failOnDataLoss="false") == list(range(500, 508))


def test_no_server_there() -> None:
    made = LogSource({"bootstrap.servers": "127.0.0.1:1", "timeout": "0.2"})
    with pytest.raises(errors.NoQuorum, match="no leader within"):
        made.reader(struct(["offset"])).partitions()
