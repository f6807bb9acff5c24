"""Opens files that must be regular ones: a FIFO or a device with the name of one must not hang."""

from __future__ import annotations

import errno
import os
import stat

from kraftfast.errors import ForeignDirectory

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
}


def open_regular(at: str, flags: int, path: str | None = None) -> int:
    """Open the file ``at`` without waiting, and return its descriptor.

    ``path``: its name in an error, ``at`` if not given. Raises OSError, and ForeignDirectory for
    what is not a regular file.
    """
    try:
        fd = os.open(at, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # open() fails for a socket, a FIFO without a reader, and a directory opened for writing.
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR):
            _check_kind(os.stat(at).st_mode, path or at)
        raise
    try:
        _check_kind(os.fstat(fd).st_mode, path or at)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_kind(mode: int, path: str) -> None:
    """Raise ForeignDirectory unless ``mode`` is a regular file's."""
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        raise ForeignDirectory(f"{path} is {kind}, and must be a regular file")
