"""How long a sender's batches took: see latency.pyx."""

from libc.stdint cimport uint64_t


cdef class Latencies:
    cdef void *samples                      # kf_histogram: a batch's first record to its commit
    cdef void *told                         # kf_histogram: from the leader's answer to here
    cdef void *own_samples                  # what this one allocated, and frees
    cdef void *own_told
    cdef Latencies shared                   # whose histograms are counted into, or None: its own

    # The commit of a batch whose first record was handed over `took` ns ago.
    cdef void note_commit(self, uint64_t took) noexcept
    # The leader's answer to these batches was `took` ns on its way.
    cdef void note_told(self, uint64_t took, uint64_t batches) noexcept
