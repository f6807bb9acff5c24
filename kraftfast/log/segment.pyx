"""One segment of the log: its bytes, its indexes, its own last page.

Names, index entries and when they are made are Kafka's (``LogSegment``, ``OffsetIndex``,
``TimeIndex``). The last page is ours (cext/page.h, D10).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kraftfast import limits
from kraftfast.record.judge cimport *

cdef uint64_t INDEX_INTERVAL_BYTES = limits.INDEX_INTERVAL_BYTES

cdef extern from "varint.h" nogil:
    void kf_store32(uint8_t *p, uint32_t v)
    void kf_store64(uint8_t *p, uint64_t v)
    uint64_t kf_load64(const uint8_t *p)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"


def segment_name(base_offset: int) -> str:
    """Return the 20 digits that a segment's files start with.

    >>> segment_name(46)
    '00000000000000000046'
    """
    return f"{base_offset:020d}"


def is_prepared(SegmentFile file) -> bool:
    """Return whether the file ends in a page of ours: prepared, and not trimmed."""
    if file.base == NULL or file.size < KF_PAGE_BYTES or file.size % KF_PAGE_BYTES:
        return False
    return kf_page_valid(file.base + file.size - KF_PAGE_BYTES) != 0


cdef class Segment:
    """A segment over a mapped file, empty until batches are noted.

    Invariants: ``flushed_position <= position <= dirty_end <= prepared <= reserved <= capacity``;
    the bytes below ``position`` are whole batches whose offsets run from ``base_offset`` to
    ``end_offset``. Behind them stand zeros or, with a ``key``, anything.
    """

    def __init__(self, SegmentFile file, int64_t base_offset, uint64_t capacity):
        self.file = file
        self.base_offset = self.end_offset = base_offset
        self.capacity = capacity
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = -1
        self.last_epoch = -1
        if file.base != NULL and file.size >= capacity + KF_PAGE_BYTES and is_prepared(file):
            self.page = file.base + file.size - KF_PAGE_BYTES
            self.key = kf_key_load(self.page)
        self.used = self.key != 0
        self.voucher = KF_VOUCHER_START if self.key else 0

    def __dealloc__(self):
        free(self.index)
        free(self.times)

    @property
    def has_page(self) -> bool:
        """Whether the file is prepared and not trimmed."""
        return self.page != NULL

    @property
    def page_address(self) -> int:
        """Where the last page is mapped; 0 if there is none. For tests, which damage it."""
        return <size_t>self.page

    cpdef uint64_t generation(self):
        """Return the generation word; 0 for a trimmed segment: nothing new comes into it (D20)."""
        return kf_generation_load(self.page) if self.page != NULL else 0

    def bump_generation(self):
        """Tell readers by reference that bytes are about to be cut or reused (D20)."""
        if self.page != NULL:
            kf_generation_bump(self.page)

    def draft_page(self, int64_t offset, int32_t epoch, uint64_t generation, uint64_t key=0):
        """Write all of the last page but the magic; everything below ``offset`` is on disk.

        ``key``: of a file that holds older bytes. Only when this is on disk may ``seal_page``
        follow: a page with its magic has its words. The page has to be prepared: a store into a
        hole may be a SIGBUS (R10).
        """
        cdef uint64_t made[512]  # KF_PAGE_BYTES, aligned
        kf_page_format(<uint8_t *>made, kf_mark(offset, epoch, 0), generation)
        kf_key_store(<uint8_t *>made, key)
        memcpy(self.file.base + self.capacity + 8, <uint8_t *>made + 8, KF_PAGE_BYTES - 8)

    def seal_page(self):
        """Store the magic: from now on the file is a prepared segment."""
        cdef uint64_t magic = KF_PAGE_MAGIC
        self.page = self.file.base + self.capacity
        memcpy(self.page, &magic, 8)
        self.key = kf_key_load(self.page)
        self.voucher = KF_VOUCHER_START if self.key else 0

    def watermark(self):
        """Return ((target offset, epoch), (flushed offset, epoch)) of D10; None if unreadable."""
        cdef kf_watermark w
        if self.page == NULL or kf_watermark_load(self.page, &w):
            return None
        return (w.target.offset, w.target.epoch), (w.flushed.offset, w.flushed.epoch)

    def aim_watermark(self, int64_t offset, int32_t epoch, uint64_t voucher):
        """Store the words for a sync that makes ``offset`` the durable end, as a flush does (D10).

        ``target`` becomes ``offset``; ``flushed`` is lowered to it and never raised: after the sync
        ``reach_watermark`` does that. Nothing is durable before the sync.
        """
        cdef kf_watermark w
        cdef kf_mark mark = kf_mark(offset, epoch, 0)
        if self.page == NULL or kf_watermark_load(self.page, &w):
            return
        if w.target.offset != offset or w.target.epoch != epoch or w.flushed.offset > offset \
                or w.voucher != voucher:
            if w.flushed.offset >= offset:
                w.flushed, w.flushed_voucher = mark, voucher
            kf_watermark_store(self.page, mark, w.flushed, voucher, w.flushed_voucher)

    def reach_watermark(self):
        """Store that everything below ``target`` is on disk: the sync has returned."""
        cdef kf_watermark w
        if self.page != NULL and not kf_watermark_load(self.page, &w):
            if w.flushed.offset != w.target.offset or w.flushed.epoch != w.target.epoch:
                kf_watermark_store(self.page, w.target, w.target, w.voucher, w.voucher)

    cpdef int mark_end(self) except -1:
        """Vouch for the batches up to here, in a file that held others before (cext/page.h)."""
        if self.key and self.page != NULL:
            kf_end_store(self.page, kf_mark(self.end_offset, self.last_epoch, 0), self.voucher,
                         self.position)
        return 0

    def note_reserved(self, uint64_t reserved, uint64_t zeroed=0):
        """Record that everything up to here has its blocks; up to ``zeroed`` they were written."""
        self.reserved = self.prepared = min(reserved, self.capacity)
        self.zeroed = max(self.zeroed, min(zeroed, self.capacity))
        if self.page != NULL:
            kf_prepared_store(self.page, self.reserved)
            self.mark_end()

    def note_spare(self, spare):
        """Record what was prepared of a file that the nursery made or took in."""
        self.used, self.cached = spare.used, spare.cached
        self.note_reserved(spare.reserved, spare.zeroed)

    def hold_back(self, uint64_t upto):
        """Store nothing beyond: zeros are being written there."""
        assert self.position <= upto
        self.prepared = min(upto, self.reserved)

    def stored_prepared(self) -> int:
        """Return what the page says of an earlier run; 0 if it says nothing."""
        return min(kf_prepared_load(self.page), self.capacity) if self.page != NULL else 0

    def batches_end(self) -> int:
        """Return up to where batches stand, as the page says; the capacity where it does not."""
        return min(kf_page_batches_end(self.page), self.capacity) if self.page != NULL \
            else self.capacity

    def batches_end_max(self) -> int:
        """Return up to where batches may stand: the capacity where the page does not say.

        A version without keys left older ones behind what was prepared.
        """
        return self.stored_prepared() or self.capacity

    cdef uint8_t *place(self, kf_stage *stage) noexcept:
        """Return where the next batch is put together: in ``stage``, or without one at the end."""
        if stage == NULL:
            return self.file.base + self.position
        return kf_stage_place(stage, self.file.base, self.position)

    cdef int reject(self, const kf_stage *stage, uint32_t size) except -1:
        """Drop what was put together; in a stage, it never stood in the log (D20)."""
        if stage == NULL:
            self.note_dirt(self.position + size)
        return 0

    cdef int store(self, kf_stage *stage, uint32_t size) except -1:
        """Take what was put together: it stands at the end now. Raises StorageError."""
        cdef uint64_t written, end = self.position + size
        if stage != NULL:
            written = kf_stage_pad(stage, self.position, size, self.prepared)
            self.file.write(self.position & ~<uint64_t>(KF_PAGE_BYTES - 1), stage.bytes, written)
            kf_stage_keep(stage, self.file.base, self.position, size)
        elif self.used:
            memset(self.file.base + end, 0, min(KF_STAGE_ZEROS, self.prepared - end))
        return 0

    cdef int note_batch(self, const kf_batch_header *h, int64_t base_offset) except -1:
        """Record a batch at ``position``: in the indexes first, as Kafka does, then the ends."""
        cdef int64_t last_offset = base_offset + h.record_count - 1
        cdef int64_t relative = last_offset - self.base_offset
        assert relative <= RELATIVE_OFFSET_MAX, "roll comes first"
        if self.max_timestamp < h.max_timestamp or self.first_timestamp < 0:
            self.max_timestamp = h.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp < 0:
            self.first_timestamp = h.max_timestamp
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
        if self.key:
            self.voucher = kf_batch_vouch(self.voucher, self.key, h, base_offset)
        return 0

    cdef int add_times(self) except -1:
        """Do as Kafka's ``maybeAppend``: only if the timestamp is larger than the last entry's."""
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
        self.times[self.times_count].relative_offset = \
            <int32_t>(self.max_timestamp_offset - self.base_offset)
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

    cdef Py_ssize_t entry_before(self, int64_t offset) noexcept:
        """Return the last entry of the index whose batch ends at or before ``offset``; -1."""
        cdef Py_ssize_t low = 0, high = self.index_count, middle
        cdef int64_t relative = offset - self.base_offset
        while low < high:  # the first entry whose last offset is at or beyond
            middle = (low + high) // 2
            if self.index[middle].relative_offset < relative:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef uint64_t indexed(self, int64_t offset) noexcept:
        """Return where the last batch of the index begins that ends at or before ``offset``; 0."""
        cdef Py_ssize_t entry = self.entry_before(offset)
        return self.index[entry].position if entry >= 0 else 0

    cdef int64_t indexed_base(self, int64_t offset) noexcept:
        """Return the base offset of the batch at ``indexed(offset)``: no CRC covers its own (D10).

        It is known by its last one, which the index has; that one itself without a sound header.
        """
        cdef Py_ssize_t entry = self.entry_before(offset)
        cdef kf_batch_header h
        cdef uint64_t position
        if entry < 0 or not self.position:
            return self.base_offset
        position = self.index[entry].position
        if kf_batch_parse(self.file.base + position, self.position - position, &h):
            h.record_count = 1
        return self.base_offset + self.index[entry].relative_offset + 1 - h.record_count

    def indexed_place(self, int64_t offset) -> tuple:
        """Return (``indexed(offset)``, ``indexed_base(offset)``)."""
        return self.indexed(offset), self.indexed_base(offset)

    cdef bint walk_to(self, int64_t offset, uint64_t *position, int64_t *base_offset) noexcept:
        """Go to the batch that holds ``offset``, or to damage before it; return if it was found.

        Binary search over the offset index, then from header to header. Their counts tell the base
        offsets: those that stand in the headers are not believed, for no CRC covers them (D10).
        """
        cdef kf_batch_header h
        position[0], base_offset[0] = self.indexed(offset), self.indexed_base(offset)
        while position[0] < self.position:
            batch = self.file.base + position[0]
            if kf_batch_parse(batch, self.position - position[0], &h):
                return False
            if base_offset[0] + h.record_count > offset:
                return True
            if kf_batch_check(batch, self.position - position[0], &h):
                return False  # its size, perhaps, and the next one begins elsewhere (D20)
            base_offset[0] += h.record_count
            position[0] += h.size
        return False

    cdef int64_t seek(self, int64_t offset, int64_t *base_offset) except -2:
        """Return where the batch that holds ``offset`` starts; -1 if it is not in this segment."""
        cdef uint64_t position
        if offset < self.base_offset or offset >= self.end_offset or not self.position:
            return -1
        if self.walk_to(offset, &position, base_offset):
            return <int64_t>position
        if base_offset[0] == offset:  # it is itself damaged
            return -1
        position = self.seek_behind(offset, position, base_offset)
        return <int64_t>position if position != self.position else -1

    def leads_to(self, int64_t offset) -> bool:
        """Return whether sound batches lead to the one that holds ``offset``, which is here."""
        cdef uint64_t position
        cdef int64_t base_offset
        return self.walk_to(offset, &position, &base_offset)

    cdef uint64_t seek_behind(self, int64_t offset, uint64_t at, int64_t *base_offset) noexcept:
        """Do as :meth:`seek` behind a damaged batch at ``at``; ``position`` if it is not found.

        A follower that lacks only what begins there must get it (L5). It is believed if batches
        follow each other from it to the next one of the index, or to the end, and from no other
        place: a record may hold what reaches as far (D20).
        """
        cdef Py_ssize_t entry = self.entry_before(offset)
        cdef uint64_t end = self.position, position, found = self.position
        cdef int64_t follows, reached = self.end_offset
        cdef kf_batch_header h
        if entry + 1 < self.index_count:
            end = self.index[entry + 1].position
            if kf_batch_parse(self.file.base + end, self.position - end, &h):
                return self.position  # where it begins is not known, so nothing can be held to it
            reached = self.base_offset + self.index[entry + 1].relative_offset + 1 - h.record_count
            if reached <= offset:
                base_offset[0] = reached
                return end
        while at + KF_BATCH_HEADER <= end:
            position, follows = at, offset
            while position + KF_BATCH_HEADER <= end \
                    and <int64_t>kf_load64(self.file.base + position) == follows \
                    and not kf_batch_parse(self.file.base + position, end - position, &h):
                position += h.size
                follows += h.record_count
            if position == end and follows == reached:
                if found != self.position:
                    return self.position
                base_offset[0], found = offset, at
            at += 1
        return found

    cdef int64_t find(self, int64_t offset) except -2:
        """Do as :meth:`seek`."""
        cdef int64_t base_offset
        return self.seek(offset, &base_offset)

    def place_of(self, int64_t offset) -> tuple:
        """Return (position, base offset) of the batch that holds ``offset``; position -1: none."""
        cdef int64_t base_offset = -1
        return self.seek(offset, &base_offset), base_offset

    def offset_at(self, uint64_t position) -> int:
        """Return the base offset of the batch that begins at ``position``; -1 if none does."""
        cdef kf_batch_header h
        if position >= self.position:
            return -1
        if kf_batch_parse(self.file.base + position, self.position - position, &h):
            return -1
        return h.base_offset

    def cut(self, uint64_t end):
        """Forget every batch from byte ``end`` on: indexes, ends. The bytes are the log's task."""
        cdef kf_batch_header h
        cdef uint64_t flushed = min(self.flushed_position, end)
        assert end <= self.position
        self.end_offset, self.position, self.last_epoch = self.base_offset, 0, -1
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = -1
        self.index_count = self.times_count = self.bytes_since_index = 0
        self.voucher = KF_VOUCHER_START if self.key else 0
        while self.position < end:  # rebuilt from the headers: right by construction
            fault = kf_batch_parse(self.file.base + self.position, end - self.position, &h)
            assert fault == KF_BATCH_OK, "a cut lies between batches"
            self.note_batch(&h, self.end_offset)  # D10: no CRC covers the one that stands there
        self.flushed_position = flushed

    def clear_dirt(self) -> int:
        """Write zeros from ``position`` to where anything was stored; return how many bytes."""
        cdef uint64_t start = self.position, end = self.dirty_end, cleared
        with nogil:
            cleared = kf_zero_dirty(self.file.base, start, end)
        self.dirty_end = self.position
        return cleared

    def store_again(self, int64_t offset):
        """Store every page from the batch of ``offset`` on once more, and zeros behind the last.

        A write-back that failed in another process left pages that look written and are not
        ("fsyncgate"): the next sync writes them, and its error is ours (D9). Zeros
        over what was cut are among them (I14); nothing of a file with a key is believed behind.
        """
        cdef int64_t found = self.find(max(offset, self.base_offset))
        cdef uint64_t at = found if found >= 0 else self.position, end = self.position
        if not self.key:
            end = max(end, min(self.stored_prepared(), self.file.data_end()))
        self.file.store_again(at, end)

    def note_dirt(self, uint64_t end):
        """Record that something may stand beyond ``position``, up to here."""
        self.dirty_end = max(self.dirty_end, end)

    def note_flushed(self, uint64_t position):
        """Record that everything below is on disk."""
        self.flushed_position = min(max(self.flushed_position, position), self.position)

    def index_bytes(self) -> bytes:
        """Return the ``.index`` file: 8 bytes an entry, big-endian."""
        made = PyBytes_FromStringAndSize(NULL, self.index_count * 8)
        cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(made)
        cdef Py_ssize_t i
        for i in range(self.index_count):
            kf_store32(p + 8 * i, <uint32_t>self.index[i].relative_offset)
            kf_store32(p + 8 * i + 4, <uint32_t>self.index[i].position)
        return made

    def time_index_bytes(self, bint closing) -> bytes:
        """Return the ``.timeindex`` file: 12 bytes an entry; closing adds the largest (Kafka)."""
        if closing:
            self.add_times()
        made = PyBytes_FromStringAndSize(NULL, self.times_count * 12)
        cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(made)
        cdef Py_ssize_t i
        for i in range(self.times_count):
            kf_store64(p + 12 * i, <uint64_t>self.times[i].timestamp)
            kf_store32(p + 12 * i + 8, <uint32_t>self.times[i].relative_offset)
        return made

    def may_trim(self) -> bool:
        """Return whether the trimmed file cannot be taken for a prepared one.

        Its last page would have to begin with the magic, which only a record made for it has.
        """
        cdef uint64_t magic
        if self.position < KF_PAGE_BYTES or self.position % KF_PAGE_BYTES:
            return True
        memcpy(&magic, self.file.base + self.position - KF_PAGE_BYTES, 8)
        return magic != KF_PAGE_MAGIC

    def trim(self):
        """Cut the file to its batches and drop the page: it is as Kafka leaves a segment."""
        self.file.resize(self.position)
        self.drop_page()
        self.capacity = self.dirty_end = self.position

    def drop_page(self):
        """Drop the page of a file about to be trimmed: what lies behind the batches is over."""
        self.page, self.key, self.used = NULL, 0, False
        self.prepared = self.reserved = self.zeroed = self.position

    def blank(self):
        """Make zeros of what :meth:`trim` would cut off, in a file that has to keep its length."""
        assert self.page == NULL
        self.dirty_end = self.file.size
        self.clear_dirt()
        self.capacity = self.prepared = self.reserved = self.zeroed = self.position

    def extend(self, uint64_t capacity):
        """Make room again behind the batches of a trimmed file; its page comes once it is prepared.

        A crash before that leaves a file without a page whose tail is zeros, which recovery takes
        for what it is: the batches reach the durable end of the last clean close.
        """
        assert self.page == NULL and capacity > self.position
        if self.may_trim():
            self.file.resize(self.position)  # what a crash left behind the batches is gone
        else:
            self.blank()
        self.file.resize(capacity + KF_PAGE_BYTES)
        self.capacity = capacity
        self.prepared = self.reserved = self.zeroed = self.position

    def close(self):
        """Give the file back; what is still asked of the segment finds nothing."""
        self.page = NULL
        self.position = self.capacity = self.dirty_end = self.flushed_position = 0
        self.prepared = self.reserved = 0
        self.file.close()
