"""The source of snapshots, and an audit that holds one against the log that it stands for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftfast import errors  # noqa: E402
from kraftfast.spark.jobs.auditing import audit  # noqa: E402
from kraftfast.spark.jobs.conversion import compact  # noqa: E402
from kraftfast.spark.reading.sources import SnapshotSource  # noqa: E402
from tests.spark.kit import LogFiles, read_all, rows_of, struct  # noqa: E402

STATE = [(b"key 0", b"value 38"), (b"key 1", b"value 39")]


def read(path: Any, **options: str) -> list[dict[str, Any]]:
    return rows_of(SnapshotSource({"path": str(path), **options}))


def values(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in found]


def test_rows_of_one_file(log: LogFiles) -> None:
    path = log.snapshot(40, STATE)
    found = read(path)
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (1, *STATE[0]), (2, *STATE[1]),
    ], "behind its header, at offset 0"  # fmt: skip
    assert {row["replica"] for row in found} == {str(path)}
    assert {(row["epoch"], row["control"], row["headers"]) for row in found} == {(1, False, None)}
    everything = read(path, controlRecords="true", batchRows="1")
    assert [row["control"] for row in everything] == [True, False, False, True]


def test_without_contents(log: LogFiles) -> None:
    log.snapshot(40, STATE)
    found = read(log.path, columns="meta")
    assert [row["offset"] for row in found] == [1, 2]
    assert not {"key", "value", "headers"} & set(found[0])


def test_the_newest_of_each_directory(log: LogFiles, tmp_path: Path) -> None:
    log.snapshot(0, [(b"k", b"formatted with")], epoch=0)
    log.snapshot(80, [(b"k", b"of epoch 2")], epoch=2)
    log.snapshot(40, [(b"k", b"older")])
    assert values(read(log.path)) == [b"of epoch 2"]
    other = log.copy(tmp_path / "replica2")
    newest = other.snapshot(100, [(b"k", b"of replica 2")], epoch=3)
    found = read(tmp_path / "replica*")
    assert values(found) == [b"of epoch 2", b"of replica 2"]
    assert found[1]["replica"] == str(newest)
    both = read(tmp_path / "replica" / "*" / "*40-*.checkpoint")
    assert values(both) == [b"older"], "a glob of files means just those"


def test_no_snapshot(log: LogFiles, tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="replica holds no snapshot"):
        read(log.path)
    log.snapshot(0, [], epoch=0)
    with pytest.raises(errors.InputError, match="replica holds no snapshot"):
        read(log.path)
    for missing in (tmp_path / "nowhere", log.log_path / "*.checkpoints"):
        with pytest.raises(errors.InputError, match="does not exist"):
            read(missing)
    path = log.snapshot(40, STATE)
    reader = SnapshotSource({"path": str(path)}).reader(struct(["value"]))
    planned = reader.partitions()
    os.unlink(path)
    with pytest.raises(errors.InputError, match="checkpoint does not exist"):
        read_all(reader, planned)


@pytest.mark.parametrize("damage", ["flipped", "cut", "no footer", "empty"])
def test_corrupt_snapshots(log: LogFiles, damage: str) -> None:
    path = log.snapshot(40, STATE)
    data = path.read_bytes()
    os.chmod(path, 0o600)
    path.write_bytes(
        {
            "flipped": data.replace(b"value 39", b"value 93"),
            "cut": data[:-5], "no footer": data[: data.rfind(b"value 39") + 9], "empty": b"",
        }[damage]
    )  # fmt: skip
    with pytest.raises(errors.CorruptLog, match=r"0000000001\.checkpoint is damaged at byte \d+"):
        read(path)


@pytest.mark.spark
def test_a_snapshot_is_what_its_log_amounts_to(spark: Any, log: LogFiles) -> None:
    """``replay`` says what a snapshot should hold; what it does not hold is named."""
    log.snapshot(40, STATE)
    good = audit(spark, str(log.path), replay=compact)
    assert good.ok and good.findings == []
    path = log.snapshot(80, [(b"key 0", b"value 78"), (b"key 1", b"value 0")], epoch=2)
    report = audit(spark, str(log.path), replay=compact)
    assert [each.kind for each in report.findings] == ["snapshot"] and not report.ok
    first = report.findings[0]
    assert (first.replica, first.segment) == (str(log.path), path.name)
    assert first.first_offset == 80
    assert f"ends at offset 80 in {log.path} is not what the log amounts to" in first.text
    assert "1 (b'value 79') missing, 1 (b'value 0') not in the log" in first.text
