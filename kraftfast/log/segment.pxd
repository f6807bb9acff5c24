"""One segment of the log: its bytes, its indexes, its own last page."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftfast.log.segment_file cimport SegmentFile
from kraftfast.record.judge cimport kf_batch_header


cdef extern from "page.h":
    ctypedef struct kf_mark:
        int64_t offset
        int32_t epoch
        int32_t pad
    ctypedef struct kf_watermark:
        uint64_t sequence
        kf_mark target
        kf_mark flushed
        uint64_t voucher
        uint64_t flushed_voucher
        uint64_t position
    enum:
        KF_PAGE_BYTES
    const uint64_t KF_PAGE_MAGIC
    const uint64_t KF_KEY_DAMAGED
    const uint64_t KF_KEY_MAX
    void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation) nogil
    int kf_page_valid(const uint8_t *page) nogil
    int kf_watermark_load(const uint8_t *page, kf_watermark *w) nogil
    void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed, uint64_t voucher,
                            uint64_t flushed_voucher) nogil
    int kf_end_load(const uint8_t *page, kf_watermark *end) nogil
    void kf_end_store(uint8_t *page, kf_mark end, uint64_t voucher, uint64_t position) nogil
    uint64_t kf_page_batches_end(const uint8_t *page) nogil
    uint64_t kf_key_load(const uint8_t *page) nogil
    void kf_key_store(uint8_t *page, uint64_t key) nogil
    uint64_t kf_generation_load(const uint8_t *page) nogil
    void kf_generation_bump(uint8_t *page) nogil
    uint64_t kf_prepared_load(const uint8_t *page) nogil
    void kf_prepared_store(uint8_t *page, uint64_t size) nogil

cdef extern from "flusher.h":
    enum:
        KF_FLUSH_FILES_MAX
    ctypedef struct kf_flush_file:
        int fd
        uint8_t *page
        kf_mark target
        uint64_t voucher
        uint8_t *map
        uint64_t end
    ctypedef struct kf_flush_job:
        kf_flush_file files[8]
        int count
    int kf_flush_run(kf_flush_job *job) nogil

cdef extern from "mapping.h":
    ctypedef struct kf_stage:
        uint8_t *bytes
        const uint8_t *map
    enum:
        KF_STAGE_ZEROS
    int kf_stage_open(kf_stage *s, size_t bytes) nogil
    void kf_stage_close(kf_stage *s, size_t bytes) nogil
    uint8_t *kf_stage_place(kf_stage *s, const uint8_t *map, uint64_t at) nogil
    uint64_t kf_stage_pad(kf_stage *s, uint64_t at, size_t n, uint64_t limit) nogil
    void kf_stage_keep(kf_stage *s, const uint8_t *map, uint64_t at, size_t n) nogil
    uint64_t kf_zero_dirty(uint8_t *map, uint64_t start, uint64_t end) nogil
    int kf_guard_install()
    int kf_guarded_generation(uint64_t *generation, const uint8_t *page) nogil
    int kf_is_zero(const uint8_t *map, uint64_t start, uint64_t end) nogil


cdef enum:
    RELATIVE_OFFSET_MAX = 0x7FFFFFFF


cdef struct IndexEntry:
    int32_t relative_offset   # of the last record of the batch
    int32_t position          # of the batch's first byte

cdef struct TimeEntry:
    int64_t timestamp         # largest so far
    int32_t relative_offset   # of the last record of the batch that holds it


cdef class Segment:
    cdef readonly SegmentFile file
    cdef readonly int64_t base_offset     # of its first record; its name
    cdef readonly int64_t end_offset      # exclusive; base_offset while empty
    cdef readonly uint64_t position       # bytes of whole, accepted batches
    cdef readonly uint64_t dirty_end      # >= position: a copy that was not accepted reached here
    cdef readonly uint64_t capacity       # bytes that batches may fill; the page lies beyond
    cdef readonly uint64_t prepared       # bytes from the start that may be stored into now
    cdef readonly uint64_t reserved       # >= prepared: bytes that have their blocks
    cdef public uint64_t zeroed           # bytes whose blocks were written, or pages made
    cdef readonly uint64_t key            # of this life of the file; 0: zeros behind
    cdef readonly bint used               # anything may stand behind the batches
    cdef readonly uint64_t cached         # if used: bytes whose pages were there to be stored into
    cdef readonly uint64_t voucher        # of the batches, under the key
    cdef readonly uint64_t flushed_position   # <= position: bytes on disk for certain
    cdef uint8_t *page                    # the file's last page; NULL: trimmed
    cdef readonly int64_t max_timestamp   # -1 while empty
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t first_timestamp  # the largest of its first batch; Kafka rolls by it
    cdef readonly int32_t last_epoch      # of its last batch; -1 while empty
    cdef uint64_t bytes_since_index
    cdef IndexEntry *index
    cdef Py_ssize_t index_count, index_room
    cdef TimeEntry *times
    cdef Py_ssize_t times_count, times_room

    cdef uint8_t *place(self, kf_stage *stage) noexcept
    cdef int reject(self, const kf_stage *stage, uint32_t size) except -1
    cdef int store(self, kf_stage *stage, uint32_t size) except -1
    cdef int note_batch(self, const kf_batch_header *h, int64_t base_offset) except -1
    cpdef int mark_end(self) except -1
    cdef bint walk_to(self, int64_t offset, uint64_t *position, int64_t *base_offset) noexcept
    cdef int64_t seek(self, int64_t offset, int64_t *base_offset) except -2
    cdef uint64_t seek_behind(self, int64_t offset, uint64_t at,
                              int64_t *base_offset) noexcept
    cdef int64_t find(self, int64_t offset) except -2
    cdef Py_ssize_t entry_before(self, int64_t offset) noexcept
    cdef uint64_t indexed(self, int64_t offset) noexcept
    cdef int64_t indexed_base(self, int64_t offset) noexcept
    cpdef uint64_t generation(self)
    cdef int add_times(self) except -1


cdef enum:
    AGED_BYTES_MIN = 1 << 20    # a segment that rolls by the age of its records has as many bytes,
    AGED_MS_MIN = 3600 * 1000   # or took records for so long


cdef inline bint is_old(Segment segment, int64_t timestamp, int64_t ms_max, int64_t active_ms):
    """Return whether a segment rolls by the times of its records, before a batch of this time.

    As in Kafka, but times that lie far apart must not make a segment of each record: all replicas
    would run out of descriptors (L1). ``active_ms``: how long it has been the active one.
    """
    if ms_max <= 0 or segment.first_timestamp < 0 or timestamp <= segment.first_timestamp:
        return False
    if segment.position < AGED_BYTES_MIN and active_ms < min(ms_max, AGED_MS_MIN):
        return False
    return timestamp - segment.first_timestamp > ms_max
