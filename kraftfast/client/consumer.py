"""Consumers: committed records in offset order. The one of this host reads a replica's segments.

>>> with quorum.producer() as producer, quorum.consumer() as consumer:
...     consumer.position = producer.append_wait(b"one")
...     [record.value for record in consumer]             # up to what is committed by now
...     offset = producer.append_wait(b"two")
...     consumer.wait(timeout=5)
...     consumer.read(1, timeout=5)[0].value
[b'one']
True
b'two'

Nothing is copied through a process: the segments are mapped read-only, and the replica's high
watermark (a word in shared memory) says how far they may be read (D11).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

from kraftfast.client.local import Watch
from kraftfast.errors import Closed, NoQuorum, PeerGone, TimedOut
from kraftfast.log.reader import LogReader

RETRY_S = 0.02
FOREVER_S = 365 * 24 * 3600.0


class RecordStream(ABC):
    """Committed records in offset order; control records are passed over.

    Iterating gives records up to what is committed when the end is reached; with ``follow`` it
    waits for more, for ever. ``position``: the offset of the next record. Not thread-safe.
    """

    # position, follow: as above. closed: no more calls.

    def __init__(self, from_offset: int, follow: bool) -> None:
        self.position, self.follow = from_offset, follow
        self.closed = False

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """Records below are committed, as far as the source knows; -1 while it does not."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Until there is something at ``position``; False if ``timeout`` seconds pass without.

        Goes on with another replica if this one is gone. Raises NoQuorum.
        """

    @abstractmethod
    def _committed(self) -> Iterator[Any]:
        """The batches from ``position`` on that are committed by now; may be called again."""

    def _batches(self) -> Iterator[Any]:
        self._check_open()
        while True:
            yield from self._committed()
            if not self.follow:
                return
            self.wait(None)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the consumer is closed")

    def batches(self) -> Iterator[Any]:
        """Whole batches, control batches too; the first may begin below ``position``."""
        for batch in self._batches():
            self.position = max(self.position, batch.end_offset)
            yield batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches():
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= self.position:
                        self.position = record.offset + 1
                        yield record
            self.position = max(self.position, batch.end_offset)

    def read(self, count: int, *, timeout: float = 10.0) -> list[Any]:
        """The next ``count`` records. Raises TimedOut if there are fewer within ``timeout`` seconds:
        then ``position`` is where it was."""
        found: list[Any] = []
        began, deadline = self.position, time.monotonic() + timeout
        follow, self.follow = self.follow, False
        try:
            while True:
                if count > 0:
                    for record in self:
                        found.append(record)
                        if len(found) == count:
                            break
                if len(found) == count:
                    return found
                if not self.wait(max(0.0, deadline - time.monotonic())):
                    self.position = began
                    raise TimedOut(f"{len(found)} of {count} records within {timeout} s")
        finally:
            self.follow = follow

    def close(self) -> None:
        """Let go of whatever it reads from."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Consumer(RecordStream):
    """Reads the segments of a replica on this host; see :class:`RecordStream`.

    ``directories``: replica id -> directory; the replica that knows most is read from.

    Raises OffsetOutOfRange where the log starts later, CorruptLog, NoQuorum if no replica runs
    within ``timeout`` seconds.
    """

    # directories: replica id -> directory. _watch, _reader: of the replica that is read from.

    def __init__(
        self, directories: Mapping[int, str], from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> None:
        super().__init__(from_offset, follow)
        self.directories = dict(directories)
        self._watch: Watch | None = None
        self._reader: LogReader | None = None
        self._attach(time.monotonic() + timeout)

    def _attach(self, deadline: float) -> tuple[Watch, LogReader]:
        """Read from the replica that knows most of what is committed."""
        self._check_open()
        self._let_go()
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
                self._watch, self._reader = best, LogReader(best.log_path)
                return self._watch, self._reader
            if time.monotonic() >= deadline:
                raise NoQuorum("no replica runs")
            time.sleep(RETRY_S)

    def _let_go(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._watch is not None:
            self._watch.close()
        self._watch = self._reader = None

    @property
    def high_watermark(self) -> int:
        self._check_open()
        return self._watch.high_watermark if self._watch is not None else -1

    def _committed(self) -> Iterator[Any]:
        while self.high_watermark > self.position:
            assert self._reader is not None
            yield from self._reader.batches(self.position, self.high_watermark)

    def wait(self, timeout: float | None = None) -> bool:
        self._check_open()
        deadline = time.monotonic() + (FOREVER_S if timeout is None else timeout)
        while True:
            watch = self._watch
            try:
                if watch is None:
                    watch = self._attach(deadline)[0]
                if watch.wait_beyond(self.position, min(0.5, deadline - time.monotonic())):
                    return True
            except PeerGone:
                self._attach(min(deadline, time.monotonic() + 10.0))
            if time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        self._let_go()
        super().close()
