# Made by tools/flat_files.py from the tables of messages.py: make generate.
"""Produce of one topic and one partition, without copying the records.

A quorum's Produce names one topic and one partition. For that shape the functions here go straight
between bytes and a flat object. Whatever is unusual (other shapes, unknown tags, a field that the
version lacks, a prefix above ``SCRATCH_BYTES``, malformed bytes) goes through the tables of
``messages``, which is where every error is raised; the outcome is the same, byte for byte.
Source: KIP-98, 467, 482, 516, 951 by Kafka's ProduceRequest.json, ProduceResponse.json.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, uint8_t

from kraftfast.wire.cursor cimport (
    FRAME_BYTES_MAX, SCRATCH_BYTES, Sink, Source, Tags, begin_frame, begin_tags, bytes_of,
    finish_frame, get_int16, get_int32, get_int64, get_no_tags, get_nothing, get_one,
    get_records_bytes, get_string, get_uuid, next_tag, put_int16, put_int32, put_int64, put_nothing,
    put_one, put_records_bytes, put_string, put_uuid, put_uvarint, take,
)

from kraftfast import limits
from kraftfast.types import ZERO_UUID
from kraftfast.wire import flat, frame as framing, messages
from kraftfast.wire.messages import ApiKey

cdef enum:
    VERSION_MIN = 3
    VERSION_MAX = 13
    API_KEY = 0

assert (VERSION_MIN, VERSION_MAX) == messages.SERVED[API_KEY]
assert FRAME_BYTES_MAX == limits.FRAME_BYTES_MAX
assert API_KEY == ApiKey.PRODUCE


cdef class PartitionProduce:
    """A Produce request of one partition, by keyword arguments."""

    FIELDS = (
        "transactional_id", "acks", "timeout_ms", "topic", "topic_id", "partition", "records",
    )

    def __init__(self, **fields):
        _reset_request(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self):
        """Return the same as a ``messages.ProduceRequest``."""
        return messages.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[messages.ProduceRequest.TopicData(
                name=self.topic,
                topic_id=self.topic_id,
                partition_data=[messages.ProduceRequest.PartitionData(
                    index=self.partition,
                    records=self.records,
                )],
            )],
        )

    @staticmethod
    def from_message(message):
        """Return the flat form of a ``messages.ProduceRequest``; None for another shape."""
        sole = flat.sole_partition(message.topic_data, "partition_data")
        if sole is None:
            return None
        topic, p = sole
        return PartitionProduce(
            transactional_id=message.transactional_id,
            acks=message.acks,
            timeout_ms=message.timeout_ms,
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=p.index,
            records=p.records,
        )


cdef class PartitionProduced:
    """A Produce response of one partition, by keyword arguments."""

    FIELDS = (
        "topic", "topic_id", "partition", "error_code", "base_offset", "log_append_time_ms",
        "log_start_offset", "record_errors", "error_message", "leader_id", "leader_epoch",
        "throttle_time_ms", "node_endpoints",
    )

    def __init__(self, **fields):
        _reset_response(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self):
        """Return the same as a ``messages.ProduceResponse``."""
        return messages.ProduceResponse(
            responses=[messages.ProduceResponse.Response(
                name=self.topic,
                topic_id=self.topic_id,
                partition_responses=[messages.ProduceResponse.PartitionResponse(
                    index=self.partition,
                    error_code=self.error_code,
                    base_offset=self.base_offset,
                    log_append_time_ms=self.log_append_time_ms,
                    log_start_offset=self.log_start_offset,
                    record_errors=self.record_errors,
                    error_message=self.error_message,
                    current_leader=messages.ProduceResponse.CurrentLeader(
                        leader_id=self.leader_id,
                        leader_epoch=self.leader_epoch,
                    ),
                )],
            )],
            throttle_time_ms=self.throttle_time_ms,
            node_endpoints=self.node_endpoints,
        )

    @staticmethod
    def from_message(message):
        """Return the flat form of a ``messages.ProduceResponse``; None for another shape."""
        sole = flat.sole_partition(message.responses, "partition_responses")
        if sole is None:
            return None
        topic, p = sole
        return PartitionProduced(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=p.index,
            error_code=p.error_code,
            base_offset=p.base_offset,
            log_append_time_ms=p.log_append_time_ms,
            log_start_offset=p.log_start_offset,
            record_errors=p.record_errors,
            error_message=p.error_message,
            leader_id=p.current_leader.leader_id,
            leader_epoch=p.current_leader.leader_epoch,
            throttle_time_ms=message.throttle_time_ms,
            node_endpoints=message.node_endpoints,
        )


# --- requests ---


def decode_request(int version, frame, Py_ssize_t start):
    """Return the request that begins at ``start`` of ``frame``: a :class:`PartitionProduce`, whose
    records are a memoryview into ``frame``, or a ``messages.ProduceRequest`` if it has
    another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef PartitionProduce request = PartitionProduce.__new__(PartitionProduce)
    cdef Py_buffer view
    cdef Source s
    cdef const uint8_t* base
    cdef const uint8_t* records = NULL
    cdef Py_ssize_t records_bytes = -1
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        s.ok = VERSION_MIN <= version <= VERSION_MAX and 0 <= start <= view.len
        s.end = base + view.len
        s.at = base + start if s.ok else s.end
        _read_request(request, &s, version, &records_bytes)
        if records_bytes >= 0:
            records = take(&s, records_bytes)
        if version >= 9:
            _read_request_end(request, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        if records_bytes >= 0:
            request.records = memoryview(frame)[records - base:records - base + records_bytes]
        return request
    message = messages.ProduceRequest.decode(frame, version, start)
    return PartitionProduce.from_message(message) or message


def encode_request(int version, int32_t correlation_id, str client_id, PartitionProduce request):
    """Return a whole frame, length and header too, as a list of one to three pieces to be sent in
    order; where there are records, the second is ``request.records`` itself.

    Raises :class:`UnsupportedVersion` if ``request`` holds what ``version`` cannot say and may
    not drop, :class:`UnencodableMessage` if a value does not fit its field.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    cdef Py_ssize_t prefix_bytes = 0, records_bytes = -1
    begin_frame(&s, scratch)
    try:
        records_bytes = bytes_of(request.records)
        put_int16(&s, API_KEY)
        put_int16(&s, <int16_t>version)
        put_int32(&s, correlation_id)
        put_string(&s, client_id, False, True)
        if version >= 9:
            put_uvarint(&s, 0)
        _write_request(request, &s, version, records_bytes)
        prefix_bytes = s.at - scratch
        if version >= 9:
            _write_request_end(request, &s, version)
    except (UnicodeEncodeError, TypeError, BufferError):
        s.ok = False
    pieces = finish_frame(&s, scratch, prefix_bytes, request.records, records_bytes)
    if pieces is not None:
        return pieces
    return framing.request_pieces(
        API_KEY, version, correlation_id, client_id, request.to_message()
    )


cdef void _reset_request(PartitionProduce m) noexcept:
    m.transactional_id = None
    m.acks = 0
    m.timeout_ms = 0
    m.topic = ''
    m.topic_id = ZERO_UUID
    m.partition = 0
    m.records = None


cdef int _read_request(
    PartitionProduce m, Source* s, int version, Py_ssize_t* records_bytes
) except -1:
    cdef bint flexible = version >= 9
    _reset_request(m)
    m.transactional_id = get_string(s, flexible, True)
    m.acks = get_int16(s)
    m.timeout_ms = get_int32(s)
    get_one(s, flexible)
    if version <= 12:
        m.topic = get_string(s, flexible, False)
    if version >= 13:
        m.topic_id = get_uuid(s)
    get_one(s, flexible)
    m.partition = get_int32(s)
    records_bytes[0] = get_records_bytes(s, flexible)
    return 0


cdef int _read_request_end(PartitionProduce m, Source* s, int version) except -1:
    get_no_tags(s)  # of the partition
    get_no_tags(s)  # of the topic
    get_no_tags(s)  # of the request
    return 0


cdef int _write_request(
    PartitionProduce m, Sink* s, int version, Py_ssize_t records_bytes
) except -1:
    cdef bint flexible = version >= 9
    if not VERSION_MIN <= version <= VERSION_MAX:
        s.ok = False
    put_string(s, m.transactional_id, flexible, True)
    put_int16(s, m.acks)
    put_int32(s, m.timeout_ms)
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    if version >= 13:
        put_uuid(s, m.topic_id)
    put_one(s, flexible)
    put_int32(s, m.partition)
    put_records_bytes(s, records_bytes, flexible)
    return 0


cdef int _write_request_end(PartitionProduce m, Sink* s, int version) except -1:
    put_uvarint(s, 0)  # tags of the partition
    put_uvarint(s, 0)  # tags of the topic
    put_uvarint(s, 0)  # tags of the request
    return 0


# --- responses ---


def decode_response(int version, frame):
    """Correlation id and body of the response in ``frame``: a :class:`PartitionProduced`, or a
    ``messages.ProduceResponse`` if it has another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef PartitionProduced response = PartitionProduced.__new__(PartitionProduced)
    cdef Py_buffer view
    cdef Source s
    cdef int32_t correlation_id = 0
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        s.at = <const uint8_t*>view.buf
        s.end = s.at + view.len
        s.ok = VERSION_MIN <= version <= VERSION_MAX
        correlation_id = get_int32(&s)
        if version >= 9:
            get_no_tags(&s)
        _read_response(response, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        return correlation_id, response
    number, message = framing.decode_response(API_KEY, version, frame)
    return number, PartitionProduced.from_message(message) or message


def encode_response(int version, int32_t correlation_id, PartitionProduced response):
    """Return a whole frame, length and header included. Raises as :func:`encode_request`."""
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    begin_frame(&s, scratch)
    try:
        put_int32(&s, correlation_id)
        if version >= 9:
            put_uvarint(&s, 0)
        _write_response(response, &s, version)
    except UnicodeEncodeError:
        s.ok = False
    pieces = finish_frame(&s, scratch, 0, None, -1)
    if pieces is not None:
        return pieces[0]
    return framing.encode_response(
        API_KEY, version, correlation_id, response.to_message()
    )


cdef void _reset_response(PartitionProduced m) noexcept:
    m.topic = ''
    m.topic_id = ZERO_UUID
    m.partition = 0
    m.error_code = 0
    m.base_offset = 0
    m.log_append_time_ms = -1
    m.log_start_offset = -1
    m.record_errors = []
    m.error_message = None
    m.leader_id = -1
    m.leader_epoch = -1
    m.throttle_time_ms = 0
    m.node_endpoints = []


cdef int _read_response(PartitionProduced m, Source* s, int version) except -1:
    cdef bint flexible = version >= 9
    _reset_response(m)
    get_one(s, flexible)
    if version <= 12:
        m.topic = get_string(s, flexible, False)
    if version >= 13:
        m.topic_id = get_uuid(s)
    get_one(s, flexible)
    m.partition = get_int32(s)
    m.error_code = get_int16(s)
    m.base_offset = get_int64(s)
    m.log_append_time_ms = get_int64(s)
    if version >= 5:
        m.log_start_offset = get_int64(s)
    if version >= 8:
        get_nothing(s, flexible)
        m.error_message = get_string(s, flexible, True)
    if flexible:
        _read_response_partition_tags(m, s, version)
        get_no_tags(s)  # of the topic
    m.throttle_time_ms = get_int32(s)
    if flexible:
        get_no_tags(s)  # of the response
    return 0


cdef int _write_response(PartitionProduced m, Sink* s, int version) except -1:
    cdef bint flexible = version >= 9
    if not VERSION_MIN <= version <= VERSION_MAX:
        s.ok = False
    if m.record_errors is None or m.record_errors:
        s.ok = False
    if m.node_endpoints is None or m.node_endpoints:
        s.ok = False
    if version < 10 and m.leader_id != -1:
        s.ok = False
    if version < 10 and m.leader_epoch != -1:
        s.ok = False
    put_one(s, flexible)
    if version <= 12:
        put_string(s, m.topic, flexible, False)
    if version >= 13:
        put_uuid(s, m.topic_id)
    put_one(s, flexible)
    put_int32(s, m.partition)
    put_int16(s, m.error_code)
    put_int64(s, m.base_offset)
    put_int64(s, m.log_append_time_ms)
    if version >= 5:
        put_int64(s, m.log_start_offset)
    if version >= 8:
        put_nothing(s, False, flexible)
        put_string(s, m.error_message, flexible, True)
    if flexible:
        _write_response_partition_tags(m, s, version)
        put_uvarint(s, 0)  # tags of the topic
    put_int32(s, m.throttle_time_ms)
    if flexible:
        put_uvarint(s, 0)  # tags of the response
    return 0


cdef int _read_response_partition_tags(PartitionProduced m, Source* s, int version) except -1:
    cdef Tags tags = begin_tags(s)
    while next_tag(s, &tags):
        if tags.tag == 0 and version >= 10:
            m.leader_id = get_int32(s)
            m.leader_epoch = get_int32(s)
            get_no_tags(s)
        else:
            s.ok = False  # for the tables
    return 0


cdef int _write_response_partition_tags(PartitionProduced m, Sink* s, int version) except -1:
    cdef bint has_current_leader = version >= 10 and (m.leader_id != -1 or m.leader_epoch != -1)
    put_uvarint(s, has_current_leader)
    if has_current_leader:
        put_uvarint(s, 0)
        put_uvarint(s, 9)
        put_int32(s, m.leader_id)
        put_int32(s, m.leader_epoch)
        put_uvarint(s, 0)
    return 0
