"""Processes that a benchmark starts beside its own: ready when they say so, gone when it is.

A child prints ``ready``, begins at the next line of its stdin, prints one JSON document and ends.
It ends at once where its stdin ends: so it does when the benchmark is killed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import IO, Any

from kraftfast.errors import KraftfastError, TimedOut

READY = "ready"
START_TIMEOUT_S = 120.0
LINE_BYTES_MAX = 4096


class BenchChild:
    """A process that runs ``python -m MODULE WORDS...``; killed where ``stack`` ends."""

    def __init__(self, stack: ExitStack, module: str, *words: str) -> None:
        self.name = module.rpartition(".")[2]
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        self.process = process
        self._stdin, process.stdin = process.stdin, None  # its end is the end of the child
        assert self._stdin is not None
        stack.callback(self._stdin.close)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it is ready. Raises TimedOut, KraftfastError with its last line."""
        until, line = time.monotonic() + timeout_s, b""
        out = self.process.stdout
        assert out is not None
        while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
            left = until - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise TimedOut(f"{self.name} was not ready within {timeout_s:.0f} s")
            came = os.read(out.fileno(), 1)
            if not came:
                break
            line += came
        if line.strip() != READY.encode():
            self.process.kill()
            _, told = self.process.communicate(timeout=START_TIMEOUT_S)
            raise self._failure(told)

    def say(self, text: str) -> None:
        """Give it the line for which it waits. Raises KraftfastError where it has ended."""
        assert self._stdin is not None
        try:
            self._stdin.write(f"{text}\n")
            self._stdin.flush()
        except OSError:
            _, told = self.process.communicate(timeout=START_TIMEOUT_S)
            raise self._failure(told) from None

    def told(self, timeout_s: float) -> Any:
        """Wait for its end; return what it printed. Raises TimedOut, KraftfastError."""
        try:
            text, error = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"{self.name} did not end within {timeout_s:.0f} s") from None
        if self.process.returncode:
            raise self._failure(error)
        return json.loads(text)

    def _failure(self, told: str) -> KraftfastError:
        lines = told.strip().splitlines() or [f"exit code {self.process.returncode}"]
        return KraftfastError(f"{self.name} failed: {lines[-1]}")


def wait_for_line(stdin: IO[str]) -> str:
    """In a child: say that it is ready, return the line that comes, and end with the parent."""
    print(READY, flush=True)
    line = stdin.readline()
    if not line:
        os._exit(1)  # its benchmark has ended
    threading.Thread(target=_end_with_parent, args=(stdin,), daemon=True).start()
    return line


def _end_with_parent(stdin: IO[str]) -> None:
    stdin.read()
    os._exit(1)
