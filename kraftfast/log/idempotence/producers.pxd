"""What the log knows of idempotent producers, for compiled code. See ``producers.pyx``."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kraftfast.log.idempotence.producer_entry cimport ProducerEntry
from kraftfast.record.judge cimport kf_batch_header


cdef class Producers:
    cdef readonly int producers_max
    cdef readonly int64_t original_offset  # of the duplicate that `check` met; -1: forgotten
    cdef readonly int64_t original_end     # it is committed once everything below this is
    cdef readonly int64_t origin_offset    # batches below are in what was loaded
    cdef bytes origin                      # the state there, encoded
    cdef dict by_id                        # of ProducerEntry
    cdef object nameless, named_ones       # OrderedDicts of them, each by touched_offset
    cdef dict by_name                      # those that have a name
    cdef ProducerEntry newest                   # touched last, or None
    cdef readonly object forgotten         # Forgotten
    cdef list marks                        # [(offset, state)]: of segments, snapshots; rising

    # Kafka's error code for a batch that is to be appended now; 0: none.
    # `epoch`: of the leader that asks.
    cdef int check(self, const kf_batch_header *h, int32_t epoch) except -1
    # A batch stands in the log, `size` bytes at `batch`.
    cdef int note(self, const kf_batch_header *h, int64_t base_offset,
                  const uint8_t *batch) except -1
    cdef int note_records(self, const kf_batch_header *h, int64_t base_offset) except -1
    cdef ProducerEntry touch(self, int64_t id, int64_t offset)
    cdef int note_name(self, int64_t id, int16_t epoch, bint resumes, str name,
                       int64_t offset) except -1
    cdef int expire(self) except -1
    cdef int forget(self, ProducerEntry producer) except -1
    cdef int drop(self, ProducerEntry producer) except -1
    cdef int take_all(self, list producers) except -1
    cdef list by_touch(self)
