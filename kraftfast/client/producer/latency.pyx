"""Histograms of how long a sender's batches took."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kraftfast.link.timed_events cimport (
    E_CALLBACK, E_RESOLVE, Events, kf_events_note, kf_events_now, kf_events_on,
)
from kraftfast.link.stats cimport kf_histogram, kf_histogram_add, kf_histogram_add_n, quantiles


cdef class Latencies:
    """The histograms of one sender; fields in ``latency.pxd``."""

    def __cinit__(self):
        self.samples = self.own_samples = calloc(1, sizeof(kf_histogram))
        self.told = self.own_told = calloc(1, sizeof(kf_histogram))
        self.events = &self.own_events
        if self.samples == NULL or self.told == NULL:
            raise MemoryError("producer")

    def __dealloc__(self):
        free(self.own_samples)
        free(self.own_told)

    def share(self, Latencies other not None):
        """Count into the histograms of ``other``: they outlive this sender, and its leader."""
        self.shared, self.samples, self.told = other, other.samples, other.told
        self.events = other.events

    def record(self) -> Events:
        """Record events for one reader more, until ``end`` of what this returns.

        Raises OSError without memory.
        """
        if self.recorder is None:
            self.recorder = Events()
            self.own_events = self.recorder.ring
        self.recorder.begin()
        return self.recorder

    def began_ns(self) -> int:
        """Return the time, ns, if events are noted: of a callback's begin; else 0."""
        return kf_events_now() if kf_events_on(self.events[0]) else 0

    def called_back(self, int64_t base_offset, int64_t records, uint64_t began_ns):
        """Record a callback that has ended as an event, if events are read."""
        if began_ns and kf_events_on(self.events[0]):
            kf_events_note(self.events[0], E_CALLBACK, base_offset, <uint32_t>records, began_ns,
                           kf_events_now())

    cdef void note_commit(self, int64_t base_offset, int64_t records, uint64_t began_ns,
                          uint64_t now_ns) noexcept:
        kf_histogram_add(<kf_histogram *>self.samples, now_ns - began_ns)
        if kf_events_on(self.events[0]):
            kf_events_note(self.events[0], E_RESOLVE, base_offset, <uint32_t>records, began_ns,
                           now_ns)

    cdef void note_told(self, uint64_t took, uint64_t batches) noexcept:
        kf_histogram_add_n(<kf_histogram *>self.told, took, batches)

    def commit_latency(self) -> dict[str, float]:
        """Return count, p50_us, p99_us, p999_us, max_us from a first record to its commit."""
        return quantiles(<kf_histogram *>self.samples)

    def callback_latency(self) -> dict[str, float]:
        """Return the same from the leader's answer until it is seen here; rings only.

        The stage ``callback`` of ``demo``, whose name is public. No callback is in it: how long
        those take is the stage of this name in ``profile timeline``.
        """
        return quantiles(<kf_histogram *>self.told)

    def commit_buckets(self) -> bytes:
        """Return the counts of the commits' histogram, 8 bytes a bucket (``bucket_tops``)."""
        cdef kf_histogram *h = <kf_histogram *>self.samples
        return PyBytes_FromStringAndSize(<const char *>h.buckets, sizeof(h.buckets))

    def reset_latency(self):
        """Forget the samples so far (after a warm-up)."""
        memset(self.samples, 0, sizeof(kf_histogram))
        memset(self.told, 0, sizeof(kf_histogram))
