"""Sweeps: every run is a row, failures too, and what is done is not done again."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kraftfast import errors
from kraftfast.bench.results.plan import of_table
from kraftfast.bench.results.result import Result, Run
from kraftfast.cli import sweeping
from kraftfast.cli.bench.bench_results import keep
from kraftfast.spark.jobs.sweeps import read_rows, sweep


def square(item: int) -> dict[str, Any]:
    if item == 3:
        raise ValueError("three")
    return {"ok": item != 5, "violation": "five", "square": item * item}


def command(item: int) -> str:
    return f"run {item}"


def check(rows: list[dict[str, Any]]) -> None:
    assert [row["item"] for row in rows] == list(range(8))
    assert [row["item"] for row in rows if not row["ok"]] == [3, 5]
    assert rows[2]["result"]["square"] == 4 and rows[2]["again"] == ""
    assert (rows[3]["error"], rows[3]["again"]) == ("ValueError: three", "run 3")
    assert "raise ValueError" in rows[3]["traceback"] and rows[5]["error"] == "five"


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_rows_and_progress(backend: str) -> None:
    told: list[tuple[int, int]] = []
    rows = sweep(
        square, range(8), backend=backend, again=command, parts=3,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    check(rows)
    assert told[0] == (0, 8) and told[-1] == (8, 8) and told == sorted(told)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    sweep(square, [0, 1, 2], backend="inline", again=command, out=out)
    (tmp_path / "out" / ".part-torn").write_text('{"item"')
    ran: list[int] = []

    def counted(item: int) -> dict[str, Any]:
        ran.append(item)
        return square(item)

    rows = sweep(counted, range(8), backend="inline", again=command, out=out)
    assert sorted(ran) == [3, 4, 5, 6, 7]
    check(rows)
    (tmp_path / "out" / "part-bad.jsonl").write_text("no JSON")
    with pytest.raises(errors.StorageError, match="part-bad.jsonl: it is no row of a sweep"):
        sweep(counted, range(8), backend="inline", out=out)


def test_what_is_done_is_kept_where_a_sweep_is_interrupted(tmp_path: Path) -> None:
    def interrupted(item: int) -> dict[str, Any]:
        if item == 2:
            raise KeyboardInterrupt
        return square(item)

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, range(5), backend="inline", again=command, out=str(tmp_path / "out"))
    kept = read_rows(str(tmp_path / "out"))  # in the order in which their files are found
    assert sorted(row["item"] for row in kept) == [0, 1]


def leave_a_mark(item: str) -> dict[str, Any]:
    Path(item).touch()
    time.sleep(0.2)
    return {"ok": True}


def test_a_sweep_that_is_interrupted_ends_its_processes(tmp_path: Path) -> None:
    """It went on to the end of all its parts first, whatever its user pressed."""

    def interrupt(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    items = [str(tmp_path / f"{number:03}") for number in range(200)]
    with pytest.raises(KeyboardInterrupt):
        sweep(leave_a_mark, items, parts=200, workers=2, progress=interrupt)
    assert 0 < len(list(tmp_path.iterdir())) < 100
    while multiprocessing.active_children():
        time.sleep(0.05)


def test_what_failed_is_run_again(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert not sweep(square, [3], backend="inline", again=command, out=out)[0]["ok"]
    (row,) = sweep(lambda _item: {"ok": True}, [3], backend="inline", again=command, out=out)
    assert row["ok"]
    (row,) = sweep(square, [3], backend="inline", again=command, out=out)
    assert row["ok"], "it went well"


def test_rows_that_cannot_be_kept_are_told_before_anything_is_run() -> None:
    with pytest.raises(errors.StorageError, match="cannot write to /proc/none"):
        sweep(lambda _item: pytest.fail("it ran"), [1], backend="inline", out="/proc/none")


@pytest.mark.spark
def test_on_spark(spark: Any) -> None:
    told: list[int] = []
    check(
        sweep(
            square, range(8), backend="spark", spark=spark, again=command, parts=4,
            progress=lambda done, _total: told.append(done),
        )
    )  # fmt: skip
    assert told[-1] == 8


def test_what_is_refused() -> None:
    with pytest.raises(errors.InvalidOption, match="one of process, spark, inline"):
        sweep(square, [1], backend="threads")
    with pytest.raises(errors.InvalidOption, match="wants a session"):
        sweep(square, [1], backend="spark")
    for text in ("5", "5:5", "a:b", "²:³"):
        with pytest.raises(errors.InvalidOption, match="A:B is wanted"):
            sweeping.seeds(text)


def test_a_seed_and_the_command_that_shows_it() -> None:
    rows = sweep(
        sweeping.simulate, sweeping.seeds("4:5"), backend="inline", again=sweeping.simulate_again
    )
    assert rows[0]["ok"], rows[0]["error"]
    assert rows[0]["result"]["seed"] == 4
    assert sweeping.simulate_again(4) == "python -m kraftfast.sim --seed 4 --trace"


LINE = {"records_per_s": 1.0}
FLOOR: dict[str, Any] = {
    "name": "matrix floor",
    "repeat": 2,
    "measure": [{"command": "floor", "total": "1", "record-size": ["100", "1000"]}],
}


@pytest.mark.spark
def test_a_benchmark_on_spark(spark: Any, tmp_path: Path) -> None:
    items = sweeping.turns(of_table(FLOOR, ""), str(tmp_path))
    rows = sweep(sweeping.measure, items, backend="spark", spark=spark, parts=2)
    (result,) = sweeping.results(of_table(FLOOR, ""), FLOOR, rows)
    assert result.complete and result.machine["processors"] and not list(tmp_path.iterdir())
    assert result.measures == [f"floor record-size={size}" for size in (100, 1000)]
    for measure in result.measures:
        rates = result.values(measure, "records_per_s")
        assert len(rates) == 2 and all(rate > 0 for rate in rates)


def test_each_machine_has_a_result_of_its_own(tmp_path: Path) -> None:
    plan = of_table(FLOOR, "")
    rows = []
    for number, item in enumerate(sweeping.turns(plan, None)):
        run = Run(item["name"], item["repetition"], f"2026-01-0{number + 1}", 0.0, 0.0, [LINE])
        result = {"machine": {"cpu": "slow" if number == 2 else "fast"}, "run": asdict(run)}
        rows.append({"ok": number != 1, "result": result if number != 1 else None})
    fast, slow = sweeping.results(plan, FLOOR, rows)
    assert (fast.machine["cpu"], slow.machine["cpu"]) == ("fast", "slow")
    assert [len(each.runs) for each in (fast, slow)] == [2, 1]
    assert not fast.complete and not slow.complete and fast.began_at == "2026-01-01"
    fast.save(tmp_path / "fast.json")
    assert Result.load(tmp_path / "fast.json") == fast


def test_a_sweep_that_is_repeated_leaves_one_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it was done before, and is no second measurement: compare would count it twice."""
    for began in ("2026-01-01", "2026-01-01", "2026-01-02"):
        (tmp_path / "none.json").write_text("no result: passed over")
        run = Run("floor", 0, began, 0.0, 0.0, [LINE])
        keep(Result("matrix floor", began, FLOOR, {"cpu": "fast"}, [run]), tmp_path, quiet=True)
    first, again, other = capsys.readouterr().err.split()
    assert first == again != other
    assert len(list(tmp_path.glob("*floor*.json"))) == 2


def test_a_benchmark_that_fails_is_told_with_the_command_that_shows_it() -> None:
    bad = {"command": "floor", "record-size": "100", "total": "1", "files": "no such way"}
    (item,) = sweeping.turns(of_table({"repeat": 1, "measure": [bad]}, "bad"), None)
    (row,) = sweep(sweeping.measure, [item], backend="inline", again=sweeping.measure_again)
    assert not row["ok"] and "MeasurementFailed" in row["error"] and "no such way" in row["error"]
    again = "kraftfast bench floor --record-size 100 --total 1 --files 'no such way'"
    assert row["again"] == again


@pytest.mark.spark
def test_percentiles_of_samples(spark: Any, tmp_path: Path) -> None:
    from kraftfast.spark.jobs import commit_percentiles

    rows = [(n, n, "commit", 1, float(n + 1), 1) for n in range(1000)]
    rows += [(0, -1, "travel", 2, 50.0, 99), (0, -1, "travel", 2, 5000.0, 1)]
    frame = spark.createDataFrame(
        rows, "at_us bigint, commit bigint, stage string, replica int, us double, count bigint"
    )
    found = commit_percentiles.table(commit_percentiles.latency(frame))
    assert [(row["stage"], row["count"]) for row in found] == [("travel", 100), ("commit", 1000)]
    travel, commit = found
    for name, exact in (("p50_us", 500.5), ("p99_us", 990.0), ("max_us", 1000.0)):
        assert exact * 0.99 <= commit[name] <= exact * 1.023
    assert travel["p50_us"] == pytest.approx(50, rel=0.023) and travel["max_us"] == 5000
    halves = commit_percentiles.table(commit_percentiles.latency(frame, slices=2))
    assert [row["slice"] for row in halves if row["stage"] == "commit"] == [0, 1]
    commit_percentiles.picture(halves, str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().count("<polyline") == 8
    with pytest.raises(errors.InvalidOption, match="no samples of a benchmark"):
        commit_percentiles.latency(frame.drop("us"))
