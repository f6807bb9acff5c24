# Made by tools/flat_files.py from the tables of messages.py: make generate.
"""Fetch of one topic and one partition, without copying the records.

A quorum's Fetch names one topic and one partition. For that shape the functions here go straight
between bytes and a flat object. Whatever is unusual (other shapes, unknown tags, a field that the
version lacks, a prefix above ``SCRATCH_BYTES``, malformed bytes) goes through the tables of
``messages``, which is where every error is raised; the outcome is the same, byte for byte.
Source: KIP-227, 516, 595, 853, 903, 951, 1166 by Kafka's FetchRequest.json, FetchResponse.json.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t

from kraftfast.wire.cursor cimport (
    FRAME_BYTES_MAX, SCRATCH_BYTES, Sink, Source, Tags, begin_frame, begin_tags, bytes_of,
    compact_string_bytes, finish_frame, get_int16, get_int32, get_int64, get_int8, get_no_tags,
    get_nothing, get_null, get_one, get_records_bytes, get_string, get_uuid, next_tag,
    put_checked_int8, put_int16, put_int32, put_int64, put_nothing, put_one, put_records_bytes,
    put_string, put_uuid, put_uvarint, take,
)

from kraftfast import limits
from kraftfast.types import ZERO_UUID
from kraftfast.wire import flat, frame as framing, messages
from kraftfast.wire.messages import ApiKey

cdef enum:
    VERSION_MIN = 4
    VERSION_MAX = 18
    API_KEY = 1

assert (VERSION_MIN, VERSION_MAX) == messages.SERVED[API_KEY]
assert FRAME_BYTES_MAX == limits.FRAME_BYTES_MAX
assert API_KEY == ApiKey.FETCH


cdef class PartitionFetch:
    """A Fetch request of one partition, by keyword arguments."""

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
        """Return the same as a ``messages.FetchRequest``, for ``version``."""
        return messages.FetchRequest(
            cluster_id=self.cluster_id,
            replica_id=self.replica_id if version <= 14 else -1,
            replica_state=messages.FetchRequest.ReplicaState(
                replica_id=self.replica_id if version >= 15 else -1,
                replica_epoch=self.replica_epoch,
            ),
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[messages.FetchRequest.Topic(
                topic=self.topic,
                topic_id=self.topic_id,
                partitions=[messages.FetchRequest.Partition(
                    partition=self.partition,
                    current_leader_epoch=self.current_leader_epoch,
                    fetch_offset=self.fetch_offset,
                    last_fetched_epoch=self.last_fetched_epoch,
                    log_start_offset=self.log_start_offset,
                    partition_max_bytes=self.partition_max_bytes,
                    replica_directory_id=self.replica_directory_id,
                    high_watermark=self.high_watermark,
                    durability=self.durability,
                    observer_endpoints=self.observer_endpoints,
                    observer_kraft_versions=self.observer_kraft_versions,
                )],
            )],
            rack_id=self.rack_id,
        )

    @staticmethod
    def from_message(message):
        """Return the flat form of a ``messages.FetchRequest``; None for another shape."""
        sole = flat.sole_partition(message.topics, "partitions")
        if sole is None or message.forgotten_topics_data:
            return None
        topic, p = sole
        return PartitionFetch(
            cluster_id=message.cluster_id,
            replica_id=(
                message.replica_state.replica_id if message.replica_state.replica_id != -1
                else message.replica_id
            ),
            replica_epoch=message.replica_state.replica_epoch,
            max_wait_ms=message.max_wait_ms,
            min_bytes=message.min_bytes,
            max_bytes=message.max_bytes,
            isolation_level=message.isolation_level,
            session_id=message.session_id,
            session_epoch=message.session_epoch,
            topic=topic.topic,
            topic_id=topic.topic_id,
            partition=p.partition,
            current_leader_epoch=p.current_leader_epoch,
            fetch_offset=p.fetch_offset,
            last_fetched_epoch=p.last_fetched_epoch,
            log_start_offset=p.log_start_offset,
            partition_max_bytes=p.partition_max_bytes,
            replica_directory_id=p.replica_directory_id,
            high_watermark=p.high_watermark,
            durability=p.durability,
            observer_endpoints=p.observer_endpoints,
            observer_kraft_versions=p.observer_kraft_versions,
            rack_id=message.rack_id,
        )


cdef class PartitionFetched:
    """A Fetch response of one partition, by keyword arguments."""

    FIELDS = (
        "throttle_time_ms", "error_code", "session_id", "topic", "topic_id", "partition",
        "partition_error_code", "high_watermark", "last_stable_offset", "log_start_offset",
        "diverging_epoch", "diverging_end_offset", "leader_id", "leader_epoch",
        "snapshot_end_offset", "snapshot_epoch", "aborted_transactions", "preferred_read_replica",
        "records", "node_endpoints",
    )

    def __init__(self, **fields):
        _reset_response(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self):
        """Return the same as a ``messages.FetchResponse``."""
        return messages.FetchResponse(
            throttle_time_ms=self.throttle_time_ms,
            error_code=self.error_code,
            session_id=self.session_id,
            responses=[messages.FetchResponse.Response(
                topic=self.topic,
                topic_id=self.topic_id,
                partitions=[messages.FetchResponse.Partition(
                    partition_index=self.partition,
                    error_code=self.partition_error_code,
                    high_watermark=self.high_watermark,
                    last_stable_offset=self.last_stable_offset,
                    log_start_offset=self.log_start_offset,
                    diverging_epoch=messages.FetchResponse.DivergingEpoch(
                        epoch=self.diverging_epoch,
                        end_offset=self.diverging_end_offset,
                    ),
                    current_leader=messages.FetchResponse.CurrentLeader(
                        leader_id=self.leader_id,
                        leader_epoch=self.leader_epoch,
                    ),
                    snapshot_id=messages.FetchResponse.SnapshotId(
                        end_offset=self.snapshot_end_offset,
                        epoch=self.snapshot_epoch,
                    ),
                    aborted_transactions=self.aborted_transactions,
                    preferred_read_replica=self.preferred_read_replica,
                    records=self.records,
                )],
            )],
            node_endpoints=self.node_endpoints,
        )

    @staticmethod
    def from_message(message):
        """Return the flat form of a ``messages.FetchResponse``; None for another shape."""
        sole = flat.sole_partition(message.responses, "partitions")
        if sole is None:
            return None
        topic, p = sole
        return PartitionFetched(
            throttle_time_ms=message.throttle_time_ms,
            error_code=message.error_code,
            session_id=message.session_id,
            topic=topic.topic,
            topic_id=topic.topic_id,
            partition=p.partition_index,
            partition_error_code=p.error_code,
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            diverging_epoch=p.diverging_epoch.epoch,
            diverging_end_offset=p.diverging_epoch.end_offset,
            leader_id=p.current_leader.leader_id,
            leader_epoch=p.current_leader.leader_epoch,
            snapshot_end_offset=p.snapshot_id.end_offset,
            snapshot_epoch=p.snapshot_id.epoch,
            aborted_transactions=p.aborted_transactions,
            preferred_read_replica=p.preferred_read_replica,
            records=p.records,
            node_endpoints=message.node_endpoints,
        )


# --- requests ---


def decode_request(int version, frame, Py_ssize_t start):
    """Return the request that begins at ``start`` of ``frame``: a :class:`PartitionFetch`, or a
    ``messages.FetchRequest`` if it has another shape.

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
    message = messages.FetchRequest.decode(frame, version, start)
    return PartitionFetch.from_message(message) or message


def encode_request(int version, int32_t correlation_id, str client_id, PartitionFetch request):
    """Return a whole frame, length and header included.

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
    m.replica_id = -1
    m.replica_epoch = -1
    m.max_wait_ms = 0
    m.min_bytes = 0
    m.max_bytes = 0x7FFFFFFF
    m.isolation_level = 0
    m.session_id = 0
    m.session_epoch = -1
    m.topic = ''
    m.topic_id = ZERO_UUID
    m.partition = 0
    m.current_leader_epoch = -1
    m.fetch_offset = 0
    m.last_fetched_epoch = -1
    m.log_start_offset = -1
    m.partition_max_bytes = 0
    m.replica_directory_id = ZERO_UUID
    m.high_watermark = 0x7FFFFFFFFFFFFFFF
    m.durability = 0
    m.observer_endpoints = []
    m.observer_kraft_versions = []
    m.rack_id = ''


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
    if version >= 13:
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
        _read_request_partition_tags(m, s, version)
        get_no_tags(s)  # of the topic
    if version >= 7:
        get_nothing(s, flexible)
    if version >= 11:
        m.rack_id = get_string(s, flexible, False)
    if flexible:
        _read_request_tags(m, s, version)
    return 0


cdef int _write_request(PartitionFetch m, Sink* s, int version) except -1:
    cdef bint flexible = version >= 12
    if not VERSION_MIN <= version <= VERSION_MAX:
        s.ok = False
    if m.observer_endpoints is None or m.observer_endpoints:
        s.ok = False
    if m.observer_kraft_versions is None or m.observer_kraft_versions:
        s.ok = False
    if version < 15 and m.replica_epoch != -1:
        s.ok = False
    if version < 12 and m.last_fetched_epoch != -1:
        s.ok = False
    if version <= 14:
        put_int32(s, m.replica_id)
    put_int32(s, m.max_wait_ms)
    put_int32(s, m.min_bytes)
    put_int32(s, m.max_bytes)
    put_checked_int8(s, m.isolation_level)
    if version >= 7:
        put_int32(s, m.session_id)
        put_int32(s, m.session_epoch)
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    if version >= 13:
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
        _write_request_partition_tags(m, s, version)
        put_uvarint(s, 0)  # tags of the topic
    if version >= 7:
        put_nothing(s, False, flexible)
    if version >= 11:
        put_string(s, m.rack_id, flexible, False)
    if flexible:
        _write_request_tags(m, s, version)
    return 0


cdef int _read_request_partition_tags(PartitionFetch m, Source* s, int version) except -1:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0 and version >= 17:
            m.replica_directory_id = get_uuid(s)
        elif tags.tag == 1 and version >= 18:
            m.high_watermark = get_int64(s)
        elif tags.tag == 10000 and version >= 13:
            m.durability = get_int8(s)
        else:
            s.ok = False  # for the tables
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
            s.ok = False  # for the tables
    return 0


cdef int _write_request_partition_tags(PartitionFetch m, Sink* s, int version) except -1:
    cdef bint has_replica_directory_id = version >= 17 and m.replica_directory_id != ZERO_UUID
    cdef bint has_high_watermark = version >= 18 and m.high_watermark != 0x7FFFFFFFFFFFFFFF
    cdef bint has_durability = version >= 13 and m.durability != 0
    put_uvarint(s, has_replica_directory_id + has_high_watermark + has_durability)
    if has_replica_directory_id:
        put_uvarint(s, 0)
        put_uvarint(s, 16)
        put_uuid(s, m.replica_directory_id)
    if has_high_watermark:
        put_uvarint(s, 1)
        put_uvarint(s, 8)
        put_int64(s, m.high_watermark)
    if has_durability:
        put_uvarint(s, 10000)
        put_uvarint(s, 1)
        put_checked_int8(s, m.durability)
    return 0


cdef int _write_request_tags(PartitionFetch m, Sink* s, int version) except -1:
    cdef bint has_cluster_id = m.cluster_id is not None
    cdef bint has_replica_state = version >= 15 and (m.replica_id != -1 or m.replica_epoch != -1)
    put_uvarint(s, has_cluster_id + has_replica_state)
    if has_cluster_id:
        put_uvarint(s, 0)
        put_uvarint(s, <uint32_t>compact_string_bytes(m.cluster_id))
        put_string(s, m.cluster_id, True, True)
    if has_replica_state:
        put_uvarint(s, 1)
        put_uvarint(s, 13)
        put_int32(s, m.replica_id)
        put_int64(s, m.replica_epoch)
        put_uvarint(s, 0)
    return 0


# --- responses ---


def decode_response(int version, frame):
    """Correlation id and body of the response in ``frame``: a :class:`PartitionFetched`, whose
    records are a memoryview into ``frame``, or a ``messages.FetchResponse`` if it has
    another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef PartitionFetched response = PartitionFetched.__new__(PartitionFetched)
    cdef Py_buffer view
    cdef Source s
    cdef int32_t correlation_id = 0
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
        _read_response(response, &s, version, &records_bytes)
        if records_bytes >= 0:
            records = take(&s, records_bytes)
        if version >= 12:
            _read_response_end(response, &s, version)
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
    """Return a whole frame, length and header too, as a list of one to three pieces to be sent in
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
        _write_response(response, &s, version, records_bytes)
        prefix_bytes = s.at - scratch
        if version >= 12:
            _write_response_end(response, &s, version)
    except (UnicodeEncodeError, TypeError, BufferError):
        s.ok = False
    pieces = finish_frame(&s, scratch, prefix_bytes, response.records, records_bytes)
    if pieces is not None:
        return pieces
    return framing.response_pieces(
        API_KEY, version, correlation_id, response.to_message()
    )


cdef void _reset_response(PartitionFetched m) noexcept:
    m.throttle_time_ms = 0
    m.error_code = 0
    m.session_id = 0
    m.topic = ''
    m.topic_id = ZERO_UUID
    m.partition = 0
    m.partition_error_code = 0
    m.high_watermark = 0
    m.last_stable_offset = -1
    m.log_start_offset = -1
    m.diverging_epoch = -1
    m.diverging_end_offset = -1
    m.leader_id = -1
    m.leader_epoch = -1
    m.snapshot_end_offset = -1
    m.snapshot_epoch = -1
    m.aborted_transactions = []
    m.preferred_read_replica = -1
    m.records = None
    m.node_endpoints = []


cdef int _read_response(
    PartitionFetched m, Source* s, int version, Py_ssize_t* records_bytes
) except -1:
    cdef bint flexible = version >= 12
    _reset_response(m)
    m.throttle_time_ms = get_int32(s)
    if version >= 7:
        m.error_code = get_int16(s)
        m.session_id = get_int32(s)
    get_one(s, flexible)
    if version <= 12:
        m.topic = get_string(s, flexible, False)
    if version >= 13:
        m.topic_id = get_uuid(s)
    get_one(s, flexible)
    m.partition = get_int32(s)
    m.partition_error_code = get_int16(s)
    m.high_watermark = get_int64(s)
    m.last_stable_offset = get_int64(s)
    if version >= 5:
        m.log_start_offset = get_int64(s)
    if get_null(s, flexible):
        m.aborted_transactions = None
    if version >= 11:
        m.preferred_read_replica = get_int32(s)
    records_bytes[0] = get_records_bytes(s, flexible)
    return 0


cdef int _read_response_end(PartitionFetched m, Source* s, int version) except -1:
    _read_response_partition_tags(m, s, version)
    get_no_tags(s)  # of the topic
    get_no_tags(s)  # of the response
    return 0


cdef int _write_response(
    PartitionFetched m, Sink* s, int version, Py_ssize_t records_bytes
) except -1:
    cdef bint flexible = version >= 12
    if not VERSION_MIN <= version <= VERSION_MAX:
        s.ok = False
    if m.aborted_transactions:
        s.ok = False
    if m.node_endpoints is None or m.node_endpoints:
        s.ok = False
    if version < 7 and m.session_id != 0:
        s.ok = False
    if version < 12 and m.diverging_epoch != -1:
        s.ok = False
    if version < 12 and m.diverging_end_offset != -1:
        s.ok = False
    if version < 12 and m.leader_id != -1:
        s.ok = False
    if version < 12 and m.leader_epoch != -1:
        s.ok = False
    if version < 12 and m.snapshot_end_offset != -1:
        s.ok = False
    if version < 12 and m.snapshot_epoch != -1:
        s.ok = False
    if version < 11 and m.preferred_read_replica != -1:
        s.ok = False
    put_int32(s, m.throttle_time_ms)
    if version >= 7:
        put_int16(s, m.error_code)
        put_int32(s, m.session_id)
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    if version >= 13:
        put_uuid(s, m.topic_id)
    put_one(s, flexible)
    put_int32(s, m.partition)
    put_int16(s, m.partition_error_code)
    put_int64(s, m.high_watermark)
    put_int64(s, m.last_stable_offset)
    if version >= 5:
        put_int64(s, m.log_start_offset)
    put_nothing(s, m.aborted_transactions is None, flexible)
    if version >= 11:
        put_int32(s, m.preferred_read_replica)
    put_records_bytes(s, records_bytes, flexible)
    return 0


cdef int _write_response_end(PartitionFetched m, Sink* s, int version) except -1:
    _write_response_partition_tags(m, s, version)
    put_uvarint(s, 0)  # tags of the topic
    put_uvarint(s, 0)  # tags of the response
    return 0


cdef int _read_response_partition_tags(PartitionFetched m, Source* s, int version) except -1:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0:
            m.diverging_epoch = get_int32(s)
            m.diverging_end_offset = get_int64(s)
            get_no_tags(s)
        elif tags.tag == 1:
            m.leader_id = get_int32(s)
            m.leader_epoch = get_int32(s)
            get_no_tags(s)
        elif tags.tag == 2:
            m.snapshot_end_offset = get_int64(s)
            m.snapshot_epoch = get_int32(s)
            get_no_tags(s)
        else:
            s.ok = False  # for the tables
    return 0


cdef int _write_response_partition_tags(PartitionFetched m, Sink* s, int version) except -1:
    cdef bint has_diverging_epoch = m.diverging_epoch != -1 or m.diverging_end_offset != -1
    cdef bint has_current_leader = m.leader_id != -1 or m.leader_epoch != -1
    cdef bint has_snapshot_id = m.snapshot_end_offset != -1 or m.snapshot_epoch != -1
    put_uvarint(s, has_diverging_epoch + has_current_leader + has_snapshot_id)
    if has_diverging_epoch:
        put_uvarint(s, 0)
        put_uvarint(s, 13)
        put_int32(s, m.diverging_epoch)
        put_int64(s, m.diverging_end_offset)
        put_uvarint(s, 0)
    if has_current_leader:
        put_uvarint(s, 1)
        put_uvarint(s, 9)
        put_int32(s, m.leader_id)
        put_int32(s, m.leader_epoch)
        put_uvarint(s, 0)
    if has_snapshot_id:
        put_uvarint(s, 2)
        put_uvarint(s, 13)
        put_int64(s, m.snapshot_end_offset)
        put_int32(s, m.snapshot_epoch)
        put_uvarint(s, 0)
    return 0
