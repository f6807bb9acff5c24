"""Audit, conversion, compaction: on one session, and what of them needs none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

pytest.importorskip("pyspark")

from kraftfast import errors  # noqa: E402
from kraftfast.spark.jobs import conversion  # noqa: E402
from kraftfast.spark.jobs.auditing import audit  # noqa: E402
from kraftfast.spark.jobs.conversion import compact, convert, groups, write_file  # noqa: E402
from kraftfast.spark.jobs.tasks import fan_out  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from tests.spark.kit import LogFiles, rows_of, struct  # noqa: E402


@pytest.fixture
def three(log: LogFiles, tmp_path: Path) -> list[LogFiles]:
    """The same log of three replicas."""
    return [log, log.copy(tmp_path / "replica2"), log.copy(tmp_path / "replica3")]


def paths(replicas: list[LogFiles]) -> list[str]:
    return [str(each.path) for each in replicas]


def rewrite(replica: LogFiles, number: int, **changes: Any) -> None:
    """Put another sound batch of the same size in the place of one."""
    from kraftfast.record import pure
    from kraftfast.record.batch import batch_at

    file, position, data = replica.batches[number]
    found = batch_at(data)
    values = changes.get("values")
    records = [
        record if values is None else record._replace(value=values[i])
        for i, record in enumerate(found.records())
    ]
    made = pure.encode_batch(records, leader_epoch=changes.get("epoch", found.leader_epoch))
    assert len(made) == len(data)
    raw = bytearray(file.read_bytes())
    raw[position : position + len(made)] = made
    file.write_bytes(bytes(raw))


# --- audit ----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_replicas_that_are_the_same(spark: Any, three: list[LogFiles]) -> None:
    report = audit(spark, paths(three))
    assert report.ok and report.findings == []
    assert (report.start_offset, report.end_offset) == (0, 120)
    assert [each.records for each in report.replicas] == [120] * 3
    assert "identical from offset 0 to 120" in report.lines()[-1]


@pytest.mark.spark
def test_a_damaged_batch_is_named(spark: Any, three: list[LogFiles]) -> None:
    file, position = three[1].flip(13)
    report = audit(spark, paths(three))
    first = report.first
    assert first is not None and not report.ok
    assert (first.kind, first.replica) == ("crc", str(three[1].path))
    assert (first.segment, first.position, first.first_offset) == (file.name, position, 52)
    odd = [each for each in report.findings if each.kind == "divergence"]
    assert [(each.replica, each.first_offset, each.end_offset) for each in odd] == [
        (str(three[1].path), 52, 56)
    ]
    assert json.loads(json.dumps(report.as_dict()))["first"]["first_offset"] == 52


@pytest.mark.spark
def test_sound_records_that_differ_and_epochs_outside_the_crc(
    spark: Any, three: list[LogFiles]
) -> None:
    rewrite(three[2], 5, values=[b"VALUE 20", b"value 21", b"value 22", b"value 23"])
    three[0].flip(25, 15)  # the epoch's last byte: no CRC covers it
    os.truncate(three[1].batches[-1][0], three[1].batches[-1][1])
    report = audit(spark, paths(three))
    told = [
        (each.kind, each.replica, each.first_offset, each.end_offset) for each in report.findings
    ]
    names = paths(three)
    assert told[0] == ("divergence", names[2], 20, 21)
    assert ("divergence", names[0], 100, 104) in told
    assert ("epoch", names[0], 104, 108) in told, "it falls again behind the odd one"
    assert told[-1] == ("lag", names[1], 116, 120)
    assert report.findings[-1].note and report.end_offset == 116


@pytest.mark.spark
def test_a_replica_that_is_behind_does_not_keep_the_others_from_being_compared(
    spark: Any, three: list[LogFiles]
) -> None:
    first_file, *others = sorted(three[1].log_path.glob("*.log"))
    os.truncate(first_file, three[1].batches[1][1])
    for file in others:
        file.unlink()
    kinds = [each.kind for each in audit(spark, paths(three)).findings]
    assert kinds == ["lag"]
    rewrite(three[2], 5, values=[b"VALUE 20", b"value 21", b"value 22", b"value 23"])
    first = audit(spark, paths(three)).first
    assert first is not None, "two of three differ"
    assert (first.kind, first.first_offset, first.end_offset) == ("divergence", 20, 21)


@pytest.mark.spark
def test_a_broken_header_is_a_gap(spark: Any, three: list[LogFiles]) -> None:
    three[0].flip(13, 16)
    report = audit(spark, paths(three))
    assert report.first is not None
    assert (report.first.replica, report.first.first_offset) == (str(three[0].path), 52)
    assert {each.kind for each in report.findings} == {"gap", "divergence"}


@pytest.mark.spark
def test_bytes_of_nobody_behind_a_segment_that_others_follow(
    spark: Any, three: list[LogFiles]
) -> None:
    file, position, data = three[1].batches[9]
    with file.open("ab") as out:
        out.write(b"junk" * 30)
    first = audit(spark, paths(three)).first
    assert first is not None and (first.kind, first.replica) == ("framing", str(three[1].path))
    assert (first.segment, first.position) == (file.name, position + len(data))
    assert (first.first_offset, first.end_offset) == (40, 40) and "120 bytes" in first.text


@pytest.mark.spark
def test_a_first_segment_that_is_gone(spark: Any, three: list[LogFiles]) -> None:
    three[2].batches[0][0].unlink()
    first = audit(spark, paths(three)).first
    assert first is not None and (first.kind, first.replica) == ("gap", str(three[2].path))
    assert (first.first_offset, first.end_offset) == (0, 40)
    three[2].snapshot(40, [(b"key 0", b"value 38")])
    report = audit(spark, paths(three))
    assert report.ok and (report.start_offset, report.end_offset) == (40, 120)
    alone = audit(spark, paths(three)[:1])
    assert alone.lines()[-1] == "1 replica is sound from offset 0 to 120, and every CRC holds"


def test_an_audit_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="does not exist"):
        audit(None, str(tmp_path / "nowhere"))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="at least one replica"):
        audit(None, [])  # type: ignore[arg-type]


# --- conversion -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_log_becomes_parquet(spark: Any, log: LogFiles, tmp_path: Path) -> None:
    target = tmp_path / "parquet"
    done = convert(spark, str(log.path), str(target))
    assert (done.files, done.kept, done.rows) == (3, 0, 120)
    read = parquet.read_table(target).sort_by("offset").to_pylist()
    assert read == rows_of(LogSource({"path": str(log.path)}))
    os.unlink(next(target.glob("*.parquet")))
    again = convert(spark, str(log.path), str(target))
    assert (again.files, again.kept, again.rows) == (3, 2, 40)
    with pytest.raises(errors.InputError, match="conversion of something else"):
        convert(spark, str(log.path), str(target), columns="meta")
    rows = spark.read.parquet(str(target))
    assert rows.count() == 120
    latest = compact(rows).orderBy("key").collect()
    assert [(bytes(row.key), bytes(row.value)) for row in latest] == [
        (b"key 0", b"value 118"), (b"key 1", b"value 119"),
    ]  # fmt: skip


@pytest.mark.spark
def test_each_of_several_logs_keeps_its_latest(spark: Any) -> None:
    """The longer log had the last word of each key, and its tombstones took those of others."""
    rows = [("a", 9, b"k", None), ("a", 1, b"k", b"old"), ("b", 2, b"k", b"other's")]
    several = spark.createDataFrame(rows, "replica string, offset long, key binary, value binary")
    found = [(row.replica, row.offset, bytes(row.value)) for row in compact(several).collect()]
    assert found == [("b", 2, b"other's")]


@pytest.mark.spark
def test_a_log_that_has_grown_is_converted_to_its_end(
    spark: Any, log: LogFiles, tmp_path: Path
) -> None:
    target = tmp_path / "parquet"
    convert(spark, str(log.path), str(target))
    halves = target / f".{next(target.glob('*.parquet')).name}.{'0' * 32}"
    halves.write_bytes(b"what a killed task leaves")
    log.append(log.batches[-1][0], log.values(5), epoch=3)
    log.append(log.roll(), log.values(6), epoch=4)
    again = convert(spark, str(log.path), str(target))
    assert (again.files, again.kept, again.rows) == (4, 2, 40 + 5 + 6)
    read = parquet.read_table(target).sort_by("offset").to_pylist()
    assert read == rows_of(LogSource({"path": str(log.path)}))
    assert not halves.exists()


@pytest.mark.spark
def test_every_row_is_read_back_whatever_the_directories_are_called(
    spark: Any, log: LogFiles, tmp_path: Path
) -> None:
    convert(spark, str(log.log_path), str(tmp_path / "of the log itself"))
    assert spark.read.parquet(str(tmp_path / "of the log itself")).count() == 120
    for quorum in ("a", "b"):
        log.copy(tmp_path / quorum / "1")
    done = convert(spark, str(tmp_path / "[ab]" / "1"), str(tmp_path / "two"))
    assert (done.kept, done.rows) == (0, 240)
    assert spark.read.parquet(str(tmp_path / "two")).count() == 240


def test_a_conversion_stays_with_its_replica(tmp_path: Path) -> None:
    claim, target = conversion._claim, str(tmp_path / "parquet")
    assert claim(target, {"path": "q"}, ["q/1"]) == (["q/1"], {})
    assert claim(target, {"path": "q"}, ["q/2"]) == (["q/1"], {})
    with pytest.raises(errors.InputError, match="something else"):
        claim(target, {"path": "q"}, ["q/1", "q/2"])
    (tmp_path / "parquet" / conversion.MARK).write_text("[]")
    with pytest.raises(errors.InputError, match="does not parse"):
        claim(target, {"path": "q"}, ["q/1"])


def test_a_folder_of_something_else(log: LogFiles, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_text("")
    with pytest.raises(errors.InputError, match="holds no conversion"):
        convert(None, str(log.path), str(tmp_path / "photos"))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="compression"):
        convert(None, str(log.path), "x", compression="rar")  # type: ignore[arg-type]


def test_a_task_leaves_a_whole_file_or_none(log: LogFiles, tmp_path: Path) -> None:
    log.flip(13)
    reader = LogSource({"path": str(log.path)}).reader(struct(["offset"]))
    parts = reader.partitions()
    with pytest.raises(errors.CorruptLog):
        write_file(reader, parts[1], str(tmp_path / "replica"), "zstd")
    assert not list((tmp_path / "replica").glob(".*")) + list(tmp_path.glob("replica/*.parquet"))
    done = write_file(reader, parts[0], str(tmp_path / "replica"), "zstd")
    assert done == (40, next(tmp_path.glob("replica/*.parquet")).stat().st_size)
    assert write_file(reader, parts[0], str(tmp_path / "replica"), "zstd") == (None, 0)


def test_row_groups_are_of_many_batches(log: LogFiles) -> None:
    batches = [pa.record_batch({"n": [number] * 10}) for number in range(7)]
    found = list(groups(iter(batches), size=3 * batches[0].nbytes))
    assert [len(group) for group in found] == [30, 30, 10]
    assert [group["n"][0].as_py() for group in found] == [0, 3, 6]
    assert list(groups(iter([]))) == []


@pytest.mark.spark
def test_answers_of_tasks_keep_the_order_of_their_items(spark: Any) -> None:
    assert fan_out(spark, lambda word: [word.upper()], ["c", "a", "b"]) == [["C"], ["A"], ["B"]]
    assert fan_out(spark, str, []) == []
    with pytest.raises(errors.CorruptLog, match="^a.log is damaged$"):
        fan_out(spark, _damaged, ["a.log"])


def _damaged(path: str) -> None:
    raise errors.CorruptLog(f"{path} is damaged")
