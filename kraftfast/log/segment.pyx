"""One segment of the log: its bytes, its indexes, its own last page.

Names, index entries and when they are made are Kafka's (``LogSegment``, ``OffsetIndex``,
``TimeIndex``; kraft-reference.md section 4.4). The last page is ours (cext/flusher.h, D10).
"""

import struct

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kraftfast import limits

cdef uint64_t INDEX_INTERVAL_BYTES = limits.INDEX_INTERVAL_BYTES
cdef int32_t RELATIVE_OFFSET_MAX = 0x7FFFFFFF

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"


def segment_name(base_offset: int) -> str:
    """The 20 digits that a segment's files start with.

    >>> segment_name(46)
    '00000000000000000046'
    """
    return f"{base_offset:020d}"


cdef class Segment:
    """A segment over a mapped file, empty until batches are noted.

    Invariants: ``flushed_position <= position <= dirty_end <= prepared <= capacity``; the bytes
    below ``position`` are whole batches whose offsets run from ``base_offset`` to ``end_offset``.
    """

    def __init__(self, SegmentFile file, int64_t base_offset, uint64_t capacity):
        self.file = file
        self.base_offset = self.end_offset = base_offset
        self.capacity = capacity
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = -1
        self.last_epoch = -1
        if file.base != NULL and file.size >= capacity + KF_PAGE_BYTES and file.size % KF_PAGE_BYTES == 0:
            if kf_page_valid(file.base + file.size - KF_PAGE_BYTES):
                self.page = file.base + file.size - KF_PAGE_BYTES

    def __dealloc__(self):
        free(self.index)
        free(self.times)

    @property
    def has_page(self) -> bool:
        """Whether the file is prepared and not trimmed."""
        return self.page != NULL

    @property
    def page_address(self) -> int:
        """Where the last page is mapped; 0 if there is none."""
        return <size_t>self.page

    cpdef uint64_t generation(self):
        """The generation word; 0 for a trimmed segment, whose bytes never change again."""
        return kf_generation_load(self.page) if self.page != NULL else 0

    def format_page(self, int64_t offset, int32_t epoch, uint64_t generation):
        """Make the file a prepared one: everything below ``offset`` is on disk, nothing beyond."""
        cdef kf_mark mark = kf_mark(offset, epoch, 0)
        self.page = self.file.base + self.file.size - KF_PAGE_BYTES
        kf_page_format(self.page, mark, generation)

    def watermark(self):
        """((target offset, epoch), (flushed offset, epoch)) of D10, or None if neither slot holds."""
        cdef kf_watermark w
        if self.page == NULL or kf_watermark_load(self.page, &w):
            return None
        return (w.target.offset, w.target.epoch), (w.flushed.offset, w.flushed.epoch)

    def set_watermark(self, int64_t offset, int32_t epoch):
        """Lower (or set) both words; not durable before the file is synced."""
        cdef kf_mark mark = kf_mark(offset, epoch, 0)
        if self.page != NULL:
            kf_watermark_store(self.page, mark, mark)

    def note_prepared(self, uint64_t prepared):
        """The nursery has written and flushed up to here."""
        self.prepared = min(prepared, self.capacity)
        if self.page != NULL:
            kf_prepared_store(self.page, self.prepared)

    def stored_prepared(self) -> int:
        """What the page says of an earlier run; 0 if it says nothing."""
        return min(kf_prepared_load(self.page), self.capacity) if self.page != NULL else 0

    cdef int note_batch(self, const kf_batch_header *h, int64_t base_offset) except -1:
        """A batch now stands at ``position``: indexes first, as Kafka does, then the ends."""
        cdef int64_t last_offset = base_offset + h.record_count - 1
        cdef int64_t relative = last_offset - self.base_offset
        assert relative <= RELATIVE_OFFSET_MAX, "roll comes first"
        if self.max_timestamp < h.max_timestamp or self.first_timestamp < 0:
            self.max_timestamp = h.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp < 0:
            self.first_timestamp = h.base_timestamp
        if self.bytes_since_index > INDEX_INTERVAL_BYTES:
            if self.index_count == self.index_room:
                self._grow_index()
            self.index[self.index_count].relative_offset = <int32_t>relative
            self.index[self.index_count].position = <int32_t>self.position
            self.index_count += 1
            self.add_times()
            self.bytes_since_index = 0
        self.bytes_since_index += h.size
        self.position += h.size
        if self.dirty_end < self.position:
            self.dirty_end = self.position
        self.end_offset = last_offset + 1
        self.last_epoch = h.leader_epoch
        return 0

    cdef int add_times(self) except -1:
        """Kafka's ``maybeAppend``: only if the timestamp is larger than the last entry's."""
        cdef TimeEntry *last
        if self.max_timestamp < 0:
            return 0
        if self.times_count:
            last = &self.times[self.times_count - 1]
            if self.max_timestamp <= last.timestamp:
                return 0
        if self.times_count == self.times_room:
            self._grow_times()
        self.times[self.times_count].timestamp = self.max_timestamp
        self.times[self.times_count].relative_offset = <int32_t>(self.max_timestamp_offset - self.base_offset)
        self.times_count += 1
        return 0

    def _grow_index(self):
        cdef Py_ssize_t room = max(256, self.index_room * 2)
        cdef void *grown = realloc(self.index, room * sizeof(IndexEntry))
        if grown == NULL:
            raise MemoryError("offset index")
        self.index, self.index_room = <IndexEntry *>grown, room

    def _grow_times(self):
        cdef Py_ssize_t room = max(256, self.times_room * 2)
        cdef void *grown = realloc(self.times, room * sizeof(TimeEntry))
        if grown == NULL:
            raise MemoryError("time index")
        self.times, self.times_room = <TimeEntry *>grown, room

    cdef int64_t find(self, int64_t offset) except -2:
        """Where the batch that holds ``offset`` starts; -1 if it is not in this segment.

        Binary search over the offset index, then from header to header.
        """
        cdef Py_ssize_t low = 0, high = self.index_count, middle
        cdef int64_t relative = offset - self.base_offset
        cdef uint64_t position
        cdef kf_batch_header h
        if offset < self.base_offset or offset >= self.end_offset:
            return -1
        while low < high:  # the first entry whose last offset is at or beyond
            middle = (low + high) // 2
            if self.index[middle].relative_offset < relative:
                low = middle + 1
            else:
                high = middle
        position = self.index[low - 1].position if low else 0
        while position < self.position:
            if kf_batch_parse(self.file.base + position, self.position - position, &h):
                return -1
            if h.base_offset + h.record_count > offset:
                return position
            position += h.size
        return -1

    def position_of(self, int64_t offset) -> int:
        """Where the batch that holds ``offset`` starts; -1 if it is not in this segment."""
        return self.find(offset)

    def cut(self, uint64_t end):
        """Forget every batch from byte ``end`` on: indexes and ends. The bytes are the log's task."""
        cdef kf_batch_header h
        cdef uint64_t flushed = min(self.flushed_position, end)
        assert end <= self.position
        self.end_offset, self.position, self.last_epoch = self.base_offset, 0, -1
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = -1
        self.index_count = self.times_count = 0
        self.bytes_since_index = 0
        while self.position < end:  # rebuilt from the headers: right by construction
            fault = kf_batch_parse(self.file.base + self.position, end - self.position, &h)
            assert fault == KF_BATCH_OK, "a cut lies between batches"
            self.note_batch(&h, h.base_offset)
        self.flushed_position = flushed

    def clear_dirt(self):
        """Zeros from ``position`` to where anything was stored. Returns whether there was any."""
        cdef uint64_t start = self.position, end = self.dirty_end
        cdef uint64_t cleared
        with nogil:
            cleared = kf_zero_dirty(self.file.base, start, end)
        self.dirty_end = self.position
        return cleared != 0

    def note_dirt(self, uint64_t end):
        """Something may stand beyond ``position``, up to here."""
        self.dirty_end = max(self.dirty_end, end)

    def note_flushed(self, uint64_t position):
        """Everything below is on disk."""
        self.flushed_position = min(max(self.flushed_position, position), self.position)

    def index_bytes(self) -> bytes:
        """The ``.index`` file: 8 bytes an entry, big-endian."""
        cdef Py_ssize_t i
        return b"".join([
            struct.pack(">ii", self.index[i].relative_offset, self.index[i].position)
            for i in range(self.index_count)
        ])

    def time_index_bytes(self, bint closing) -> bytes:
        """The ``.timeindex`` file: 12 bytes an entry; closing adds the largest timestamp (Kafka)."""
        cdef Py_ssize_t i
        if closing:
            self.add_times()
        return b"".join([
            struct.pack(">qi", self.times[i].timestamp, self.times[i].relative_offset)
            for i in range(self.times_count)
        ])

    def trim(self):
        """Cut the file to its batches and drop the page: it is as Kafka leaves a segment."""
        self.page = NULL
        self.file.resize(self.position)
        self.capacity = self.prepared = self.dirty_end = self.position

    def extend(self, uint64_t capacity):
        """Make room again behind the batches of a trimmed file; its page comes once it is prepared.

        A crash before that leaves a file without a page whose tail is zeros, which recovery takes
        for what it is: the batches reach the durable end of the last clean close.
        """
        assert self.page == NULL and capacity > self.position
        self.file.resize(capacity + KF_PAGE_BYTES)
        self.capacity, self.prepared = capacity, self.position

    def offset_for_timestamp(self, int64_t timestamp):
        """(offset, timestamp) of the first batch at or after ``timestamp``, or None."""
        cdef uint64_t position = 0
        cdef Py_ssize_t i
        cdef kf_batch_header h
        if self.max_timestamp < timestamp:
            return None
        for i in range(self.times_count):
            if self.times[i].timestamp >= timestamp:
                break
            position = max(0, self.find(self.base_offset + self.times[i].relative_offset))
        while position < self.position:
            if kf_batch_parse(self.file.base + position, self.position - position, &h):
                return None
            if h.max_timestamp >= timestamp:
                return h.base_offset, h.max_timestamp
            position += h.size
        return None
