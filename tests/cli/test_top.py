"""``kraftfast top``: once, for scripts and people, and on a screen that is not there."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import InvalidOption, NoQuorum, OutOfResources
from kraftfast.quorum import LocalQuorum
from tests.cli.kit import TIMEOUT_S, command, environment, fails
from tests.cli.logs import Done

Run = Callable[..., Done]


@pytest.mark.processes
def test_once_as_json(quorum_dir: Path, kraftfast: Run) -> None:
    done = kraftfast("top", "--dir", quorum_dir, "--once", "--json")
    found = json.loads(done.out)
    assert found["leader_id"] in (1, 2, 3) and found["seconds"] >= 1
    assert found["records_per_s"] is not None and set(found["stages"]) >= {"commit", "queue"}
    assert [each["role"] for each in found["replicas"]].count("leader") == 1
    for each in found["replicas"]:
        assert each["why_not_ready"] == "" and each["log_bytes"] > 0 and each["cpu"] is not None


@pytest.mark.processes
def test_once_as_tables(quorum_dir: Path, kraftfast: Run) -> None:
    lines = kraftfast("top", "--dir", quorum_dir, "--once").out.splitlines()
    assert "leads epoch" in lines[0] and "records/s" in lines[0]
    assert [line.split()[0] for line in lines[2:6]] == ["replica", "1", "2", "3"]
    assert "commit" in [line.split()[0] for line in lines[7:] if line]


@pytest.mark.processes
def test_by_the_addresses_of_servers(tmp_path: Path, kraftfast: Run) -> None:
    settings: dict[str, Any] = {"segment_bytes": 32 << 20, "stride_bytes": 8 << 20}
    with LocalQuorum(tmp_path, voters=3, transport="socket", **settings) as quorum:
        servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
        done = kraftfast("top", "--bootstrap-server", servers, "--once", "--json")
        found = json.loads(done.out)
        assert found["leader_id"] == quorum.leader() and len(found["replicas"]) == 3
        assert found["stages"] == {} and found["replicas"][0]["flushes_per_s"] is None
        assert "commit" not in kraftfast("top", "--bootstrap-server", servers, "--once").out


def test_a_quorum_that_does_not_run(tmp_path: Path, kraftfast: Run) -> None:
    with LocalQuorum(tmp_path, voters=1, segment_bytes=32 << 20, stride_bytes=8 << 20):
        pass
    done = kraftfast("top", "--dir", tmp_path, "--once")
    assert done.code == NoQuorum.exit_code and f"no replica of {tmp_path} runs" in done.err


@pytest.mark.processes
def test_where_this_process_may_make_no_file(quorum_dir: Path) -> None:
    """All replicas run; it is this process that cannot look at them."""
    done = subprocess.run(
        ["prlimit", "--fsize=512", *command("top", "--dir", quorum_dir, "--once")],
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment() | {"PYTHONDONTWRITEBYTECODE": "1"},  # it would be cut short, and stay
    )
    text = fails(done, OutOfResources.exit_code)
    assert "File too large: raise the limit of a file's size (ulimit -f unlimited)" in text


def test_json_needs_once(tmp_path: Path, kraftfast: Run) -> None:
    assert "--json goes with --once" in kraftfast("top", "--dir", tmp_path, "--json").err


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path, kraftfast: Run) -> None:
    done = kraftfast("top", "--dir", tmp_path)
    assert done.code == InvalidOption.exit_code and "--once prints the figures" in done.err


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, kraftfast: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setenv("TERM", "xterm")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *args: None if name == "textual" else found(name, *args),
    )
    assert "pip install 'kraftfast[top]'" in kraftfast("top", "--dir", tmp_path).err


@pytest.mark.processes
@pytest.mark.parametrize("way", ["q", "ctrl+c", "SIGTERM"])
def test_on_a_terminal_it_draws_and_leaves_it_as_it_was(quorum_dir: Path, way: str) -> None:
    process, ours = on_a_terminal(quorum_dir)
    drawn = read_until(ours, b"leads epoch")
    if way == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        os.write(ours, b"q" if way == "q" else b"\x03")
    drawn += read_until(ours, None)
    assert process.wait(TIMEOUT_S) == (143 if way == "SIGTERM" else 0), drawn[-2000:]
    os.close(ours)
    assert b"\x1b[?1049h" in drawn and b"\x1b[?1049l" in drawn, "the screen before is back"
    assert b"Traceback" not in drawn


@pytest.mark.processes
def test_a_byte_that_is_no_utf8_ends_it_in_one_line(quorum_dir: Path) -> None:
    """Of a text in Latin-1 that is pasted; it was a screenful, and success."""
    process, ours = on_a_terminal(quorum_dir)
    drawn = read_until(ours, b"leads epoch")
    os.write(ours, b"caf\xe9 ")
    drawn += read_until(ours, None)
    assert process.wait(TIMEOUT_S) == 70, drawn[-2000:]
    os.close(ours)
    said = drawn.rpartition(b"\x1b[?1049l")[2]
    assert b"Traceback" not in said and said.count(b"UnicodeDecodeError") == 1
    assert len(said.strip().splitlines()) == 1


def on_a_terminal(directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The program, and our end of its terminal."""
    pytest.importorskip("textual")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("top", "--dir", directory),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment() | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(theirs)
    return process, ours


def read_until(fd: int, text: bytes | None) -> bytes:
    """What a terminal shows until this text has come; None: until its program has ended."""
    data, deadline = b"", time.monotonic() + TIMEOUT_S
    while text is None or text not in data:
        assert time.monotonic() < deadline, data[-2000:]
        try:
            part = os.read(fd, 1 << 16)
        except OSError:
            break
        data += part
        if not part:
            break
    return data
