"""Has py-spy sample processes while a load runs, with native frames where it can."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftfast.bench.profiling.stacks import cleaned
from kraftfast.errors import HostUnsupported, TimedOut

START_S, STOP_S, TRIAL_S = 30.0, 60.0, 20.0
TRIAL = "import sys; print(flush=True); sys.stdin.read()"
SAMPLING = "Sampling process"
"""What py-spy prints once it has attached."""


@dataclass(frozen=True, slots=True)
class Spy:
    """A py-spy that works here. ``native``: whether it sees native frames."""

    program: str
    native: bool


def find() -> Spy:
    """Return a py-spy that can look into another process. Raises HostUnsupported."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if program is None:
        raise HostUnsupported("there is no py-spy: pip install 'kraftfast[profile]'")
    problem = _trial(program, ["--native"])
    if not problem:
        return Spy(program, True)
    if not _trial(program, []):
        return Spy(program, False)
    raise HostUnsupported(
        f"py-spy may not look into other processes here ({problem}): run as root, or with "
        "CAP_SYS_PTRACE, or set /proc/sys/kernel/yama/ptrace_scope to 0"
    )


def _trial(program: str, flags: list[str]) -> str:
    """Return why py-spy cannot dump a process that is no child of its own; '' if it can."""
    command = [sys.executable, "-S", "-c", TRIAL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it runs
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(other.pid), *flags],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRIAL_S,
            )
        except OSError as error:
            return f"{program}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"no answer within {TRIAL_S:.0f} s"
        finally:
            other.kill()
    return "" if done.returncode == 0 else _reason(done.stderr.decode(errors="replace"))


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line.partition(":")[2].strip() for line in lines if line.startswith("Reason")]
    return (told or lines or ["it does not say why"])[0].removeprefix("Error: ")


class _Sampling:
    """One py-spy at one process."""

    def __init__(self, spy: Spy, pid: int, output: Path, rate: int) -> None:
        self.output, self.said = output, output.with_suffix(".said")
        flags = ["--native"] if spy.native else []
        command = [spy.program, "record", "--pid", str(pid), "--format", "speedscope", *flags]
        command += ["--rate", str(rate), "--output", str(output)]
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def told(self) -> str:
        return self.said.read_text(errors="replace")

    def wait_until_it_samples(self, deadline: float) -> None:
        while SAMPLING not in self.told():
            if self.process.poll() is not None:
                raise HostUnsupported(f"py-spy ended: {_reason(self.told())}")
            if time.monotonic() >= deadline:
                raise TimedOut(f"py-spy did not attach within {START_S:.0f} s")
            time.sleep(0.02)

    def result(self, deadline: float) -> Any:
        """Return what it wrote once it was asked to stop."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimedOut(f"py-spy did not end within {STOP_S:.0f} s") from None
        try:
            return json.loads(self.output.read_bytes())
        except (OSError, ValueError):
            raise HostUnsupported(f"py-spy has no profile: {_reason(self.told())}") from None

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def sampling(
    spy: Spy, pids: dict[str, int], folder: Path, rate: int
) -> Iterator[dict[str, dict[str, Any]]]:
    """Sample processes, ``rate`` times a second, while the ``with`` block runs.

    Yields a dictionary that has the speedscope document of each by its name after the block.
    ``folder``: for files that are not needed afterwards. Raises HostUnsupported, TimedOut.
    """
    found: dict[str, dict[str, Any]] = {}
    running: dict[str, _Sampling] = {}
    try:
        for name, pid in pids.items():
            running[name] = _Sampling(spy, pid, folder / f"{name}.json", rate)
        deadline = time.monotonic() + START_S
        for each in running.values():
            each.wait_until_it_samples(deadline)
        yield found
        for each in running.values():
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        for name, each in running.items():
            found[name] = cleaned(each.result(deadline), name)
    finally:
        for each in running.values():
            each.kill()
