"""What became of a producer's records, by ticket.

A ticket is the number of a record in the order in which it was handed over, from 0. Records that
one producer appends in a row mostly follow each other in the log, so that the offsets of millions
of tickets are a few stretches with a constant difference.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kraftfast.errors import LocalError

cdef enum:
    STRETCHES_MAX = 1 << 16
FAILURES_MAX = 1024


cdef class Ledger:
    """Tickets and their offsets or failures.

    Invariants: ``resolved <= next_ticket``; stretches rise by ticket. The offsets of tickets older
    than the last 65,536 stretches are forgotten.
    """

    def __init__(self):
        self.failures = []

    def __dealloc__(self):
        free(self.stretches)

    cdef int committed(self, int64_t first_ticket, int64_t records, int64_t base_offset) except -1:
        """These records, the next ones to be resolved, are committed from ``base_offset`` on."""
        cdef int64_t delta = base_offset - first_ticket
        cdef Stretch *last
        assert first_ticket == self.resolved, "answers come in the order of appends"
        if self.count > self.first:
            last = &self.stretches[self.count - 1]
            if last.delta == delta:
                self.resolved += records
                return 0
        if self.count == self.room:
            self._make_room()
        self.stretches[self.count].first_ticket = first_ticket
        self.stretches[self.count].delta = delta
        self.count += 1
        self.resolved += records
        return 0

    def _make_room(self):
        if self.count - self.first >= STRETCHES_MAX:
            self.first += STRETCHES_MAX // 2
        if self.first:
            memmove(self.stretches, self.stretches + self.first, (self.count - self.first) * sizeof(Stretch))
            self.count -= self.first
            self.first = 0
            return
        room = max(64, self.room * 2)
        grown = <Stretch *>realloc(self.stretches, room * sizeof(Stretch))
        if grown == NULL:
            raise MemoryError("ledger of a producer")
        self.stretches, self.room = grown, room

    def failed(self, int64_t end_ticket, exception):
        """The next records, up to ``end_ticket``, are resolved by this failure."""
        if end_ticket <= self.resolved:
            return
        self.failures.append((self.resolved, end_ticket, exception))
        if len(self.failures) > FAILURES_MAX:
            self.failures.pop(0)
        self.resolved = end_ticket

    cdef int64_t find(self, int64_t ticket) noexcept:
        """The offset of a committed ticket by the stretches, -1 if it is forgotten."""
        cdef Py_ssize_t low = self.first, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.stretches[middle].first_ticket <= ticket:
                low = middle + 1
            else:
                high = middle
        if low == self.first:
            return -1
        return ticket + self.stretches[low - 1].delta

    def failure_of(self, int64_t ticket):
        """The exception that resolved this ticket, or None."""
        for first, end, exception in self.failures:
            if first <= ticket < end:
                return exception
        return None

    def offset_of(self, int64_t ticket) -> int:
        """The offset of a resolved ticket. Raises its failure; LocalError if it is unknown."""
        if not 0 <= ticket < self.next_ticket:
            raise LocalError(f"ticket {ticket} was never handed out")
        if ticket >= self.resolved:
            raise LocalError(f"ticket {ticket} is not resolved yet")
        if self.failures:
            exception = self.failure_of(ticket)
            if exception is not None:
                raise exception
        offset = self.find(ticket)
        if offset < 0:
            raise LocalError(f"the offset of ticket {ticket} is forgotten: it is too long ago")
        return offset

    def failures_within(self, int64_t first_ticket, int64_t end_ticket) -> list:
        """[(first ticket, end ticket, exception)] that overlap a range."""
        return [entry for entry in self.failures if entry[0] < end_ticket and entry[1] > first_ticket]

    def runs(self, int64_t start) -> list:
        """What was resolved from ticket ``start`` on: [(first, end, base offset or -1, failure)].

        A run ends where the offsets jump and where records failed.
        """
        cdef Py_ssize_t i
        edges = {start, self.resolved}
        for i in range(self.first, self.count):
            if start < self.stretches[i].first_ticket < self.resolved:
                edges.add(self.stretches[i].first_ticket)
        failures = self.failures_within(start, self.resolved)
        for first, end, _ in failures:
            edges.update((max(first, start), min(end, self.resolved)))
        points = sorted(edges)
        found = []
        for first, end in zip(points, points[1:]):
            error = self.failure_of(first) if failures else None
            found.append((first, end, self.find(first) if error is None else -1, error))
        return found

    def issue(self, int64_t records) -> int:
        """The first of so many new tickets."""
        first = self.next_ticket
        self.next_ticket += records
        return first
