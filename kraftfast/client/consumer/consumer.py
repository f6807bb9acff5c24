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

No other process is asked: the segments are copied out of their files (the page cache), and the
replica's high watermark (a word in shared memory) says how far they may be read (D11).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from kraftfast import forks
from kraftfast.arguments import OFFSET_MAX, flag, offset
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.local_socket import CONNECT_TIMEOUT_S, unreached
from kraftfast.client.timing import FOREVER_S, deadline_after
from kraftfast.client.watch import Watch
from kraftfast.errors import (
    Closed,
    InconsistentClusterId,
    KraftfastError,
    LocalError,
    NoQuorum,
    OffsetOutOfRange,
    PeerGone,
    StorageError,
    TimedOut,
    raise_if_scarce,
)
from kraftfast.log.reading.reader import LogReader

if TYPE_CHECKING:
    from kraftfast.record.batch import BatchView
    from kraftfast.record.shapes import Record

RETRY_S = 0.02
SEARCH_S = 10.0  # until NoQuorum, however long a call may take
SLEEP_S_MAX = 0.5
BEYOND_S_MAX = 1.0  # so long may replicas take to learn that an acknowledged record is committed
LAG_S_MAX = 0.1  # for so long a replica that knows less than another is waited for
REPLACED_S_MAX = 0.5  # how long a snapshot may take to replace a replica's log
SHARE_S_LEAST = 0.1  # that one replica has to answer where several share the time of a call
PATIENCE_FACTOR = 20  # a replica that did not answer is left alone so much longer than it took


class RecordStream(forks.Unique, ABC):
    """Committed records in offset order from ``from_offset`` on, without control records.

    Iterating ends at what is committed when the end is reached; with ``follow`` it waits for more,
    for ever. It raises OffsetOutOfRange where ``position`` is beyond the end of the leader's log,
    NoQuorum if no leader can say so. ``position``: the offset of the next record. ``host``: what it
    runs on. Not thread-safe. Close it: one that is forgotten warns (ResourceWarning), and is closed
    once it is collected.
    """

    # position, follow: as above. closed: no more calls, which raise refusal.
    # _committed_end: all below is known to be committed, whatever the replicas know that run now.

    def __init__(self, from_offset: int, follow: bool, host: ClientHost = HOST) -> None:
        self.host = host
        self.position = offset("from_offset", from_offset)
        self.follow = flag("follow", follow)
        self.closed = False
        self.refusal: LocalError = Closed("the consumer is closed")
        self._committed_end = 0
        forks.own(self)

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """Records below are committed, as far as the source knows; -1 while it does not."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is something at ``position``; False if ``timeout`` seconds pass without.

        With ``timeout`` 0 it looks once; over TCP the leader has two seconds to answer. Goes on
        with another replica if this one is gone. Raises NoQuorum where none answers until
        ``timeout``, or for ten seconds: one that follows ends then, too.
        """

    @abstractmethod
    def _committed(self) -> Iterator[BatchView]:
        """Return the batches from ``position`` on that are committed; may be called again."""

    def _batches(self) -> Iterator[BatchView]:
        self._check_open()
        while True:
            for batch in self._committed():
                self._committed_end = max(self._committed_end, batch.end_offset)
                yield batch
                self._check_open()
            if not self.follow:
                return
            self.wait(None)

    def _deadline(self, timeout: Any) -> float:
        return deadline_after(timeout, now=self.host.monotonic)

    def _check_open(self) -> None:
        if self.closed:
            raise self.refusal.again()
        if type(self.position) is not int or not 0 <= self.position <= OFFSET_MAX:
            self.position = offset("position", self.position)
        if self.follow is not True and self.follow is not False:
            self.follow = flag("follow", self.follow)

    def batches(self) -> Iterator[BatchView]:
        """Yield whole batches, control batches too; the first may begin below ``position``.

        There are none where ``position`` is beyond the end: see :meth:`wait`. Raises as the class,
        and Closed.
        """
        for batch in self._batches():
            self.position = max(self.position, batch.end_offset)
            yield batch

    def __iter__(self) -> Iterator[Record]:
        yield from self._records()
        if self.position > self._committed_end:
            self._check_end()
            yield from self._records()

    def _check_end(self) -> None:
        """Refuse a position beyond the end of a leader's log.

        Replicas may learn only now what is committed, and know little while there is no leader;
        its log has all of it, from the moment at which it is elected. Raises OffsetOutOfRange,
        NoQuorum if no leader is found.
        """
        deadline = self.host.monotonic() + BEYOND_S_MAX
        while True:
            self._committed_end = max(self._committed_end, self.high_watermark)
            if self.position <= self._committed_end:
                return
            if self.host.monotonic() >= deadline:
                break
            self.wait(RETRY_S)
        if self._is_beyond_end():
            raise OffsetOutOfRange(
                f"offset {self.position} is beyond what is committed: {self._committed_end}"
            )

    @abstractmethod
    def _is_beyond_end(self) -> bool:
        """Return whether the leader's log ends before ``position``. Raises NoQuorum."""

    def _records(self) -> Iterator[Record]:
        for batch in self._batches():
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= self.position:
                        self.position = record.offset + 1
                        yield record
            self.position = max(self.position, batch.end_offset)

    def read(self, count: int, *, timeout: float = 10.0) -> list[Record]:
        """Return the next ``count`` records.

        Raises TimedOut if there are fewer within ``timeout`` seconds, NoQuorum; ``position`` is
        where it was then.
        """
        found: list[Record] = []
        count = offset("count", count)
        self._check_open()
        began, deadline = self.position, self._deadline(timeout)
        follow, self.follow = self.follow, False
        try:
            while True:
                if count > 0:
                    for record in self._records():
                        found.append(record)
                        if len(found) == count:
                            break
                if len(found) == count:
                    return found
                if not self.wait(max(0.0, deadline - self.host.monotonic())):
                    raise TimedOut(f"{len(found)} of {count} records within {timeout} s")
        except BaseException:
            self.position = began  # what was found is not handed out: it comes again
            raise
        finally:
            self.follow = follow

    def close(self) -> None:
        """Let go of whatever it reads from; calls raise Closed from now on. Raises nothing."""
        self.closed = True

    def disown(self) -> None:
        """Leave what it reads from to the parent, in a forked child."""
        self.closed, self.refusal = True, forks.refusal("consumer")

    def lose_quorum(self) -> None:
        """Read nothing more: the quorum was closed, and its replicas have ended."""
        if not self.closed:
            self.closed, self.refusal = True, Closed("the quorum is closed")

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and not forks.pending():
            warnings.warn("a consumer was not closed", ResourceWarning, source=self)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Consumer(RecordStream):
    """Read the segments of a replica on this host; see :class:`RecordStream`.

    ``from_offset``: where to begin. ``follow``: wait for more at the end. ``directories``: replica
    id -> directory. ``cluster_id``: of their quorum; "" takes any. ``host``: it is one of its
    processes. What is committed is what any of the replicas knows to be, so that everything
    acknowledged is read; the records are read from the one that knew most when it was chosen,
    mostly the leader, of those whose log still holds the next one, undamaged.

    Raises OffsetOutOfRange where the log starts later, NoQuorum if no replica runs within
    ``timeout`` seconds, CorruptLog if the next record is damaged in the log of each that has it.
    """

    # directories: replica id -> directory. _watches: of the replicas that run, by id.
    # _absent_until: when one that did not answer is asked again, by id.
    # _foreign: a replica found last that is another quorum's. _problem: why one was not watched,
    # as an error to raise.
    # _source: the watch whose segments are read; _reader: of them. Both None while there is none.
    # _failed: watch -> the position at which its segments were damaged, or could not be read.

    def __init__(
        self,
        directories: Mapping[int, str],
        from_offset: int = 0,
        *,
        follow: bool = False,
        timeout: float = 10.0,
        cluster_id: str = "",
        host: ClientHost = HOST,
    ) -> None:
        deadline = deadline_after(timeout, now=host.monotonic)
        super().__init__(from_offset, follow, host)
        self.directories, self._cluster_id = directories, cluster_id
        self._watches: dict[int, Watch] = {}
        self._foreign: InconsistentClusterId | None = None
        self._problem: KraftfastError = NoQuorum("no replica runs: there is none")
        self._absent_until: dict[int, float] = {}
        self._failed: dict[Watch, int] = {}
        self._source: Watch | None = None
        self._reader: LogReader | None = None
        try:
            self._choose_source(deadline)
        except BaseException:
            self.close()  # no caller gets it
            raise

    # --- replicas ---------------------------------------------------------------------------------

    def _look_around(self, deadline: float | None = None) -> None:
        """Watch every replica that runs; let go of those that do not.

        Those that hang share the time until ``deadline``.
        """
        places = list(self.directories.items())
        for number, (id, directory) in enumerate(places):
            now = self.host.monotonic()
            share = CONNECT_TIMEOUT_S
            if deadline is not None:
                left = (deadline - now) / (len(places) - number)
                share = min(CONNECT_TIMEOUT_S, max(SHARE_S_LEAST, left))
            watch = self._watches.get(id)
            if watch is not None and not watch.alive():
                self._forget(id)
                watch = None
            if watch is None and now >= self._absent_until.get(id, now):
                try:
                    self._watches[id] = Watch(directory, self._cluster_id, self.host, share)
                except (PeerGone, InconsistentClusterId) as error:
                    if isinstance(error, InconsistentClusterId):
                        self._foreign = error
                    self._problem = unreached(error)  # not itself: it holds what the attempt made
                    if not self._watches and self._source is None:
                        raise_if_scarce(error, "cannot reach the quorum")
                    # One that is stopped costs time: it is asked seldom.
                    spent = self.host.monotonic() - now
                    self._absent_until[id] = (
                        self.host.monotonic() + RETRY_S + PATIENCE_FACTOR * spent
                    )

    def _forget(self, id: int) -> None:
        watch = self._watches.pop(id)
        self._failed.pop(watch, None)
        if watch is self._source:
            self._let_go_of_source()
        watch.close()

    def _let_go_of_source(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._source = self._reader = None

    def _choose_source(self, deadline: float) -> tuple[Watch, LogReader]:
        """Read from the replica that knows most, the leader if it does.

        Raises NoQuorum, InconsistentClusterId (those that run are another quorum's).
        A replica that came by a snapshot may start behind ``position`` where others do not.
        """
        self._let_go_of_source()
        while True:
            self._foreign = None
            self._look_around(deadline)
            if self._watches:
                best = max(self._watches.values(), key=self._worth)
                place, id = best.log_path, best.directory_id
                reader = LogReader(place, disk=self.host.disk, waits=self.host, directory_id=id)
                self._source, self._reader = best, reader
                return best, reader
            self._check_open()
            if self._foreign is not None:
                raise self._foreign.again()
            if self.host.monotonic() >= deadline:
                raise self._problem.again()
            self.host.sleep(RETRY_S)

    def _worth(self, watch: Watch) -> tuple[bool, int, bool]:
        """Order sources: first of all one that has the record at ``position``."""
        return self._has_next(watch), watch.high_watermark, watch.leads

    def _has_next(self, watch: Watch) -> bool:
        """Return whether a replica has the record at ``position``, as far as is known."""
        holds = watch.log_start_offset <= self.position < watch.high_watermark
        return holds and self._failed.get(watch) != self.position

    # --- reading ----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        self._check_open()
        return max((watch.high_watermark for watch in self._watches.values()), default=-1)

    def _is_beyond_end(self) -> bool:
        self._look_around()
        watches = self._watches.values()
        if not any(watch.leads for watch in watches):
            raise NoQuorum(f"no leader runs that knows whether offset {self.position} is committed")
        return self.position > max(watch.end_offset for watch in watches)

    def _committed(self) -> Iterator[Any]:
        while True:
            if self.high_watermark <= self.position:
                self._look_around()  # another one may know more by now, since it started
                if self.high_watermark <= self.position:
                    return
            source, reader = self._caught_up(self.high_watermark)
            if self.position < source.log_start_offset:  # another one may start earlier
                source, reader = self._choose_source(self.host.monotonic() + SEARCH_S)
            self._check_start(source.log_start_offset)
            bound, found = source.high_watermark, False
            try:
                for batch in reader.batches(self.position, bound):
                    found = True
                    yield batch
                if not found and self.position < bound:
                    raise reader.beyond(self.position, bound)
            except OffsetOutOfRange:
                if not self._is_replaced(source):
                    raise
            except StorageError:
                if not self._is_replaced(source):
                    self._failed[source] = self.position
                    if not any(map(self._has_next, self._watches.values())):
                        raise
                    self._choose_source(self.host.monotonic() + SEARCH_S)  # it is whole there (L5)

    def _is_replaced(self, source: Watch) -> bool:
        """Return whether a log without the record at ``position`` is no longer what is read.

        A snapshot takes its place just now, or its replica has ended, and what it knew says nothing
        of the files that are there: its disk may have been replaced since.
        """
        deadline = self.host.monotonic() + REPLACED_S_MAX
        while self.position >= source.log_start_offset:
            if not source.alive():
                self._look_around()
                return True
            if self.host.monotonic() >= deadline:
                return False
            self.host.sleep(RETRY_S)
        return True

    def _check_start(self, start: int) -> None:
        """Refuse a position below the log's start, even if its records are still there."""
        if self.position < start:
            raise OffsetOutOfRange(
                f"the log starts at offset {start}, beyond offset {self.position}", start
            )

    def _caught_up(self, end_offset: int) -> tuple[Watch, LogReader]:
        """Return a source that has caught up with another one. Raises NoQuorum."""
        source, reader = self._source, self._reader
        if source is not None and reader is not None:
            try:
                if (
                    source.wait_beyond(end_offset - 1, LAG_S_MAX)
                    or source.high_watermark > self.position
                ):
                    return source, reader
            except PeerGone:
                pass
        return self._choose_source(self.host.monotonic() + SEARCH_S)

    def wait(self, timeout: float | None = None) -> bool:
        self._check_open()
        deadline = self._deadline(FOREVER_S if timeout is None else timeout)
        while True:
            try:
                source = self._source
                if source is None:
                    until = min(deadline, self.host.monotonic() + SEARCH_S)
                    source = self._choose_source(until)[0]
                if source.wait_beyond(
                    self.position, min(SLEEP_S_MAX, deadline - self.host.monotonic())
                ):
                    return self._found()
            except PeerGone:
                self._let_go_of_source()
            self._look_around(deadline)
            if self.high_watermark > self.position:
                return self._found()
            if self.host.monotonic() >= deadline:
                return False

    def _found(self) -> bool:
        self._committed_end = max(self._committed_end, self.position + 1)
        return True

    def close(self) -> None:
        for id in list(self._watches):
            self._forget(id)
        super().close()

    def disown(self) -> None:
        """Do nothing: the watches close themselves, and a reader only looks at files."""
        super().disown()
        self._watches = {}
