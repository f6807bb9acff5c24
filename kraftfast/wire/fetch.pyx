"""Fetch of one topic and one partition, without copying the records.

A quorum's Fetch names one topic and one partition. For that shape the functions here go straight
between bytes and a flat object. Whatever is unusual (other shapes, unknown tags, a field that the
version lacks, a prefix above ``SCRATCH_BYTES``, malformed bytes) goes through the tables of
``messages``, which is where every error is raised; the outcome is the same, byte for byte.
Source: KIP-227, 516, 595, 853, 903, 951, 1166 by Kafka's FetchRequest.json, FetchResponse.json.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kraftfast.wire.cursor cimport (
    FRAME_BYTES_MAX, SCRATCH_BYTES, Sink, Source, Tags, begin_frame, begin_tags, bytes_of,
    compact_string_bytes, finish_frame, get_int8, get_int16, get_int32, get_int64, get_no_tags,
    get_one, get_records_bytes, get_string, get_uuid, get_uvarint, next_tag, put_int8,
    put_int16, put_int32, put_int64, put_one, put_records_bytes, put_string, put_uuid,
    put_uvarint, take,
)

from kraftfast import limits
from kraftfast.types import ZERO_UUID
from kraftfast.wire import flat, flat_fetch, frame as framing
from kraftfast.wire import tags as our_tags
from kraftfast.wire.messages import ApiKey, FetchRequest, FetchResponse

cdef enum:
    VERSION_MIN = 4
    VERSION_MAX = 18
    API_KEY = 1
    DURABILITY_TAG = 10000

cdef int64_t NOT_TOLD = 0x7FFFFFFFFFFFFFFF
assert (VERSION_MIN, VERSION_MAX) == FetchRequest.VERSIONS == FetchResponse.VERSIONS
assert FRAME_BYTES_MAX == limits.FRAME_BYTES_MAX
assert API_KEY == ApiKey.FETCH and DURABILITY_TAG == our_tags.DURABILITY


cdef class PartitionFetch:
    """A Fetch request of one partition; fields in ``fetch.pxd``, keyword arguments."""

    FIELDS = (
        "cluster_id", "replica_id", "replica_epoch", "max_wait_ms", "min_bytes", "max_bytes",
        "isolation_level", "session_id", "session_epoch", "topic", "topic_id", "partition",
        "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset",
        "partition_max_bytes", "replica_directory_id", "high_watermark", "durability",
        "observer_endpoints", "observer_kraft_versions", "rack_id",
    )

    def __init__(self, **fields):
        _reset_request(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self, int version):
        """The same as a ``messages.FetchRequest``, for ``version``."""
        state = FetchRequest.ReplicaState(replica_epoch=self.replica_epoch)
        if version >= 15:
            state.replica_id = self.replica_id
        partition = FetchRequest.Partition(
            self.partition, self.current_leader_epoch, self.fetch_offset,
            self.last_fetched_epoch, self.log_start_offset, self.partition_max_bytes,
            self.replica_directory_id, self.high_watermark, self.durability,
            self.observer_endpoints, self.observer_kraft_versions,
        )
        return FetchRequest(
            self.cluster_id, self.replica_id if version < 15 else -1, state, self.max_wait_ms,
            self.min_bytes, self.max_bytes, self.isolation_level, self.session_id,
            self.session_epoch, [FetchRequest.Topic(self.topic, self.topic_id, [partition])],
            [], self.rack_id,
        )

    @staticmethod
    def from_message(message):
        """The flat form of a ``messages.FetchRequest``, or None if it has another shape."""
        fields = flat_fetch.request_fields(message)
        return None if fields is None else PartitionFetch(**fields)


cdef class PartitionFetched:
    """A Fetch response of one partition; fields in ``fetch.pxd``, keyword arguments."""

    FIELDS = (
        "throttle_time_ms", "error_code", "session_id", "topic", "topic_id", "partition",
        "partition_error_code", "high_watermark", "last_stable_offset", "log_start_offset",
        "diverging_epoch", "diverging_end_offset", "leader_id", "leader_epoch",
        "snapshot_end_offset", "snapshot_epoch", "aborted_transactions",
        "preferred_read_replica", "records", "node_endpoints",
    )

    def __init__(self, **fields):
        _reset_response(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self):
        """The same as a ``messages.FetchResponse``."""
        partition = FetchResponse.Partition(
            self.partition, self.partition_error_code, self.high_watermark,
            self.last_stable_offset, self.log_start_offset,
            FetchResponse.DivergingEpoch(self.diverging_epoch, self.diverging_end_offset),
            FetchResponse.CurrentLeader(self.leader_id, self.leader_epoch),
            FetchResponse.SnapshotId(self.snapshot_end_offset, self.snapshot_epoch),
            self.aborted_transactions, self.preferred_read_replica, self.records,
        )
        return FetchResponse(
            self.throttle_time_ms, self.error_code, self.session_id,
            [FetchResponse.Response(self.topic, self.topic_id, [partition])],
            self.node_endpoints,
        )

    @staticmethod
    def from_message(message):
        """The flat form of a ``messages.FetchResponse``, or None if it has another shape."""
        fields = flat_fetch.response_fields(message)
        return None if fields is None else PartitionFetched(**fields)


# --- requests ---------------------------------------------------------------------------------


def decode_request(int version, frame, Py_ssize_t start):
    """The request whose body begins at ``start`` of ``frame``: a :class:`PartitionFetch`, or a
    ``messages.FetchRequest`` if it does not name exactly one partition, or forgets some.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef PartitionFetch request = PartitionFetch.__new__(PartitionFetch)
    cdef Py_buffer view
    cdef Source s
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        s.ok = VERSION_MIN <= version <= VERSION_MAX and 0 <= start <= view.len
        s.end = <const uint8_t*>view.buf + view.len
        s.at = <const uint8_t*>view.buf + start if s.ok else s.end
        _read_request(request, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        return request
    message = FetchRequest.decode(frame, version, start)
    return PartitionFetch.from_message(message) or message


def encode_request(int version, int32_t correlation_id, str client_id, PartitionFetch request):
    """A whole frame, length and header included.

    Raises :class:`UnsupportedVersion` if ``request`` holds what ``version`` cannot say and may
    not drop, :class:`UnencodableMessage` if a value does not fit its field.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    begin_frame(&s, scratch)
    try:
        put_int16(&s, API_KEY)
        put_int16(&s, <int16_t>version)
        put_int32(&s, correlation_id)
        put_string(&s, client_id, False, True)
        if version >= 12:
            put_uvarint(&s, 0)
        _write_request(request, &s, version)
    except UnicodeEncodeError:
        s.ok = False
    pieces = finish_frame(&s, scratch, 0, None, -1)
    if pieces is not None:
        return pieces[0]
    return framing.encode_request(
        API_KEY, version, correlation_id, client_id, request.to_message(version)
    )


cdef void _reset_request(PartitionFetch m) noexcept:
    m.cluster_id = None
    m.replica_id, m.replica_epoch = -1, -1
    m.max_wait_ms, m.min_bytes, m.max_bytes = 0, 0, 0x7FFFFFFF
    m.isolation_level, m.session_id, m.session_epoch = 0, 0, -1
    m.topic, m.topic_id, m.partition = "", ZERO_UUID, 0
    m.current_leader_epoch, m.fetch_offset, m.last_fetched_epoch = -1, 0, -1
    m.log_start_offset, m.partition_max_bytes = -1, 0
    m.replica_directory_id, m.high_watermark = ZERO_UUID, NOT_TOLD
    m.durability, m.rack_id = 0, ""
    m.observer_endpoints, m.observer_kraft_versions = [], []


cdef int _read_request(PartitionFetch m, Source* s, int version) except -1:
    cdef bint flexible = version >= 12
    _reset_request(m)
    if version <= 14:
        m.replica_id = get_int32(s)
    m.max_wait_ms = get_int32(s)
    m.min_bytes = get_int32(s)
    m.max_bytes = get_int32(s)
    m.isolation_level = get_int8(s)
    if version >= 7:
        m.session_id = get_int32(s)
        m.session_epoch = get_int32(s)
    get_one(s, flexible)
    if version <= 12:
        m.topic = get_string(s, flexible, False)
    else:
        m.topic_id = get_uuid(s)
    get_one(s, flexible)
    m.partition = get_int32(s)
    if version >= 9:
        m.current_leader_epoch = get_int32(s)
    m.fetch_offset = get_int64(s)
    if version >= 12:
        m.last_fetched_epoch = get_int32(s)
    if version >= 5:
        m.log_start_offset = get_int64(s)
    m.partition_max_bytes = get_int32(s)
    if flexible:
        _read_partition_tags(m, s, version)
        get_no_tags(s)  # of the topic
    if flexible and get_uvarint(s) != 1 or 7 <= version < 12 and get_int32(s) != 0:
        s.ok = False  # it forgets topics
    if version >= 11:
        m.rack_id = get_string(s, flexible, False)
    if flexible:
        _read_request_tags(m, s, version)
    return 0


cdef int _read_partition_tags(PartitionFetch m, Source* s, int version) except -1:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0 and version >= 17:
            m.replica_directory_id = get_uuid(s)
        elif tags.tag == 1 and version >= 18:
            m.high_watermark = get_int64(s)
        elif tags.tag == DURABILITY_TAG and version >= 13:
            m.durability = get_int8(s)
        else:
            s.ok = False  # unknown: the tables skip it
    return 0


cdef int _read_request_tags(PartitionFetch m, Source* s, int version) except -1:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0:
            m.cluster_id = get_string(s, True, True)
        elif tags.tag == 1 and version >= 15:
            m.replica_id = get_int32(s)
            m.replica_epoch = get_int64(s)
            get_no_tags(s)
        else:
            s.ok = False  # unknown: the tables skip it
    return 0


cdef int _write_request(PartitionFetch m, Sink* s, int version) except -1:
    cdef bint flexible = version >= 12
    if not VERSION_MIN <= version <= VERSION_MAX:
        s.ok = False
    if version < 15 and m.replica_epoch != -1 or version < 12 and m.last_fetched_epoch != -1:
        s.ok = False  # not ignorable
    if version >= 13 and (m.observer_endpoints or m.observer_kraft_versions):
        s.ok = False  # rare: for the tables
    if version <= 14:
        put_int32(s, m.replica_id)
    put_int32(s, m.max_wait_ms)
    put_int32(s, m.min_bytes)
    put_int32(s, m.max_bytes)
    _put_checked_int8(s, m.isolation_level)
    if version >= 7:
        put_int32(s, m.session_id)
        put_int32(s, m.session_epoch)
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    else:
        put_uuid(s, m.topic_id)
    put_one(s, flexible)
    put_int32(s, m.partition)
    if version >= 9:
        put_int32(s, m.current_leader_epoch)
    put_int64(s, m.fetch_offset)
    if version >= 12:
        put_int32(s, m.last_fetched_epoch)
    if version >= 5:
        put_int64(s, m.log_start_offset)
    put_int32(s, m.partition_max_bytes)
    if flexible:
        _write_partition_tags(m, s, version)
        put_uvarint(s, 0)  # tags of the topic
        put_uvarint(s, 1)  # no forgotten topics
    elif version >= 7:
        put_int32(s, 0)
    if version >= 11:
        put_string(s, m.rack_id, flexible, False)
    if flexible:
        _write_request_tags(m, s, version)
    return 0


cdef void _write_partition_tags(PartitionFetch m, Sink* s, int version) noexcept:
    cdef bint directory = version >= 17 and m.replica_directory_id != ZERO_UUID
    cdef bint high_watermark = version >= 18 and m.high_watermark != NOT_TOLD
    cdef bint durability = version >= 13 and m.durability != 0
    put_uvarint(s, directory + high_watermark + durability)
    if directory:
        put_uvarint(s, 0)
        put_uvarint(s, 16)
        put_uuid(s, m.replica_directory_id)
    if high_watermark:
        put_uvarint(s, 1)
        put_uvarint(s, 8)
        put_int64(s, m.high_watermark)
    if durability:
        put_uvarint(s, DURABILITY_TAG)
        put_uvarint(s, 1)
        _put_checked_int8(s, m.durability)


cdef int _write_request_tags(PartitionFetch m, Sink* s, int version) except -1:
    cdef bint replica = version >= 15 and (m.replica_id != -1 or m.replica_epoch != -1)
    put_uvarint(s, (m.cluster_id is not None) + replica)
    if m.cluster_id is not None:
        put_uvarint(s, 0)
        put_uvarint(s, <uint32_t>compact_string_bytes(m.cluster_id))
        put_string(s, m.cluster_id, True, True)
    if replica:
        put_uvarint(s, 1)
        put_uvarint(s, 13)
        put_int32(s, m.replica_id)
        put_int64(s, m.replica_epoch)
        put_uvarint(s, 0)
    return 0


cdef void _put_checked_int8(Sink* s, int value) noexcept:
    if not -128 <= value <= 127:
        s.ok = False
    put_int8(s, value)


# --- responses --------------------------------------------------------------------------------


def decode_response(int version, frame):
    """Correlation id and body of the response in ``frame``: a :class:`PartitionFetched`, whose
    records are a memoryview into ``frame``, or a ``messages.FetchResponse`` if it has not exactly
    one partition (an error of the whole request has none).

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef PartitionFetched response = PartitionFetched.__new__(PartitionFetched)
    cdef Py_buffer view
    cdef Source s
    cdef int32_t correlation_id
    cdef const uint8_t* base
    cdef const uint8_t* records = NULL
    cdef Py_ssize_t records_bytes = -1
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        s.at, s.end, s.ok = base, base + view.len, VERSION_MIN <= version <= VERSION_MAX
        correlation_id = get_int32(&s)
        if version >= 12:
            get_no_tags(&s)
        _read_before_records(response, &s, version, &records_bytes)
        if records_bytes >= 0:
            records = take(&s, records_bytes)
        if version >= 12:
            _read_after_records(response, &s)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        if records_bytes >= 0:
            response.records = memoryview(frame)[records - base:records - base + records_bytes]
        return correlation_id, response
    number, message = framing.decode_response(API_KEY, version, frame)
    return number, PartitionFetched.from_message(message) or message


def encode_response(int version, int32_t correlation_id, PartitionFetched response):
    """A whole frame, length and header included, as a list of one to three pieces to be sent in
    order; where there are records, the second is ``response.records`` itself.

    Raises as :func:`encode_request`.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    cdef Py_ssize_t prefix_bytes = 0, records_bytes = -1
    begin_frame(&s, scratch)
    try:
        records_bytes = bytes_of(response.records)
        put_int32(&s, correlation_id)
        if version >= 12:
            put_uvarint(&s, 0)
        _write_before_records(response, &s, version, records_bytes)
        prefix_bytes = s.at - scratch
        if version >= 12:
            _write_after_records(response, &s)
    except (UnicodeEncodeError, TypeError, BufferError):
        s.ok = False
    pieces = finish_frame(&s, scratch, prefix_bytes, response.records, records_bytes)
    if pieces is not None:
        return pieces
    return framing.response_pieces(API_KEY, version, correlation_id, response.to_message())


cdef void _reset_response(PartitionFetched m) noexcept:
    m.throttle_time_ms, m.error_code, m.session_id = 0, 0, 0
    m.topic, m.topic_id, m.partition, m.partition_error_code = "", ZERO_UUID, 0, 0
    m.high_watermark, m.last_stable_offset, m.log_start_offset = 0, -1, -1
    m.diverging_epoch, m.diverging_end_offset = -1, -1
    m.leader_id, m.leader_epoch = -1, -1
    m.snapshot_end_offset, m.snapshot_epoch = -1, -1
    m.aborted_transactions, m.preferred_read_replica = [], -1
    m.records, m.node_endpoints = None, []


cdef int _read_before_records(
    PartitionFetched m, Source* s, int version, Py_ssize_t* records_bytes
) except -1:
    cdef bint flexible = version >= 12
    cdef int64_t aborted
    _reset_response(m)
    m.throttle_time_ms = get_int32(s)
    if version >= 7:
        m.error_code = get_int16(s)
        m.session_id = get_int32(s)
    get_one(s, flexible)
    if version <= 12:
        m.topic = get_string(s, flexible, False)
    else:
        m.topic_id = get_uuid(s)
    get_one(s, flexible)
    m.partition = get_int32(s)
    m.partition_error_code = get_int16(s)
    m.high_watermark = get_int64(s)
    m.last_stable_offset = get_int64(s)
    if version >= 5:
        m.log_start_offset = get_int64(s)
    aborted = <int64_t>get_uvarint(s) - 1 if flexible else get_int32(s)
    if aborted == -1:
        m.aborted_transactions = None
    elif aborted != 0:
        s.ok = False
    if version >= 11:
        m.preferred_read_replica = get_int32(s)
    records_bytes[0] = get_records_bytes(s, flexible)
    return 0


cdef void _read_after_records(PartitionFetched m, Source* s) noexcept:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0:
            m.diverging_epoch = get_int32(s)
            m.diverging_end_offset = get_int64(s)
        elif tags.tag == 1:
            m.leader_id = get_int32(s)
            m.leader_epoch = get_int32(s)
        elif tags.tag == 2:
            m.snapshot_end_offset = get_int64(s)
            m.snapshot_epoch = get_int32(s)
        else:
            s.ok = False  # unknown: the tables skip it
        get_no_tags(s)
    get_no_tags(s)  # of the topic
    get_no_tags(s)  # of the response: node endpoints are for the tables


cdef int _write_before_records(
    PartitionFetched m, Sink* s, int version, Py_ssize_t records_bytes
) except -1:
    cdef bint flexible = version >= 12
    if version < 7 and m.session_id != 0 or version < 11 and m.preferred_read_replica != -1:
        s.ok = False  # not ignorable
    if not VERSION_MIN <= version <= VERSION_MAX or m.aborted_transactions:
        s.ok = False
    if m.node_endpoints is None or m.node_endpoints:
        s.ok = False
    if version < 12 and (m.diverging_epoch != -1 or m.diverging_end_offset != -1):
        s.ok = False
    if version < 12 and (m.leader_id != -1 or m.leader_epoch != -1):
        s.ok = False
    if version < 12 and (m.snapshot_end_offset != -1 or m.snapshot_epoch != -1):
        s.ok = False
    put_int32(s, m.throttle_time_ms)
    if version >= 7:
        put_int16(s, m.error_code)
        put_int32(s, m.session_id)
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    else:
        put_uuid(s, m.topic_id)
    put_one(s, flexible)
    put_int32(s, m.partition)
    put_int16(s, m.partition_error_code)
    put_int64(s, m.high_watermark)
    put_int64(s, m.last_stable_offset)
    if version >= 5:
        put_int64(s, m.log_start_offset)
    if flexible:
        put_uvarint(s, m.aborted_transactions is not None)
    else:
        put_int32(s, -1 if m.aborted_transactions is None else 0)
    if version >= 11:
        put_int32(s, m.preferred_read_replica)
    put_records_bytes(s, records_bytes, flexible)
    return 0


cdef void _write_after_records(PartitionFetched m, Sink* s) noexcept:
    cdef bint diverging = m.diverging_epoch != -1 or m.diverging_end_offset != -1
    cdef bint leader = m.leader_id != -1 or m.leader_epoch != -1
    cdef bint snapshot = m.snapshot_end_offset != -1 or m.snapshot_epoch != -1
    put_uvarint(s, diverging + leader + snapshot)
    if diverging:
        put_uvarint(s, 0)
        put_uvarint(s, 13)
        put_int32(s, m.diverging_epoch)
        put_int64(s, m.diverging_end_offset)
        put_uvarint(s, 0)
    if leader:
        put_uvarint(s, 1)
        put_uvarint(s, 9)
        put_int32(s, m.leader_id)
        put_int32(s, m.leader_epoch)
        put_uvarint(s, 0)
    if snapshot:
        put_uvarint(s, 2)
        put_uvarint(s, 13)
        put_int64(s, m.snapshot_end_offset)
        put_int32(s, m.snapshot_epoch)
        put_uvarint(s, 0)
    put_uvarint(s, 0)  # tags of the topic
    put_uvarint(s, 0)  # tags of the response
