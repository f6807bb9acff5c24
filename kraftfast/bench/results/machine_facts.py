"""The facts of a machine that decide what a benchmark measures on it."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from kraftfast import __version__
from kraftfast.link.cgroup import cpu_quota
from kraftfast.log.mounts import filesystem_of
from kraftfast.record.checksum import variants


def facts(directory: str) -> dict[str, Any]:
    """Return them for measurements below ``directory``; what the host does not tell is None."""
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "cpu_quota": cpu_quota(),
        "governor": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "crc32c": variants()[0],
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "kernel": platform.release(),
        "filesystem": filesystem_of(directory),
        "write_cache": _line(f"/sys/dev/block/{_device(directory)}/queue/write_cache"),
        "scheduler": _line(f"/sys/dev/block/{_device(directory)}/queue/scheduler"),
        "python": platform.python_version(),
        "kraftfast": __version__,
        "installed_at": str(Path(sys.modules["kraftfast"].__file__ or "").parent),
    }


def _line(path: str) -> str | None:
    """Return the first line of a file of the kernel; None where there is none."""
    try:
        with open(path) as file:
            return file.readline().strip() or None
    except OSError:
        return None


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        return None
    return lines[0].partition(":")[2].strip() if lines else None


def _device(directory: str) -> str:
    """Return the numbers of the block device, as sysfs names it."""
    number = os.stat(directory).st_dev
    return f"{os.major(number)}:{os.minor(number)}"
