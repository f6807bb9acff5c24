"""A replica at the other end of two rings, for compiled code. See ``ring_fetch.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kraftfast.core.messages cimport FetchRequest, FetchResponse
from kraftfast.link.stats cimport Stats
from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport Segment
from kraftfast.log.segment_file cimport SegmentFile
from kraftfast.ring.layout cimport AnswerMessage
from kraftfast.ring.spsc cimport RingIn, RingOut


cdef class RingFetch:
    cdef readonly object link, key
    cdef readonly int id
    cdef readonly str log_path
    cdef readonly object cluster_id  # what the other side said when the link was made
    cdef readonly tuple endpoints, kraft_versions  # likewise: should it be an observer
    cdef public str broken
    cdef public bint quiet           # what is unpublished may wait: a bare high watermark
    cdef RingIn inbox
    cdef RingOut out
    cdef readonly bint unsent
    # as leader: where the next push starts
    cdef Segment segment
    cdef uint64_t position
    cdef int64_t offset
    cdef int64_t fresh_offset        # what stands there was appended since the last push; -1: none
    cdef bint bytes_only             # of this segment: the follower could not map it
    cdef uint64_t parted             # bytes of the batch there that were sent in parts
    # as follower: the leader's segments, mapped read-only, by (base offset, inode); newest last
    cdef readonly dict maps
    cdef uint64_t mapped_ns          # when the last reference was sent
    cdef AnswerMessage answer_message
    cdef bytearray parts             # of a batch that comes in parts, or None
    cdef bint ask_for_bytes          # in the Fetch that opens the next stream
    cdef object open_segment         # (path, inode) -> SegmentFile or None
    cdef uint64_t inline_max         # up to here records travel as bytes
    cdef uint64_t bytes_max          # of them in one answer
    cdef public Stats stats          # where events are noted, or None

    cpdef bint intact(self)
    cpdef int peek(self)
    cpdef release(self)
    cpdef publish_tail(self)
    cpdef publish(self)
    cpdef wake(self)
    cpdef bint send(self, int kind, payload) except -1
    cpdef bint send_fetch(self, FetchRequest request) except -1
    cpdef FetchResponse decode_answer(self)
    cdef int64_t _records(self) except -2
    cpdef tuple copy_records(self, Log log, int32_t epoch, Stats stats)
    cdef SegmentFile _map(self, int64_t base, uint64_t inode)
    cpdef FetchRequest decode_fetch(self)
    cpdef int64_t push(self, FetchResponse response, int64_t read_offset, int64_t max_bytes,
                       Log log, int64_t below=*) except -2
    cdef _fill(self, AnswerMessage *m, FetchResponse response, uint64_t length)
    cdef bint _seek(self, Log log, int64_t offset)
