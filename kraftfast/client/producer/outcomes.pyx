"""What became of a producer's records, by ticket.

A ticket is the number of a record in the order in which it was handed over, from 0. Records that
one producer appends in a row mostly follow each other in the log, so that the offsets of millions
of tickets are a few stretches with a constant difference.
"""

import copy

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kraftfast.errors import LocalError, UnknownOutcome

cdef enum:
    STRETCHES_MAX = 1 << 16  # a power of two
    FAILURES_MAX = 1024

cdef int64_t FAILED = INT64_MIN


def forgotten(ticket) -> UnknownOutcome:
    """Return the error for a ticket whose outcome is forgotten: mostly it is committed (D24)."""
    return UnknownOutcome(f"what became of ticket {ticket} is forgotten: it is too long ago")


cdef class Outcomes:
    """Tickets and their offsets or failures.

    Invariants: ``resolved <= next_ticket``; stretches rise by ticket and end at ``resolved``. The
    last 32,768 stretches are known at least, 65,536 at most, and the reasons of the last 1024
    failures: the memory is bounded (I25).
    """

    def __init__(self):
        self.failures = {}

    def __dealloc__(self):
        free(self.stretches)

    # --- writing ----------------------------------------------------------------------------------

    cdef int committed(self, int64_t first_ticket, int64_t records, int64_t base_offset) except -1:
        assert first_ticket == self.resolved, "answers come in the order of appends"
        assert first_ticket + records <= self.next_ticket
        self.begin_stretch(first_ticket, base_offset - first_ticket)
        self.resolved += records
        return 0

    cdef int failed(self, int64_t end_ticket, exception) except -1:
        assert self.resolved < end_ticket <= self.next_ticket
        self.begin_stretch(self.resolved, FAILED)
        self.failures[self.resolved] = exception
        if len(self.failures) > FAILURES_MAX:
            self.forget_oldest_failure()
        self.resolved = end_ticket
        return 0

    cdef int begin_stretch(self, int64_t first_ticket, int64_t delta) except -1:
        if self.count and delta != FAILED and self.stretches[self.count - 1].delta == delta:
            return 0
        if self.count == STRETCHES_MAX:
            self.count //= 2
            memmove(self.stretches, self.stretches + self.count, self.count * sizeof(Stretch))
        elif self.count == self.room:
            room = max(64, self.room * 2)
            grown = <Stretch *>realloc(self.stretches, room * sizeof(Stretch))
            if grown == NULL:
                raise MemoryError("outcomes of a producer")
            self.stretches, self.room = grown, room
        self.stretches[self.count].first_ticket = first_ticket
        self.stretches[self.count].delta = delta
        self.count += 1
        return 0

    cdef int forget_oldest_failure(self) except -1:
        """Forget a reason. An iterator would be made for it: garbage is collected then, and other
        threads run."""
        cdef Py_ssize_t place = 0
        cdef PyObject *first_ticket = NULL
        PyDict_Next(self.failures, &place, &first_ticket, NULL)
        del self.failures[<object>first_ticket]
        return 0

    def fail_until(self, int64_t end_ticket, exception not None):
        """Fail what is not resolved, up to a ticket."""
        self.failed(end_ticket, exception)

    def fail_rest(self, exception not None):
        """Fail everything that is not resolved."""
        if self.next_ticket > self.resolved:
            self.failed(self.next_ticket, exception)

    # --- reading ----------------------------------------------------------------------------------

    def unresolved(self) -> Outcomes:
        """Return the same tickets, none of which is resolved."""
        outcomes = Outcomes()
        outcomes.next_ticket = self.next_ticket
        return outcomes

    cdef Py_ssize_t place(self, int64_t ticket) noexcept:
        cdef Py_ssize_t low = 0, high = self.count, middle
        if high and self.stretches[high - 1].first_ticket <= ticket:
            return high - 1  # mostly it is the last one
        while low < high:
            middle = (low + high) // 2
            if self.stretches[middle].first_ticket <= ticket:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef failure_at(self, Py_ssize_t number):
        """Return a fresh copy of what failed: exceptions that are raised keep where they were."""
        exception = self.failures.get(self.stretches[number].first_ticket)
        if exception is None:
            return UnknownOutcome("it was not acknowledged; the reason is too long ago")
        return copy.copy(exception)

    cpdef int64_t offset_of(self, int64_t ticket) except? -1:
        """Return the offset of a resolved ticket. Raises its failure; UnknownOutcome if it is
        forgotten.

        Raises LocalError for a ticket that is not resolved.
        """
        cdef Py_ssize_t number
        if 0 <= ticket < self.resolved:
            number = self.place(ticket)
            if number >= 0:
                if self.stretches[number].delta == FAILED:
                    raise self.failure_at(number)
                return ticket + self.stretches[number].delta
            raise forgotten(ticket)
        if 0 <= ticket < self.next_ticket:
            raise LocalError(f"ticket {ticket} is not resolved yet")
        raise LocalError(f"ticket {ticket} was never handed out")

    @property
    def first_known(self) -> int:
        """The lowest ticket whose outcome is still known."""
        return self.stretches[0].first_ticket if self.count else 0

    def runs(self, int64_t first, int64_t end) -> list:
        """Return what became of resolved tickets: [(first, end, base offset or -1, failure or
        None)].

        A run ends where the offsets jump and where records failed. Raises LocalError for tickets
        that are not resolved, UnknownOutcome for those that are forgotten.
        """
        cdef Py_ssize_t number
        cdef int64_t stop
        found = []
        if not 0 <= first <= end <= self.resolved:
            raise LocalError(f"tickets {first} to {end}: not all of them are resolved")
        while first < end:
            number = self.place(first)
            if number < 0:
                raise forgotten(first)
            stop = end
            if number + 1 < self.count:
                stop = min(end, self.stretches[number + 1].first_ticket)
            if self.stretches[number].delta == FAILED:
                found.append((first, stop, -1, self.failure_at(number)))
            else:
                found.append((first, stop, first + self.stretches[number].delta, None))
            first = stop
        return found

    def settle(self, waiting):
        """Give the futures of ``waiting`` what became of their tickets, as far as that is known.

        ``waiting``: a deque of (ticket, future, whatever), by ticket; done ones leave it.
        """
        cdef int64_t ticket
        cdef Py_ssize_t number
        while waiting:
            ticket, future, _ = waiting[0]
            if ticket >= self.resolved:
                return
            waiting.popleft()
            if future.done():
                continue  # cancelled, or its time was over
            number = self.place(ticket)
            if number < 0 or self.stretches[number].delta == FAILED:
                try:
                    self.offset_of(ticket)
                except Exception as error:
                    future.set_exception(error)
                    future.exception()  # not every caller looks: no complaint of the event loop
            else:
                future.set_result(ticket + self.stretches[number].delta)
