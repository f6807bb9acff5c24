"""What a line says of its own load: restarts, epochs, stages; and that verification can fail."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kraftfast
from kraftfast.bench.loads import (
    attaching,
    consuming,
    failover,
    load,
    recovery_time,
    retained,
    starting,
)
from kraftfast.bench.loads.drives import Drive, watched
from kraftfast.bench.loads.inputs import InputRows
from kraftfast.bench.loads.load import Latency, LoadRun
from kraftfast.errors import CorruptLog, KraftfastError
from tests.client.scripted_quorum import ScriptedQuorum

pytestmark = pytest.mark.processes

ASKED = {"count": 2000, "seconds": None, "stages": True, "transport": "ring"}
TIMEOUT_S = 60.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[kraftfast.LocalQuorum]:
    with kraftfast.LocalQuorum(tmp_path / "quorum", voters=3) as made:
        yield made


def test_a_replica_that_was_killed_meanwhile_stands_in_the_line(
    quorum: kraftfast.LocalQuorum,
) -> None:
    with quorum.producer() as producer, watched(quorum) as views:
        drive = Drive(quorum, producer, InputRows(None, 100), views, ASKED)
        _, quiet = next(iter(drive.run("throughput")))
        assert (quiet["restarts"], quiet["epochs_begun"]) == (0, 0)
        assert quiet["cpu_s_per_million_records"] is not None

        def kill_the_leader() -> tuple[LoadRun, dict[str, Any]]:
            leader, epoch = failover.wait_whole(quorum)
            quorum.kill(leader)
            until = time.monotonic() + TIMEOUT_S
            while failover.wait_whole(quorum)[1] == epoch and time.monotonic() < until:
                time.sleep(0.01)
            return LoadRun(1, 1, 1.0, Latency(None, None, None, 1.0, 0), 1), {}

        _, line = drive._observed(kill_the_leader)
        assert line["restarts"] == 1 and line["epochs_begun"] >= 1
        assert line["cpu_s_per_million_records"] is None


def test_a_replica_that_does_not_answer_at_the_end_stands_in_the_line(
    quorum: kraftfast.LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = quorum.statuses

    def end_without_the_last() -> tuple[LoadRun, dict[str, Any]]:
        monkeypatch.setattr(
            quorum, "statuses", lambda: {id: s for id, s in statuses().items() if id < 3}
        )
        return LoadRun(1, 1, 1.0, Latency(None, None, None, 1.0, 0), 1), {}

    with quorum.producer() as producer, watched(quorum) as views:
        producer.append_wait(b"value", timeout=TIMEOUT_S)
        _, line = Drive(quorum, producer, InputRows(None, 100), views, ASKED)._observed(
            end_without_the_last
        )
    assert line["restarts"] == 1 and line["cpu_s_per_million_records"] is None


def test_stages_are_those_of_one_load(quorum: kraftfast.LocalQuorum) -> None:
    with quorum.producer() as producer, watched(quorum) as views:
        drive = Drive(quorum, producer, InputRows(None, 100), views, ASKED)

        def some(records: int) -> Callable[[], tuple[LoadRun, dict[str, Any]]]:
            def run() -> tuple[LoadRun, dict[str, Any]]:
                producer.latencies.reset_latency()
                for _ in range(records):
                    producer.append_wait(b"value", timeout=TIMEOUT_S)
                return LoadRun(records, 1, 1.0, Latency.of(producer), records), {}

            return run

        for records in (30, 7):
            _, line = drive._observed(some(records))
            (queue,) = (each for each in line["stages"] if each["name"] == "queue")
            assert queue["count"] == records


def test_the_clock_begins_behind_the_warm_up() -> None:
    scripted = ScriptedQuorum()
    try:
        with kraftfast.client.producer.producer.Producer(scripted, TIMEOUT_S) as producer:
            rows, seen = InputRows(None, 1000), []
            run = load.throughput(
                producer, rows, 10, None, warm=lambda: seen.append(producer.outcomes.next_ticket)
            )
            assert seen == [len(rows.rows)] and run.handed_over == len(rows.rows) + 10
    finally:
        scripted.stop()


class Others(InputRows):
    """Rows that expect other values than they append."""

    def checker(self, count: int | None = None) -> Any:
        return InputRows(None, self.size, json=True).checker(count)


def test_reading_is_verified(quorum: kraftfast.LocalQuorum) -> None:
    lines, problem = consuming.catch_up(quorum, InputRows(None, 100), 1000)
    assert not problem and all(line["verified"] for line in lines)
    lines, problem = consuming.catch_up(quorum, Others(None, 100), 1000)
    assert "are not those that were appended" in problem
    assert not any(line["verified"] for line in lines)


def test_a_damaged_batch_is_not_counted() -> None:
    class Damaged:
        is_control, base_offset, record_count = False, 7, 5

        def crc_ok(self) -> bool:
            return False

        def batches(self) -> list[Any]:
            return [self]

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def consumer(self, **_: Any) -> Any:
            return self

    with pytest.raises(CorruptLog, match="offset 7"):
        consuming._read(Damaged(), 0, 5, 100, "batches")


def test_arrivals_are_in_microseconds() -> None:
    line = consuming._arrival_line(np.full(200, 1_000_000))
    assert line["p50_us"] == line["max_us"] == 1000.0


def test_recovering_kills_all_and_verifies(tmp_path: Path, monkeypatch: Any) -> None:
    killed: list[int] = []
    kill = kraftfast.LocalQuorum.kill
    monkeypatch.setattr(
        kraftfast.LocalQuorum, "kill", lambda self, id: (killed.append(id), kill(self, id))
    )

    def start() -> kraftfast.LocalQuorum:
        return kraftfast.LocalQuorum(tmp_path / "quorum", voters=3)

    lines, problem = recovery_time.measure(start, InputRows(None, 100), 1000)
    assert killed == [1, 2, 3] and not problem
    parts = [line["part"] for line in lines]
    assert parts == [
        "after a clean stop without records", "after a clean stop", "after kill -9 of all replicas",
        "first record at a random offset",
    ]  # fmt: skip
    assert lines[-1]["log_mib"] == lines[-2]["log_mib"] > 0 and lines[-1]["verified"]
    assert lines[-1]["p50_us"] <= lines[-1]["p99_us"] <= lines[-1]["max_us"]

    def again() -> kraftfast.LocalQuorum:
        return kraftfast.LocalQuorum(tmp_path / "other", voters=1)

    lines, problem = recovery_time.measure(again, Others(None, 100), 1000)
    assert problem and len(lines) == 2 and not lines[-1]["verified"]


def test_a_seek_to_another_record_is_an_error(quorum: kraftfast.LocalQuorum) -> None:
    with quorum.producer() as producer:
        offsets = producer.append_many([b"value"] * 10)
    assert recovery_time.seek(quorum, offsets[0], offsets[-1] + 1)["seeks"] == recovery_time.SEEKS
    with pytest.raises(CorruptLog, match="got another record first"):
        recovery_time.seek(quorum, 0, 1)  # where the leader's own record stands


def test_a_state_is_loaded_from_its_snapshot(tmp_path: Path) -> None:
    def start(**settings: Any) -> kraftfast.LocalQuorum:
        return kraftfast.LocalQuorum(tmp_path / "quorum", voters=3, **settings)

    line = recovery_time.from_snapshot(start, 2)
    assert line["part"] == "after a clean stop, from a snapshot" and line["verified"]
    assert line["snapshot_mib"] >= 2 and line["took_s"] > 0
    states = [path for path in tmp_path.rglob("*.checkpoint") if path.stat().st_size > 1 << 20]
    assert len(states) >= 3, "each replica has one"


def test_producers_that_appended_before_are_remembered(tmp_path: Path) -> None:
    settings = retained.settings(100)
    assert settings == {"producers_max": 172} and retained.settings(0) == {}
    assert retained.settings(4096) == {"producers_max": 4096}
    with kraftfast.LocalQuorum(tmp_path / "quorum", voters=1, **settings) as quorum:
        retained.append_once_each(quorum, 100)
        with quorum.consumer() as consumer:
            ids = {batch.producer_id for batch in consumer.batches() if not batch.is_control}
    assert len(ids) == 100 and min(ids) >= 0


def test_what_was_committed_meanwhile_is_seen_from_outside(
    quorum: kraftfast.LocalQuorum,
) -> None:
    def append() -> None:
        time.sleep(0.2)
        with quorum.producer() as producer:
            producer.append_many([b"value"] * 300, timeout=TIMEOUT_S)

    with kraftfast.connect(quorum.path) as outside:
        thread = threading.Thread(target=append)
        thread.start()
        line = attaching.measure(outside, 3.0)
        thread.join()
    assert line["records"] == 300 and line["epochs_begun"] == 0
    assert line["records_per_s"] == pytest.approx(300 / line["seconds"], rel=0.01)
    assert {each["name"] for each in line["stages"]} >= {"queue", "append", "commit"}


def test_a_start_has_the_transport_that_was_asked_for(monkeypatch: Any) -> None:
    seen: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return subprocess.CompletedProcess(command, 1, "", "said\nlast")

    monkeypatch.setattr(subprocess, "run", run)
    asked = {"voters": 3, "durability": None, "transport": "socket", "times": 1}
    with pytest.raises(KraftfastError, match="a start failed: last"):
        starting.measure("/nowhere", asked)
    assert seen[0][-3:] == ["3", "majority", "socket"]
