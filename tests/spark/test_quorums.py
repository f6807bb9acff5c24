"""Quorums that run: nothing beyond their high watermark, by directory and by address."""

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

import pytest

pytest.importorskip("pyspark")

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.client.connection import Connection  # noqa: E402
from kraftfast.node.processes.tuning import free_port  # noqa: E402
from kraftfast.spark.jobs.conversion import convert  # noqa: E402
from kraftfast.spark.reading import fetched, remote_ranges, splits  # noqa: E402
from kraftfast.spark.reading.committed import Logs, OneLog  # noqa: E402
from kraftfast.spark.reading.locations import find_places  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.spark_options import LOG_OPTIONS, SparkLogOptions  # noqa: E402
from kraftfast.types import OffsetAndEpoch  # noqa: E402
from kraftfast.wire.messages import ApiKey  # noqa: E402
from tests.spark.kit import read_all, rows_of, struct  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.processes
SMALL: dict[str, Any] = {
    "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftfast.LocalQuorum]:
    path = tmp_path_factory.mktemp("quorum")
    with kraftfast.LocalQuorum(path, 3, transport="socket", durability="memory", **SMALL) as found:
        with found.producer() as producer:
            producer.append_many([b"value %d" % n for n in range(5000)])
        yield found


def servers(quorum: kraftfast.LocalQuorum) -> str:
    return ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())


def values(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in found]


EXPECTED = [b"value %d" % n for n in range(5000)]


def test_by_address(quorum: kraftfast.LocalQuorum) -> None:
    made = LogSource({"bootstrap.servers": servers(quorum), "splitBytes": "30000"})
    assert values(rows_of(made)) == EXPECTED
    rows = rows_of(made)
    first = rows[0]["offset"]
    some = LogSource(
        {
            "bootstrap.servers": servers(quorum),
            "startOffset": str(first + 10), "endOffset": str(first + 13),
        }
    )  # fmt: skip
    assert values(rows_of(some)) == EXPECTED[10:13]
    reader = some.reader(struct(["offset"]))
    reader.bounds = splits.Bounds(first + 11, first + 13)  # as a filter on offsets leaves them
    parts = [part.value for part in reader.partitions()]
    assert [(part.first_offset, part.end_offset) for part in parts] == [(first + 11, first + 13)]
    everything = LogSource({"bootstrap.servers": servers(quorum), "controlRecords": "true"})
    assert any(row["control"] for row in rows_of(everything))


@pytest.mark.spark
def test_a_conversion_takes_what_is_new(spark: Any, tmp_path: Path) -> None:
    """Ranges are cut elsewhere by then: a file covers what its metadata says."""
    with (
        kraftfast.LocalQuorum(
            tmp_path / "quorum", 3, transport="socket", durability="memory", **SMALL
        ) as grown,
        grown.producer() as producer,
    ):
        more = {"bootstrap.servers": servers(grown), "splitBytes": "4096"}
        found = []
        for count in (1000, 1500):
            producer.append_many([b"%d" % n for n in range(count)])
            found.append(convert(spark, "", str(tmp_path / "parquet"), **more))
    assert [done.rows for done in found] == [1000, 1500]
    assert found[1].kept == found[0].files < found[1].files
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 2500


def test_ranges_cover_the_log_without_gaps(quorum: kraftfast.LocalQuorum) -> None:
    options = SparkLogOptions.of(
        {"bootstrap.servers": servers(quorum), "splitBytes": "30000"}, LOG_OPTIONS, "x"
    )
    end = remote_ranges.committed_end(options)
    found = remote_ranges.ranges(options, 0, end)
    assert len(found) > 2
    assert [0, *(part.end_offset for part in found)][:-1] == [part.first_offset for part in found]
    assert found[-1].end_offset == end
    assert remote_ranges.ranges(options, end, end) == []


def test_by_directory(quorum: kraftfast.LocalQuorum) -> None:
    assert len(find_places(quorum.path)) == 3
    with Logs(quorum.path) as logs:
        assert len(logs.bounded()) == 1
    leader = os.path.join(quorum.path, str(quorum.leader()))
    assert values(rows_of(LogSource({"path": leader}))) == EXPECTED
    assert OneLog(find_places(leader)[0]).end() == quorum.watch(quorum.leader()).high_watermark


def test_what_is_not_committed_is_not_read(quorum: kraftfast.LocalQuorum) -> None:
    """The log of a running replica is read up to a bound, though it holds whole batches beyond."""
    from kraftfast.spark.reading.splits import Bounds, pieces

    leader = os.path.join(quorum.path, str(quorum.leader()))
    place = find_places(leader)[0]
    found = list(pieces(place, Bounds(), 1 << 20, 100))
    assert all(piece.end_offset == 100 for piece in found)  # type: ignore[union-attr]


def test_a_replica_whose_directory_was_replaced_tells_nothing_of_the_new_one(
    tmp_path: Path,
) -> None:
    """What it has committed is more than the other one's log holds (D11)."""
    path = tmp_path / "quorum"
    with kraftfast.LocalQuorum(path, 1, durability="memory", **SMALL) as quorum:
        with quorum.producer() as producer:
            producer.append_many([b"a"] * 9)
        log = OneLog(find_places(str(path))[0])
        assert log.high_watermark() >= 9  # type: ignore[operator]
        pid = quorum.status(1)["pid"]
        os.kill(pid, signal.SIGSTOP)  # else it stops by itself before it is asked
        try:
            path.rename(tmp_path / "moved")
            with kraftfast.LocalQuorum(path, 1, durability="memory", **SMALL) as other:
                with other.producer() as producer:
                    producer.append_wait(b"of another quorum")
                assert log.high_watermark() == other.watch(1).high_watermark
        finally:
            os.kill(pid, signal.SIGCONT)
            log.close()


def test_a_stopped_quorum_is_read_to_its_last_batch(tmp_path: Path) -> None:
    with kraftfast.LocalQuorum(tmp_path, 1, durability="memory", **SMALL) as quorum:
        with quorum.producer() as producer:
            producer.append_many([b"a", b"b", b"c"])
    assert OneLog(find_places(str(tmp_path))[0]).end() is None
    assert values(rows_of(LogSource({"path": str(tmp_path)}))) == [b"a", b"b", b"c"]


def test_a_quorum_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """A task waits for it as long as it may; without it, one line says so."""
    port = free_port("127.0.0.1") - 1  # replica 1 listens on the next one
    made = {"port": port, "transport": "socket", "durability": "majority", **SMALL}
    with kraftfast.LocalQuorum(tmp_path, 1, **made) as quorum:
        with quorum.producer() as producer:
            producer.append_many([b"value %d" % n for n in range(100)])
        address = servers(quorum)
        end = quorum.watch(1).high_watermark
        source = LogSource({"bootstrap.servers": address, "timeout": "20"})
        reader = source.reader(struct(["value"]))
        parts = reader.partitions()
    brief = LogSource({"bootstrap.servers": address, "timeout": "0.5"}).reader(struct(["value"]))
    with pytest.raises(errors.NoQuorum, match="no leader within 0.5 s"):
        read_all(brief, parts)
    found: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: found.extend(read_all(reader, parts)))
    reading.start()
    time.sleep(0.5)
    with kraftfast.LocalQuorum(tmp_path, **made):
        reading.join(20)
    assert values(found) == [b"value %d" % n for n in range(100)] and end > 100


class Latest(kraftfast.StateMachine):
    """Its snapshots hold the last value, and are larger than a slice."""

    def __init__(self) -> None:
        self.value = b""

    def apply(self, batch: Any) -> None:
        *_, last = batch.records()
        self.value = bytes(last.value)

    def snapshot(self, writer: Any) -> None:
        writer.append(self.value[:20], b"latest")
        writer.extend([b"-" * (64 << 10)] * 40)

    def restore(self, reader: Any) -> None:
        self.value = b"restored"


def break_off_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The connection is lost when the second slice of a snapshot is asked for."""
    asked, ask = list[int](), Connection.ask

    def broken(self: Connection, api_key: int, *args: Any) -> Any:
        if api_key == ApiKey.FETCH_SNAPSHOT:
            asked.append(api_key)
            if len(asked) == 2:
                raise errors.PeerGone("it is gone")
        return ask(self, api_key, *args)

    monkeypatch.setattr(Connection, "ask", broken)
    return asked


def test_a_stream_goes_on_with_the_snapshot_of_a_running_quorum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the quorum gave up meanwhile is not there; its snapshot is, and all that follows it."""
    kept = {"retention_bytes": 1, "snapshot_bytes": 1 << 20, "state_machine": f"{__file__}:Latest"}
    small: dict[str, Any] = SMALL | {"segment_bytes": 4 << 20} | kept
    with kraftfast.LocalQuorum(
        tmp_path, 1, transport="socket", durability="memory", **small
    ) as quorum:
        with quorum.producer() as producer:
            for n in range(300):
                producer.append_many([b"value %d " % n + b"." * 40_000])
        where = {"bootstrap.servers": servers(quorum), "timeout": "20"}
        options = SparkLogOptions.of(where, LOG_OPTIONS, "x")
        deadline = time.monotonic() + 30
        while remote_ranges.log_start(options) == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        start, end = {"quorum": 3}, {"quorum": remote_ranges.committed_end(options)}
        names = ["offset", "epoch", "key", "value"]
        strict = LogSource(where).streamReader(struct(names))
        with pytest.raises(errors.OffsetOutOfRange, match="by now, and offset 3 is to be read"):
            strict.partitions(start, end)
        reader = LogSource(where | {"failOnDataLoss": "false"}).streamReader(struct(names))
        parts = reader.partitions(start, end)
        asked = break_off_once(monkeypatch)
        rows = read_all(reader, parts)
        assert len(asked) == 4, "three slices, one of them asked for again"
        stands_for = parts[0].value.id
        of_snapshot, of_log = rows[:41], rows[41:]
        assert {(row["offset"], row["epoch"]) for row in of_snapshot} == {
            (stands_for.offset - 1, stands_for.epoch)
        }
        assert of_snapshot[0]["key"] == b"latest" and of_snapshot[40]["value"] == b"-" * (64 << 10)
        last = int(of_snapshot[0]["value"].split()[1])
        numbers = [int(row["value"].split()[1]) for row in of_log]
        assert numbers == list(range(last + 1, 300)) and 3 < last < 300
        assert [row["offset"] for row in of_log if row["offset"] < stands_for.offset] == []
        before = reader.partitions(start, {"quorum": stands_for.offset - 1})
        assert not any(hasattr(part.value, "id") for part in before), "it reaches beyond the end"
        gone = fetched.fetched_snapshot(options, OffsetAndEpoch(2, 1))
        with pytest.raises(errors.OffsetOutOfRange, match="has been replaced meanwhile"), gone:
            pass


def test_commands_say_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kraftfast", "spark", *args], capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | more,
        )  # fmt: skip

    no_java = {"JAVA_HOME": str(tmp_path)}
    (tmp_path / "00000000000000000000.log").touch()
    for args in (("audit", str(tmp_path)), ("compact", str(tmp_path), "x")):
        done = run(*args, **no_java)
        assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
        assert "holds no bin/java: install a JRE" in done.stderr
    done = run("sweep", "--seeds", "7")
    assert done.returncode == 2 and "A:B is wanted" in done.stderr
    for more in (("--repeat", "5"), ("--dir", str(tmp_path)), ("--results", str(tmp_path))):
        done = run("sweep", "--seeds", "7:8", *more)
        assert done.returncode == 2 and "belong to --bench" in done.stderr
    done = run("sweep", "--seeds", "7:8", "--out", "")
    assert done.returncode == 2 and "the path is empty" in done.stderr
    done = run("convert", "target")
    assert done.returncode == 2 and "either DIR or --bootstrap-server" in done.stderr
