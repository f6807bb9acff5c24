"""Which file system holds a path."""

from __future__ import annotations

import os

NOT_ON_A_DISK = ("tmpfs", "ramfs")


def filesystem_of(path: str) -> str:
    """Return the type of the file system that holds ``path``, as the kernel names it, or ""."""
    best, kind = "", ""
    path = os.path.realpath(path)
    try:
        with open("/proc/self/mounts") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    for mount, name in mounts:
        mount = mount.encode().decode("unicode_escape")  # a blank is \040
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind
