"""Start worker processes: one interpreter imports everything, and forks itself for the others.

R11: that interpreter is a fresh one, never a fork of this program. It has one thread and has opened
nothing when it forks, and the siblings that it makes are children of this process, as it is itself
(``sibling.pyx``). Where it cannot fork them, each worker gets an interpreter of its own.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from kraftfast import forks
from kraftfast.node.processes.ending import kill_process
from kraftfast.node.processes.supervisor_host import HOST, Child, HostOfSupervisor

SIBLINGS_BYTES_MAX = 64 * 1024


class Sibling:
    """A child of this process that another one forked: what is used of ``subprocess.Popen``."""

    def __init__(self, pid: int, host: HostOfSupervisor = HOST) -> None:
        self.pid, self._host = pid, host
        self.returncode: int | None = None
        self._lock = host.lock()

    def poll(self) -> int | None:
        """Return the exit code (below 0: the signal), None while it runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    self.returncode = self._host.exit_code_of(self.pid)
                except ChildProcessError:  # this program has waited for it by itself
                    self.returncode = 0
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return the exit code. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else self._host.monotonic() + timeout
        pause_s = 0.0005
        while (code := self.poll()) is None:
            if until is not None and self._host.monotonic() >= until:
                raise subprocess.TimeoutExpired(["kraftfast.node.processes.worker"], timeout or 0.0)
            self._host.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        return code

    def send_signal(self, signo: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                self._host.kill(self.pid, signo)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Launched(NamedTuple):
    """A worker process that has not been told yet which replica it is."""

    process: Child
    sock: socket.socket
    pidfd: int
    host: HostOfSupervisor

    def end(self) -> None:
        """Kill it and forget it, also if it does not end: it no longer runs code of ours."""
        kill_process(self.process)
        self.sock.close()
        self.host.close(self.pidfd)


class Launch:
    """So many worker processes: one that runs, and those that it forks once it is ready to."""

    # first: the one that was started. socks: of the others, which are told by number.

    def __init__(self, count: int = 1, host: HostOfSupervisor = HOST) -> None:
        """Start them. Raises OSError if the first cannot be started."""
        self._host = host
        pairs = [host.pair() for _ in range(count)]
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        process = None
        try:
            process = host.spawn([sock.fileno() for sock in theirs])
            self.first = Launched(process, ours[0], host.open_pidfd(process.pid), host)
        except OSError:
            for sock in ours:
                sock.close()
            if process is not None:  # without a pidfd nothing would tell that it has ended
                kill_process(process)
            raise
        finally:
            for sock in theirs:
                sock.close()
        self.socks = ours[1:]

    def take(self, timeout_s: float) -> list[Launched]:
        """Wait for the siblings; return all processes: only the first where it cannot fork."""
        siblings: list[Launched] = []
        if self.socks:
            ready = self._host.is_readable(self.first.sock, max(0.0, timeout_s))
            told: list[int] = []
            with suppress(OSError, msgspec.DecodeError):
                data = self.first.sock.recv(SIBLINGS_BYTES_MAX) if ready else b""
                told = msgspec.json.decode(data, type=list[int])
            siblings = [found for pid in told if (found := self._sibling(pid)) is not None]
        while self.socks:
            self.socks.pop().close()
        return [self.first, *siblings]

    def _sibling(self, pid: int) -> Launched | None:
        """Take in a process that the first one forked."""
        sibling, sock = Sibling(pid, self._host), self.socks.pop(0)
        try:
            return Launched(sibling, sock, self._host.open_pidfd(pid), self._host)
        except OSError:  # no descriptors: it is our child, and must not stay a zombie
            kill_process(sibling)
            sock.close()
            return None

    def end(self) -> None:
        """Kill them all."""
        for each in reversed(self.take(0)):
            each.end()

    def disown(self) -> None:
        """Close what leads to them, in a forked child: they are the parent's."""
        for sock in (self.first.sock, *self.socks):
            sock.close()
        self._host.close(self.first.pidfd)


class SpareWorker:
    """Processes that are ready before a quorum asks for them: what a series of quorums starts with.

    One of these at a time: those of a program that ends, or forks, end with it.
    """

    # _launch, _made_for: what is ready, and what it took over from this process when it was made.

    def __init__(self, host: HostOfSupervisor = HOST) -> None:
        self._host = host
        self._launch: Launch | None = None
        self._made_for: tuple[Any, ...] = ()
        self._lock = host.lock()

    def make(self, count: int) -> None:
        """Start ``count`` processes for the next quorum, unless there are some. Raises OSError."""
        with self._lock:
            if self._launch is None:
                self._made_for = (
                    count,
                    *self._host.taken_over(),
                )  # raises before there is a process
                self._launch = Launch(count, self._host)

    def take(self, count: int) -> Launch:
        """Return what is ready, if it is what would be started now, or start it. Raises OSError."""
        with self._lock:
            launch, made_for, self._launch = self._launch, self._made_for, None
        if launch is not None:
            with suppress(OSError):  # the working directory is gone, say
                if (
                    made_for == (count, *self._host.taken_over())
                    and launch.first.process.poll() is None
                ):
                    return launch
            launch.end()
        return Launch(count, self._host)

    def end(self) -> None:
        """End what is ready and was not wanted."""
        with self._lock:
            launch, self._launch = self._launch, None
        if launch is not None:
            launch.end()

    def disown(self) -> None:
        """Leave them to the parent, in a forked child: they end with it."""
        launch, self._launch = self._launch, None
        if launch is not None:
            launch.disown()
        self._lock = self._host.lock()


spare = SpareWorker()
forks.own(spare)
forks.at_exit(spare.end)
