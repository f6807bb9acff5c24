"""Quorums that run: nothing beyond their high watermark, by directory and by address."""

from __future__ import annotations

import os
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
from kraftfast.spark import remote  # noqa: E402
from kraftfast.spark.options import LOG_OPTIONS, LogOptions  # noqa: E402
from kraftfast.spark.places import find_places, one_log  # noqa: E402
from kraftfast.spark.sources import LogSource  # noqa: E402
from tests.spark.kit import read_all, rows_of, struct  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.processes
SMALL: dict[str, Any] = {
    "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftfast.LocalQuorum]:
    path = tmp_path_factory.mktemp("quorum")
    with kraftfast.LocalQuorum(
        path, 3, transport="socket", durability="memory", **SMALL
    ) as found:
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
    everything = LogSource({"bootstrap.servers": servers(quorum), "controlRecords": "true"})
    assert any(row["control"] for row in rows_of(everything))


def test_ranges_cover_the_log_without_gaps(quorum: kraftfast.LocalQuorum) -> None:
    options = LogOptions.of(
        {"bootstrap.servers": servers(quorum), "splitBytes": "30000"}, LOG_OPTIONS, "x"
    )
    end = remote.committed_end(options)
    found = remote.ranges(options, 0, end)
    assert len(found) > 2
    assert [0, *(part.end_offset for part in found)][:-1] == [part.first_offset for part in found]
    assert found[-1].end_offset == end
    assert remote.ranges(options, end, end) == []


def test_by_directory(quorum: kraftfast.LocalQuorum) -> None:
    assert len(find_places(quorum.path)) == 3
    assert len(one_log(quorum.path)) == 1
    leader = os.path.join(quorum.path, str(quorum.leader()))
    assert values(rows_of(LogSource({"path": leader}))) == EXPECTED
    assert find_places(leader)[0].committed_end() == quorum.watch(quorum.leader()).high_watermark


def test_what_is_not_committed_is_not_read(quorum: kraftfast.LocalQuorum) -> None:
    """The log of a running replica is read up to a bound, though it holds whole batches beyond."""
    from kraftfast.spark.survey import Bounds, pieces

    leader = os.path.join(quorum.path, str(quorum.leader()))
    place = find_places(leader)[0]
    found = list(pieces(place, Bounds(), 1 << 20, 100))
    assert all(piece.end_offset == 100 for piece in found)  # type: ignore[union-attr]


def test_a_stopped_quorum_is_read_to_its_last_batch(tmp_path: Path) -> None:
    with kraftfast.LocalQuorum(tmp_path, 1, durability="memory", **SMALL) as quorum:
        with quorum.producer() as producer:
            producer.append_many([b"a", b"b", b"c"])
    assert find_places(str(tmp_path))[0].committed_end() is None
    assert values(rows_of(LogSource({"path": str(tmp_path)}))) == [b"a", b"b", b"c"]


def test_a_quorum_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """A task waits for it as long as it may; without it, one line says so."""
    made = {"port": 29270, "transport": "socket", "durability": "majority", **SMALL}
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


def test_commands_say_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kraftfast", "spark", *args], capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | more,
        )  # fmt: skip

    no_java = {"JAVA_HOME": str(tmp_path)}
    for args in (("audit", str(tmp_path)), ("compact", str(tmp_path), "x")):
        done = run(*args, **no_java)
        assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
        assert "holds no bin/java: install a JRE" in done.stderr
    done = run("sweep", "--seeds", "7")
    assert done.returncode == 2 and "A:B is wanted" in done.stderr
    done = run("convert", "target")
    assert done.returncode == 2 and "either DIR or --bootstrap-server" in done.stderr
