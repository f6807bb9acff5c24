"""Histograms of how long a sender's batches took."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kraftfast.link.stats cimport kf_histogram, kf_histogram_add, kf_histogram_add_n, quantiles


cdef class Latencies:
    """The histograms of one sender; fields in ``latency.pxd``."""

    def __cinit__(self):
        self.samples = self.own_samples = calloc(1, sizeof(kf_histogram))
        self.told = self.own_told = calloc(1, sizeof(kf_histogram))
        if self.samples == NULL or self.told == NULL:
            raise MemoryError("producer")

    def __dealloc__(self):
        free(self.own_samples)
        free(self.own_told)

    def share(self, Latencies other not None):
        """Count into the histograms of ``other``: they outlive this sender, and its leader."""
        self.shared, self.samples, self.told = other, other.samples, other.told

    cdef void note_commit(self, uint64_t took) noexcept:
        kf_histogram_add(<kf_histogram *>self.samples, took)

    cdef void note_told(self, uint64_t took, uint64_t batches) noexcept:
        kf_histogram_add_n(<kf_histogram *>self.told, took, batches)

    def commit_latency(self) -> dict[str, float]:
        """Return count, p50_us, p99_us, p999_us, max_us from a first record to its commit."""
        return quantiles(<kf_histogram *>self.samples)

    def callback_latency(self) -> dict[str, float]:
        """Return the same from the leader's answer until it is seen here; rings only."""
        return quantiles(<kf_histogram *>self.told)

    def commit_buckets(self) -> bytes:
        """Return the counts of the commits' histogram, 8 bytes a bucket (``bucket_tops``)."""
        cdef kf_histogram *h = <kf_histogram *>self.samples
        return PyBytes_FromStringAndSize(<const char *>h.buckets, sizeof(h.buckets))

    def reset_latency(self):
        """Forget the samples so far (after a warm-up)."""
        memset(self.samples, 0, sizeof(kf_histogram))
        memset(self.told, 0, sizeof(kf_histogram))
