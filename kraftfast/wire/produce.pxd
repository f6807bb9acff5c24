# Made by tools/flat_files.py from the tables of messages.py: make generate.
"""Produce of one topic and one partition, flattened."""

from libc.stdint cimport int16_t, int32_t, int64_t


cdef class PartitionProduce:
    cdef public str transactional_id
    cdef public int16_t acks  # -1 all in-sync replicas, 1 the leader, 0 no answer at all
    cdef public int32_t timeout_ms
    cdef public str topic  # up to v12
    cdef public bytes topic_id  # v13+
    cdef public int32_t partition
    cdef public object records  # a bytes-like object, or None; decoded: a view into the frame

    cpdef object to_message(self)


cdef class PartitionProduced:
    cdef public str topic  # up to v12
    cdef public bytes topic_id  # v13+
    cdef public int32_t partition
    cdef public int16_t error_code
    cdef public int64_t base_offset
    cdef public int64_t log_append_time_ms  # -1: the records keep the producer's times
    cdef public int64_t log_start_offset  # v5+
    cdef public list record_errors  # v8+
    cdef public str error_message  # v8+
    cdef public int32_t leader_id  # -1 with leader_epoch -1: not told; v10+
    cdef public int32_t leader_epoch  # v10+
    cdef public int32_t throttle_time_ms
    cdef public list node_endpoints  # v10+

    cpdef object to_message(self)
