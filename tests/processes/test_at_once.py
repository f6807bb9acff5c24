"""Processes that do things to one quorum's directory at once, or are killed in between."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraftfast.errors import DirectoryInUse
from kraftfast.quorum import LocalQuorum
from tests.processes.kit import PATIENCE_S, SMALL, a_quorum

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[2]
STARTS = f"""
import sys
import kraftfast
with kraftfast.LocalQuorum(sys.argv[1], voters=3, **{SMALL!r}) as quorum:
    with quorum.producer() as producer:
        for line in sys.stdin:
            print(producer.append_wait(line.strip().encode()), flush=True)
"""


def starts(path: Path) -> subprocess.Popen[bytes]:
    """A program that runs the quorum and appends what it is given."""
    return subprocess.Popen(
        [sys.executable, "-c", STARTS, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def appended(program: subprocess.Popen[bytes], value: bytes) -> int | None:
    """The offset that the program was given; None if it ended first."""
    assert program.stdin is not None and program.stdout is not None
    try:
        program.stdin.write(value + b"\n")
        program.stdin.flush()
    except BrokenPipeError:
        return None
    line = program.stdout.readline()
    return int(line) if line else None


def ended(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait()
    for stream in (program.stdin, program.stdout):
        with contextlib.suppress(BrokenPipeError):
            assert stream is not None
            stream.close()


def test_whoever_is_killed_at_its_start_stops_nobody_else(tmp_path: Path) -> None:
    """The next one begins at once, while orphaned workers of the last one still end."""
    path = tmp_path / "q"
    kept = []
    for number in range(4):
        program = starts(path)
        try:
            if number % 2:
                value = b"%d" % number
                assert appended(program, value) is not None
                kept.append(value)
            else:
                time.sleep(0.3 + number * 0.2)  # somewhere between the format and the election
        finally:
            ended(program)
    with a_quorum(path) as quorum:
        assert quorum.faults == {} and len(quorum.statuses()) == 3
        assert [record.value for record in quorum.consumer()] == kept


def test_one_of_two_that_start_at_once_runs_the_quorum(tmp_path: Path) -> None:
    path = tmp_path / "q"
    programs = [starts(path) for _ in range(2)]
    try:
        offsets = [appended(program, b"x") for program in programs]
        assert len([offset for offset in offsets if offset is not None]) == 1
        with pytest.raises(DirectoryInUse, match="another process holds"):
            LocalQuorum(path)
    finally:
        for program in programs:
            ended(program)


def test_a_child_that_was_forked_keeps_nothing_of_a_killed_supervisor(tmp_path: Path) -> None:
    path = tmp_path / "q"
    reader, writer = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        try:
            quorum = LocalQuorum(path, voters=3, **SMALL)
            child = os.fork()
            if child == 0:
                os.write(writer, b"%d" % os.getpid())  # it let go of everything before this
            time.sleep(PATIENCE_S)
            quorum.close()
        finally:
            os._exit(0)
    child = int(os.read(reader, 20))
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    try:
        with a_quorum(path) as again:
            assert len(again.statuses()) == 3
    finally:
        os.kill(child, signal.SIGKILL)
        for fd in (reader, writer):
            os.close(fd)
