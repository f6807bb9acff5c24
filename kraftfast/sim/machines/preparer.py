"""The nursery's thread, as events: the interface of ``kraftfast.log.nursery.PreparerThread``."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from kraftfast.errors import DiskFull, StorageError
from kraftfast.limits import PREPARE_PIECE_BYTES
from kraftfast.sim.machines.paged_file import SimSegmentFile


class SimPreparer:
    """Prepares one range of a file at a time, a piece an event.

    ``later(piece)`` runs a piece after a while; ``ring()`` is the doorbell of the loop.
    """

    _file: Any  # SimSegmentFile, of the range at hand; None once it was taken
    _what: str
    _done: int  # how far the range at hand is prepared
    _end: int
    _error: int | None  # of a range that ended
    _halted: bool  # it ends with its next event, and does nothing more

    def __init__(self, later: Callable[[Callable[[], None]], Any], ring: Callable[[], Any]) -> None:
        self._later, self._ring = later, ring
        self._file, self._what = None, ""
        self._done = self._end = 0
        self._error, self._halted = None, False

    def ask(self, file: SimSegmentFile, what: str, start: int, end: int) -> None:
        """Have ``what`` be done with [start, end) of the file. One at a time."""
        assert not self.busy(), "one range at a time"
        self._file, self._what, self._done, self._end = file, what, start, end
        self._error, self._halted = None, False
        self._later(lambda: self._piece(file, end))

    def busy(self) -> bool:
        return self._file is not None and self._error is None

    def done(self) -> int:
        return self._done

    def flushes(self) -> int:
        return 0

    def take(self) -> int | None:
        error = self._error
        if error is not None:
            self._file = self._error = None
        return error

    def halt(self) -> None:
        """Do nothing more with the range at hand, which ends a little later."""
        self._halted = True

    def cancel(self) -> None:
        self._file = self._error = None

    def close(self) -> None:
        self.cancel()

    def hurry(self) -> None:
        """Finish the range at hand now: for a loop that waits for it."""
        while self.busy():
            assert self._file is not None
            self._piece(self._file, self._end)

    def _piece(self, file: SimSegmentFile, end: int) -> None:
        if self._file is not file or self._end != end or self._error is not None:
            return  # given up meanwhile
        fd = file.disk.reopen(file.fd)  # the log's own descriptor must get every error (D9)
        try:
            if self._halted:
                self._error = errno.ECANCELED
            else:
                self._done = self._do(file, fd, end)
        except DiskFull:
            self._error = errno.ENOSPC
        except StorageError:
            self._error = errno.EIO
        else:
            if self._done == end:
                self._error = 0
            elif not self._halted:
                self._later(lambda: self._piece(file, end))
        finally:
            file.disk.close_fd(fd)
        self._ring()

    def _do(self, file: SimSegmentFile, fd: int, end: int) -> int:
        """Do the next piece; return up to where the range is done."""
        disk, path = file.disk, file.path
        if self._what == "zero":
            end = min(self._done + PREPARE_PIECE_BYTES // 4, end)
            disk.zero_file(fd, path, self._done, end)
        elif self._what == "reserve":
            disk.reserve_file(fd, path, self._done, end)
        elif self._what == "sync":
            disk.sync_file(fd, path)
        return end
