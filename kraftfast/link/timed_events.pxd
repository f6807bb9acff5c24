"""Rings of timed events in shared memory, for compiled code: see timed_events.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "events.h":
    ctypedef struct kf_event:
        uint64_t ns
        uint64_t arg
        int64_t offset
        uint32_t kind
        uint32_t count
    ctypedef struct kf_events:
        uint64_t capacity
    bint kf_events_on(const kf_events *e) nogil
    uint64_t kf_events_now() nogil
    void kf_events_note(kf_events *e, uint32_t kind, int64_t offset, uint32_t count,
                        uint64_t arg, uint64_t ns) nogil


# What is noted, and with what: the time is that at the end, `arg` that at the beginning.
cdef enum:
    E_QUEUE = 1       # a batch is sent over its ring -> the leader takes it
    E_APPEND          # the leader takes a batch -> it is in its log
    E_SEND            # the leader puts records on a follower's ring; arg: the follower's id
    E_TRAVEL          # ... -> the follower begins to copy them
    E_COPY            # the follower begins -> they are in its log
    E_FLUSH           # a flush begins -> ends; the flushed end offset after it
    E_ACKNOWLEDGE     # a follower sends its flushed end -> the leader takes it; count: its id
    E_COMMIT          # batches are in the leader's log -> they are answered, committed
    E_ANSWER          # the leader answers -> the producer takes the answer
    E_RESOLVE         # a batch's first record is handed over -> its tickets are resolved
    E_CALLBACK        # a producer's callbacks begin -> end
    E_HIGH_WATERMARK  # the high watermark is `offset` now
    E_ROLE            # the role is number `offset` of ROLES now
    E_EPOCH           # the epoch is `offset` now


cdef class Events:
    cdef readonly object file        # MemoryFile
    cdef kf_events *ring
    cdef readonly int users          # readers for whom events are noted


cdef class EventsView:
    cdef object memory
    cdef const kf_events *ring
    cdef uint64_t capacity, next_number, lost_count
