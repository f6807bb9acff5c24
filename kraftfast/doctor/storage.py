"""The directory that a quorum would live in: what its file system can do, and how it flushes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from kraftfast.doctor.findings import MISSING, NOTE, OK, Fact
from kraftfast.log.mounts import NOT_ON_A_DISK, filesystem_of

PIECE_BYTES = 4096
SAMPLES = 64
SECONDS_MAX = 2.0
"""On a slow disk fewer samples are taken."""
OVER_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs")
NOT_WAITING_US = 12.0
"""Below this median no disk was waited for: the quickest with a protected cache take more."""
SLOW_US = 10_000.0
"""As in ``kraftfast bench disk``: above it elections and tail latency suffer."""
SPACE_WANTED = 512 << 20
"""Three voters prepare up to 192 MiB ahead under load."""
LIGHT_SPACE = 16 << 20
FLOCK = struct.Struct("@hhqqi4x")
RENAME_EXCHANGE = 2


def directory(path: str) -> Iterator[Fact]:
    """Try everything in a temporary directory in ``path``, or in the nearest parent there is."""
    asked = os.path.abspath(path)
    place = asked
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        yield Fact("directory", MISSING, f"{place} is no directory", "choose another (--dir)")
        return
    kind = filesystem_of(place)
    try:
        work = tempfile.mkdtemp(prefix=".kraftfast-doctor-", dir=place)
    except OSError as error:
        text = f"{place} ({kind}) cannot be written: {error.strerror}"
        yield Fact("directory", MISSING, text, "choose another (--dir), or change its owner")
        return
    try:
        text = asked if place == asked else f"{asked} (not there yet, in {place})"
        yield Fact("directory", OK, f"{text} can be written", value=asked)
        yield from _file_system(work, kind)
        yield from _space(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _file_system(work: str, kind: str) -> Iterator[Fact]:
    if kind in NOT_ON_A_DISK:
        yield Fact("file system", NOTE, f"{kind}, in memory: nothing survives a power cut",
                      "choose a directory on a disk (--dir)", kind)  # fmt: skip
    elif kind in OVER_NETWORK:
        yield Fact("file system", NOTE, f"{kind}: what a flush promises is the server's word",
                      "choose a directory on a disk of this host (--dir)", kind)  # fmt: skip
    else:
        yield Fact("file system", OK, kind or "unknown", value=kind)
    for topic, run, needed, hint in (
        ("fallocate", _fallocate, False, "it works: blocks are reserved by writing zeros"),
        ("mmap", _mmap, True, "choose another file system: the log is memory-mapped"),
        ("file locks", _lock, True, "choose another file system: a directory must be locked"),
        ("rename exchange", _exchange, False, "it works: small files are replaced instead"),
        ("UNIX sockets", _unix_socket, True, "choose another file system: clients come by them"),
    ):  # fmt: skip
        yield _tried(topic, run, work, needed, hint)
    yield from _flush(work, kind)


def _tried(topic: str, run: Callable[[str], None], work: str, needed: bool, hint: str) -> Fact:
    try:
        run(work)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed, hint = True, "free some space, or choose another directory (--dir)"
        elif error.errno in (errno.EPERM, errno.ENOSYS) and topic == "fallocate":
            # Where it is only missing it is done without; where it is forbidden a replica stops.
            needed = error.errno == errno.EPERM
            hint = "a seccomp profile or a sandbox forbids it: allow it there" if needed else hint
        return Fact(topic, MISSING if needed else NOTE, error.strerror or str(error), hint, False)
    return Fact(topic, OK, "works", value=True)


def _fallocate(work: str) -> None:
    """Make the kernel's call, without the C library's way of doing without it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(os.path.join(work, "fallocate"), "wb") as file:
        offset, size = ctypes.c_int64(0), ctypes.c_int64(1 << 20)
        if libc.fallocate64(file.fileno(), 0, offset, size):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _mmap(work: str) -> None:
    with open(os.path.join(work, "mmap"), "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, PIECE_BYTES)  # a store into a hole may be a SIGBUS
        with mmap.mmap(file.fileno(), PIECE_BYTES) as memory:
            memory[:4] = b"kraf"
            memory.flush()
        if os.pread(file.fileno(), 4, 0) != b"kraf":
            raise OSError(errno.EIO, "a store through the map is not what a read returns")


def _lock(work: str) -> None:
    with open(os.path.join(work, "lock"), "w+b") as file:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, asked)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _exchange(work: str) -> None:
    names = [os.fsencode(os.path.join(work, name)) for name in ("one", "other")]
    for name in names:
        open(name, "wb").close()
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, "the C library does not have it")
    if libc.renameat2(-100, names[0], -100, names[1], RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _unix_socket(work: str) -> None:
    fd = os.open(work, os.O_PATH | os.O_DIRECTORY)
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as sock:
            sock.bind(f"/proc/self/fd/{fd}/replica.sock")  # as for paths of any length
            sock.listen(1)
    finally:
        os.close(fd)


def _flush(work: str, kind: str) -> Iterator[Fact]:
    """Time fdatasync of one page, stored into a file whose blocks were written before."""
    path = os.path.join(work, "flush")
    times: list[float] = []
    try:
        with open(path, "w+b", buffering=0) as file:
            file.write(bytes(PIECE_BYTES * SAMPLES))
            os.fsync(file.fileno())
            deadline = time.perf_counter() + SECONDS_MAX
            for number in range(SAMPLES):
                os.pwrite(file.fileno(), b"\xa5" * PIECE_BYTES, number * PIECE_BYTES)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append((time.perf_counter() - began) * 1e6)
                if time.perf_counter() > deadline:
                    break
    except OSError as error:
        text = f"failed: {error.strerror}"
        yield Fact("fdatasync", MISSING, text, "choose another directory (--dir)", False)
        return
    median = statistics.median(times)
    said = f"median {_duration(median)}, slowest {_duration(max(times))} of {len(times)} x 4 KiB"
    state, word, hint = verdict(kind, median)
    yield Fact("fdatasync", state, f"{said}: {word}", hint, round(median, 1))


def verdict(kind: str, median_us: float) -> tuple[str, str, str]:
    """Return the state, what the median means, and what to do about it.

    >>> [verdict(kind, us)[1] for kind, us in (("tmpfs", 1), ("ext4", 2), ("ext4", 90))]
    ['in memory: nothing survives a power cut', 'looks like it does not wait for the disk', 'fine']
    """
    if kind in NOT_ON_A_DISK:
        return NOTE, "in memory: nothing survives a power cut", "choose a directory on a disk"
    if median_us < NOT_WAITING_US:
        hint = "an acknowledged record may be lost in a power cut: look at the disk's write cache"
        return NOTE, "looks like it does not wait for the disk", hint
    if median_us > SLOW_US:
        hint = "commits take as long; raise the election and fetch timeouts"
        return NOTE, "slow", hint
    return OK, "fine", ""


def _duration(us: float) -> str:
    return f"{us:.0f} us" if us < 1000 else f"{us / 1000:.1f} ms"


def _space(work: str) -> Iterator[Fact]:
    found = os.statvfs(work)
    free = found.f_bavail * found.f_frsize
    text = f"{free / (1 << 20):,.0f} MiB"
    if free < LIGHT_SPACE:
        yield Fact("free space", MISSING, text, "a quorum takes 16 MiB at least", free)
    elif free < SPACE_WANTED:
        hint = "three voters prepare up to 192 MiB ahead under load: "
        hint += "stride_bytes=8 << 20 takes less"
        yield Fact("free space", NOTE, text, hint, free)
    else:
        yield Fact("free space", OK, text, value=free)
