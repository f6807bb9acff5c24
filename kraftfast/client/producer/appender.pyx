"""The quick paths of a producer, for one record a call; the others are in ``producer``."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from kraftfast.client.producer.news cimport News, Waiter
from kraftfast.client.producer.sender cimport Sender

from kraftfast.arguments import refuse, whole_number
from kraftfast.client.timing import deadline_after
from kraftfast.errors import KraftfastError, UnknownOutcome, WrongProcess

DEFAULT_TIMEOUT = 30.0
NO_HEADERS = ()
SLEEP_S_MAX = 0.5


cdef class Appender:
    """What a ``Producer`` does on every call. Its fields: ``appender.pxd``."""

    def __cinit__(self, connector, *_arguments, **_fields):
        self.host = connector.host
        self.news = News(self.host.lock)

    def append(
        self, value, *, key=None, headers=(), timestamp=None, timeout=DEFAULT_TIMEOUT
    ) -> int:
        """Hand over one record; returns its ticket at once, waiting only for room.

        ``value``, ``key``: bytes-like or None; ``headers``: pairs of str and bytes-like or None;
        ``timestamp``: milliseconds, the present if None. ``timeout``: seconds.

        Raises TimedOut (no room in time), NoQuorum (no leader), ProducerFenced, RequestRefused,
        InvalidOption, RecordTooLarge, RecordsRefused, Closed: the record was not handed over.
        """
        cdef Sender sender = self.sender
        cdef int64_t ticket
        if type(timeout) is not float or timeout != timeout:
            deadline_after(timeout)  # refuses it, or it counts only where there is no room
        if sender is not None and key is None and timestamp is None and headers is NO_HEADERS:
            ticket = sender.append_value(value)
            if ticket >= 0:
                if self.caller_sleeps or (self.keeper_sleeps and sender.has_open):
                    self.wake_threads()
                return ticket
        return self.append_waiting(value, key, headers, timestamp, timeout)

    def wait(self, ticket, *, timeout=DEFAULT_TIMEOUT) -> int:
        """Wait until the record of ``ticket`` is committed; returns its offset.

        Raises UnknownOutcome: it may or may not be committed, also when ``timeout`` seconds pass.
        ProducerFenced is one of these. Whatever else it raises is the failure of this record alone
        and says that it was not appended and will not be: NotLeader, NoQuorum, DiskFull,
        RecordTooLarge, RecordsRefused, RequestRefused, Closed (it never left) (D24). InvalidOption,
        LocalError and WrongProcess are of the call, and say nothing of the record.
        """
        cdef int64_t number
        if type(ticket) is not int or type(timeout) is not float or timeout != timeout:
            deadline_after(timeout)
            ticket = whole_number("ticket", ticket, INT64_MIN, INT64_MAX)
        try:
            number = ticket
        except OverflowError:
            refuse("ticket", "what append returned", ticket)
        if number >= self.outcomes.resolved and self.sender is not None:
            self.sender.poll()
        if number >= self.outcomes.resolved:
            self.wait_resolved(number, deadline_after(timeout, now=self.host.monotonic))
        return self.outcomes.offset_of(number)

    def append_wait(self, value, *, timeout=DEFAULT_TIMEOUT, **fields) -> int:
        """Append ``value`` and wait: its offset once committed. Raises as append() and wait()."""
        cdef double deadline = deadline_after(timeout, now=self.host.monotonic)
        cdef int64_t ticket = self.append(value, timeout=timeout, **fields)
        self.wait_resolved(ticket, deadline)
        return self.outcomes.offset_of(ticket)

    cpdef wait_resolved(self, int64_t ticket, double deadline):
        """Wait until ``ticket`` is resolved, or the host's clock is at ``deadline``.

        Raises UnknownOutcome, LocalError, WrongProcess.

        Whatever goes wrong on the way to a leader says nothing of the ticket (D24).
        """
        cdef Sender sender
        if ticket >= self.outcomes.next_ticket:
            self.outcomes.offset_of(ticket)  # raises: it was never handed out
        while self.outcomes.resolved <= ticket:
            try:
                sender = self._ready_sender(deadline)
                if not sender.gathering:  # else the last of the woken threads sends it
                    sender.seal()
                self.pump(sender, ticket, deadline)
            except WrongProcess:
                raise
            except KraftfastError as error:
                if self.outcomes.resolved > ticket:
                    return
                self.reported_to = max(self.reported_to, ticket + 1)
                raise UnknownOutcome(f"not acknowledged: {error}") from None
            if self.outcomes.resolved <= ticket and self.host.monotonic() >= deadline:
                self.reported_to = max(self.reported_to, ticket + 1)
                raise UnknownOutcome("not acknowledged in time: the record may still be committed")

    @property
    def resolved(self) -> int:
        """The first ticket without an outcome, by all that came back until now."""
        if self.sender is not None and self.sender.waiting():
            self.sender.poll()
        return self.outcomes.resolved

    cpdef pump(self, Sender sender, int64_t ticket, double deadline):
        """Take in answers for a while, or wait while another thread does.

        The thread that pumps returns as soon as anything that a thread waits for may have happened.
        """
        cdef double left = deadline - self.host.monotonic()
        if left <= 0:
            sender.poll()
        elif self.pumping:
            self.await_news(ticket, min(left, SLEEP_S_MAX))
        else:
            self.pumping = True
            try:
                if not sender.look(ticket):
                    sender.sleep(min(left, SLEEP_S_MAX), ticket)
                    self.check_silence(sender, deadline)
            finally:
                self.pumping = False
                self.news.tell_resolved(self.outcomes.resolved)
                sender.gathering = self.news.waking > 0

    cdef int await_news(self, int64_t ticket, double timeout_s) except -1:
        cdef Waiter waiter = self.news.enter(ticket)
        try:
            if self.pumping and self.outcomes.resolved <= ticket:
                waiter.lock.acquire(True, timeout_s)
        finally:
            self.news.leave(waiter)
            if not self.news.waking:
                self.all_run()
        return 0

    cdef int all_run(self) except -1:
        """Send what threads have appended that were woken together; this is the last of them."""
        if self.sender is not None:
            self.sender.gathering = False
            if self.sender.has_open:
                self.sender.seal()
        if not self.pumping:  # this one may not either: its record may be resolved, its time over
            self.news.tell_one()
        return 0
