"""The picture of README.md, and the table of the page of benchmarks, are those of the results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench.results.result import Result, Run
from tests.bench.test_peers import LINE
from tests.cli.kit import ROOT, loaded

PLACE = ROOT / "docs" / "benchmarks"
PROGRAM = ROOT / "bench" / "picture.py"


@pytest.fixture(scope="module")
def drawing() -> Any:
    """Return bench/picture.py as a module."""
    return loaded(PROGRAM)


def test_picture_and_table_show_the_results(tmp_path: Path) -> None:
    shutil.copy(PLACE / "index.md", tmp_path)
    subprocess.run([sys.executable, PROGRAM, PLACE / "results.json", tmp_path], check=True)
    for name in ("picture.svg", "index.md"):
        told = f"write it again by {PROGRAM}"
        assert (tmp_path / name).read_text() == (PLACE / name).read_text(), told


def result(**changed: Any) -> Result:
    """Return a result of two drivers, the second half as fast, and of the floor."""
    runs = []
    for mode in ("latency", "throughput"):
        for name, factor in (("slow", 2.0), ("fast", 1.0), ("floor", 0.5)):
            line = LINE | {"peer": name, "records_per_s": 1000 / factor, "p50_us": 50 * factor}
            runs.append(Run(f"{name}, {mode}", 0, "", 1.0, 0.0, [line | changed]))
    failures = {"etcd, latency": "etcd: not built: it needs Go"}
    machine = {"processors": 2}
    return Result("peers", "2026-01-01T00:00:00Z", {}, machine, runs, True, failures)


def test_the_best_is_first_behind_ours(drawing: Any) -> None:
    for mode, key, _ in drawing.PANELS:
        found = [row["name"] for row in drawing.ordered(result(), mode, key)]
        assert found == ["floor", "fast", "slow"]


def test_durability_and_what_is_missing_are_told(drawing: Any) -> None:
    told = drawing.table(result(sync=False, fsync="none at all", p99_us=None))
    assert "none at all" in told and "| too few |" in told and "2026-01-01" in told
    assert "Not measured: etcd: not built: it needs Go." in told
    svg = drawing.picture(result(sync=False, p99_us=None))
    assert svg.count("without flushes") == 6 and "without flushes" not in drawing.picture(result())


def test_a_page_without_a_place_is_refused(drawing: Any) -> None:
    with pytest.raises(ValueError, match="the page has no"):
        drawing.with_table("text", result())
