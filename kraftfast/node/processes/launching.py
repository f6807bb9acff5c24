"""Start worker processes: one interpreter imports everything, and forks itself for the others.

R11: that interpreter is a fresh one, never a fork of this program. It has one thread and has opened
nothing when it forks, and the siblings that it makes are children of this process, as it is itself
(``sibling.pyx``). Where it cannot fork them, each worker gets an interpreter of its own.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec

import kraftfast
from kraftfast import forks
from kraftfast.errors import HostUnsupported, OutOfResources

SIBLINGS_BYTES_MAX = 64 * 1024
SCARCE = {
    errno.EMFILE: ": raise the limit of open files (ulimit -n)",
    errno.ENFILE: "",
    errno.ENOMEM: "",
    errno.EAGAIN: ": raise the limit of processes (ulimit -u)",
}
"""Why the system refuses a process where it may grant one later, and what to do."""
OF_ONE_TEST = "PYTEST_CURRENT_TEST"


@contextmanager
def refusals() -> Iterator[None]:
    """Raise OutOfResources, or HostUnsupported, where the system refuses what a process needs."""
    try:
        yield
    except OSError as error:
        text = f"cannot start a replica's process: {error.strerror or error}"
        if error.errno in SCARCE:
            raise OutOfResources(text + SCARCE[error.errno]) from error
        text += f" ({error.filename})" if error.filename else ""
        raise HostUnsupported(f"{text}; kraftfast doctor shows what this host lacks") from error


class Sibling:
    """A child of this process that another one forked: what is used of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code (below 0: the signal), None while it runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # this program has waited for it by itself
                    self.returncode = 0
                else:
                    self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return the exit code. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        pause_s = 0.0005
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(["kraftfast.node.processes.worker"], timeout or 0.0)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        return code

    def send_signal(self, signo: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signo)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


Child = subprocess.Popen[bytes] | Sibling


class Launched(NamedTuple):
    """A worker process that has not been told yet which replica it is."""

    process: Child
    sock: socket.socket
    pidfd: int

    def end(self) -> None:
        """Kill it and forget it."""
        self.process.kill()
        self.process.wait()
        self.sock.close()
        os.close(self.pidfd)


class Launch:
    """So many worker processes: one that runs, and those that it forks once it is ready to."""

    # first: the one that was started. socks: of the others, which are told by number.

    def __init__(self, count: int = 1) -> None:
        """Start them. Raises OSError if the first cannot be started."""
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        fds = [sock.fileno() for sock in theirs]
        process = None
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kraftfast.node.processes.worker", *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                process_group=0,  # no Ctrl-C of a terminal; a session would be an autogroup
                env=os.environ | {"PYTHONPATH": python_path()},
            )
            self.first = Launched(process, ours[0], os.pidfd_open(process.pid))
        except OSError:
            for sock in ours:
                sock.close()
            if process is not None:  # without a pidfd nothing would tell that it has ended
                process.kill()
                process.wait()
            raise
        finally:
            for sock in theirs:
                sock.close()
        self.socks = ours[1:]

    def take(self, timeout_s: float) -> list[Launched]:
        """Wait for the siblings; return all processes: only the first where it cannot fork."""
        siblings: list[Launched] = []
        if self.socks:
            ready = select.select([self.first.sock], [], [], max(0.0, timeout_s))[0]
            told: list[int] = []
            with suppress(OSError, msgspec.DecodeError):
                data = self.first.sock.recv(SIBLINGS_BYTES_MAX) if ready else b""
                told = msgspec.json.decode(data, type=list[int])
            for pid in told:
                sibling, sock = Sibling(pid), self.socks.pop(0)
                try:
                    siblings.append(Launched(sibling, sock, os.pidfd_open(pid)))
                except OSError:  # no descriptors: it is our child, and must not stay a zombie
                    sibling.kill()
                    sibling.wait()
                    sock.close()
        while self.socks:
            self.socks.pop().close()
        return [self.first, *siblings]

    def end(self) -> None:
        """Kill them all."""
        for each in reversed(self.take(0)):
            each.end()

    def disown(self) -> None:
        """Close what leads to them, in a forked child: they are the parent's."""
        for sock in (self.first.sock, *self.socks):
            sock.close()
        os.close(self.first.pidfd)


class Spare:
    """Processes that are ready before a quorum asks for them: what a series of quorums starts with.

    One of these at a time: those of a program that ends, or forks, end with it.
    """

    # _launch, _made_for: what is ready, and what it took over from this process when it was made.

    def __init__(self) -> None:
        self._launch: Launch | None = None
        self._made_for: tuple[Any, ...] = ()
        self._lock = threading.Lock()
        forks.own(self)
        forks.at_exit(self.end)

    def make(self, count: int) -> None:
        """Start ``count`` processes for the next quorum, unless there are some. Raises OSError."""
        with self._lock:
            if self._launch is None:
                self._made_for = (count, *taken_over())  # raises before there is a process
                self._launch = Launch(count)

    def take(self, count: int) -> Launch:
        """Return what is ready, if it is what would be started now, or start it. Raises OSError."""
        with self._lock:
            launch, made_for, self._launch = self._launch, self._made_for, None
        if launch is not None:
            with suppress(OSError):  # the working directory is gone, say
                if made_for == (count, *taken_over()) and launch.first.process.poll() is None:
                    return launch
            launch.end()
        return Launch(count)

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
        self._lock = threading.Lock()


spare = Spare()


def taken_over() -> tuple[Any, ...]:
    """Return what a child takes over from this process, and what a program may change.

    But for the variable that pytest sets anew for each test.
    """
    environment = {name: value for name, value in os.environ.items() if name != OF_ONE_TEST}
    limits = [each for each in dir(resource) if each.startswith("RLIMIT_")]
    return (
        sys.executable, environment, os.getcwd(), python_path(), os.sched_getaffinity(0),
        [resource.getrlimit(getattr(resource, each)) for each in limits],
    )  # fmt: skip


def python_path() -> str:
    """Return where a child imports from: this very package, whatever its working directory holds.

    What this program can import the child can too, a state machine in a script's folder say.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(kraftfast.__file__)))
    return os.pathsep.join([package, *(os.path.abspath(path) for path in sys.path)])
