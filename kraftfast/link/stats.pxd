"""Counters and histograms in shared memory: one replica writes, others read."""

from libc.stdint cimport int64_t, uint64_t

from kraftfast.link.timed_events cimport Events, kf_events


cdef extern from "histogram.h":
    ctypedef struct kf_histogram:
        uint64_t count
        uint64_t sum_ns
        uint64_t *buckets
    enum:
        KF_HISTOGRAM_BUCKETS
    uint64_t kf_histogram_bucket_top(unsigned int bucket) nogil
    void kf_histogram_add(kf_histogram *h, uint64_t ns) nogil
    void kf_histogram_add_n(kf_histogram *h, uint64_t ns, uint64_t n) nogil
    uint64_t kf_histogram_quantile(const kf_histogram *h, double quantile) nogil
    uint64_t kf_histogram_max_since(const kf_histogram *h, const kf_histogram *before) nogil


# count, mean_us, p50_us, p99_us, p999_us and max_us; one writer may go on meanwhile.
cdef dict quantiles(const kf_histogram *h)


cdef enum:
    W_MAGIC
    W_HIGH_WATERMARK       # stored with release: what is below it may be read by others (D11)
    W_EPOCH
    W_END_OFFSET
    W_FLUSHED_END_OFFSET
    W_LOG_START_OFFSET
    W_LEADER_ID
    W_ROLE
    W_RECORDS
    W_BATCHES
    W_BYTES
    W_FLUSHES
    W_PREPARED
    # from here on: stored now and then (``node/metrics.py``), not as it happens
    W_NOTED_NS
    W_LEADER_HIGH_WATERMARK
    W_ELECTIONS
    W_LEADERSHIPS
    W_VOTERS
    W_IS_VOTER
    W_PRODUCERS
    W_WATCHERS
    W_CONNECTIONS
    W_OTHER_FLUSHES
    W_TRUNCATIONS
    W_TROUBLES
    W_SNAPSHOT_END_OFFSET
    W_RING_FILL
    W_COUNT


cdef enum:
    S_QUEUE                # a batch is committed to the ring -> the leader takes it
    S_APPEND               # the leader takes a turn's batches -> they are in its log
    S_TRAVEL               # the leader hands records to a follower -> they are in its log
    S_FOLLOWER_FLUSH       # a flush of a follower
    S_LEADER_FLUSH         # a flush of the leader
    S_COMMIT               # in the leader's log -> below the high watermark
    S_COUNT


cdef class Stats:
    cdef readonly object file        # MemoryFile
    cdef uint64_t *words
    cdef kf_histogram *stages
    cdef readonly Events recorder    # made for the first reader of events; None before
    cdef kf_events *events           # its ring, or NULL

    cdef void set(self, int word, int64_t value) noexcept nogil
    cdef void add(self, int word, int64_t value) noexcept nogil
    cpdef ends(self, int64_t end_offset, int64_t flushed_end_offset, int64_t prepared)
    cdef void sample(self, int stage, uint64_t ns, uint64_t n) noexcept nogil


cdef class StatsView:
    cdef object memory
    cdef const uint64_t *words
    cdef const kf_histogram *stages

    cdef int64_t get(self, int word) noexcept nogil
