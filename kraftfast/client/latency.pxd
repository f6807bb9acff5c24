"""How long a sender's batches took: see latency.pyx."""

from libc.stdint cimport uint64_t


cdef class Latencies:
    cdef void *samples                      # kf_histogram: a batch's first record to its commit
    cdef void *told                         # kf_histogram: from the leader's answer to here

    # The commit of a batch whose first record was handed over `took` ns ago.
    cdef void note_commit(self, uint64_t took) noexcept
    # The leader answered these batches then.
    cdef void note_told(self, uint64_t sent_ns, uint64_t batches) noexcept
