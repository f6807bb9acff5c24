"""How long a sender's batches took: see latency.pyx."""

from libc.stdint cimport int64_t, uint64_t

from kraftfast.link.timed_events cimport Events, kf_events


cdef class Latencies:
    cdef void *samples                      # kf_histogram: a batch's first record to its commit
    cdef void *told                         # kf_histogram: from the leader's answer to here
    cdef void *own_samples                  # what this one allocated, and frees
    cdef void *own_told
    cdef Events recorder                    # of events, made for their first reader; None before
    cdef kf_events *own_events              # its ring, or NULL
    cdef kf_events **events                 # where the pointer to the ring in use is kept
    cdef Latencies shared                   # whose histograms are counted into, or None: its own

    # The commit of a batch whose first record was handed over at `began_ns`.
    cdef void note_commit(self, int64_t base_offset, int64_t records, uint64_t began_ns,
                          uint64_t now_ns) noexcept
    # The leader's answer to these batches was `took` ns on its way.
    cdef void note_told(self, uint64_t took, uint64_t batches) noexcept
