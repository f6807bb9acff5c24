"""The log of one replica: segments, the ends that the core reasons about, and what is on disk."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftfast.log.idempotence.producers cimport Producers
from kraftfast.log.segment cimport Segment, kf_flush_job, kf_stage
from kraftfast.record.judge cimport kf_batch_header


cdef class Log:
    cdef readonly object disk
    cdef readonly str path                # the directory of the segments
    cdef readonly object nursery
    cdef readonly list segments           # oldest first; the last one is active
    cdef readonly Segment active
    cdef readonly int64_t log_start_offset     # 0, or where a snapshot ends
    cdef readonly int32_t start_epoch     # of the record before it; 0 if there never was one
    cdef readonly int64_t end_offset      # exclusive
    cdef readonly int64_t flushed_end_offset   # <= end_offset; below it everything is on disk (D1)
    cdef readonly int32_t last_epoch      # of the last batch; 0 if there never was one
    cdef readonly uint64_t truncations    # D2: raised by every cut
    cdef readonly list epochs             # [(epoch, start offset)], as in leader-epoch-checkpoint
    cdef readonly uint64_t bytes_appended  # ever, by this process
    cdef readonly uint64_t control_batches  # likewise, appended or copied
    cdef readonly int fault               # why the last batch was not taken (cext/batch.h)
    cdef readonly int refusal             # Kafka's code: why its producer may not append it; 0: may
    cdef readonly Producers producers     # the idempotent ones, as of end_offset
    cdef readonly object failed           # what ended this log: a FlushFailed (D9), a write's error
    cdef readonly int64_t segment_bytes   # a segment rolls before it holds more, but for one batch
    cdef readonly int64_t segment_ms
    cdef readonly object durable_end      # OffsetAndEpoch of the last clean close: no tear below it
    cdef public object directory_fd       # flushed with the segments while names are not durable
    cdef bint names_dirty
    cdef int64_t flush_target             # of the flush at hand
    cdef uint64_t flush_truncations
    cdef list flush_segments              # [(segment, position, end offset, epoch, voucher)]
    cdef readonly object space_error      # the DiskFull that keeps a new epoch waiting, or None
    cdef int64_t now_ms                   # when the log was tended last
    cdef int64_t active_since_ms          # when the active segment became that, by the same clock
    cdef int64_t retry_ms                 # no new epoch before, after a full disk
    cdef readonly object trims            # of rolled segments, a step at a time
    cdef readonly uint64_t syncs          # of files and names, but for the flushes of batches
    cdef readonly str checkpoint_path
    cdef bint writes                      # whether all batches are written
    cdef kf_stage staged                  # where batches are put together to be written
    cdef kf_stage *stage                  # it, or NULL: they are stored through the map

    cdef int make_room(self, uint32_t size, int64_t timestamp, int32_t epoch) except -1
    cdef int append_batch(self, const uint8_t *source, size_t available, int32_t epoch,
                          bint control=*, bint unseen=*) except -1
    cdef int64_t copy_fetched(self, const uint8_t *source, size_t available, int32_t epoch_max,
                              const uint8_t *page, uint64_t generation) except -1
    cdef int accept(self, uint8_t *dst, uint8_t *header, kf_batch_header *h, int64_t base_offset,
                    int32_t epoch) except -1
    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset, uint32_t size) except -1
    cdef uint8_t *place(self, uint32_t size) noexcept
    cdef int store(self, uint32_t size) except -1
    cdef int go_on_in(self, Segment segment) except -1
    cdef int scrub(self) except -1
    cdef int fill_flush(self, kf_flush_job *job) except -1
    cdef int flush_done(self, int error) except -1
