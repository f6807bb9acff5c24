# Made by tools/flat_files.py from the tables of messages.py: make generate.
"""Fetch of one topic and one partition, flattened."""

from libc.stdint cimport int16_t, int32_t, int64_t


cdef class PartitionFetch:
    cdef public str cluster_id  # v12+
    cdef public int32_t replica_id  # -1: a consumer
    cdef public int64_t replica_epoch  # of a broker's registration, -1: none; v15+
    cdef public int32_t max_wait_ms
    cdef public int32_t min_bytes
    cdef public int32_t max_bytes
    cdef public int isolation_level  # 0 read uncommitted, 1 read committed
    cdef public int32_t session_id  # v7+
    cdef public int32_t session_epoch  # v7+
    cdef public str topic  # up to v12
    cdef public bytes topic_id  # v13+
    cdef public int32_t partition
    cdef public int32_t current_leader_epoch  # -1: not told; v9+
    cdef public int64_t fetch_offset  # of a voter: the end of what it has flushed (D3)
    cdef public int32_t last_fetched_epoch  # -1: not told; v12+
    cdef public int64_t log_start_offset  # v5+
    cdef public int32_t partition_max_bytes
    cdef public bytes replica_directory_id  # zero: not told; v17+
    cdef public int64_t high_watermark  # in a request: what the asker knows; 2**63 - 1: none; v18+
    cdef public int durability  # 0: on disk, 1: in memory only; v13+
    cdef public list observer_endpoints  # where it could be a voter; v13+
    cdef public list observer_kraft_versions  # likewise: least and most; v13+
    cdef public str rack_id  # v11+

    cpdef object to_message(self, int version)


cdef class PartitionFetched:
    cdef public int32_t throttle_time_ms
    cdef public int16_t error_code  # v7+
    cdef public int32_t session_id  # v7+
    cdef public str topic  # up to v12
    cdef public bytes topic_id  # v13+
    cdef public int32_t partition
    cdef public int16_t partition_error_code
    cdef public int64_t high_watermark  # in a request: what the asker knows; 2**63 - 1: none
    cdef public int64_t last_stable_offset
    cdef public int64_t log_start_offset  # v5+
    cdef public int32_t diverging_epoch  # -1 with diverging_end_offset -1: not diverging; v12+
    cdef public int64_t diverging_end_offset  # v12+
    cdef public int32_t leader_id  # -1 with leader_epoch -1: not told; v12+
    cdef public int32_t leader_epoch  # v12+
    cdef public int64_t snapshot_end_offset  # -1 with snapshot_epoch -1: no snapshot; v12+
    cdef public int32_t snapshot_epoch  # v12+
    cdef public list aborted_transactions
    cdef public int32_t preferred_read_replica  # v11+
    cdef public object records  # a bytes-like object, or None; decoded: a view into the frame
    cdef public list node_endpoints  # v16+

    cpdef object to_message(self)
