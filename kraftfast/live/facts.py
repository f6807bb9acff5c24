"""What the kernel says of a replica: its process, its disk and the files of its log."""

from __future__ import annotations

import os
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FILES_MAX = 100_000
"""A log with more files is counted up to here: a look must end."""
BLOCK_BYTES = 512
"""The unit of ``st_blocks``, whatever the file system."""
MINOR_AT, MAJOR_AT, USER_AT, SYSTEM_AT, THREADS_AT, STARTED_AT, RESIDENT_AT = (
    7,
    9,
    11,
    12,
    17,
    19,
    21,
)
"""Fields of ``/proc/PID/stat`` behind the command's name; field N of proc(5) is at N - 3."""


@dataclass(frozen=True, slots=True)
class ReplicaProcess:
    """What a process has used since its start. ``started_s``: seconds since 1970."""

    cpu_s: float
    started_s: float
    resident_bytes: int
    threads: int
    minor_faults: int
    major_faults: int
    written_bytes: int
    """Handed to the block layer; -1 where this user may not see it."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The files of a log, and the file system that they are on."""

    log_bytes: int
    """What the files take on the disk, those that are prepared too."""
    segments: int
    free_bytes: int
    """What a user who is not root may still write."""
    size_bytes: int


def booted_s() -> float:
    """Return when the machine started, seconds since 1970. Raises OSError."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith("btime "):
                return float(line.split()[1])
    return 0.0


def process_of(pid: int) -> ReplicaProcess | None:
    """Return what a process has used, None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        started_s = booted_s() + int(fields[STARTED_AT]) / TICKS_PER_S
    except (OSError, IndexError):
        return None
    return ReplicaProcess(
        (int(fields[USER_AT]) + int(fields[SYSTEM_AT])) / TICKS_PER_S,
        started_s,
        int(fields[RESIDENT_AT]) * PAGE_BYTES,
        int(fields[THREADS_AT]),
        int(fields[MINOR_AT]),
        int(fields[MAJOR_AT]),
        _written_bytes(pid),
    )


def _written_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io") as file:
            for line in file:
                if line.startswith("write_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return -1


def place_of(log_path: str) -> LogPlace | None:
    """Return what a log takes on its disk, None if it cannot be looked at."""
    log_bytes = segments = 0
    try:
        room = os.statvfs(log_path)
        with os.scandir(log_path) as entries:
            for number, entry in enumerate(entries):
                if number == FILES_MAX:
                    break
                try:
                    log_bytes += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                except OSError:
                    continue  # it was removed meanwhile
                segments += entry.name.endswith(".log")
    except OSError:
        return None
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    return LogPlace(log_bytes, segments, free, size)
