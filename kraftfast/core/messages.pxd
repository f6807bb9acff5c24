"""Field types of the messages for compiled code: 64-bit numbers, booleans, tuples."""


cdef class FetchRequest:
    cdef public long long epoch
    cdef public object replica
    cdef public long long fetch_offset
    cdef public long long last_fetched_epoch
    cdef public long long high_watermark
    cdef public long long max_wait_ms
    cdef public long long max_bytes
    cdef public long long stream
    cdef public bint opens
    cdef public long long copied_end_offset
    cdef public bint in_memory
    cdef public str cluster_id
    cdef public bint partition_known
    cdef public tuple observer_endpoints
    cdef public tuple observer_kraft_versions


cdef class FetchResponse:
    cdef public object error
    cdef public object partition_error
    cdef public long long leader_id
    cdef public long long leader_epoch
    cdef public long long high_watermark
    cdef public long long log_start_offset
    cdef public object diverging
    cdef public object snapshot_id
    cdef public tuple leader_endpoints
    cdef public object leader_identity
    cdef public long long stream
    cdef public long long records_bytes
