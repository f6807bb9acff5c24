"""What a worker does not load, for it starts in the time that its imports take."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"argparse", "asyncio", "crc32c", "importlib.metadata", "numpy", "subprocess"}


def test_a_worker_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys, kraftfast.node.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
