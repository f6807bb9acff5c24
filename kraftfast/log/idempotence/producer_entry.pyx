"""The state of one idempotent producer in a log: the places of its last records."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kraftfast import limits

assert STRETCHES_MAX == limits.PRODUCER_BATCHES


cdef class ProducerEntry:
    """One producer; fields in ``producer_entry.pxd``.

    Invariants: ``records`` 0 means ``last_sequence`` -1 and no stretch; a batch among the last
    ``PRODUCER_BATCHES`` ones lies in one stretch.
    """

    def __cinit__(self):
        self.last_offset = self.last_sequence = -1

    def __dealloc__(self):
        free(self.stretches)

    cdef void restart(self) noexcept:
        """Begin a new run of sequences."""
        self.last_offset = self.last_sequence = -1
        self.records, self.count = 0, 0

    cdef int extend(self, int32_t sequence, int32_t records, int64_t base_offset) except -1:
        """Record that its next records were appended at ``base_offset``."""
        cdef Stretch *last
        self.records += records
        self.last_sequence = (sequence + records - 1) & SEQUENCE_MASK
        self.last_offset = base_offset + records - 1
        if self.count:
            last = &self.stretches[self.count - 1]
            if last.base_offset + last.records == base_offset \
                    and last.records <= STRETCH_RECORDS_MAX - records:
                last.records += records
                return 0
        if self.count == STRETCHES_MAX:
            self.count -= 1
            memmove(self.stretches, self.stretches + 1, self.count * sizeof(Stretch))
        elif self.count == self.room:
            room = min(max(4, self.room * 2), STRETCHES_MAX)
            grown = <Stretch *>realloc(self.stretches, room * sizeof(Stretch))
            if grown == NULL:
                raise MemoryError("producer state")
            self.stretches, self.room = grown, room
        self.stretches[self.count] = Stretch(base_offset, sequence, records)
        self.count += 1
        return 0

    cdef int64_t offset_of(self, int32_t sequence, int32_t records) noexcept:
        """Return the offset of these records if they are remembered and contiguous, else -1."""
        cdef int i
        cdef int64_t into
        for i in range(self.count - 1, -1, -1):
            into = (sequence - self.stretches[i].base_sequence) & SEQUENCE_MASK
            if into <= self.stretches[i].records - records:
                return self.stretches[i].base_offset + into
        return -1

    cdef int64_t end_of(self, int32_t sequence) noexcept:
        """Return an offset above that of an appended record: the next one if it is remembered."""
        cdef int64_t offset = self.offset_of(sequence, 1)
        return offset + 1 if offset >= 0 else self.stretches[0].base_offset

    def remembered(self) -> list:
        """Return the last stretches: [(base offset, base sequence, records)], oldest first."""
        return [(each.base_offset, each.base_sequence, each.records)
                for each in self.stretches[:self.count]]
