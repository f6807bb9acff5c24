"""The blocking producer.

    with quorum.producer() as producer:
        offset = producer.append_wait(b"hello", timeout=5)     # committed
        ticket = producer.append(b"hello")                     # an integer
        offset = producer.wait(ticket, timeout=5)

Thread-safe: any number of threads may append and wait. A record is handed over in the order of
the calls. When the leader changes, what it never looked at is handed to the next one; what it took
and did not acknowledge raises :class:`~kraftfast.errors.UnknownOutcome` for its tickets.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kraftfast import limits
from kraftfast.client.ledger import Ledger
from kraftfast.errors import (
    Closed,
    KraftfastError,
    NoQuorum,
    NotLeader,
    PeerGone,
    QuorumError,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.record.builder import Values

BATCH_BYTES = 64 * 1024
WINDOW_BATCHES = 64
SPIN_US = 300
SLEEP_S_MAX = 0.5
RECONNECT_S = 0.01
LINGER_S = 0.001
DEFAULT_TIMEOUT = 30.0


class Batch:
    """Records that were resolved together: tickets from ``first_ticket`` up to ``end_ticket``.

    ``base_offset`` is the offset of the first, the others follow; -1 if they failed: then ``error``
    says why.
    """

    __slots__ = ("first_ticket", "end_ticket", "base_offset", "error")

    def __init__(self, first_ticket: int, end_ticket: int, base_offset: int, error: Exception | None) -> None:
        self.first_ticket, self.end_ticket = first_ticket, end_ticket
        self.base_offset, self.error = base_offset, error

    def __repr__(self) -> str:
        return (
            f"Batch(first_ticket={self.first_ticket}, end_ticket={self.end_ticket}, "
            f"base_offset={self.base_offset}, error={self.error!r})"
        )


class Producer:
    """Appends records to a quorum. Make one with ``LocalQuorum.producer`` or ``connect``.

    ``connect`` gives a sender to the leader (a ring on this host, a socket to another) or raises
    NotLeader, NoQuorum or PeerGone; it is called again when the leader is gone.
    """

    # ledger: tickets and what became of them. sender: to the leader, None while there is none.
    # backlog: batches that the last leader never looked at, to be handed over first.
    # _lock: held while senders are exchanged. _news: notified when tickets were resolved.
    # _pumping: held by the one thread that sleeps on the sender's doorbell.

    def __init__(self, connect: Callable[[Ledger], Any], timeout: float = DEFAULT_TIMEOUT) -> None:
        self._connect = connect
        self.ledger = Ledger()
        self.sender: Any = None
        self._backlog: list[tuple[bytes, int, int]] = []
        self._lock = threading.RLock()
        self._news = threading.Condition(threading.Lock())
        self._pumping = threading.Lock()
        self._callbacks: list[Callable[[Batch], None]] = []
        self._called_back = 0
        self._thread: threading.Thread | None = None
        self._linger = threading.Event()
        self._closed = False
        self._reconnect(time.monotonic() + timeout)

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> int:
        """Hand over one record; returns its ticket at once, waiting only for room.

        ``timestamp``: milliseconds. Raises TimedOut (no room within ``timeout`` seconds: the record
        was not handed over), RecordTooLarge, RecordsRefused, NoQuorum, Closed.
        """
        if key is None and not headers and timestamp is None and value is not None:
            sender = self.sender
            if sender is not None and sender.broken is None and not self._closed:
                ticket = sender.append(value)
                if ticket >= 0:
                    if sender.has_open and not self._linger.is_set():
                        self._start_linger()
                    return ticket
        return self._append_slow(value, key, tuple(headers), timestamp, time.monotonic() + timeout)

    def try_append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ) -> int:
        """:meth:`append` that never waits. Raises WouldBlock where it would, also without leader."""
        self._check_open()
        sender = self.sender
        if sender is None or sender.broken is not None or self._backlog:
            raise WouldBlock("there is no leader at the moment")
        ticket = sender.append_record(value, key, tuple(headers), timestamp)
        if ticket < 0:
            raise WouldBlock("the window is full: nothing more can be under way at the moment")
        if sender.has_open:
            self._start_linger()
        return ticket

    def append_wait(self, value: bytes | None, *, timeout: float = DEFAULT_TIMEOUT, **fields: Any) -> int:
        """Append one record and wait until it is committed; returns its offset.

        Raises as :meth:`append` and :meth:`wait`.
        """
        deadline = time.monotonic() + timeout
        ticket = self.append(value, timeout=timeout, **fields)
        return self.wait(ticket, timeout=deadline - time.monotonic())

    def append_many(
        self, values: Any, offsets: Any = None, *, size: int | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> range | list[int]:
        """Append many records and wait until all are committed; returns their offsets in order.

        ``values``: a list of bytes; a buffer with ``offsets`` (n + 1 integers) or with ``size``;
        a two-dimensional numpy array of bytes; an Arrow binary column. The result is a ``range``
        where the records follow each other in the log, as they mostly do.
        Raises TimedOut if not all could be handed over (``handed_over`` of the exception says how
        many were), UnknownOutcome, and as :meth:`wait`.
        """
        deadline = time.monotonic() + timeout
        first, end = self.append_many_nowait(values, offsets, size=size, timeout=timeout)
        if end == first:
            return range(0)
        self._wait_resolved(end - 1, deadline)
        failures = self.ledger.failures_within(first, end)
        if failures:
            raise failures[0][2]
        start, stop = self.ledger.offset_of(first), self.ledger.offset_of(end - 1) + 1
        if stop - start == end - first:
            return range(start, stop)
        return [self.ledger.offset_of(ticket) for ticket in range(first, end)]

    def append_many_nowait(
        self, values: Any, offsets: Any = None, *, size: int | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> tuple[int, int]:
        """Hand over many records; returns their tickets (first, end), waiting only for room."""
        deadline = time.monotonic() + timeout
        column = values if isinstance(values, Values) else Values(values, offsets, size=size)
        count, done, first = len(column), 0, -1
        while done < count:
            sender = self._ready_sender(deadline)
            before = self.ledger.next_ticket
            try:
                taken = sender.append_values(column, done)
            except PeerGone:
                continue  # the sender is broken: the next round connects again
            if first < 0:
                first = before
            done += taken
            if taken == 0:
                try:
                    self._wait_room(sender, deadline)
                except TimedOut as error:
                    error.handed_over = done
                    raise
        return max(first, 0), max(first, 0) + done

    def _append_slow(
        self, value: Any, key: Any, headers: tuple[Any, ...], timestamp: int | None, deadline: float
    ) -> int:
        while True:
            sender = self._ready_sender(deadline)
            try:
                ticket = sender.append_record(value, key, headers, timestamp)
            except PeerGone:
                continue
            if ticket >= 0:
                if sender.has_open:
                    self._start_linger()
                return ticket
            self._wait_room(sender, deadline)

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self, ticket: int, *, timeout: float = DEFAULT_TIMEOUT) -> int:
        """Wait until a record is committed; returns its offset.

        Raises UnknownOutcome (it may or may not be committed; also when ``timeout`` seconds pass),
        NotLeader, NoQuorum, DiskFull (it was not appended), Closed.
        """
        self._wait_resolved(ticket, time.monotonic() + timeout)
        return self.ledger.offset_of(ticket)

    def flush(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until everything handed over so far is resolved. Raises UnknownOutcome, Closed."""
        self._wait_resolved(self.ledger.next_ticket - 1, time.monotonic() + timeout)

    @property
    def resolved(self) -> int:
        """Every ticket below is committed or failed."""
        return self.ledger.resolved

    def on_commit(self, callback: Callable[[Batch], None]) -> None:
        """Call ``callback(batch)`` for every run of records that is resolved, in ticket order.

        Calls come from one thread of the producer, never from the path of an acknowledgement; an
        exception in a callback is printed and does not stop the others.
        """
        with self._lock:
            if not self._callbacks:
                self._called_back = self.ledger.resolved
            self._callbacks.append(callback)
            self._start_thread()

    # --- the sender -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the producer is closed")

    def _ready_sender(self, deadline: float) -> Any:
        """The sender, connected to the leader and without backlog."""
        self._check_open()
        sender = self.sender
        if sender is not None and sender.broken is None and not self._backlog:
            return sender
        return self._reconnect(deadline)

    def _reconnect(self, deadline: float) -> Any:
        """Find the leader, and hand it first what the last one never looked at.

        Raises NoQuorum when the deadline passes without one.
        """
        with self._lock:
            self._give_up_sender()
            if self.sender is not None and not self._backlog:
                return self.sender  # another thread was quicker
            last: KraftfastError = NoQuorum("no replica answers")
            candidate = None
            while True:
                self._check_open()
                try:
                    candidate = candidate or self._connect(self.ledger)
                    if self._hand_over_backlog(candidate):
                        self.sender = candidate  # only now: others append behind the backlog
                        return candidate
                except (NotLeader, PeerGone, NoQuorum) as error:
                    last = error
                    if candidate is not None:
                        self._backlog = candidate.give_up(_lost(error)) + self._backlog
                        candidate.close()
                        candidate = None
                if time.monotonic() >= deadline:
                    if candidate is not None:
                        self._backlog = candidate.give_up(_lost(last)) + self._backlog
                        candidate.close()
                    raise NoQuorum(f"no leader could be found: {last}") from None
                if candidate is None:
                    time.sleep(RECONNECT_S)

    def _give_up_sender(self) -> None:
        sender = self.sender
        if sender is None or sender.broken is None:
            return
        self._backlog = sender.give_up(_lost(sender.broken)) + self._backlog
        sender.close()
        self.sender = None
        self._notify()

    def _hand_over_backlog(self, candidate: Any) -> bool:
        """Hand what no leader looked at to this one, in order. True once there is nothing left."""
        while self._backlog:
            if not candidate.resend(*self._backlog[0]):
                candidate.spin(self.ledger.resolved, SPIN_US)
                candidate.pump_sleep(RECONNECT_S)
                return False
            self._backlog.pop(0)
        return True

    def _wait_room(self, sender: Any, deadline: float) -> None:
        """Until something was taken or resolved."""
        if time.monotonic() >= deadline:
            error = TimedOut("no room: the quorum does not keep up, or has no majority")
            error.handed_over = 0
            raise error
        sender.want_room()
        self._pump(sender, self.ledger.resolved, deadline)

    def _wait_resolved(self, ticket: int, deadline: float) -> None:
        ledger = self.ledger
        if ticket >= ledger.next_ticket + sum(records for _, records, _ in self._backlog):
            ledger.offset_of(ticket)  # raises: it was never handed out
        while ledger.resolved <= ticket:
            self._check_open()
            sender = self.sender
            if sender is None or sender.broken is not None or self._backlog:
                try:
                    sender = self._reconnect(deadline)
                except NoQuorum as error:
                    if ledger.resolved > ticket:
                        return
                    raise UnknownOutcome(f"not acknowledged in time, and {error}") from None
                continue
            sender.seal()
            self._pump(sender, ticket, deadline)
            if ledger.resolved <= ticket and time.monotonic() >= deadline:
                raise UnknownOutcome("not acknowledged in time: the record may still be committed")

    def _pump(self, sender: Any, ticket: int, deadline: float) -> None:
        """Take in answers, or wait a little for another thread that does."""
        left = deadline - time.monotonic()
        if left <= 0:
            sender.poll()
            return
        if not self._pumping.acquire(blocking=False):
            with self._news:
                if self.ledger.resolved <= ticket:
                    self._news.wait(min(left, 0.01))
            return
        try:
            if not sender.spin(ticket, SPIN_US):
                sender.pump_sleep(min(left, SLEEP_S_MAX))
        except PeerGone:
            pass  # the sender is broken, and says so
        finally:
            self._pumping.release()
            self._notify()

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()

    # --- the producer's own thread ----------------------------------------------------------------

    def _start_linger(self) -> None:
        """See to it that the open batch leaves even if nobody calls again."""
        self._linger.set()
        self._start_thread()

    def _start_thread(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._run, name="kraftfast-producer", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            if self._callbacks:
                self._run_callbacks()
            elif self._linger.wait(SLEEP_S_MAX):
                time.sleep(LINGER_S)
            self._seal_stale()

    def _seal_stale(self) -> None:
        sender = self.sender
        if sender is None or sender.broken is not None:
            return
        try:
            sender.poll()
            if sender.has_open:
                sender.seal()
            else:
                self._linger.clear()
        except KraftfastError:
            pass  # the sender is broken; whoever waits learns of it

    def _run_callbacks(self) -> None:
        ledger = self.ledger
        if ledger.resolved <= self._called_back:
            sender = self.sender
            if sender is not None and sender.broken is None and ledger.next_ticket > ledger.resolved:
                self._pump(sender, ledger.resolved, time.monotonic() + SLEEP_S_MAX)
            elif sender is not None and sender.broken is not None:
                try:
                    self._reconnect(time.monotonic() + SLEEP_S_MAX)
                except QuorumError:
                    pass
            else:
                self._linger.wait(0.005)
        for batch in self._resolved_batches():
            for callback in list(self._callbacks):
                try:
                    callback(batch)
                except Exception:  # noqa: BLE001 - a user's callback may raise anything
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            self._called_back = batch.end_ticket

    def _resolved_batches(self) -> list[Batch]:
        """Runs between what was called back and what is resolved: split where they fail or jump."""
        return [Batch(*run) for run in self.ledger.runs(self._called_back)]

    # --- end --------------------------------------------------------------------------------------

    def close(self, *, timeout: float = 5.0) -> None:
        """Wait until everything is resolved, then let go; what is not by then has an unknown outcome."""
        if self._closed:
            return
        try:
            if self.ledger.next_ticket > self.ledger.resolved or self._backlog:
                self.flush(timeout=timeout)
            if self._callbacks:
                end = time.monotonic() + timeout
                while self._called_back < self.ledger.resolved and time.monotonic() < end:
                    time.sleep(0.001)
        except QuorumError:
            pass
        self._closed = True
        self._linger.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        with self._lock:
            if self.sender is not None:
                self.sender.close()
                self.sender = None
        self._notify()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _lost(error: Exception) -> UnknownOutcome:
    return UnknownOutcome(f"the leader was lost after it took the record: {error}")


assert BATCH_BYTES <= limits.BATCH_BYTES_MAX
