"""How long a sender's batches took: what every sender keeps count of."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kraftfast.client.clock cimport monotonic_ns
from kraftfast.link.stats cimport kf_histogram, kf_histogram_add, kf_histogram_add_n, quantiles


cdef class Latencies:
    """Its fields: ``latency.pxd``."""

    def __cinit__(self):
        self.samples = calloc(1, sizeof(kf_histogram))
        self.told = calloc(1, sizeof(kf_histogram))
        if self.samples == NULL or self.told == NULL:
            raise MemoryError("producer")

    def __dealloc__(self):
        free(self.samples)
        free(self.told)

    cdef void note_commit(self, uint64_t took) noexcept:
        kf_histogram_add(<kf_histogram *>self.samples, took)

    cdef void note_told(self, uint64_t sent_ns, uint64_t batches) noexcept:
        cdef uint64_t now = monotonic_ns()
        cdef uint64_t took = now - sent_ns if now > sent_ns else 0
        kf_histogram_add_n(<kf_histogram *>self.told, took, batches)

    def commit_latency(self) -> dict[str, float]:
        """From a batch's first record to its commit: count, p50_us, p99_us, p999_us, max_us."""
        return quantiles(<kf_histogram *>self.samples)

    def callback_latency(self) -> dict[str, float]:
        """From the leader's answer to its being seen here; known over rings alone. As above."""
        return quantiles(<kf_histogram *>self.told)

    def reset_latency(self):
        """Forget the samples so far (after a warm-up)."""
        memset(self.samples, 0, sizeof(kf_histogram))
        memset(self.told, 0, sizeof(kf_histogram))
