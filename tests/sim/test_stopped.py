"""The simulator's command, stopped: it says what it did not run, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def workers_of(pid: int) -> list[int]:
    """Return the processes that a command started to run seeds on."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(") ")[2].split()[1])
            words = path.with_name("cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if parent == pid and b"spawn_main" in words:
            found.append(int(path.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(holds: object) -> None:
    end = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def started(words: str) -> subprocess.Popen[str]:
    """Start the command as a terminal does: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "kraftfast.sim", *words.split()],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_sweep_says_what_was_not_run(signo: int, workers: int) -> None:
    with started(f"--seeds 0:1000000 --short --json --workers {workers}") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith('{"seed": ')
        pool = workers_of(running.pid)
        assert len(pool) == (workers if workers > 1 else 0)
        if signo == signal.SIGINT:
            os.killpg(running.pid, signo)  # Ctrl-C reaches the workers, too
        else:
            running.send_signal(signo)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 128 + signo
    assert "Traceback" not in err and " of 1000000 seeds were not run: stopped" in err, err
    wait_until(lambda: not any(map(is_alive, pool)))


def test_workers_end_with_a_command_that_is_killed() -> None:
    with started("--seeds 0:1000000 --short --json --workers 2") as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        pool = workers_of(running.pid)
        running.kill()
        wait_until(lambda: not any(map(is_alive, pool)))


def test_a_worker_that_dies_is_told_with_the_seeds_it_may_have_run() -> None:
    with started("--seeds 0:1000000 --short --json --workers 2") as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        os.kill(workers_of(running.pid)[0], signal.SIGKILL)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "Traceback" not in err and "a worker process died" in err and "--seed N" in err, err


def test_a_sweep_without_time_is_no_success() -> None:
    with started("--seeds 0:3 --minutes 1e-12") as running:
        out, err = running.communicate(timeout=60)
    assert running.returncode == 2 and out.startswith("0 seeds")
    assert "3 of 3 seeds were not run: time was up" in err
