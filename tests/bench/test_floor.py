"""The floor: what it commits, in every way, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from kraftfast.bench import floor
from kraftfast.bench.floor import FILES, WAYS, Work, best, run, run_ways
from kraftfast.bench.floor_kernel import FILES as KERNEL_FILES
from kraftfast.bench.floor_kernel import HOW
from kraftfast.errors import DiskFull, InvalidOption, StorageError, TimedOut

pytestmark = pytest.mark.processes
MIB = 1 << 20


def work(directory: Path, **changed: object) -> Work:
    asked = {
        "value_bytes": 100,
        "batch_bytes": 8192,
        "total_bytes": MIB,
        "window": 8,
        "durable": True,
    }
    return Work(str(directory), **(asked | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("files", FILES)
def test_every_way_commits_all_and_leaves_nothing(
    files: str, durable: bool, tmp_path: Path
) -> None:
    asked = work(tmp_path, durable=durable, files=files, keep_bytes=MIB // 4 * (files == "again"))
    for way in asked.ways:
        line = run(asked, way)
        assert line["records"] == asked.batches * (8192 // 110)
        rate, rounded = line["records"] / line["seconds"], 1e-6 / line["seconds"]
        assert line["records_per_s"] == pytest.approx(rate, rel=1e-3 + rounded)
        told = [line[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")]
        assert told == sorted(told) and told[0] > 0
        assert line["cpu_s_per_million_records"] >= 0 and line["sync"] is durable
        assert not list(tmp_path.iterdir())


def test_a_batch_holds_one_record_at_least(tmp_path: Path) -> None:
    line = run(work(tmp_path, batch_bytes=1, total_bytes=5_000, window=1), ("write", "prepared"))
    assert line["records"] == 50
    line = run(work(tmp_path, value_bytes=3 * MIB, total_bytes=7 * MIB), ("map", "growing"))
    assert line["records"] == 2


def test_every_way_is_one_of_the_kernel() -> None:
    assert all(
        how in HOW and files in KERNEL_FILES for ways in WAYS.values() for how, files in ways
    )
    assert set(WAYS) == {(kind, files) for kind in ("durable", "memory") for files in FILES}


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="files are prepared, growing, again, not 'old'"):
        work(tmp_path, files="old")
    with pytest.raises(InvalidOption, match="how much is kept"):
        work(tmp_path, files="again")
    with pytest.raises(InvalidOption, match="kept in part"):
        work(tmp_path, keep_bytes=MIB)
    with pytest.raises(StorageError, match="cannot make a file in .*/no"):
        run(work(tmp_path / "no"), ("write", "prepared"))
    with pytest.raises(TimedOut, match="did not end within"):
        run(work(tmp_path), ("write", "prepared"), timeout=0.001)


def test_a_file_that_cannot_be_that_long_is_told(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from kraftfast.bench import floor;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16));"
        "sys.argv[1:] and floor.main(sys.argv[1])"
    )
    asked = json.dumps([asdict(work(tmp_path)), ["in-place", "prepared"]])
    done = subprocess.run(
        [sys.executable, "-c", code, asked], capture_output=True, text=True, timeout=60
    )
    assert done.returncode and "reserve blocks" in done.stderr and "File too large" in done.stderr


def test_a_killed_follower_ends_the_run(tmp_path: Path) -> None:
    asked = work(tmp_path, total_bytes=4096 * MIB, durable=False, files="again", keep_bytes=MIB)
    text = json.dumps([asdict(asked), ["write", "cold"]])
    command = [sys.executable, "-m", floor.__name__, text]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    while len(found := children.read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(int(found[0]), signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == StorageError.exit_code and "follower's process" in told


def test_a_way_that_does_not_run_here_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that remain the best counts; a full disk is no property of a way."""
    asked, failures = work(tmp_path, files="growing"), [StorageError("no O_DIRECT")]

    def one_fails(work: Work, way: tuple[str, str]) -> dict[str, object]:
        if way[0] == "direct" or isinstance(failures[0], DiskFull):
            raise failures[0]
        return {"how": way[0]}

    monkeypatch.setattr(floor, "run", one_fails)
    lines, problems = run_ways(asked)
    assert [line["how"] for line in lines] == ["write"]
    assert problems == ["direct, growing: no O_DIRECT"]
    failures[0] = DiskFull("full")
    with pytest.raises(DiskFull):
        run_ways(asked)
    monkeypatch.setattr(Work, "ways", (("direct", "growing"),))
    failures[0] = StorageError("no O_DIRECT")
    with pytest.raises(StorageError, match="no way of the floor runs here: direct"):
        run_ways(asked)


def test_what_the_kernel_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="under way"):
        work(tmp_path, batch_bytes=65536, window=2000)
    with pytest.raises(InvalidOption, match="batches"):
        work(tmp_path, batch_bytes=1, total_bytes=1 << 40)
    asked = work(tmp_path, files="again", keep_bytes=65536)
    with pytest.raises(StorageError, match="in place nothing is used in a circle"):
        run(asked, ("in-place", "prepared"))
    small = work(tmp_path, value_bytes=1)
    assert small.file_bytes > 5 * small.total_bytes, "the size that is asked of the disk first"


def test_the_best_line() -> None:
    lines = [{"records_per_s": 1.0, "p50_us": 5.0}, {"records_per_s": 2.0, "p50_us": 7.0}]
    assert best(lines) is lines[1] and best(lines, "p50_us") is lines[0]
