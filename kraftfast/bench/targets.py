"""Where a command may write its file: not over one that it did not make."""

from __future__ import annotations

import os
import stat

from kraftfast.errors import InputError


def check_replaceable(path: str | os.PathLike[str], magic: bytes, what: str) -> None:
    """Raise InputError unless there is nothing at ``path``, an empty file, or an earlier ``what``.

    ``magic``: how one begins. A plan or a result that was named by mistake would be lost.
    """
    if str(path) == "-":
        raise InputError(f"{what} is not written to stdout: name a file (./- is one)")
    try:
        if not os.path.lexists(path):
            return
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise InputError(f"cannot write {path}: it is there, and no ordinary file")
        with open(path, "rb") as file:
            head = file.read(len(magic))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if head not in (b"", magic):
        raise InputError(f"cannot write {path}: it is there, and not {what}")
