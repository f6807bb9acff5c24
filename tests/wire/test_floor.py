"""What importing the wire brings along, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

FLOORS_ABOVE = ("core", "log", "link", "node", "client", "cli", "spark", "sim", "bench", "quorum")
SAME_FLOOR = ("record", "ring")
HEAVY = {"asyncio", "multiprocessing", "click", "rich", "numpy"}
NAMES = "notation primitives schema messages versions frame flat fetch produce"
ROOMS = ["", *(f".{name}" for name in NAMES.split())]


@pytest.mark.parametrize("room", ROOMS)
def test_imports(room: str) -> None:
    program = f"import kraftfast.wire{room}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & HEAVY
    assert not loaded & {f"kraftfast.{name}" for name in (*FLOORS_ABOVE, *SAME_FLOOR)}
    if not room:
        assert "msgspec" not in loaded
