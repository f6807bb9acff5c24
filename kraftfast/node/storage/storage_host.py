"""What looks after the directories of a quorum uses of its host, and production's, by the kernel.

The simulator's has simulated disks: a crash may come between any two of their calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from kraftfast.log.disk import Disk, storage_error
from kraftfast.log.small_files.directory import random_uuid
from kraftfast.types import Uuid


class DiskHost(Protocol):
    """Files and their names, time and threads."""

    @property
    def disk(self) -> Disk:
        """Return what files are read and written by."""

    def monotonic(self) -> float:
        """Return the time since some moment, seconds; it never falls."""

    def sleep(self, seconds: float) -> None:
        """Pause the calling thread."""

    def thread(self, run: Callable[[], object], name: str) -> Any:
        """Return a thread that calls ``run()``, as ``threading.Thread`` makes it."""

    def condition(self) -> Any:
        """Return what threads wait for each other by, as ``threading.Condition`` makes it."""

    def has_name(self, path: str) -> bool:
        """Return whether a path names something, even a symbolic link to a missing target."""

    def is_directory(self, path: str) -> bool:
        """Return whether a path leads to a directory."""

    def is_link(self, path: str) -> bool:
        """Return whether a path is a symbolic link."""

    def is_mount(self, path: str) -> bool:
        """Return whether a disk is mounted there."""

    def real_path(self, path: str) -> str:
        """Return a path without links."""

    def device_of(self, path: str) -> int:
        """Return the number of the device that a path is on. Raises OSError."""

    def refuse_unwritable(self, place: str) -> None:
        """Raise StorageError if no directory can be made in ``place``."""

    def random_uuid(self) -> Uuid:
        """Return a new id."""


class KernelStorageHost:
    """See :class:`DiskHost`."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    condition = threading.Condition
    has_name = staticmethod(os.path.lexists)
    is_directory = staticmethod(os.path.isdir)
    is_link = staticmethod(os.path.islink)
    is_mount = staticmethod(os.path.ismount)
    random_uuid = staticmethod(random_uuid)

    @property
    def disk(self) -> Disk:
        return Disk()

    def thread(self, run: Callable[[], object], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def device_of(self, path: str) -> int:
        return os.stat(path).st_dev

    def refuse_unwritable(self, place: str) -> None:
        import tempfile  # few need it

        try:
            os.rmdir(tempfile.mkdtemp(prefix=".kraftfast-", dir=place))
        except OSError as error:
            raise storage_error("cannot make a directory in", place, error) from None


HOST: DiskHost = KernelStorageHost()
