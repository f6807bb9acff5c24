"""``kraftfast bench``: the line that it prints, and what it leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.bench.fdatasync_cost import Cell, verdict
from kraftfast.bench.results import checkouts
from kraftfast.bench.results.machine_facts import facts
from kraftfast.bench.results.result import Result, Run
from kraftfast.cli import root
from kraftfast.cli.bench import bench_results
from kraftfast.errors import DiskFull
from tests.cli.kit import ROOT, environment, fails, loaded, run

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
        "bench",
        "throughput",
        "--dir",
        tmp_path,
        "--total",
        2,
        "--window",
        8,
        "--stages",
        "--json",
        *args,
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
    assert line["fsync"].startswith("fdatasync" if sync else "none") and line["survives"]
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
        "--prepare", 8, "--retention", 16, "--segment-bytes", "8MiB", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["verified"] is True and line["retention_mib"] == 16
    assert 16_000 < line["verified_records"] < line["records"]
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


@pytest.fixture(scope="module")
def against() -> Any:
    """Return bench/against_floor.py as a module."""
    return loaded(ROOT / "bench" / "against_floor.py")


def test_ratios_and_bars(against: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The best way of a pair counts, by each key; a ratio is that of a pair."""
    bars = {against.RATE: 0.75, against.P50: 1.05, against.P999: 3.0}
    measured = against.Measured(against.Row("row", 100, "majority", bars))
    for rate, p50 in ((100.0, 10.0), (50.0, 40.0), (200.0, 30.0)):
        measured.floor.append(
            [{"records_per_s": rate, "p50_us": p50}, {"records_per_s": rate / 2, "p50_us": 10.0}]
        )
        measured.ours.append({"records_per_s": 80.0, "p50_us": 12.0, "p999_us": None})
    lines = measured.summary()
    assert [line["met"] for line in lines] == [True, False, None]
    rate = lines[0]
    assert (rate["ratio_min"], rate["ratio"], rate["ratio_max"]) == (0.4, 0.8, 1.6)
    assert (rate["floor"], rate["ours"], lines[1]["ratio"]) == (100.0, 80.0, 1.2)
    against.show(lines, 3)
    table = capsys.readouterr().out
    assert table.count("MISSED") == 1 and "0.80 (0.40-1.60)" in table and "too few" in table


def test_a_run_that_fails_does_not_take_the_others_with_it(
    against: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([1.0, None, 3.0])

    def run_ours(*_: Any) -> dict[str, Any]:
        rate = next(rates)
        if rate is None:
            raise against.RunFailed("exit code 16")
        return {"records_per_s": rate}

    monkeypatch.setattr(against, "run_ours", run_ours)
    monkeypatch.setattr(against, "run_floor", lambda *_: [{"records_per_s": 2.0}])
    measured = against.Measured(against.Row("row", 100, "majority", {against.RATE: 0.75}))
    against.measure(measured, "", SimpleNamespace(pairs=3))
    assert measured.failed == ["exit code 16"] and len(measured.floor) == 2
    assert [line["ratio_max"] for line in measured.summary()] == [1.5]


@pytest.mark.parametrize(
    "error, code", [(KeyboardInterrupt(), 130), (DiskFull("no room for the floor"), 1)]
)
def test_what_was_measured_before_the_end_is_kept(
    against: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    code: int,
) -> None:
    """Hours of pairs are not lost with the last of them, and the end is no success."""
    floor = iter([[{"records_per_s": 2.0}], error])

    def run_floor(*_: Any) -> list[dict[str, Any]]:
        found = next(floor)
        if isinstance(found, BaseException):
            raise found
        return found

    row = against.Row("row", 100, "majority", {against.RATE: 0.75})
    monkeypatch.setattr(against, "ROWS", (row,))
    monkeypatch.setattr(against, "run_floor", run_floor)
    monkeypatch.setattr(against, "run_ours", lambda *_: {"records_per_s": 2.0})
    file = tmp_path / "out.json"
    asked = ["against_floor", "--dir", str(tmp_path), "--json", str(file)]
    monkeypatch.setattr("sys.argv", asked)
    assert against.main() == code
    (line,) = json.loads(file.read_text())["table"]
    assert line["ratio"] == 1.0


def test_a_run_without_end_is_one_that_failed(
    against: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(against.subprocess, "run", run)
    with pytest.raises(against.RunFailed, match="no end within"):
        against.run_ours(against.ROWS[0], ".", SimpleNamespace(total=1, long=1, more=[]))


def test_where_the_runs_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    script = str(ROOT / "bench" / "against_floor.py")
    for file in (tmp_path / "none" / "out.json", tmp_path):
        done = subprocess.run(
            [sys.executable, script, "--dir", str(tmp_path), "--quick", "--json", str(file)],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
        assert done.returncode == 2 and f"--json cannot be {file}" in done.stderr, done.stderr


def test_what_runs_beside_a_row_ends_with_it(against: Any) -> None:
    with against.busy_beside(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert [loop.poll() for loop in loops] == [-signal.SIGKILL] * 2


def test_a_row_has_options_of_its_own(tmp_path: Path) -> None:
    script = str(ROOT / "bench" / "against_floor.py")
    done = subprocess.run(
        [sys.executable, script, "--dir", str(tmp_path), "--quick", "--rows", "zstd"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
    )
    assert done.returncode == 0 and "records/s" in done.stdout, done.stderr


def test_against_the_floor(tmp_path: Path) -> None:
    script = str(ROOT / "bench" / "against_floor.py")
    arguments = ["--dir", tmp_path, "--quick", "--rows", "1 KiB, durable, retention"]
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments), "--json", str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert [line["key"] for line in found["table"]] == ["records_per_s"]
    assert found["table"][0]["ratio"] > 0 and "| 1 KiB, durable, retention" in done.stdout
    (run,) = found["runs"]
    assert [line["how"] for line in run["floor"][0]] == ["write", "direct"]


def test_the_floor(tmp_path: Path) -> None:
    asked = ("bench", "floor", "--dir", tmp_path, "--total", 2, "--record-size", 1000)
    done = run(*asked, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["how"] for line in lines] == ["in-place", "write"]
    assert sum(line["best"] for line in lines) == 1 and all(line["records"] for line in lines)
    done = run(*asked, "--durability", "memory", "--files", "again", "--retention", 1)
    assert done.returncode == 0 and b"the floor: " in done.stdout and b"cold" in done.stdout
    assert not list(tmp_path.iterdir())
    assert "--retention belongs to --files again" in fails(run(*asked, "--retention", 1), 2)


def test_a_plan_is_run_by_turns_and_compared(tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text(
        'repeat = 2\n[[measure]]\nname = "floor"\ncommand = "floor"\ntotal = 1\n'
        '[[measure]]\nname = "ours"\ncommand = "throughput"\ntotal = 1\n'
    )
    done = run("bench", "run", plan, "--dir", tmp_path / "d", "--results", results)
    assert done.returncode == 0, done.stderr
    (path,) = results.iterdir()
    assert done.stdout.decode().splitlines()[-1] == str(path) and not (tmp_path / "d").exists()
    document = json.loads(path.read_text())
    assert [each["measure"] for each in document["runs"]] == ["floor", "ours", "ours", "floor"]
    assert document["complete"] and document["runs"][1]["lines"][0]["verified"]
    none = run("bench", "list", "--results", tmp_path / "none")
    assert "No such file or directory" in fails(none, 3)
    (results / "cut.json").write_text("{")
    done = run("bench", "list", "--results", results)
    assert done.returncode == 0 and b"cut.json is no result" in done.stderr
    assert path.name.encode() in done.stdout
    pair = (f"{path}::floor", f"{path.name}::ours", "--results", results)
    done = run("bench", "compare", *pair, "--json", "--fail-if-worse", 0)
    assert done.returncode == 3 and b"cannot be said" in done.stderr, "of two repetitions"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["measure"] == "floor / ours" and lines[0]["verdict"] == "too few repetitions"
    assert run("bench", "compare", path, path).returncode == 0
    fails(run("bench", "compare", f"{path}::floor", path), 2)
    fails(run("bench", "compare", f"{path}::other", path), 3)
    fails(run("bench", "compare", tmp_path / "none", path), 3)


def test_a_comparison_that_is_worse_ends_with_1(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 0.9)):
        lines = [{"records_per_s": factor * (100 + number)} for number in range(6)]
        runs = [Run("m", number, "", 0.0, 0.0, [line]) for number, line in enumerate(lines)]
        Result(name, "", {}, {}, runs, True).save(tmp_path / f"{name}.json")
    pair = (tmp_path / "a.json", tmp_path / "b.json")
    assert run("bench", "compare", *pair).returncode == 0
    done = run("bench", "compare", *pair, "--fail-if-worse", 5)
    assert done.returncode == 1 and b"worse" in done.stdout
    assert run("bench", "compare", *pair, "--fail-if-worse", 20).returncode == 0


def test_a_plan_with_a_mistake_runs_nothing(tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text('[[measure]]\ncommand = "latency"\nsecond = 1\n')
    told = fails(run("bench", "run", plan, "--results", results), 3)
    assert "'latency'" in told and "--second" in told and not results.exists()


def test_a_place_for_results_that_is_none_is_told_first(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[measure]]\ncommand = "floor"\ntotal = 1\n')
    done = run("bench", "run", plan, "--results", plan / "x", "--dir", tmp_path)
    assert done.returncode == 30 and b"cannot write" in done.stderr and b"1 of" not in done.stderr


def test_a_terminated_plan_leaves_no_floor_behind(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    asked = 'command = "floor"\nbatch-bytes = 1\nwindow = 1\ntotal = 64\n'
    plan.write_text(f"[[measure]]\n{asked}")
    place = tmp_path / "place"
    command = [sys.executable, "-m", "kraftfast", "bench", "run", str(plan), "--dir", str(place)]
    process = subprocess.Popen(
        [*command, "--results", str(tmp_path / "r")], env=environment(), stderr=subprocess.PIPE
    )

    def floors() -> list[Path]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                text = path.read_bytes()
                if b"kraftfast.bench.floor" in text and str(place).encode() in text:
                    found.append(path)
        return found

    deadline = time.monotonic() + 60
    while len(floors()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(floors()) == 3
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    while floors() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not floors() and not place.exists()


def test_a_plan_that_fails_keeps_what_it_has(tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text(
        '[[measure]]\ncommand = "floor"\ntotal = 1\n'
        '[[measure]]\ncommand = "throughput"\ntotal = 900_000_000\n'
    )
    done = run("bench", "run", plan, "--results", results, "--dir", tmp_path)
    assert done.returncode == 31 and b"measure 'throughput': " in done.stderr
    assert b"cut short after 1 of 10 runs" in done.stderr
    (path,) = results.iterdir()
    assert not json.loads(path.read_text())["complete"]


HELD: dict[str, Any] = {"records_per_s": 5.0, "p50_us": 5.0, "held": True}
LOST = HELD | {"p50_us": None, "held": False}


@pytest.mark.parametrize(
    "second, code, told",
    [
        ([HELD] * 6, 0, ""),
        ([HELD | {"p50_us": None}] * 6, 3, "only the first has p50_us of 'first, a'"),
        ([HELD | {"part": "x"}] * 6, 3, "nothing to compare: only the first has 'a'; only the se"),
        ([HELD] * 5 + [LOST], 3, "less often"),
        ([LOST] * 6, 3, "was held in 6 of 6 and 0 of 6"),
    ],
)
def test_what_a_side_lacks_is_no_pass(
    second: list[dict[str, Any]],
    code: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [("first, a", HELD)] * 6 + [("second, a", each) for each in second]
    runs = [Run(name, number, "", 0.0, 0.0, [each]) for number, (name, each) in enumerate(lines)]
    result = Result("compare", "", {}, {}, runs, True)
    measured = result, checkouts.pairs(result.measures)
    monkeypatch.setattr(bench_results, "compare_checkouts", lambda *_: measured)
    place = str(tmp_path)
    assert root.run(["bench", "compare", place, place, "--fail-if-worse", "5"]) == code
    assert told in capsys.readouterr().err


def test_a_result_goes_on_by_its_name_and_no_other_machine(tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text('repeat = 1\n[[measure]]\ncommand = "floor"\ntotal = 1\n')
    table = {"repeat": 1, "measure": [{"command": "floor", "total": 1}]}
    asked = ("bench", "run", plan, "--results", results, "--dir", tmp_path, "--resume", "a.json")
    Result("plan", "", table, facts(str(tmp_path)), []).save(results / "a.json")
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    assert json.loads((results / "a.json").read_text())["complete"]
    Result("plan", "", table, facts(str(tmp_path)) | {"cpu": "other"}, []).save(results / "a.json")
    assert "cpu was 'other' and is " in fails(run(*asked), 3)
    assert [each.name for each in results.iterdir()] == ["a.json"]


def test_a_plan_cut_short_before_its_first_run_leaves_nothing(tmp_path: Path) -> None:
    plan, results = tmp_path / "plan.toml", tmp_path / "results"
    plan.write_text('[[measure]]\ncommand = "throughput"\ntotal = 900_000_000\n')
    fails(run("bench", "matrix", "floor", "--over", "total=1", "--dir", plan / "x",
              "--results", results), 30)  # fmt: skip
    done = run("bench", "run", plan, "--results", results, "--dir", tmp_path)
    assert done.returncode == 31 and not list(results.iterdir())


RESULT = Result("n", "", {}, {}, [Run("m", 0, "", 0.0, 0.0, [{"records_per_s": 5.0}])], True)


def test_a_page_replaces_no_result_and_nothing_else_but_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    RESULT.save(Path("keep.json"))
    RESULT.save(Path("report.html"))
    Path("other.html").write_text("<!doctype html><title>mine</title>")
    Path("link").symlink_to("keep.json")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    for result, output, told in (
        ("keep.json", "keep.json", "it is a result"),
        ("keep.json", "link", "it is a result"),
        ("report.html", "report.html", "it is a result"),
        ("report.html", "keep.json", "it is no page"),
        ("keep.json", "other.html", "it is no page"),
    ):
        assert root.run(["bench", "report", result, "-o", output]) == 3
        assert told in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    for _ in range(2):
        assert root.run(["bench", "report", "keep.json", "-o", "page.html"]) == 0


@pytest.mark.parametrize("second", ["record-size=1024", "record_size=1024"])
def test_an_option_that_is_given_twice_is_refused(second: str, tmp_path: Path) -> None:
    asked = ("bench", "matrix", "throughput", "--over", "record-size=100", "--over", second)
    assert "is given twice" in fails(run(*asked, "--results", tmp_path / "r"), 2)
    assert not (tmp_path / "r").exists()


def test_before_the_first_result_there_is_a_list_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KRAFTFAST_RESULTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = run("bench", "list")
    folder = tmp_path / "kraftfast" / "bench"
    said = f"there is no result yet: {folder} is made by the first one\n".encode()
    assert (done.returncode, done.stdout, done.stderr) == (0, said, b"")
    done = run("bench", "list", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", said)
