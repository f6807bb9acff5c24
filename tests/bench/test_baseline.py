"""The kernels beside their baseline: a slow machine is none of a kernel's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.kit import ROOT, loaded


@pytest.fixture(scope="module")
def script() -> Any:
    """Return bench/kernels/baseline.py as a module."""
    return loaded(ROOT / "bench" / "kernels" / "baseline.py")


def test_what_became_slower_beside_the_others_is_told(script: Any) -> None:
    before = {"least_s": {"a": 1.0, "b": 2.0, "c": 3.0, "gone": 1.0}}
    lines = script.compare({"a": 3.0, "b": 6.0, "c": 27.0, "new": 1.0}, before)
    assert lines[0].startswith("3 kernels") and lines[0].endswith("3.00")
    assert "slower beside the others, 3.00 x: c" in lines
    assert "gone: gone" in lines and "not in the baseline: new" in lines
    assert not [line for line in lines if line.endswith((": a", ": b"))]


def test_every_kernel_is_in_the_baseline(script: Any) -> None:
    import json

    kept = json.loads(script.BASELINE.read_text())
    files = {path.name for path in (ROOT / "bench" / "kernels").glob("test_*.py")}
    assert {name.partition("::")[0] for name in kept["least_s"]} == files
    assert kept["machine"]["cpu"] and all(each > 0 for each in kept["least_s"].values())


def test_they_are_timed_where_tests_are_divided_among_processes(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-n 2")
    times = script.measure(script.KERNELS / "test_majority.py")
    assert times and all(each > 0 for each in times.values())
