"""Processes beside a benchmark: ready in time or named, and gone when it is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from kraftfast.bench.children import READY, BenchChild
from kraftfast.errors import KraftfastError, TimedOut

WAITS = (
    "import sys, time; from kraftfast.bench.children import wait_for_line;"
    "print(wait_for_line(sys.stdin).strip(), flush=True); time.sleep(120)"
)
TIMEOUT_S = 60


def test_what_does_not_become_ready_is_named() -> None:
    with ExitStack() as stack:
        waits = BenchChild(stack, "code")  # which waits for a line
        with pytest.raises(TimedOut, match="code was not ready within 0 s"):
            waits.wait_ready(0.3)
        fails = BenchChild(stack, "kraftfast.bench.loads.consuming", "/nowhere", "0")
        with pytest.raises(KraftfastError, match="consuming failed: .*nowhere"):
            fails.wait_ready()
    assert waits.process.returncode is not None


@pytest.mark.parametrize("line", ["", "go\n"])
def test_a_child_ends_with_its_benchmark(line: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline().strip() == READY
        process.stdin.write(line)
        process.stdin.flush()
        if line:
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 1
