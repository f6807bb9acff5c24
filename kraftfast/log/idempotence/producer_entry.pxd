"""One idempotent producer, for compiled code. See ``producer_entry.pyx``."""

from libc.stdint cimport int16_t, int32_t, int64_t

cdef enum:
    SEQUENCE_MASK = 0x7FFFFFFF      # after 2^31 - 1 comes 0
    STRETCH_RECORDS_MAX = 1 << 30
    STRETCHES_MAX = 64              # limits.PRODUCER_BATCHES


# Records of one producer that follow each other both in its sequence and in the log.
cdef struct Stretch:
    int64_t base_offset
    int32_t base_sequence
    int32_t records


cdef class ProducerEntry:
    cdef readonly int64_t id
    cdef readonly int16_t epoch
    cdef readonly str name               # None: it has none
    cdef readonly int64_t touched_offset  # of the last record that concerns it; by it, it expires
    cdef readonly int64_t last_offset    # of its last data record; -1: none
    cdef readonly int64_t records        # data records of its present run of sequences
    cdef readonly int32_t last_sequence  # of the last of them; -1: none
    cdef Stretch *stretches              # the last of them, oldest first; they end at last_sequence
    cdef int count, room

    cdef int extend(self, int32_t sequence, int32_t records, int64_t base_offset) except -1
    cdef void restart(self) noexcept
    cdef int64_t offset_of(self, int32_t sequence, int32_t records) noexcept
    cdef int64_t end_of(self, int32_t sequence) noexcept
