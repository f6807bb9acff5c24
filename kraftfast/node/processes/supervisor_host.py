"""What the program that supervises replicas uses of its host, and production's, by the kernel.

The simulator runs supervisors on a host of its own, whose processes are simulated.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import kraftfast
from kraftfast.errors import HostUnsupported, OutOfResources
from kraftfast.link.host_ports import Program
from kraftfast.link.kernel import KernelProgram
from kraftfast.link.kernel_check import check_host, check_tasks
from kraftfast.node.processes.telling import Telling, tell
from kraftfast.node.storage.held_directory import HeldDirectory

if TYPE_CHECKING:
    from kraftfast.link.host_ports import Event

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


class Child(Protocol):
    """A process of ours, as ``subprocess.Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code (below 0: the signal), None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return the exit code. Raises subprocess.TimeoutExpired."""

    def send_signal(self, signo: int) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """End it at once, unless it has ended."""


class DirectoryHold(Protocol):
    """What holds a replica's directory, as ``held_directory.HeldDirectory`` does."""

    def take(self, path: str) -> object:
        """Hold what is at ``path`` now, and nothing else any longer. Raises DirectoryInUse."""

    def release(self) -> None:
        """Let it go. A second call does nothing."""


class HostOfSupervisor(Program, Protocol):
    """Processes, threads and time of the program that supervises replicas."""

    tell: Telling
    """Where events go."""

    def event(self) -> Event:
        """Return a flag that is not set."""

    def is_readable(self, sock: socket.socket, timeout_s: float) -> bool:
        """Wait until something came over a socket; False: not in time."""

    def check_host(self) -> None:
        """Raise HostUnsupported if replicas or clients over rings could not work here."""

    def check_tasks(self, replicas: int) -> None:
        """Raise HostUnsupported if there is no room for the threads of so many replicas."""

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return two connected sockets that carry whole messages. Raises OSError."""

    def spawn(self, fds: list[int]) -> Child:
        """Start a worker's interpreter, which keeps these descriptors. Raises OSError."""

    def open_pidfd(self, pid: int) -> int:
        """Return a descriptor that is readable once the process has ended. Raises OSError."""

    def close(self, fd: int) -> None:
        """Close such a descriptor."""

    def exit_code_of(self, pid: int) -> int | None:
        """Return how a child ended (below 0: the signal), None while it runs.

        Raises ChildProcessError where this program has asked already, or it is no child of ours.
        """

    def kill(self, pid: int, signo: int) -> None:
        """Send a signal. Raises ProcessLookupError."""

    def held_directory(self) -> DirectoryHold:
        """Return what holds a replica's directory for this process; it holds none yet."""

    def taken_over(self) -> tuple[Any, ...]:
        """Return what a child takes over from this process. Raises OSError."""


class KernelSupervisorHost(KernelProgram):
    """See :class:`HostOfSupervisor`."""

    tell = tell
    event = threading.Event
    check_host = staticmethod(check_host)
    check_tasks = staticmethod(check_tasks)
    close = staticmethod(os.close)
    kill = staticmethod(os.kill)
    held_directory = HeldDirectory

    def is_readable(self, sock: socket.socket, timeout_s: float) -> bool:
        return bool(select.select([sock], [], [], timeout_s)[0])

    def pair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def spawn(self, fds: list[int]) -> Child:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kraftfast.node.processes.worker", *map(str, fds)],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            process_group=0,  # no Ctrl-C of a terminal; a session would be an autogroup
            env=os.environ | {"PYTHONPATH": python_path()},
        )

    def open_pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def exit_code_of(self, pid: int) -> int | None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None

    def taken_over(self) -> tuple[Any, ...]:
        """Leave out the variable that pytest sets for each test."""
        environment = {name: value for name, value in os.environ.items() if name != OF_ONE_TEST}
        limits = [each for each in dir(resource) if each.startswith("RLIMIT_")]
        return (
            sys.executable, environment, _place(""), python_path(), os.sched_getaffinity(0),
            [resource.getrlimit(getattr(resource, each)) for each in limits],
        )  # fmt: skip


HOST: HostOfSupervisor = KernelSupervisorHost()


def python_path() -> str:
    """Return where a child imports from: this very package, whatever its working directory holds.

    What this program can import the child can too, a state machine in a script's folder say.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(kraftfast.__file__)))
    return os.pathsep.join([package, *filter(None, map(_place, sys.path))])


def _place(path: str) -> str:
    """Return an absolute path; "" for a relative one where the working directory was removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return ""
