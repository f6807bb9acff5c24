"""The plain-Python twin of ``batch`` and ``encode``: slow, short, and read first.

It needs none of the compiled modules, so it decodes where they cannot be had (the checksum is then
that of ``crc32c`` from PyPI, or else ``pure_crc``), and it is the oracle that the compiled codec is
tested against: the same faults for the same bytes, the same bytes for the same records.

Source: Kafka's ``DefaultRecordBatch``, ``DefaultRecord``, ``ByteUtils``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from kraftfast import errors, limits, varints
from kraftfast.record import compression
from kraftfast.record.shapes import (
    ATTRIBUTES_KNOWN,
    CODEC_MASK,
    CONTROL,
    FAULT_TEXTS,
    LOG_APPEND_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Codec,
    Fault,
    Header,
    Record,
    key_bytes,
    refusal,
)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_UNDER_CRC: Final = struct.Struct(">hiqqqhii")
CRC_FROM: Final = 21
RECORD_BYTES_MIN: Final = 7
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)

assert _HEADER.size == limits.BATCH_HEADER_BYTES


@cache
def _fastest_crc32c() -> Callable[[bytes | memoryview, int], int]:
    """Import it when it is first used: PyPI's takes a tenth of a replica's start."""
    try:
        from kraftfast.record import checksum

        if checksum.crc32c is not crc32c:  # this module stands in for it where none is compiled
            return checksum.crc32c
    except ImportError:
        pass
    try:
        from crc32c import crc32c as fast
    except ImportError:
        from kraftfast.record.pure_crc import crc32c as fast  # type: ignore[assignment]
    return fast


def crc32c(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC-32C of ``data``, continued from ``value``."""
    return _fastest_crc32c()(data, value)


class _Fault(Exception):
    """A fault, until a caller adds the position of the batch."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def put_varint(out: bytearray, value: int) -> None:
    """Append a zig-zag varint, of 32 or 64 bits alike."""
    varints.write(out, varints.zigzag(value))


class _Cursor:
    """Reads ``data`` up to ``end``; everything is bounded before it is taken."""

    def __init__(self, data: memoryview, end: int) -> None:
        self.data = data
        self.end = end
        self.at = 0

    @property
    def left(self) -> int:
        return self.end - self.at

    def varint(self, bits: int = 32) -> int:
        """Read a zig-zag integer; cut off, too wide or not in its shortest form is a fault."""
        try:
            value, self.at = varints.read(self.data, self.at, self.end, bits)
        except ValueError:
            raise _Fault(Fault.RECORD_FIELD) from None
        return varints.unzigzag(value)

    def bytes(self) -> bytes | None:
        """Read a size and that many bytes; ``None`` for a size of -1."""
        size = self.varint()
        if not -1 <= size <= self.left:
            raise _Fault(Fault.RECORD_SIZE)
        if size < 0:
            return None
        self.at += size
        return bytes(self.data[self.at - size : self.at])


class _Fields(NamedTuple):
    """One record before its batch gives it an offset and a timestamp."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def _read_headers(cursor: _Cursor) -> tuple[Header, ...]:
    count = cursor.varint()
    if not 0 <= count <= limits.HEADERS_PER_RECORD_MAX:
        raise _Fault(Fault.RECORD_HEADERS)
    headers = []
    try:
        for _ in range(count):
            key, value = cursor.bytes(), cursor.bytes()
            if key is None:
                raise _Fault(Fault.RECORD_HEADERS)
            headers.append((key.decode(errors="surrogateescape"), value))
    except _Fault:
        raise _Fault(Fault.RECORD_HEADERS) from None
    if cursor.left:
        raise _Fault(Fault.RECORD_HEADERS)
    return tuple(headers)


def _read_record(cursor: _Cursor) -> _Fields:
    length = cursor.varint()
    if not RECORD_BYTES_MIN - 1 <= length <= cursor.left:
        raise _Fault(Fault.RECORD_LENGTH)
    body = _Cursor(cursor.data[cursor.at : cursor.at + length], length)
    cursor.at += length
    body.at = 1  # attributes have no meaning yet
    timestamp_delta = body.varint(64)
    offset_delta = body.varint()
    key, value = body.bytes(), body.bytes()
    return _Fields(timestamp_delta, offset_delta, key, value, _read_headers(body))


# --- batches ---


class Batch(NamedTuple):
    """As :class:`kraftfast.record.batch.BatchView`, with the same names."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int
    data: memoryview

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return len(self.data)

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    def crc_ok(self) -> bool:
        """Return whether the stored CRC-32C is that of the bytes."""
        return crc32c(self.data[CRC_FROM:]) == self.crc

    def records(self) -> Iterator[Record]:
        """Yield the records one by one; does not look at the CRC.

        Raises :class:`~kraftfast.errors.CorruptBatch` at the first bad one.
        """
        last_delta = -1
        for number, fields in enumerate(self._unplaced()):
            delta = fields.offset_delta
            if not last_delta < delta <= self.last_offset - self.base_offset:
                raise refusal(Fault.RECORD_OFFSET, self.position, number)
            last_delta = delta
            timestamp = self.base_timestamp + fields.timestamp_delta
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise refusal(Fault.RECORD_TIMESTAMP, self.position, number)
            if self.attributes & LOG_APPEND_TIME:
                timestamp = self.max_timestamp
            offset = self.base_offset + delta
            yield Record(offset, timestamp, fields.key, fields.value, fields.headers)

    def check(self, *, records: str = "any", control: bool = True) -> None:
        """Check this batch, as :func:`kraftfast.record.batch.check_batch` does."""
        if records not in ("any", "kafka-raft"):
            raise errors.InvalidOption(f"records={records}: known are any, kafka-raft")
        raft = records == "kafka-raft"
        if self.record_count < 1 or self.last_offset - self.base_offset != self.record_count - 1:
            raise refusal(Fault.COUNT, self.position)
        if not self.crc_ok():
            raise refusal(Fault.CRC, self.position)
        if self.is_control and not control:
            raise refusal(Fault.CONTROL_BATCH, self.position)
        if self.codec and raft:
            raise refusal(Fault.COMPRESSED, self.position)
        for number, fields in enumerate(self._unplaced()):
            fault = self._fault_of(fields, number, raft)
            if fault:
                raise refusal(fault, self.position, number)

    def block(self) -> memoryview:
        """Return what is behind the header, decompressed. Raises CorruptBatch, UnsupportedCodec."""
        block = self.data[limits.BATCH_HEADER_BYTES :]
        if not self.codec:
            return block
        try:
            return memoryview(compression.decompress(self.codec, block))
        except errors.CorruptBatch as error:
            words = f"batch at byte {self.position}: {error}"
            raise errors.CorruptBatch(words, self.position, error.reason) from None

    def _unplaced(self) -> Iterator[_Fields]:
        block = self.block()
        cursor = _Cursor(block, len(block))
        for number in range(self.record_count):
            try:
                yield _read_record(cursor)
            except _Fault as at:
                raise refusal(at.fault, self.position, number) from None
        if cursor.left:
            raise refusal(Fault.TRAILING, self.position)

    def _fault_of(self, fields: _Fields, number: int, raft: bool) -> Fault:
        if fields.offset_delta != number:
            return Fault.RECORD_OFFSET
        if not _INT64_MIN <= self.base_timestamp + fields.timestamp_delta <= _INT64_MAX:
            return Fault.RECORD_TIMESTAMP
        key = fields.key or b""
        if self.is_control and (len(key) < 4 or key[0] & 0x80):
            return Fault.CONTROL_KEY
        if not raft:
            return Fault.OK
        if fields.timestamp_delta:
            return Fault.RECORD_HAS_TIMESTAMP_DELTA
        if fields.headers:
            return Fault.RECORD_HAS_HEADERS
        if self.is_control:
            if not fields.value:
                return Fault.CONTROL_EMPTY
            known = 2 <= int.from_bytes(key[2:4], "big", signed=True) <= 6
            return Fault.OK if known else Fault.CONTROL_UNKNOWN
        if fields.key is not None:
            return Fault.RECORD_HAS_KEY
        return Fault.OK if fields.value else Fault.RECORD_NO_VALUE


class HeaderFields(NamedTuple):
    """The header of a batch, field by field as it is stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + limits.BATCH_OVERHEAD_BYTES


def read_header(data: memoryview, position: int, end: int) -> tuple[Fault, HeaderFields | None]:
    """Return the first fault of the header at ``position``, as ``kf_batch_read_header`` finds it.

    The batch may take the bytes up to ``end``. The fields are None without room for a header.
    """
    if end - position < limits.BATCH_HEADER_BYTES:
        return Fault.INCOMPLETE, None
    h = HeaderFields(*_HEADER.unpack_from(data, position))
    fault = _header_fault(h)
    return fault or (Fault.INCOMPLETE if h.size > end - position else Fault.OK), h


def _header_fault(h: HeaderFields) -> Fault:
    if not h.length and not h.magic:
        return Fault.EMPTY
    if not limits.BATCH_HEADER_BYTES <= h.size <= limits.BATCH_BYTES_MAX:
        return Fault.LENGTH
    if h.magic != 2:
        return Fault.MAGIC
    codec, count = h.attributes & CODEC_MASK, h.record_count
    if h.attributes & ~ATTRIBUTES_KNOWN or codec > max(Codec):
        return Fault.ATTRIBUTES
    body = h.size - limits.BATCH_HEADER_BYTES
    if codec == Codec.NONE and count > body // RECORD_BYTES_MIN or not count and body:
        return Fault.COUNT
    most = min(h.last_offset_delta + 1, limits.RECORDS_PER_BATCH_MAX)
    if h.last_offset_delta < 0 or not 0 <= count <= most:
        return Fault.COUNT
    if not 0 <= h.base_offset <= _INT64_MAX - 1 - h.last_offset_delta:
        return Fault.OFFSET_BOUNDS
    return Fault.EPOCH_BOUNDS if h.leader_epoch < -1 else Fault.OK


def parse_header(data: memoryview, position: int, end: int) -> tuple[Fault, HeaderFields | None]:
    """Do as :func:`read_header`, for a log: no record may be missing, as for ``kf_batch_parse``."""
    fault, h = read_header(data, position, end)
    if h and fault in (Fault.OK, Fault.INCOMPLETE) and h.last_offset_delta != h.record_count - 1:
        return Fault.COUNT, h
    return fault, h


def window(buffer: bytes | memoryview, position: int, end: int | None) -> memoryview:
    """Return the bytes up to ``end``. Raises InvalidOption for bounds that cannot be."""
    data = memoryview(buffer).cast("B")
    stop = len(data) if end is None else end
    if not 0 <= position <= stop <= len(data):
        raise errors.InvalidOption(f"bytes {position} to {stop} of a buffer of {len(data)} bytes")
    return data[:stop]


def _batch_at(data: memoryview, position: int) -> Batch:
    fault, h = read_header(data, position, len(data))
    if fault or h is None:
        raise refusal(fault, position)
    return Batch(
        h.base_offset, h.base_offset + h.last_offset_delta, h.leader_epoch, h.crc, h.attributes,
        h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.base_sequence,
        h.record_count, position, data[position : position + h.size],
    )  # fmt: skip


def batch_at(buffer: bytes | memoryview, position: int = 0, end: int | None = None) -> Batch:
    """See :func:`kraftfast.record.batch.batch_at`."""
    return _batch_at(window(buffer, position, end), position)


def batches(
    buffer: bytes | memoryview,
    position: int = 0,
    end: int | None = None,
    *,
    partial: bool = False,
) -> Iterator[Batch]:
    """Do as :func:`kraftfast.record.batch.batches`, without its ``position``."""
    data = window(buffer, position, end)
    while position < len(data):
        try:
            batch = _batch_at(data, position)
        except errors.CorruptBatch as error:
            if partial and error.reason == FAULT_TEXTS[Fault.INCOMPLETE]:
                return
            raise
        yield batch
        position += batch.size


def check_batch(
    buffer: bytes | memoryview,
    position: int = 0,
    end: int | None = None,
    *,
    records: str = "any",
    control: bool = True,
) -> Batch:
    """See :func:`kraftfast.record.batch.check_batch`."""
    batch = batch_at(buffer, position, end)
    batch.check(records=records, control=control)
    return batch


# --- encoding ---


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytearray:
    body = bytearray(1)  # attributes
    put_varint(body, record.timestamp - base_timestamp)
    put_varint(body, record.offset - base_offset)
    for field in (record.key, record.value):
        put_varint(body, -1 if field is None else len(field))
        body += field or b""
    put_varint(body, len(record.headers))
    for key, value in record.headers:
        raw = key_bytes(key)
        put_varint(body, len(raw))
        body += raw
        put_varint(body, -1 if value is None else len(value))
        body += value or b""
    framed = bytearray()
    put_varint(framed, len(body))
    return framed + body


def values_to_records(
    values: Iterable[bytes], timestamp: int, base_offset: int = 0
) -> list[Record]:
    """Return records with these values, one timestamp and offsets from ``base_offset`` on."""
    return [Record(base_offset + i, timestamp, None, value) for i, value in enumerate(values)]


def encode_batch(
    records: Sequence[Record],
    *,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    control: bool = False,
    transactional: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return one batch of these records, at least one; base offset and timestamp are the first
    one's.

    A block that zstd does not make smaller is stored uncompressed. Raises
    :class:`~kraftfast.errors.RecordTooLarge` above ``limits.BATCH_BYTES_MAX``.
    """
    if not 0 < len(records) <= limits.RECORDS_PER_BATCH_MAX:
        raise errors.InvalidOption(f"a batch of {len(records)} records")
    first = records[0]
    block = b"".join(_encode_record(record, first.offset, first.timestamp) for record in records)
    attributes = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if codec:
        compressed = compression.compress(codec, memoryview(block))
        if compression.worth_storing(len(compressed), len(block)):
            block, attributes = compressed, attributes | codec
    size = limits.BATCH_HEADER_BYTES + len(block)
    if size > limits.BATCH_BYTES_MAX:
        raise errors.RecordTooLarge(f"a batch of {size} bytes is above {limits.BATCH_BYTES_MAX}")
    under_crc = _UNDER_CRC.pack(
        attributes,
        records[-1].offset - first.offset,
        first.timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(block, crc32c(under_crc))
    length = size - limits.BATCH_OVERHEAD_BYTES
    return struct.pack(">qiibI", first.offset, length, leader_epoch, 2, crc) + under_crc + block
