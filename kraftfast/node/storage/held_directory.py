"""A replica's directory, held by a process that runs no replica in it at the moment.

The lock file in it is the running replica's. Its supervisor starts a replica again that has ended,
and ``storage recover`` makes one the only voter: each must know of the other in between. The lock
is on the directory itself, so that any path that leads to it, a link say, finds the same one.
"""

from __future__ import annotations

import fcntl
import os

from kraftfast import forks
from kraftfast.errors import DirectoryInUse


class HeldDirectory:
    """A directory that this process alone holds; no forked child keeps it."""

    _fd = -1

    def __init__(self) -> None:
        forks.own(self)

    def take(self, path: str) -> HeldDirectory:
        """Hold what is at ``path`` now, and nothing else any longer. Raises DirectoryInUse.

        Nothing is held where there is no such directory, or its file system has no locks.
        """
        self.release()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            from kraftfast.log.holder import holder_of

            self.release()
            raise DirectoryInUse(
                f"{holder_of(path)} holds {path}: it runs the replica in there, or changes it"
            ) from None
        except OSError:
            self.release()
        return self

    def release(self) -> None:
        """Let it go. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    disown = __del__ = release

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()
