"""The consumer of a quorum on this host: it reads the segments of a replica itself.

Nothing is copied through a process: the segments are mapped read-only, and the replica's high
watermark (a word in shared memory) says how far they may be read (D11).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kraftfast.client.local import Watch
from kraftfast.errors import NoQuorum, PeerGone, TimedOut
from kraftfast.log.reader import LogReader

RETRY_S = 0.02


class Consumer:
    """Committed records in offset order; control records are passed over.

    Iterating gives records up to what is committed when the end is reached; with ``follow`` it
    waits for more, for ever. Not thread-safe. ``position``: the offset of the next record.

    Raises OffsetOutOfRange where the log starts later, CorruptLog, NoQuorum if no replica runs.
    """

    # directories: replica id -> directory. watch, reader: of the replica that is read from.

    def __init__(
        self, directories: Mapping[int, str], from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> None:
        self.directories, self.position, self.follow = dict(directories), from_offset, follow
        self.watch: Watch | None = None
        self.reader: LogReader | None = None
        self._attach(time.monotonic() + timeout)

    def _attach(self, deadline: float) -> None:
        """Read from the replica that knows most of what is committed."""
        self.close()
        while True:
            best: Watch | None = None
            for directory in self.directories.values():
                try:
                    watch = Watch(directory)
                except PeerGone:
                    continue
                if best is None or watch.high_watermark > best.high_watermark:
                    best, watch = watch, best
                if watch is not None:
                    watch.close()
            if best is not None:
                self.watch, self.reader = best, LogReader(best.log_path)
                return
            if time.monotonic() >= deadline:
                raise NoQuorum("no replica runs")
            time.sleep(RETRY_S)

    @property
    def high_watermark(self) -> int:
        """Records below are committed, as far as the replica knows; -1 while it does not."""
        assert self.watch is not None
        return self.watch.high_watermark

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches():
            if batch.is_control:
                self.position = batch.last_offset + 1
                continue
            for record in batch.records():
                if record.offset >= self.position:
                    self.position = record.offset + 1
                    yield record

    def batches(self) -> Iterator[Any]:
        """Whole batches, the first of which may begin below ``position``."""
        while True:
            end_offset = self.high_watermark
            assert self.reader is not None
            for batch in self.reader.batches(self.position, end_offset):
                yield batch
                self.position = max(self.position, batch.last_offset + 1)
            if self.high_watermark > self.position:
                continue
            if not self.follow:
                return
            self.wait(None)

    def wait(self, timeout: float | None) -> bool:
        """Until there is something at ``position``; False if ``timeout`` seconds pass without.

        Goes on with another replica if this one is gone. Raises NoQuorum.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            assert self.watch is not None
            left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
            try:
                if self.watch.wait_beyond(self.position, left):
                    return True
            except PeerGone:
                self._attach(time.monotonic() + 10.0 if deadline is None else deadline)
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def read(self, count: int, *, timeout: float = 10.0) -> list[Any]:
        """The next ``count`` records. Raises TimedOut if there are fewer within ``timeout`` seconds."""
        found: list[Any] = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            follow, self.follow = self.follow, False
            try:
                for record in self:
                    found.append(record)
                    if len(found) == count:
                        return found
            finally:
                self.follow = follow
            if not self.wait(max(0.0, deadline - time.monotonic())):
                raise TimedOut(f"{len(found)} of {count} records within {timeout} s")
        return found

    def close(self) -> None:
        """Let go of the replica's segments."""
        if self.reader is not None:
            self.reader.close()
        if self.watch is not None:
            self.watch.close()
        self.watch = self.reader = None

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
