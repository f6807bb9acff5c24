"""A replica that lets go of its log while a flush is under way (D9)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.log.kit import batch
from tests.node.inside import Inside
from tests.node.kit import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
HELD_S = 0.2
"""How long the flush goes on beside a replica that rightly waits for it."""
SCRIPT = f"import sys; from {__name__} import leave; leave(sys.argv[1])"


def leave(path: str) -> None:
    """Abandon a replica whose flush ends only after its segments are unmapped, or ``HELD_S``."""
    node = Inside(Path(path) / "q").node
    node.wait_for_flush()
    held = Path(os.environ["HELD"])
    segment = node.log.active.file.path
    assert node.log.append(batch(), node.core.epoch)
    held.touch()
    node.flusher.ask(node.log)
    deadline = time.monotonic() + TIMEOUT_S
    while not held.with_name(held.name + ".reached").exists():
        assert time.monotonic() < deadline, "no flush begins"
        time.sleep(0.001)

    def release() -> None:
        until = time.monotonic() + HELD_S
        while time.monotonic() < until and segment in Path("/proc/self/maps").read_text():
            time.sleep(0.001)
        held.unlink()

    thread = threading.Thread(target=release)
    thread.start()
    node.abandon()
    thread.join()
    assert segment not in Path("/proc/self/maps").read_text()
    print("ended well")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_segments_stay_mapped_until_the_flush_under_way_has_ended(tmp_path: Path) -> None:
    """The flusher stores what is flushed into the last page of each segment."""
    library = tmp_path / "held_fdatasync.so"
    source = Path(__file__).with_name("held_fdatasync.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preload = {"LD_PRELOAD": str(library), "HELD": str(tmp_path / "held")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path],
        cwd=ROOT,
        env=os.environ | preload,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "ended well\n"), done.stderr
