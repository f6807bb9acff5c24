"""Rows that a leader refuses for want of room: none is lost, and none is stored twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

import kraftfast  # noqa: E402
from kraftfast.errors import DiskFull, RecordsRefused, UnknownOutcome  # noqa: E402
from kraftfast.spark.writing import appending, staging  # noqa: E402
from kraftfast.spark.writing.destination import SinkOptions  # noqa: E402
from kraftfast.spark.writing.sink import BatchWriter  # noqa: E402

pytestmark = pytest.mark.processes
SETTINGS: dict[str, Any] = {
    "segment_bytes": 8 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20,
}  # fmt: skip
VALUE = StructType([StructField("value", BinaryType())])
ROWS = [b"%08d" % number + bytes(1000) for number in range(30_000)]
PROBE = bytes(2 << 20)  # more than what is prepared of the log
ROOM_BYTES = 12 << 20


@pytest.fixture
def quorum(small_disk: Path) -> Iterator[kraftfast.LocalQuorum]:
    """One whose disk has room for some of the rows, until the file ``filler`` beside it goes."""
    with kraftfast.LocalQuorum(small_disk / "quorum", 1, **SETTINGS) as found:
        disk = os.statvfs(small_disk)
        with (small_disk / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - ROOM_BYTES)
        yield found


def make_room(quorum: kraftfast.LocalQuorum) -> None:
    """Make room, and wait until the leader appends again."""
    Path(quorum.path).parent.joinpath("filler").unlink(missing_ok=True)
    with quorum.producer() as producer:
        while True:
            try:
                producer.append_wait(PROBE, timeout=10)
                return
            except DiskFull:
                time.sleep(0.05)


def write(quorum: kraftfast.LocalQuorum, folder: Path, **more: str) -> None:
    given = {"path": str(quorum.path), "stagingDir": str(folder), **more}
    writer = BatchWriter(SinkOptions.of(given, "kraftfast"), VALUE, False)
    parts = (
        pa.record_batch({"value": pa.array(ROWS[at : at + 1000], pa.binary())})
        for at in range(0, len(ROWS), 1000)
    )
    writer.commit([writer.write(parts)])


def stored(quorum: kraftfast.LocalQuorum) -> list[Any]:
    with quorum.consumer() as consumer:
        return [record.value for record in consumer if record.value != PROBE]


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_the_next_attempt_completes_a_job_of_which_rows_were_refused(
    quorum: kraftfast.LocalQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Room comes back while the first attempt still has rows to hand over."""

    def handing(producer: Any, *rest: Any) -> None:
        handed(producer, *rest)
        runs = producer.outcomes.runs(0, producer.outcomes.resolved)
        if not begun and any(failure is not None for *_, failure in runs):
            begun.append(True)
            make_room(quorum)

    begun, handed = list[bool](), appending.hand_over
    for module in (appending, staging):
        monkeypatch.setattr(module, "hand_over", handing)
    job = {"producerName": "daily", "writeMode": mode}
    with pytest.raises(DiskFull):
        write(quorum, tmp_path / "staging", **job)
    assert 0 < len(stored(quorum)) < len(ROWS)
    make_room(quorum)
    write(quorum, tmp_path / "staging", **job)
    assert stored(quorum) == ROWS


def test_a_job_without_a_name_says_how_many_rows_are_committed(
    quorum: kraftfast.LocalQuorum, tmp_path: Path
) -> None:
    with pytest.raises(UnknownOutcome, match="no producerName: no space left") as told:
        write(quorum, tmp_path / "staging")
    assert str(told.value).startswith(f"{len(stored(quorum))} or more of {len(ROWS)} rows ")


def test_a_job_without_a_name_of_which_nothing_left_says_what_was_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise RecordsRefused("a key")

    monkeypatch.setattr(staging, "hand_over", refused)
    with kraftfast.LocalQuorum(tmp_path / "quorum", 1, **SETTINGS) as quorum:
        with pytest.raises(RecordsRefused, match="a key"):
            write(quorum, tmp_path / "staging")
