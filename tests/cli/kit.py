"""The ``kraftfast`` program as a child process."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120

Completed = subprocess.CompletedProcess


def command(*args: object) -> list[str]:
    """The program with arguments."""
    return [sys.executable, "-P", "-m", "kraftfast", *map(str, args)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}


def run(
    *args: object, data: bytes | None = None, cwd: Path | None = None, timeout: float = TIMEOUT_S
) -> Completed[bytes]:
    """Run the program to its end; ``data`` is its stdin."""
    return subprocess.run(
        command(*args),
        input=data,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env=environment(),
    )


def fails(done: Completed[bytes], exit_code: int) -> str:
    """Assert that a command failed as commands do: its exit code, one line, no traceback."""
    text = done.stderr.decode()
    assert done.returncode == exit_code, f"exit code {done.returncode}: {text}"
    assert text.startswith("kraftfast") and text.endswith("\n") and text.count("\n") == 1, text
    return text


class Program:
    """A running command whose lines are read one by one."""

    def __init__(self, *args: object) -> None:
        self.log = ""
        self._unread = ""
        self.process = subprocess.Popen(
            command(*args),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment() | {"PYTHONUNBUFFERED": "1"},
        )

    def wait_for(self, text: str, timeout: float = TIMEOUT_S) -> str:
        """The next line that holds ``text``."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            line, newline, rest = self._unread.partition("\n")
            if newline:
                self.log, self._unread = self.log + line + "\n", rest
                if text in line:
                    return line + "\n"
            elif not self._read_more(deadline):
                break
        raise AssertionError(f"{text!r} did not appear in:\n{self.log}{self._unread}")

    def _read_more(self, deadline: float) -> bool:
        """Wait for output, read by descriptor as communicate() does; False at its end."""
        assert self.process.stdout is not None
        stdout = self.process.stdout.fileno()
        if select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(stdout, 1 << 16)
            self._unread += data.decode()
            return bool(data)
        return True

    def stop(self, signo: int = signal.SIGTERM, timeout: float = TIMEOUT_S) -> int:
        """Send a signal; its exit code."""
        self.process.send_signal(signo)
        out, _ = self.process.communicate(timeout=timeout)
        self.log, self._unread = self.log + self._unread + out.decode(), ""
        return self.process.returncode


def loaded(path: Path) -> Any:
    """Return a script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module
