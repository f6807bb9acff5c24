"""``kraftfast bench load``, ``consume``, ``recover``, ``start``, ``idle``, ``failover``,
``attach``, ``matrix``: what they print, what they leave behind, what they refuse."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

import kraftfast
from kraftfast.bench.loads import failover
from kraftfast.bench.loads.inputs import RECORD_BYTES_MAX
from kraftfast.errors import HostUnsupported
from tests.cli.kit import fails, run

pytestmark = pytest.mark.processes

PERF_TEST = re.compile(
    r"(\d+) records sent, (\d+\.\d) records/sec \((\d+\.\d\d) MB/sec\), (\d+\.\d\d) ms avg latency,"
    r" (\d+\.\d\d) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th\."
)


def lines_of(*args: object) -> list[dict[str, Any]]:
    done = run("bench", *args, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_throughput_ends_with_the_line_of_kafkas_tool(tmp_path: Path) -> None:
    done = run("bench", "throughput", "--dir", tmp_path, "--total", 2)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.decode().splitlines()
    line, found = json.loads(first), PERF_TEST.fullmatch(last)
    assert found is not None and "histograms" not in line
    assert int(found[1]) == line["records"]
    assert float(found[3]) == pytest.approx(line["records_per_s"] * 100 / (1 << 20), rel=0.01)
    assert int(found[6]) == int(line["p50_us"] / 1000) <= int(found[7]) <= float(found[5])


def test_a_line_has_what_it_cost_and_histograms_that_their_library_reads(tmp_path: Path) -> None:
    (line,) = lines_of("latency", "--dir", tmp_path, "--seconds", 0.3)
    assert [each["name"].split()[0] for each in line["processes_cost"]][-1] == "producer"
    found = {name: HdrHistogram.decode(text) for name, text in line["histograms"].items()}
    assert found["commit"].get_total_count() == line["records"]
    assert found["commit"].get_value_at_percentile(50) == pytest.approx(
        line["p50_us"] * 1000, rel=0.02
    )
    assert found["stage leader_flush"].get_total_count() > 0


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_several_producers(transport: str, tmp_path: Path) -> None:
    asked = ("throughput", "--dir", tmp_path, "--total", 2, "--producers", 3)
    (line,) = lines_of(*asked, "--transport", transport)
    assert line["verified"] and line["producers"] == 3 and line["processes"] == 7
    assert line["records"] == 3 * (2 * 1024 * 1024 // 100 // 3)
    names = [each["name"] for each in line["processes_cost"]]
    assert names[-3:] == ["producer 0", "producer 1", "producer 2"]
    assert HdrHistogram.decode(line["histograms"]["commit"]).get_total_count() > 0
    fails(run("bench", *asked, "--record-size", 7), 2)
    fails(run("bench", *asked, "--retention", 8), 2)


@pytest.mark.parametrize("kind", ["processes", "threads", "tasks"])
def test_callers_that_wait_for_each_record(kind: str, tmp_path: Path) -> None:
    asked = ("latency", "--dir", tmp_path, "--seconds", 0.3, "--callers", kind)
    (line,) = lines_of(*asked, "--producers", 3, "--record-size", 20)
    assert line["verified"] and (line["producers"], line["callers"]) == (3, kind)
    assert line["records"] >= 3 and line["verified_records"] > line["records"]
    assert line["processes"] == (7 if kind == "processes" else 4)
    assert line["window"] == (1 if kind == "processes" else 64)
    calls_us = 3e6 * line["seconds"] / line["records"]
    assert line["call_mean_us"] == pytest.approx(calls_us, rel=0.01)
    assert HdrHistogram.decode(line["histograms"]["commit"]).get_total_count() > 0
    (line,) = lines_of(*asked[:3], "--total", 0.01, "--callers", kind)
    assert line["records"] == 104 and line["producers"] == 1 and line["verified"]
    fails(run("bench", *asked, "--record-size", 7), 2)
    fails(run("bench", *asked, "--samples", tmp_path / "x"), 2)


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_observers_and_idle_connections(transport: str, tmp_path: Path) -> None:
    asked = ("--dir", tmp_path, "--observers", 3, "--connections", 5, "--transport", transport)
    (line,) = lines_of("latency", *asked, "--seconds", 0.5, "--retained-producers", 2)
    found = line["observers"], line["connections"], line["retained_producers"]
    assert line["verified"] and found == (3, 5, 2)
    assert 0 < line["observed_records"] <= 3 * (line["verified_records"] + 1)
    assert line["processes_cost"][-1]["name"] == "beside"
    (line,) = lines_of("throughput", *asked, "--total", 1)
    assert line["verified"] and line["observed_records"] >= 0
    (line,) = lines_of("idle", *asked, "--seconds", 0.3, "--voters", 1)
    assert (line["observers"], line["connections"]) == (3, 5) and line["core_percent"] >= 0
    (line,) = lines_of("latency", "--dir", tmp_path, "--seconds", 0.1)
    assert (line["observers"], line["connections"], line["producers"]) == (0, 0, 1)
    assert line["processes_cost"][-1]["name"] == "producer"


def test_seven_voters_and_the_largest_record(tmp_path: Path) -> None:
    (line,) = lines_of("throughput", "--dir", tmp_path, "--total", 1, "--voters", 7)
    assert line["voters"] == 7 and line["verified"]
    largest = ("--record-size", RECORD_BYTES_MAX, "--total", 32)
    (line,) = lines_of("throughput", "--dir", tmp_path, *largest)
    assert line["records"] == 4 and line["verified"]
    (line,) = lines_of("throughput", "--dir", tmp_path, "--total", 1, "--window", 4096)
    assert line["window"] == 4096 and line["verified"]


def test_load(tmp_path: Path) -> None:
    asked = ("load", "--dir", tmp_path, "--seconds", 0.5, "--rates", "200,1000000000")
    fastest, slow, hopeless = lines_of(*asked)
    assert fastest["part"] == "as fast as it goes" and fastest["rate_wanted"] is None
    assert slow["part"] == "200/s" and slow["records"] == 100 and slow["verified"]
    assert slow["held"] and slow["p50_us"] > 0
    response = HdrHistogram.decode(slow["histograms"]["response"])
    assert response.get_total_count() == 100 and "commit" not in slow["histograms"]
    assert not hopeless["held"] and hopeless["behind_percent"] > 50
    assert hopeless["p50_us"] is None and "response" not in hopeless["histograms"]
    assert not list(tmp_path.iterdir())
    fails(run("bench", "load", "--total", 1), 2)
    fails(run("bench", "load", "--rates", "5,x"), 2)
    fails(run("bench", "load", "--rates", "5,7,5"), 2)
    fails(run("bench", "load", "--rates", ",".join(["5"] * 101)), 2)


def test_consume(tmp_path: Path) -> None:
    asked = ("consume", "--dir", tmp_path, "--total", 1, "--seconds", 0.3)
    batches, records, arrival = lines_of(*asked)
    assert [batches["part"], records["part"]] == ["batches", "records"]
    assert batches["records"] == records["records"] > 10_000 and records["records_per_s"] > 0
    assert arrival["part"] == "append to consumer" and 0 < arrival["p50_us"] < 10_000_000
    assert HdrHistogram.decode(arrival["histograms"]["arrival"]).get_total_count() > 0
    assert not list(tmp_path.iterdir())


def test_recover(tmp_path: Path) -> None:
    more = ("--snapshot", 1, "--retained-producers", 3)
    lines = lines_of("recover", "--dir", tmp_path, "--total", 1, *more)
    empty, clean, killed, seek, state = lines
    assert (empty["log_mib"], clean["log_mib"]) == (0, 1) and empty["took_s"] > 0
    assert clean["part"] == "after a clean stop" and clean["verified"]
    assert killed["part"] == "after kill -9 of all replicas" and killed["verified"]
    assert clean["took_s"] > 0 and killed["took_s"] > 0
    assert seek["part"] == "first record at a random offset" and seek["p50_us"] > 0
    assert state["part"] == "after a clean stop, from a snapshot" and state["snapshot_mib"] >= 1
    assert state["verified"] and {each["retained_producers"] for each in lines} == {3}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["recover", "consume", "throughput"])
def test_a_log_without_records_is_refused(command: str, tmp_path: Path) -> None:
    assert "0" in fails(run("bench", command, "--dir", tmp_path, "--total", 0), 2)


def test_start(tmp_path: Path) -> None:
    (line,) = lines_of("start", "--dir", tmp_path, "--times", 2, "--durability", "memory")
    parts = [line[each] for each in ("import_ms", "quorum_ms", "first_commit_ms")]
    assert all(each > 0 for each in parts) and line["whole_ms"] > max(parts)
    assert line["whole_worst_ms"] >= line["whole_ms"] and 0 < line["disk_mib"] < 16
    fails(run("bench", "start", "--times", 0, "--dir", tmp_path), 2)


def test_idle(tmp_path: Path) -> None:
    (line,) = lines_of("idle", "--dir", tmp_path, "--seconds", 0.5, "--voters", 1)
    assert len(line["core_percent_of_each"]) == len(line["beside_segments_bytes"]) == 1
    assert 0 <= line["core_percent"] < 100 and 5 < line["largest_worker_mb"] < 500


def test_failover(tmp_path: Path) -> None:
    (line,) = lines_of("failover", "--dir", tmp_path, "--kills", 2)
    assert line["times"] == 2 and len(line["times_ms"]) == 2 and line["records"] > 0
    assert line["p50_us"] <= line["max_us"] and line["split_votes"] >= 0
    assert not list(tmp_path.iterdir())
    fails(run("bench", "failover", "--resets", 1), 2)
    fails(run("bench", "failover", "--kills", 0), 2)
    fails(run("bench", "failover", "--voters", 1), 2)


def test_resets_need_a_tool_and_a_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(HostUnsupported, match="iproute2"):
        failover.check_resets()
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/ss")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostUnsupported, match="root"):
        failover.check_resets()


def test_attach(tmp_path: Path) -> None:
    path = tmp_path / "quorum"
    with kraftfast.LocalQuorum(path, voters=3) as quorum, quorum.producer() as producer:
        for _ in range(50):
            producer.append(b"value")
            time.sleep(0.001)
        (line,) = lines_of("attach", "--dir", path, "--seconds", 0.3)
        assert line["records"] == 0 and [each["id"] for each in line["replicas"]] == [1, 2, 3]
        assert line["epochs_begun"] == 0 and line["cpu_s_per_million_records"] is None
        done = run("bench", "attach", "--dir", path / "1", "--seconds", 0.1)
        assert done.returncode == 0 and b"epochs_begun" in done.stdout, done.stderr
    fails(run("bench", "attach", "--dir", path, "--seconds", 0.1, "--timeout", 0.1), 12)
    fails(run("bench", "attach", "--dir", tmp_path, "--seconds", 0.1), 36)
    told = run("bench", "attach", "--dir", path, "--timeout", 2.5).stderr.decode().splitlines()
    assert len(told) == 2 and "no process runs a replica" in told[0], told
    assert told[0].endswith("waiting for up to 0.5 s (--timeout)"), "it waits, and says for what"


def test_a_matrix_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    asked = ("bench", "matrix", "floor", "--over", "total=1,2", "--over", "window=1,2")
    place = ("--dir", tmp_path / "d", "--results", tmp_path / "r")
    done = run(*asked, "--repeat", 1, *place)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "r").iterdir()
    document = json.loads(path.read_text())
    names = [run["measure"] for run in document["runs"]]
    assert names == [f"floor total={total} window={window}" for total in "12" for window in "12"]
    fails(run(*asked, "--repeat", 1, *place, "--resume", path), 3)
    kept = document["runs"][:1]
    path.write_text(json.dumps(document | {"runs": kept, "complete": False}))
    fails(run(*asked, "--repeat", 2, *place, "--resume", path), 3)
    done = run(*asked, "--repeat", 1, *place, "--resume", path)
    assert done.returncode == 0 and b"1 of 3" in done.stderr, done.stderr
    again = json.loads(path.read_text())
    assert again["complete"] and again["runs"][0] == kept[0] and len(again["runs"]) == 4
    fails(run("bench", "matrix", "floor", "--over", "total=", *place), 2)
    fails(run("bench", "matrix", "nothing", "--over", "total=1", *place), 3)


@pytest.mark.parametrize("command", ["throughput", "load", "sustained"])
def test_a_compression_level_without_its_codec_runs_nothing(command: str, tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text(f'[[measure]]\ncommand = "{command}"\ncompression-level = 3\n')
    told = fails(run("bench", "run", plan, "--results", results), 3)
    assert "--compression-level: compression none has no levels" in told and not results.exists()
    fails(run("bench", command, "--compression", "zstd", "--compression-level", 23), 2)


def test_what_goes_before_the_clock_is_verified_and_not_counted(tmp_path: Path) -> None:
    asked = ("throughput", "--dir", tmp_path, "--total", 2, "--record-size", 1000)
    (line,) = lines_of(*asked, "--warm-up", 8)
    assert line["verified"] is True and line["warm_up_mib"] == 8
    assert line["prepared_mib"] == 42, "for what goes before, too"
    assert line["records"] == 2 * 1024 * 1024 // 1000
    warm_up = 8 * 1024 * 1024 // 1000
    assert warm_up <= line["verified_records"] - line["records"] < warm_up + 2000
    told = fails(run("bench", *asked, "--warm-up", 1, "--producers", 2), 2)
    assert "--warm-up belongs to one producer" in told
