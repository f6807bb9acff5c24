"""Batches from Python objects: columns of values in one go, or record by record.

The work is done by ``encode``; here is what holds the objects meanwhile.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kraftfast.buffer cimport Hold, bytes_in, has_objects, hold
from kraftfast.record.batch cimport BatchView
from kraftfast.record.encode cimport (
    COLUMN_BYTES, COLUMN_FIXED, COLUMN_OFFSETS32, COLUMN_OFFSETS64, ENCODE_HEADERS, ENCODE_OFFSETS,
    ENCODE_OK, ENCODE_TIMESTAMP, BatchSettings, Column, Encoded, HeaderColumn,
    append_record, append_value, close_batch, default_settings, encode_columns, open_batch,
)
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_CODEC, KF_ATTRIBUTE_TRANSACTIONAL, KF_BATCH_HEADER, kf_batch_header, kf_batch_seal,
)

from kraftfast import errors, limits
from kraftfast.arguments import refuse, whole_number
from kraftfast.record import compression
from kraftfast.record.batch import RULES, batch_at
from kraftfast.record.shapes import Codec


cdef extern from "varint.h" nogil:
    uint8_t *kf_varint_put(uint8_t *p, int32_t v)


cdef extern from "Python.h":
    ctypedef struct PyTupleObject:
        PyObject **ob_item

    char *PyBytes_AS_STRING(PyObject *o)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *o)


cdef int64_t BATCH_BYTES_MAX = limits.BATCH_BYTES_MAX


cdef class Settings:
    """What batches are given beside their records.

    ``timestamp`` (milliseconds) is that of records which have none of their own. The leader stamps
    base offset and epoch, so producers leave them. ``records="kafka-raft"`` refuses what Kafka's
    raft reader would. Raises :class:`~kraftfast.errors.InvalidOption`.
    """

    def __init__(
        self, int64_t timestamp, *, int64_t base_offset=0, int32_t leader_epoch=-1,
        int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1,
        bint transactional=False, str records="any",
    ):
        if records not in RULES:
            raise errors.InvalidOption(f"records={records}: known are {', '.join(RULES)}")
        if base_offset < 0 or leader_epoch < -1:
            raise errors.InvalidOption(f"base offset {base_offset}, leader epoch {leader_epoch}")
        self.settings = default_settings(timestamp)
        self.settings.base_offset = base_offset
        self.settings.leader_epoch = leader_epoch
        self.settings.producer_id = producer_id
        self.settings.producer_epoch = producer_epoch
        self.settings.base_sequence = base_sequence
        self.settings.attributes = KF_ATTRIBUTE_TRANSACTIONAL if transactional else 0
        self.settings.kafka_raft = records == "kafka-raft"

    @property
    def timestamp(self) -> int:
        """Milliseconds; may be set for the next batch, as may ``base_sequence``."""
        return self.settings.timestamp

    @timestamp.setter
    def timestamp(self, int64_t timestamp):
        self.settings.timestamp = timestamp

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record; -1 if the producer is not idempotent."""
        return self.settings.base_sequence

    @base_sequence.setter
    def base_sequence(self, int32_t base_sequence):
        self.settings.base_sequence = base_sequence


cdef class HeaderList:
    """Headers of many records: an Arrow array of ``list<struct<key: string, value: binary>>``.

    Raises :class:`~kraftfast.errors.InvalidOption` for anything else.
    """

    def __init__(self, source):
        memset(&self.column, 0, sizeof(HeaderColumn))
        array = source.combine_chunks() if hasattr(source, "combine_chunks") else source
        kind = getattr(array, "type", None)
        item = getattr(kind, "value_type", None)
        if str(kind).split("<")[0] != "list" or getattr(item, "num_fields", 0) != 2:
            raise errors.InvalidOption(f"an Arrow array of headers is wanted, not {kind}")
        if str(item.field(0).type) not in ("string", "large_string"):
            raise errors.InvalidOption(f"keys of headers are a string, not {item.field(0).type}")
        items, buffers = array.values, array.buffers()
        self.keys, self.values = Values(items.field(0)), Values(items.field(1))
        self.column.keys, self.column.values = self.keys.column, self.values.column
        if len(array):
            self.offsets = hold(buffers[1])
            self.column.offsets = <const int32_t *>self.offsets.data + <int64_t>array.offset
        if array.null_count:
            self.valid = hold(buffers[0])
            self.column.valid, self.column.valid_first = self.valid.data, array.offset
        if items.null_count:
            self.item_valid = hold(items.buffers()[0])
            self.column.item_valid = self.item_valid.data
            self.column.item_valid_first = items.offset
        self.column.count = len(array)

    def __len__(self) -> int:
        return self.column.count


cdef class Values:
    """Values of many records, ready to be encoded into batches; ``len()`` of them.

    ``source`` is one of

    * a list or tuple of bytes-like objects, ``None`` for a null value;
    * a buffer with ``offsets``: n + 1 signed 32- or 64-bit integers (numpy, ``array``), value i
      being ``source[offsets[i]:offsets[i + 1]]``;
    * a buffer with ``size``: values of so many bytes one behind the other;
    * a two-dimensional array of bytes (numpy ``uint8``), a value a row;
    * an Arrow array of binary, large_binary, string, large_string or fixed_size_binary.

    ``keys``: of the same records, any of these; ``headers``: an Arrow array of
    ``list<struct<key: string, value: binary>>``.

    Nothing is copied, and nothing may be resized meanwhile. Raises
    :class:`~kraftfast.errors.InvalidOption` for anything else.

    >>> from array import array
    >>> by_offsets = Values(b"onetwo", array("q", [0, 3, 6]))
    >>> by_size = Values(b"onetwo", size=3)
    >>> len(by_offsets), len(by_size)
    (2, 2)
    """

    def __init__(self, source, offsets=None, *, size=None, keys=None, headers=None):
        memset(&self.column, 0, sizeof(Column))
        self.take_source(source, offsets, size)
        if keys is not None:
            self.key_values = keys if isinstance(keys, Values) else Values(keys)
            self.keys = &self.key_values.column
        if headers is not None:
            self.header_values = HeaderList(headers)
            self.headers = &self.header_values.column
        for other in (self.key_values, self.header_values):
            if other is not None and len(other) != len(self):
                count = len(other)
                raise errors.InvalidOption(f"{count} keys or headers for {len(self)} values")

    cdef int take_source(self, source, offsets, size) except -1:
        arrow = type(source).__module__.split(".")[0] == "pyarrow"
        items = isinstance(source, (list, tuple))
        if size is not None:
            size = whole_number("size", size, 1, BATCH_BYTES_MAX)
        if (arrow or items or size is not None) and offsets is not None:
            raise errors.InvalidOption("offsets are of a buffer alone, and not beside a size")
        if (arrow or items) and size is not None:
            raise errors.InvalidOption("a size is of a buffer alone")
        if arrow:
            self.take_arrow(source)
        elif items:
            self.take_items(source)
        elif offsets is not None:
            self.take_offsets(source, offsets)
        else:
            self.take_rows(source, size)
        return 0

    def __len__(self) -> int:
        return self.column.count

    cdef int take_items(self, source) except -1:
        cdef object item
        self.items = tuple(source)
        for item in self.items:
            if not PyBytes_CheckExact(item) and item is not None:
                self.items = tuple([as_bytes(item) for item in self.items])
                break
        self.column.kind = COLUMN_BYTES
        self.column.items = (<PyTupleObject *>self.items).ob_item
        self.column.count = len(self.items)
        return 0

    cdef int take_offsets(self, source, offsets) except -1:
        kinds = {("i", 4): COLUMN_OFFSETS32, ("l", 8): COLUMN_OFFSETS64, ("q", 8): COLUMN_OFFSETS64}
        try:
            shape = memoryview(offsets)
        except (TypeError, ValueError):
            refuse("offsets", "a buffer of n + 1 integers, int32 or int64", offsets)
        kind = kinds.get((shape.format, shape.itemsize))
        if kind is None or shape.ndim != 1 or not shape.contiguous or not len(shape):
            raise errors.InvalidOption("offsets are n + 1 integers, int32 or int64, in one row")
        self.take_data(source)
        self.offsets = hold(offsets)
        self.column.kind = kind
        self.column.offsets = self.offsets.data
        self.column.count = len(shape) - 1
        return 0

    cdef int take_rows(self, source, size) except -1:
        if size is not None:
            self.take_data(source)
            if self.column.data_size % size:
                raise errors.InvalidOption(
                    f"{self.column.data_size} bytes are not values of one size, {size} bytes")
            self.column.count = self.column.data_size // <int64_t>size
            self.column.value_size = self.column.stride = size
            return 0
        try:
            shape = memoryview(source)
        except (TypeError, ValueError):
            kind = type(source).__name__
            raise errors.InvalidOption(f"{kind} holds no values: give a list") from None
        if shape.ndim != 2 or shape.itemsize != 1 or not shape.c_contiguous:
            raise errors.InvalidOption(
                f"values in a {type(source).__name__} need offsets, a size, or rows of bytes"
            )
        self.take_data(source)
        self.column.count, self.column.value_size = shape.shape
        self.column.stride = self.column.value_size
        return 0

    cdef int take_data(self, source) except -1:
        if hasattr(source, "filled"):  # numpy's masked array: its buffer has what the mask hides
            raise errors.InvalidOption("a masked array has values that are none: give its filled()")
        if has_objects(source):
            refuse("values", "bytes: a buffer of Python objects has their addresses", source)
        try:
            self.data = hold(source)
        except (TypeError, ValueError, BufferError):
            raise errors.InvalidOption(
                f"a {type(source).__name__} is no row of bytes, one behind the other") from None
        self.column.kind = COLUMN_FIXED
        self.column.data = self.data.data
        self.column.data_size = self.data.size
        return 0

    cdef int take_arrow(self, source) except -1:
        array = source.combine_chunks() if hasattr(source, "combine_chunks") else source
        kind = str(getattr(array, "type", type(source).__name__))
        cdef int wide = 8 if kind.startswith("large_") else 4
        cdef int64_t first
        buffers = array.buffers() if hasattr(array, "buffers") else []
        if kind in ("binary", "string", "large_binary", "large_string"):
            self.column.kind = COLUMN_OFFSETS64 if wide == 8 else COLUMN_OFFSETS32
            if len(array):
                self.offsets = hold(buffers[1])
                first = array.offset
                self.column.offsets = self.offsets.data + wide * first
            if len(array) and buffers[2] is not None:
                self.data = hold(buffers[2])
                self.column.data, self.column.data_size = self.data.data, self.data.size
        elif kind.startswith("fixed_size_binary"):
            self.column.kind = COLUMN_FIXED
            self.column.value_size = self.column.stride = array.type.byte_width
            if len(array):
                self.data = hold(buffers[1])
                first = array.offset
                self.column.data = self.data.data + self.column.stride * first
        else:
            raise errors.InvalidOption(f"an Arrow array of binary values is wanted, not {kind}")
        if array.null_count:
            self.valid = hold(buffers[0])
            self.column.valid = self.valid.data
            self.column.valid_first = array.offset
        self.column.count = len(array)
        return 0

    def encode_into(
        self, target, Settings settings not None, *, int64_t start=0, int64_t position=0,
        capacity=None, Values keys=None, timestamps=None,
    ) -> tuple[int, int]:
        """Encode as many values from number ``start`` on as fit into one batch: (bytes, records).

        It goes to byte ``position`` of a writable buffer and takes at most ``capacity`` bytes of
        it (default: what is left). (0, 0) means that not one record fits. ``keys`` and
        ``timestamps`` (int64, milliseconds) have an entry for each value.

        Raises :class:`~kraftfast.errors.InvalidOption`, ``RecordsRefused`` or ``RecordTooLarge``
        (a record that no batch can hold); what precedes a bad record is encoded first.
        """
        cdef Hold to = hold(target, writable=True)
        cdef int64_t room = bounded_capacity(to, position, capacity)
        cdef Hold times = None
        cdef const int64_t *stamps = NULL
        cdef Encoded done
        if not 0 <= start <= self.column.count:
            raise errors.InvalidOption(f"value {start} of {self.column.count}")
        if keys is not None and keys.column.count != self.column.count:
            raise errors.InvalidOption(f"{len(keys)} keys for {len(self)} values")
        if timestamps is not None:
            times = hold(timestamps)
            if times.size != 8 * self.column.count or memoryview(timestamps).itemsize != 8:
                raise errors.InvalidOption("timestamps are int64, one for each value")
            stamps = <const int64_t *>times.data
        done = encode_columns(
            to.data + position, room, &self.column,
            self.keys if keys is None else &keys.column, self.headers, stamps, start,
            &settings.settings,
        )
        if done.records == 0 and start < self.column.count:
            if done.fault != ENCODE_OK:
                raise refused(done.fault, start)
            if room >= BATCH_BYTES_MAX:
                raise errors.RecordTooLarge(
                    f"value {start} does not fit into a batch of {BATCH_BYTES_MAX} bytes"
                )
        return done.size, done.records


cdef object as_bytes(object item):
    if item is None:
        return None
    try:
        return bytes_in(item)
    except (TypeError, ValueError, BufferError):
        raise errors.InvalidOption(f"a value is bytes, not {type(item).__name__}") from None


cdef object refused(int fault, int64_t number):
    if fault == ENCODE_OFFSETS:
        return errors.InvalidOption(f"offsets of value {number} decrease or leave the data")
    if fault == ENCODE_HEADERS:
        return errors.InvalidOption(
            f"headers of record {number}: one has no key, or there are more than "
            f"{limits.HEADERS_PER_RECORD_MAX}")
    if fault == ENCODE_TIMESTAMP:
        return errors.InvalidOption(f"timestamp of record {number} is too far from the first one's")
    return errors.RecordsRefused(
        f"record {number}: records=kafka-raft takes values alone, none of them null or empty, "
        "and one timestamp a batch", reason="refused by records=kafka-raft",
    )


cdef int64_t bounded_capacity(Hold target, int64_t position, capacity) except -1:
    cdef int64_t left = target.size - position
    if position < 0 or left < 0:
        raise errors.InvalidOption(f"byte {position} of a buffer of {target.size} bytes")
    if capacity is None:
        return left
    if not 0 <= capacity <= left:
        raise errors.InvalidOption(f"{capacity} bytes where {left} are left")
    return capacity


cdef class BatchBuilder:
    """One batch, built record by record in a writable buffer.

    It takes at most ``capacity`` bytes (default: what is left) from byte ``position`` on. The
    buffer holds a batch once :meth:`finish` has returned its size.

    >>> buffer = bytearray(200)
    >>> builder = BatchBuilder(buffer, Settings(timestamp=0))
    >>> builder.append(b"value", key=b"key", headers=[("name", b"x")])
    True
    >>> builder.append(bytes(200))  # no room: the batch stays as it is
    False
    >>> builder.finish(), builder.record_count
    (83, 1)
    """

    def __init__(self, target, Settings settings not None, *, int64_t position=0, capacity=None):
        self.target = hold(target, writable=True)
        cdef int64_t room = bounded_capacity(self.target, position, capacity)
        self.begin(self.target.data + position, room, &settings.settings)

    cdef void begin(
        self, uint8_t *dst, int64_t capacity, const BatchSettings *settings
    ) noexcept:
        open_batch(&self.batch, dst, capacity, settings)
        self.open = True

    def append(self, value, key=None, headers=None, timestamp=None) -> bool:
        """Append a record; False if there is no room for it, and nothing changed.

        ``value`` and ``key`` are bytes-like or ``None``, ``headers`` pairs of str and bytes or
        ``None``, ``timestamp`` milliseconds. Raises :class:`~kraftfast.errors.InvalidOption`,
        ``RecordsRefused`` or, after :meth:`finish`, ``Closed``.
        """
        cdef int put
        if not self.open:
            raise errors.Closed("the batch was finished")
        if PyBytes_CheckExact(value) and key is None and headers is None and timestamp is None:
            put = append_value(
                &self.batch, <const uint8_t *>PyBytes_AS_STRING(<PyObject *>value),
                PyBytes_GET_SIZE(<PyObject *>value),
            )
        else:
            put = self.append_any(as_bytes(value), as_bytes(key), headers or (), timestamp)
        if put < 0:
            raise refused(put, self.batch.count)
        return put == 1

    cdef int append_any(self, bytes value, bytes key, headers, timestamp) except? -9:
        cdef int64_t at = self.batch.settings.timestamp if timestamp is None else timestamp
        cdef bytes encoded = encode_headers(headers)
        return append_record(
            &self.batch, at,
            NULL if key is None else <const uint8_t *>PyBytes_AS_STRING(<PyObject *>key),
            -1 if key is None else len(key),
            NULL if value is None else <const uint8_t *>PyBytes_AS_STRING(<PyObject *>value),
            -1 if value is None else len(value),
            <const uint8_t *>PyBytes_AS_STRING(<PyObject *>encoded), len(encoded), len(headers),
        )

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        return self.batch.count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, its header included."""
        return self.batch.at - self.batch.start

    def finish(self) -> int:
        """Complete the batch; return its bytes, 0 without a record. The builder is closed then."""
        if not self.open:
            raise errors.Closed("the batch was finished")
        self.open = False
        self.target = None
        return close_batch(&self.batch)


cdef bytes encode_headers(headers):
    """Return the headers of a record as they stand in it, without their count."""
    cdef uint8_t size[5]
    cdef list parts = []
    if not headers:
        return b""
    if len(headers) > limits.HEADERS_PER_RECORD_MAX:
        raise errors.InvalidOption(
            f"a record has at most {limits.HEADERS_PER_RECORD_MAX} headers, not {len(headers)}")
    try:
        for key, value in headers:
            for part in (key.encode(), as_bytes(value)):
                end = kf_varint_put(size, -1 if part is None else <int32_t>len(part))
                parts.append(PyBytes_FromStringAndSize(<const char *>size, end - size))
                parts.append(part or b"")
        return b"".join(parts)
    except (TypeError, ValueError, AttributeError, errors.InvalidOption):
        refuse("headers", "pairs of a str that UTF-8 can express and bytes-like or None", headers)


def compress_batch(batch, codec=Codec.ZSTD, *, level=None) -> bytes:
    """Return a copy of an uncompressed batch with its records compressed; ``level`` is the codec's.

    As it was if that is not smaller (or so small that readers would take it for a bomb, S9).
    Raises as :func:`kraftfast.record.compression.compressor_of`.
    """
    return compressed(batch, compression.compressor_of(Codec(codec).name.lower(), level))


def compressed(batch, compressor) -> bytes:
    """Do the same by a :class:`~kraftfast.record.compression.Compressor`; None: as it is."""
    cdef BatchView view = batch_at(batch)
    cdef kf_batch_header header = view.header
    cdef bytes out
    if header.attributes & KF_ATTRIBUTE_CODEC:
        raise errors.InvalidOption("the batch is compressed already")
    records = bytes(view.bytes_from(KF_BATCH_HEADER))
    block = records if compressor is None else compressor.compress(records)
    if not compression.worth_storing(len(block), len(records)):
        return bytes(view.bytes_from(0))
    header.attributes |= <int16_t>compressor.codec
    header.size = KF_BATCH_HEADER + len(block)
    out = bytes(KF_BATCH_HEADER) + block
    # No other code has seen these bytes yet.
    kf_batch_seal(<uint8_t *>PyBytes_AS_STRING(<PyObject *>out), &header)
    return out
