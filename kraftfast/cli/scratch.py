"""Directories of a command's own: made for it, and gone when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kraftfast.errors import DiskFull
from kraftfast.log.disk import storage_error

ON_DISK = "/var/tmp"
"""Where temporary files are on a disk: /tmp is in memory on many machines."""
REMOVE_SECONDS_MAX = 5.0


def chosen(parent: str | None) -> str:
    """Return where a scratch directory goes."""
    return os.path.abspath(parent or os.environ.get("TMPDIR") or ON_DISK)


def refuse_without_space(parent: str | None, need_bytes: int) -> None:
    """Raise DiskFull if so much cannot be written below ``parent``, before hours are spent."""
    place = chosen(parent)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if need_bytes > free:
        raise DiskFull(
            f"the logs of all replicas need {size_text(need_bytes)}: "
            f"{place} has {size_text(free)} of free space"
        )


def size_text(size: int) -> str:
    """Return a size in MB, a small one in kB or bytes.

    >>> size_text(16_500), size_text(2_000_000)
    ('16 kB', '2 MB')
    """
    for unit, of in (("MB", 1_000_000), ("kB", 1000)):
        if size >= of:
            return f"{size / of:,.0f} {unit}"
    return f"{size} bytes"


@contextmanager
def scratch_directory(purpose: str, parent: str | None = None) -> Iterator[str]:
    """Yield a new directory below ``parent``, else below TMPDIR or /var/tmp; removed at the end.

    ``parent`` is made if it is not there, and removed with it then. Raises StorageError.
    """
    parent = chosen(parent)
    made = not os.path.isdir(parent)
    try:
        os.makedirs(parent, exist_ok=True)
        path = tempfile.mkdtemp(prefix=f"kraftfast-{purpose}-", dir=parent)
    except OSError as error:
        raise storage_error("cannot make a directory in", parent, error) from None
    try:
        yield path
    finally:
        remove(path)
        if made:
            os.rmdir(parent)


def remove(path: str) -> None:
    """Remove a directory in which processes that are ending may still make files."""
    deadline = time.monotonic() + REMOVE_SECONDS_MAX
    shutil.rmtree(path, ignore_errors=True)
    while os.path.lexists(path) and time.monotonic() < deadline:
        time.sleep(0.02)
        shutil.rmtree(path, ignore_errors=True)
