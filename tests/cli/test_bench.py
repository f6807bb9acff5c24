"""``kraftfast bench``: the line that it prints, and what it leaves behind."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.bench.disk import Cell, verdict
from tests.cli.kit import ROOT, environment, fails, run

pytestmark = pytest.mark.processes

KEYS = (
    "peer version voters processes sync value_bytes mode window seconds records records_per_s "
    "p50_us p99_us p999_us max_us verified"
).split()


@pytest.mark.parametrize(
    "args, sync, voters",
    [(("--voters", 3), True, 3), (("--durability", "memory", "--voters", 1), False, 1)],
)
def test_throughput(args: tuple[object, ...], sync: bool, voters: int, tmp_path: Path) -> None:
    done = run(
        "bench", "throughput", "--dir", tmp_path, "--total", 2, "--window", 8, "--stages", *args
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert list(line)[: len(KEYS)] == KEYS
    assert (line["peer"], line["mode"], line["window"], line["value_bytes"]) == (
        "kraftfast",
        "throughput",
        8,
        100,
    )
    assert (line["sync"], line["voters"], line["processes"]) == (sync, voters, voters + 1)
    assert line["records"] == 2 * 1024 * 1024 // 100 and line["verified"] is True
    assert line["records_per_s"] == pytest.approx(line["records"] / line["seconds"], rel=0.001)
    assert (line["fsyncs_per_1000_records"] > 0) is sync
    assert not list(tmp_path.iterdir()), "it removes what it made"


def test_latency(tmp_path: Path) -> None:
    done = run("bench", "latency", "--dir", tmp_path / "new", "--seconds", 0.3, "--record-size", 20)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert list(line)[: len(KEYS)] == KEYS and line["mode"] == "latency" and line["window"] == 1
    assert line["records"] > 0 and 0.3 <= line["seconds"] < 5 and line["verified"] is True
    told = [line[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")]
    told = [us for us in told if us is not None]  # of as many commits as there were in that time
    assert told == sorted(told) and told[0] > 0 and line["max_us"] is not None
    assert not (tmp_path / "new").exists()


def test_a_log_that_is_kept_for_a_while_only(tmp_path: Path) -> None:
    done = run(
        "bench", "throughput", "--dir", tmp_path, "--total", 80, "--record-size", 1000,
        "--prepare", 8, "--retention", 16, "--segment-bytes", "8MiB",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["verified"] is True and line["retention_mib"] == 16
    assert line["records"] == 80 * 1024 * 1024 // 1000


def test_a_sustained_run_is_told_by_the_second_and_by_the_process(tmp_path: Path) -> None:
    asked = ("bench", "sustained", "--dir", tmp_path, "--seconds", 2.2, "--record-size", 1000)
    done = run(*asked, "--retention", 16, "--segment-bytes", "8MiB", "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert list(line)[: len(KEYS)] == KEYS and line["mode"] == "sustained" and line["verified"]
    assert line["prepared_mib"] == 64 and line["load_average"][0] >= 0
    seconds, costs = line["timeline"], line["processes_cost"]
    assert len(seconds) >= 2 and all(each["at_s"] > 0 for each in seconds)
    rates = [each["records_per_s"] for each in seconds]
    assert min(rates) <= line["records_per_s"] <= 1.05 * max(rates)
    slowest = [each["max_us"] for each in seconds if each["max_us"] is not None]
    assert max(slowest) == pytest.approx(line["max_us"], rel=0.02)
    assert sorted(each["name"].split()[0] for each in costs) == [
        "follower", "follower", "leader", "producer",
    ]  # fmt: skip
    for each in costs:
        assert each["user_s"] + each["system_s"] > 0 and each["minor_faults"] > 0
        assert (each["flushes"] > 0) is (each["name"] != "producer")
    cpu_s = sum(each["user_s"] + each["system_s"] for each in costs)
    handed_over = cpu_s / line["cpu_s_per_million_records"] * 1e6
    assert handed_over == pytest.approx(line["records"], rel=0.05)
    done = run(*asked)
    assert done.returncode == 0 and b"p99.9 of a batch" in done.stdout, done.stderr
    assert b"verified" in done.stdout and b"s of CPU a million records" in done.stdout


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    fails(run("bench", "throughput", "--total", 1, "--seconds", 1), 2)
    fails(run("bench", "latency", "--record-size", 0, "--dir", tmp_path), 2)
    fails(run("bench", "sustained", "--stages", "--dir", tmp_path), 2)
    (tmp_path / "file").touch()
    fails(run("bench", "latency", "--dir", tmp_path / "file" / "x"), 30)


def test_disk(tmp_path: Path) -> None:
    done = run("bench", "disk", "--dir", tmp_path, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [(cell["file"], cell["size"]) for cell in cells] == [
        (file, size) for file in ("fresh", "written", "mapped") for size in (4096, 65536, 1048576)
    ]
    assert all(0 < cell["p50_us"] <= cell["p99_us"] <= cell["max_us"] for cell in cells)
    done = run("bench", "disk", "--dir", tmp_path, "--quick")
    assert done.returncode == 0 and b"written: filled by writes" in done.stdout


def cells(p99_us: float, written: float, mapped: float) -> list[Cell]:
    rows = [
        ("written", 4 << 10, p99_us),
        ("written", 1 << 20, written),
        ("mapped", 1 << 20, mapped),
    ]
    return [Cell(file, size, 100, us, us, us) for file, size, us in rows]


def test_the_verdict_on_a_disk() -> None:
    assert verdict(cells(500, 1000, 1000)).startswith("fit: p99")
    assert verdict(cells(10_001, 1000, 1000)).startswith("slow")
    assert "through their mapping" in verdict(cells(500, 1300, 1000))


def test_against_the_floor(tmp_path: Path) -> None:
    """With a floor that prints the same line always: how ratios and bars come about."""
    (tmp_path / "floor.c").write_text(
        "#include <stdio.h>\nint main(void) {\n"
        '    puts("floor: 1000000 records/s, 100 MB/s, batch commit p50 1 us p99 1 us");\n}\n'
    )
    script = str(ROOT / "bench" / "against_floor.py")
    arguments = [
        "--dir",
        tmp_path,
        "--floor-source",
        tmp_path / "floor.c",
        "--pairs",
        2,
        "--total",
        2,
    ]
    arguments += ["--rows", "one outstanding", "--json", tmp_path / "out.json"]
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
    )
    assert done.returncode == 1, "a commit takes longer than a microsecond"
    table = json.loads((tmp_path / "out.json").read_text())["table"]
    assert [(line["key"], line["met"]) for line in table] == [("p50_us", False), ("p99_us", False)]
    assert table[0]["ratio"] == pytest.approx(table[0]["ours"], abs=0.01)
    assert done.stdout.count("MISSED") == 2


def test_the_floor_itself(tmp_path: Path) -> None:
    """bench/floor.c is there, compiles, and prints what is read."""
    spec = importlib.util.spec_from_file_location("floor", ROOT / "bench" / "against_floor.py")
    assert spec is not None and spec.loader is not None
    against = importlib.util.module_from_spec(spec)
    sys.modules["floor"] = against  # its dataclasses look themselves up
    spec.loader.exec_module(against)
    program = against.build_floor(against.FLOOR_SOURCE, str(tmp_path))
    for row in (against.ROWS[0], against.ROWS[2]):
        ran = against.run_floor(program, row, str(tmp_path), 1)
        assert ran["records_per_s"] > 0 and ran["p99_us"] >= ran["p50_us"] > 0
