"""``kraftfast spark latency`` and ``compact`` as they are typed: failures are one line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from kraftfast.cli import root
from kraftfast.record import pure
from kraftfast.record.shapes import Record
from tests.spark.kit import TIMESTAMP, LogFiles

pytestmark = pytest.mark.spark


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def kraftfast(spark: Any, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command in this process, on the session of the tests; failures are one line."""
    handler = signal.getsignal(signal.SIGTERM)

    def run(*args: object) -> Done:
        capfd.readouterr()
        code = root.run(["spark", *map(str, args)])
        done = Done(code, *capfd.readouterr())
        assert not code or (done.err.startswith("kraftfast") and done.err.count("\n") == 1), done
        assert code or not done.err, done.err
        return done

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A hundred commits of 1 to 100 us, twice over in one stage."""
    rows = [
        {"at_us": n, "commit": n, "stage": stage, "replica": replica, "us": n + 1.0, "count": count}
        for n in range(100)
        for stage, replica, count in (("whole", 0, 1), ("append", 2, 2))
    ]
    path = tmp_path / "samples.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_latency(kraftfast: Run, samples: Path, tmp_path: Path) -> None:
    shown = kraftfast("latency", samples, "--picture", tmp_path / "p.svg")
    lines = [line.split() for line in shown.out.splitlines()]
    assert shown.code == 0 and lines[0][:4] == ["stage", "replica", "slice", "samples"]
    assert [line[:4] for line in lines if line[:1] in (["whole"], ["append"])] == [
        ["whole", "0", "0", "100"], ["append", "2", "0", "200"],
    ]  # fmt: skip
    assert "append, replica 2" in (tmp_path / "p.svg").read_text()
    rows = json.loads(kraftfast("latency", samples, "--slices", 2, "--json").out)
    assert [(row["stage"], row["slice"], row["count"]) for row in rows] == [
        ("whole", 0, 50), ("whole", 1, 50), ("append", 0, 100), ("append", 1, 100),
    ]  # fmt: skip
    assert rows[1]["max_us"] == 100 and 75 <= rows[1]["p50_us"] <= 77


def test_latency_of_what_is_none(kraftfast: Run, samples: Path, tmp_path: Path) -> None:
    assert "does not exist" in kraftfast("latency", tmp_path / "nowhere").err
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"us": [1.0]}), other)
    done = kraftfast("latency", other)
    assert done.code == 2 and "no samples of a benchmark: at_us is missing" in done.err
    (tmp_path / "text").write_text("no Parquet at all")
    done = kraftfast("latency", tmp_path / "text")
    assert done.code == 40 and "text" in done.err and len(done.err) < 600
    done = kraftfast("latency", samples, "--picture", tmp_path / "no" / "p.svg")
    assert done.code == 30 and "cannot write" in done.err
    assert kraftfast("latency").code == kraftfast("latency", samples, "--slices", 0).code == 2


def test_compact(kraftfast: Run, log: LogFiles, tmp_path: Path) -> None:
    target = tmp_path / "latest"
    done = kraftfast("compact", log.path, target, "--json")
    assert (done.code, json.loads(done.out)) == (
        0,
        {"path": str(target), "keys": 2, "records_without_key": 0},
    )
    rows = parquet.read_table(target).sort_by("key").to_pylist()
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        (b"key 0", b"value 118", 118), (b"key 1", b"value 119", 119),
    ]  # fmt: skip
    again = kraftfast("compact", log.path, target)
    assert again.code == 3 and f"{target} exists already" in again.err


def test_what_compaction_leaves_out_is_told(kraftfast: Run, tmp_path: Path) -> None:
    """A log without keys became nothing, and "0 keys" was all that was said."""
    made = LogFiles(tmp_path / "plain")
    records = [Record(offset, TIMESTAMP, None, b"value") for offset in range(20)]
    made.roll().write_bytes(pure.encode_batch(records, leader_epoch=1))
    done = kraftfast("compact", made.path, tmp_path / "latest")
    assert done.code == 0 and "0 keys; 20 records without a key left out" in done.out


def test_compaction_that_fails_leaves_nothing(
    kraftfast: Run, log: LogFiles, tmp_path: Path
) -> None:
    before = set(os.listdir(tmp_path))
    done = kraftfast("compact", tmp_path / "nowhere", tmp_path / "latest")
    assert done.code == 3 and "nowhere does not exist" in done.err
    file, position = log.flip(13)
    done = kraftfast("compact", log.path, tmp_path / "latest")
    assert done.code == 33 and f"{file} is damaged at byte {position}" in done.err
    done = kraftfast("compact", "--bootstrap-server", "127.0.0.1:1", log.path, tmp_path / "latest")
    assert done.code == 2 and "either DIR or --bootstrap-server" in done.err
    assert set(os.listdir(tmp_path)) == before
