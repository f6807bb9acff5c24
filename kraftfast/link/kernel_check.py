"""What replicas and their clients need of the kernel, tried before anything is made.

An old kernel, a seccomp profile, a container without /proc or a small limit would otherwise end a
worker process at its first use, far from its cause. Each probe does what the code
that depends on it does, and takes microseconds.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import resource
import select
import socket
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from kraftfast.errors import HostUnsupported

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0010
"""SEAL, SHRINK, GROW, FUTURE_WRITE: what every memory file that is passed on carries."""
DESCRIPTORS_MIN = 64
"""Below this limit a replica of three voters cannot open its log and its rings (24 fail)."""
DESCRIPTORS_OF_ONE, DESCRIPTORS_OF_PEER = 30, 10
"""A replica takes 14, and 8 for each replica that it reaches by rings; an eighth stays free, and a
client needs 8. With 64, a leader of five voters takes no client."""
DESCRIPTORS_WANTED = 1024
"""From here on there is room for the clients that a replica takes."""
TASKS_OF_REPLICA = 6
"""The process, its threads, and its share of those of the program that starts it."""


class KernelProbe(NamedTuple):
    """One thing that is needed: its name, what for, the first Linux that has it, how to try it."""

    name: str
    purpose: str
    since: tuple[int, int]
    run: Callable[[], None]


def _memory_file() -> None:
    fd = os.memfd_create("kraftfast-probe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 1)
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    finally:
        os.close(fd)


def _pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _eventfd() -> None:
    os.close(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))


def _epoll() -> None:
    select.epoll().close()


def _passed() -> None:
    """Pass a pipe over a socket, and open it again by its number, as doorbells are."""
    near, far = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with closing(ours), closing(theirs):
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [far]))
            ours.sendmsg([b"x"], [rights])
            room = socket.CMSG_SPACE(4)
            _, ancillary, flags, _ = theirs.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
            if (
                not ancillary
            ):  # it was dropped because there is no room for it, or because of a rule
                code = errno.EMFILE if flags & socket.MSG_CTRUNC else errno.EPERM
                raise OSError(code, "the descriptor did not arrive")
            passed = array.array("i", ancillary[0][2])
            os.close(passed[0])
    finally:
        os.close(near)
        os.close(far)


def _reopened() -> None:
    near, far = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.close(os.open(f"/proc/self/fd/{near}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    finally:
        os.close(near)
        os.close(far)


PROBES = (
    KernelProbe("memfd_create", "rings in sealed shared memory", (5, 1), _memory_file),
    KernelProbe("pidfd_open", "noticing that a process ended", (5, 3), _pidfd),
    KernelProbe("eventfd", "waking a replica's loop", (2, 27), _eventfd),
    KernelProbe("epoll", "waiting for sockets", (2, 27), _epoll),
    KernelProbe("SCM_RIGHTS", "passing memory files over UNIX sockets", (2, 27), _passed),
    KernelProbe("/proc/self/fd", "opening passed pipes and segments again", (2, 27), _reopened),
)


def kernel_version() -> tuple[int, int]:
    """Return the (major, minor) version of the kernel that runs; (0, 0) if it says none."""
    numbers = os.uname().release.split("-")[0].split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


def way_on(probe: KernelProbe, error: OSError) -> str:
    """Return what to do about a probe that failed, in one clause."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"raise the limit of open files (ulimit -n {DESCRIPTORS_WANTED})"
    if error.errno == errno.EFBIG:
        return "raise the limit of a file's size (ulimit -f unlimited)"
    if error.errno == errno.ENOMEM:
        return "raise the memory limit of this process or its container"
    if probe.name.startswith("/proc"):
        return "mount /proc in this container"
    kernel = kernel_version()
    if (0, 0) < kernel < probe.since:
        return "Linux {}.{} is too old: use {}.{} or later".format(*kernel, *probe.since)
    return "a seccomp profile, a sandbox or an emulated kernel forbids it: allow it there"


def failure(probe: KernelProbe) -> OSError | None:
    """Try one thing; return why it failed, or None if it works."""
    try:
        probe.run()
    except OSError as error:
        return error
    except AttributeError:  # Python was built against a libc that does not know the call
        return OSError(errno.ENOSYS, "this Python was built without it")
    return None


def descriptors() -> int:
    """Return how many files this process may open; -1 without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


def check_host() -> None:
    """Raise HostUnsupported if replicas or clients over rings could not work here."""
    limit = descriptors()
    if 0 <= limit < DESCRIPTORS_MIN:
        raise HostUnsupported(
            f"this process may open {limit} files, and a quorum needs at least {DESCRIPTORS_MIN}: "
            f"raise the limit (ulimit -n {DESCRIPTORS_WANTED})"
        )
    for probe in PROBES:
        error = failure(probe)
        if error is not None:
            raise HostUnsupported(
                f"{probe.name} ({probe.purpose}) failed: {error.strerror}; "
                f"{way_on(probe, error)}; kraftfast doctor shows all that is missing"
            )


def check_tasks(replicas: int) -> None:
    """Raise HostUnsupported if there is no room for so many replicas.

    A cgroup may allow too few threads, and each replica needs descriptors for all others.
    """
    from kraftfast.link import cgroup

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # which each replica takes
    wanted = DESCRIPTORS_OF_ONE + replicas * DESCRIPTORS_OF_PEER
    if files != resource.RLIM_INFINITY and files < wanted:
        raise HostUnsupported(
            f"each of {replicas} replicas needs to open {wanted} files, and may open {files}: "
            f"raise the limit (ulimit -n {DESCRIPTORS_WANTED})"
        )
    room, need = cgroup.tasks_room(), replicas * TASKS_OF_REPLICA
    if room is not None and room < need:
        raise HostUnsupported(
            f"the cgroup allows {room} more processes and threads, and {replicas} replicas need "
            f"{need}: raise its limit (pids.max)"
        )
