"""The C library, the kernel, limits, processors, memory and sockets of this host."""

from __future__ import annotations

import os
import platform
import resource
import socket
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from kraftfast.doctor.findings import MISSING, NOTE, OK, Fact
from kraftfast.limits import SEGMENT_BYTES_MIN
from kraftfast.link import cgroup
from kraftfast.link.kernel_check import (
    DESCRIPTORS_MIN,
    DESCRIPTORS_WANTED,
    PROBES,
    TASKS_OF_REPLICA,
    descriptors,
    failure,
    kernel_version,
    way_on,
)

UNLIMITED_MIN = 1 << 60
"""Version 1 of cgroups writes "no limit" as a number near 2**63."""
MEMORY_WANTED = 512 << 20
"""Three workers and a program take about 300 MiB, plus what the kernel caches of the log."""
SOCKET_PATH_BYTES_MAX = 107


def libc() -> Iterator[Fact]:
    """Check the C library: kraftfast is tested with glibc."""
    name, version = platform.libc_ver()
    if name == "glibc":
        yield Fact("C library", OK, f"glibc {version}", value=f"glibc {version}")
        return
    is_musl = "musl" in (sysconfig.get_config_var("MULTIARCH") or "") or any(
        Path("/lib").glob("ld-musl-*")
    )
    text = "musl" if is_musl else "neither glibc nor musl"
    yield Fact("C library", NOTE, text, "kraftfast is tested with glibc only", text)


def kernel() -> Iterator[Fact]:
    """Check the version of the kernel, and each call that replicas and clients need."""
    system, release = os.uname().sysname, os.uname().release
    if system != "Linux":
        hint = "replicas need Linux: use a container or a VM"
        yield Fact("kernel", MISSING, f"{system} {release}", hint, release)
        return
    yield Fact("kernel", OK if kernel_version() >= (5, 3) else NOTE, f"Linux {release}",
                  value=release)  # fmt: skip
    for probe in PROBES:
        error = failure(probe)
        if error is None:
            yield Fact(probe.name, OK, f"works ({probe.purpose})", value=True)
        else:
            text = f"{error.strerror} ({probe.purpose})"
            yield Fact(probe.name, MISSING, text, way_on(probe, error), False)


def limits() -> Iterator[Fact]:
    """Open files, locked memory, shared memory, the size of files, processes."""
    files = descriptors()
    raise_it = f"raise it (ulimit -n {DESCRIPTORS_WANTED})"
    text = "no limit" if files < 0 else f"{files}"
    if 0 <= files < DESCRIPTORS_MIN:
        yield Fact("open files", MISSING, f"{text}, and a replica needs {DESCRIPTORS_MIN}",
                      raise_it, files)  # fmt: skip
    elif 0 <= files < DESCRIPTORS_WANTED:
        yield Fact("open files", NOTE, f"{text}: room for few clients", raise_it, files)
    else:
        yield Fact("open files", OK, text, value=files)
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    yield Fact("locked memory", OK, f"{_limit(locked)} (kraftfast locks none)", value=locked)
    yield from _shared_memory()
    yield from tasks()
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if size != resource.RLIM_INFINITY:
        state = MISSING if size < SEGMENT_BYTES_MIN else NOTE
        hint = "raise it (ulimit -f unlimited), or use smaller segments (segment_bytes)"
        yield Fact("file size", state, f"limited to {_limit(size)}", hint, size)
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        hint = "segments are mapped: raise it (ulimit -v unlimited), or use smaller segments"
        yield Fact("address space", NOTE, f"limited to {_limit(space)}", hint, space)


def tasks() -> Iterator[Fact]:
    """Check the limit of processes and threads, which a container's cgroup may limit."""
    room = cgroup.tasks_room()
    if room is None:
        yield Fact("tasks", OK, "no limit of the cgroup on processes and threads")
        return
    state = MISSING if room < TASKS_OF_REPLICA else NOTE if room < 3 * TASKS_OF_REPLICA else OK
    text = f"the cgroup allows {room} more processes and threads"
    hint = f"a replica takes {TASKS_OF_REPLICA}: raise it (pids.max)" if state != OK else ""
    yield Fact("tasks", state, text, hint, room)


def _shared_memory() -> Iterator[Fact]:
    """Report that memory files are in no mounted file system: only memory bounds them."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        text = "not there (kraftfast does not use it)"
    else:
        text = f"{_limit(found.f_blocks * found.f_frsize)} (kraftfast does not use it)"
    yield Fact("/dev/shm", OK, text)
    want = 8 << 20
    try:
        fd = os.memfd_create("kraftfast-doctor", os.MFD_CLOEXEC)
    except (OSError, AttributeError):
        return  # there is a line about memfd_create already
    try:
        os.write(fd, bytes(want))
    except OSError as error:
        text = f"cannot hold {want >> 20} MiB: {error.strerror}"
        hint = "raise the memory limit of this process or its container"
        yield Fact("memory files", MISSING, text, hint, False)
    else:
        yield Fact("memory files", OK, f"{want >> 20} MiB can be made", value=True)
    finally:
        os.close(fd)


def _limit(amount: int) -> str:
    if amount in (resource.RLIM_INFINITY, -1):
        return "no limit"
    if amount >= 1 << 30:
        return f"{amount / (1 << 30):,.1f} GiB"
    return f"{amount >> 20:,} MiB" if amount >= 1 << 20 else f"{amount >> 10:,} KiB"


def processors() -> Iterator[Fact]:
    """Report how many processors this process may use, by its affinity and by its cgroup."""
    allowed = len(os.sched_getaffinity(0))
    quota = cgroup.cpu_quota()
    count = allowed if quota is None else min(allowed, quota)
    text = f"{allowed} of {os.cpu_count()} may be used"
    if quota is not None:
        text += f", the cgroup gives the time of {quota:.2f}"
    if count < 2:
        hint = (
            "it works; replicas take turns, so commits take longer: idle='block' wastes no time, "
            "and one voter is quicker than three"
        )
        yield Fact("processors", NOTE, text, hint, count)
    else:
        yield Fact("processors", OK, text, value=count)


def memory() -> Iterator[Fact]:
    """Report how much memory there is, by the host and by the cgroup."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [
        int(line)
        for line in cgroup.values("memory.max", "memory", "memory.limit_in_bytes")
        if line.isdecimal() and int(line) < UNLIMITED_MIN
    ]
    least = min([total, *limits])
    text = _limit(total)
    if limits:
        text += f", the cgroup allows {_limit(min(limits))}"
    if least < MEMORY_WANTED:
        hint = "three replicas and a program take about 300 MiB: use one voter, or allow more"
        yield Fact("memory", NOTE, text, hint, least)
    else:
        yield Fact("memory", OK, text, value=least)


def sockets(directory: str) -> Iterator[Fact]:
    """Try TCP listeners on this host. (Those in the directory are tried with it.)"""
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        try:
            with closing(socket.create_server((host, 0), family=family)) as server:
                server.getsockname()
        except OSError as error:
            hint = "replicas of this host need no TCP; servers do: look at the sandbox's rules"
            if family == socket.AF_INET6:
                hint = "use IPv4 addresses"
            text = f"cannot listen on {host}: {error.strerror or error}"
            yield Fact("TCP", NOTE, text, hint, False)
        else:
            yield Fact("TCP", OK, f"can listen on {host}", value=True)
    path = os.path.join(os.path.abspath(directory), "1", "replica.sock")
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        text = f"{path} is longer than {SOCKET_PATH_BYTES_MAX} bytes (reached through /proc)"
        yield Fact("UNIX sockets", OK, text)
