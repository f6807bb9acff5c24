"""Plain-Python twins of the compiled modules that reading a log or a snapshot needs.

The same names, the same results, the same faults for the same bytes; ``uncompiled`` puts them in
the place of ``record.batch``, ``.checksum``, ``.columns``, ``.headers``, ``.rows``, ``log.scan``
and ``log.segment`` where those cannot be had. What a batch is, ``record.pure`` knows.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kraftfast import limits, varints
from kraftfast.errors import CorruptBatch, InvalidOption
from kraftfast.record import pure
from kraftfast.record.columnar import SHARED, BytesColumn, Columns, Rows
from kraftfast.record.pure import RECORD_BYTES_MIN, batch_at, batches, check_batch, crc32c
from kraftfast.record.pure import Batch as BatchView
from kraftfast.record.shapes import FAULT_TEXTS, LOG_APPEND_TIME, Fault, key_bytes, refusal

__all__ = [
    "BatchView", "BytesColumn", "Columns", "END", "HEADER", "Headers", "INCOMPLETE",
    "INDEX_SUFFIX", "LOG_SUFFIX", "Rows", "SHARED", "TIME_INDEX_SUFFIX", "WHOLE", "batch_at",
    "batches", "check_batch", "crc32c", "data_end", "decode_columns", "decode_headers",
    "decode_rows", "fault_text", "page_words", "read_headers", "segment_name", "walk",
]  # fmt: skip

INT64_MAX: Final = 2**63 - 1
BYTES_MAX: Final = 1 << 30
PIECE_BYTES: Final = 1 << 20

# --- record.columns -------------------------------------------------------------------------------


def bytes_column(values: Sequence[bytes | None]) -> BytesColumn:
    """Byte strings and ``None`` as a column."""
    there = [value is not None for value in values]
    sizes = [len(value or b"") for value in values]
    nulls = there.count(False)
    return BytesColumn(
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int32),
        np.frombuffer(b"".join(value or b"" for value in values), np.uint8),
        np.packbits(there, bitorder="little") if nulls else None,
        nulls,
    )


def decode_columns(
    buffer: Any, position: int = 0, end: int | None = None, *, keys: bool = True, **more: Any
) -> Columns:
    """Do as :func:`kraftfast.record.columns.decode_columns`; ``partial`` is not known."""
    rows = decode_rows(buffer, position, end, **more)
    assert rows.values is not None, "contents were asked for"
    found = rows.keys if keys else None
    return Columns(rows.offsets, rows.timestamps, found, rows.values, rows.position)


# --- record.rows ----------------------------------------------------------------------------------

Pair = tuple[bytes, bytes | None]
Taken = tuple[int, int, bytes | None, bytes | None, Sequence[Pair]]
"""Offset, timestamp, key, value, headers."""


def _rows(taken: list[Taken], shared: Any, position: int, contents: bool) -> Rows:
    """Return what was taken apart, laid out."""
    made = Rows(
        np.array([each[0] for each in taken], np.int64),
        np.array([each[1] for each in taken], np.int64),
        shared,
        position,
    )
    if not contents:
        return made
    made.keys = bytes_column([each[2] for each in taken])
    made.values = bytes_column([each[3] for each in taken])
    pairs = [pair for each in taken for pair in each[4]]
    if pairs:
        made.header_ends = np.cumsum([len(each[4]) for each in taken], dtype=np.int64)
        made.header_keys = bytes_column([key for key, _ in pairs])
        made.header_values = bytes_column([value for _, value in pairs])
    return made


def decode_rows(
    buffer: Any, position: int = 0, end: int | None = None, *, first_offset: int = 0,
    end_offset: int = INT64_MAX, records_max: int | None = None, bytes_max: int | None = None,
    contents: bool = True, control: bool = False, verify_crc: bool = True,
) -> Rows:  # fmt: skip
    """Do as :func:`kraftfast.record.rows.decode_rows`.

    >>> data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=0), leader_epoch=7)
    >>> found = decode_rows(data, first_offset=1)
    >>> found.offsets.tolist(), found.values.to_pylist(), found.spread("epoch").tolist()
    ([1], [b'b'], [7])
    """
    bytes_left = BYTES_MAX if bytes_max is None else min(bytes_max, BYTES_MAX)
    records_left = INT64_MAX if records_max is None else records_max
    if bytes_left < 1:
        raise InvalidOption(f"bytes_max={bytes_max}")
    stop = len(memoryview(buffer)) if end is None else end
    pure.window(buffer, position, stop)
    parts: list[tuple[BatchView, bytes]] = []
    while position < stop and records_left > 0 and bytes_left > 0:
        batch = batch_at(buffer, position, stop)
        if batch.base_offset >= end_offset:
            break
        if verify_crc and not batch.crc_ok():
            raise refusal(Fault.CRC, position)
        position += batch.size
        if batch.is_control and not control or batch.last_offset < first_offset:
            continue
        block = bytes(batch.block())
        if batch.record_count > len(block) // RECORD_BYTES_MIN:
            raise refusal(Fault.COUNT, batch.position)
        parts.append((batch, block))
        records_left -= batch.record_count
        bytes_left -= len(block)
    taken: list[Taken] = []
    shared = np.empty(len(parts), SHARED)
    for number, (batch, block) in enumerate(parts):
        before = len(taken)
        taken += [
            each for each in _records(batch, block) if first_offset <= each[0] < end_offset
        ]  # fmt: skip
        shared[number] = (
            batch.base_offset, batch.producer_id, batch.leader_epoch, batch.base_sequence,
            batch.producer_epoch, batch.attributes, len(taken) - before,
        )  # fmt: skip
    return _rows(taken, shared, position, contents)


def _records(batch: BatchView, block: bytes) -> list[Taken]:
    """Return the records of a batch quickly; where anything is odd, as ``pure`` does."""
    if not batch.record_count:
        return []
    try:
        found = _sound_records(batch, block)
    except ValueError:
        found = None
    if found is not None:
        return found
    return [
        (
            each.offset, each.timestamp, each.key, each.value,
            [(key_bytes(key), value) for key, value in each.headers],
        )
        for each in batch.records()
    ]  # fmt: skip


def _sound_records(batch: BatchView, block: bytes) -> list[Taken] | None:
    """None for what is not, or not simply, sound. Every size is bounded before it is taken (S7)."""
    found: list[Taken] = []
    base, base_timestamp = batch.base_offset, batch.base_timestamp
    reach, last_delta, at = batch.last_offset - base, -1, 0
    stamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
    size = len(block)
    for _ in range(batch.record_count):
        length, at = _varint(block, at)
        stop = at + length
        if not RECORD_BYTES_MIN - 1 <= length or stop > size:
            return None
        timestamp, at = _varint(block, at + 1, 64)
        delta, at = _varint(block, at)
        key, at = _bytes(block, at)
        value, at = _bytes(block, at)
        count, at = _varint(block, at)
        headers: Sequence[Pair] = ()
        if count:
            if not 0 < count <= limits.HEADERS_PER_RECORD_MAX:
                return None
            headers, at = _pairs(block, at, count)
        timestamp += base_timestamp
        sound = last_delta < delta <= reach and -INT64_MAX <= timestamp <= INT64_MAX
        if at != stop or not sound:
            return None
        last_delta = delta
        found.append((base + delta, timestamp if stamp is None else stamp, key, value, headers))
    return found if at == size else None


def _varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return (value, where it ends), most at once: they are one byte. Raises ValueError."""
    if at < len(data) and (value := data[at]) < 0x80:
        at += 1
    else:
        value, at = varints.read(data, at, len(data), bits)
    return value >> 1 ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        if size < -1:
            raise ValueError
        return None, at
    if at + size > len(data):
        raise ValueError
    return data[at : at + size], at + size


def _pairs(data: bytes, at: int, count: int) -> tuple[list[Pair], int]:
    found = []
    for _ in range(count):
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        if key is None:
            raise ValueError
        found.append((key, value))
    return found, at


# --- record.headers -------------------------------------------------------------------------------

HEADER: Final = np.dtype(
    [
        ("position", "i8"), ("size", "i8"), ("base_offset", "i8"), ("end_offset", "i8"),
        ("base_timestamp", "i8"), ("max_timestamp", "i8"), ("producer_id", "i8"), ("epoch", "i4"),
        ("count", "i4"), ("crc", "u4"), ("base_sequence", "i4"), ("producer_epoch", "i2"),
        ("attributes", "i2"), ("crc_ok", "?"),
    ]
)  # fmt: skip


class Headers:
    """As :class:`kraftfast.record.headers.Headers`."""

    __slots__ = ("rows", "position", "fault")

    def __init__(self, rows: Any, position: int, fault: str) -> None:
        self.rows, self.position, self.fault = rows, position, fault


def decode_headers(
    buffer: Any, position: int = 0, end: int | None = None, *, batches_max: int = 1 << 20,
    verify_crc: bool = False,
) -> Headers:  # fmt: skip
    """Do as :func:`kraftfast.record.headers.decode_headers`."""
    if batches_max < 1:
        raise InvalidOption(f"batches_max={batches_max}")
    data = pure.window(buffer, position, end)
    found: list[tuple[Any, ...]] = []
    fault = ""
    while position < len(data) and len(found) < batches_max:
        try:
            h = batch_at(data, position)
        except CorruptBatch as error:
            fault = error.reason if data_end(data, position, len(data)) > position else ""
            break
        found.append(_header(h, position, not verify_crc or h.crc_ok()))
        position += h.size
    return Headers(np.array(found, HEADER), position, fault)


def _header(h: BatchView, position: int, crc_ok: bool) -> tuple[Any, ...]:
    return (
        position, h.size, h.base_offset, h.end_offset, h.base_timestamp, h.max_timestamp,
        h.producer_id, h.leader_epoch, h.record_count, h.crc, h.base_sequence,
        h.producer_epoch, h.attributes, crc_ok,
    )  # fmt: skip


def read_headers(
    fd: int, position: int, end: int, *, batches_max: int = 1 << 20, verify_crc: bool = False,
    until_offset: int = -1,
) -> Headers:  # fmt: skip
    """Do as :func:`kraftfast.record.headers.read_headers`; bodies are read too."""
    if batches_max < 1 or not 0 <= position <= end:
        raise InvalidOption(f"{batches_max} batches of bytes {position} to {end} of a file")
    found: list[tuple[Any, ...]] = []
    fault, held, at = "", b"", position
    while position < end and len(found) < batches_max and not fault:
        for size in (0, PIECE_BYTES, limits.BATCH_BYTES_MAX):  # 0: in what is held already
            if size:
                held, at = _copied(fd, position, min(size, end - position)), position
            try:
                h, fault = batch_at(held, position - at), ""
                break
            except CorruptBatch as error:
                fault = error.reason
                if fault != FAULT_TEXTS[Fault.INCOMPLETE]:
                    break
        if fault:
            fault = "" if _rest_is_zero(fd, position, end) else fault
            break
        found.append(_header(h, position, not verify_crc or h.crc_ok()))
        position += h.size
        if h.end_offset == until_offset:
            break
    return Headers(np.array(found, HEADER), position, fault)


def _copied(fd: int, position: int, size: int) -> bytes:
    """Return the bytes of a file, fewer if it ends."""
    data = b""
    while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
        data += more
    return data


def _rest_is_zero(fd: int, position: int, end: int) -> bool:
    while position < end:
        data = _copied(fd, position, min(PIECE_BYTES, end - position))
        if not data or data.strip(b"\0"):
            return False
        position += len(data)
    return True


# --- log.scan and log.segment ---------------------------------------------------------------------

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"

WHOLE, INCOMPLETE, END = Fault.OK, Fault.INCOMPLETE, Fault.EMPTY

PAGE_MAGIC: Final = 0x3147455354534146
SLOTS_AT, SLOT_BYTES, GENERATION_AT, PREPARED_AT = 512, 64, 1024, 1088
KEY_AT, KEY_BYTES, END_AT = 1152, 16, 1536
SLOT: Final = struct.Struct("=QqiIqiIQQ4xI")
PREPARED_BITS: Final = 48


def segment_name(base_offset: int) -> str:
    """Return the 20 digits that a segment's files start with."""
    return f"{base_offset:020d}"


def fault_text(fault: int) -> str:
    """Return why a walk stopped, in words."""
    return FAULT_TEXTS[fault]


def walk(
    buffer: Any, position: int, limit: int, offset: int, epoch: int = -1, *,
    end_offset: int = INT64_MAX, bytes_max: int = 2**64 - 1, verify_crc: bool = False,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Do as :func:`kraftfast.log.scan.walk`."""
    data = memoryview(buffer).cast("B")
    begin, fault = position, Fault.EMPTY
    if not position <= limit <= len(data):
        raise ValueError(f"bytes {position} to {limit} of a buffer of {len(data)}")
    while position < limit:
        fault, h = pure.parse_header(data, position, limit)
        if h is None and not any(data[position:limit]):
            fault = Fault.EMPTY
        if fault or h is None:
            break
        if h.base_offset != offset or h.leader_epoch < epoch:
            fault = Fault.OFFSET if h.base_offset != offset else Fault.EPOCH
            break
        if offset + h.record_count > end_offset:
            break
        behind = position + h.size
        if position > begin and behind - begin > bytes_max:
            break
        if verify_crc and crc32c(data[position + pure.CRC_FROM : behind]) != h.crc:
            fault = Fault.CRC
            break
        position, offset, epoch, fault = (
            behind, offset + h.record_count, h.leader_epoch, Fault.EMPTY
        )  # fmt: skip
    return position, offset, epoch, fault


def data_end(buffer: Any, position: int, limit: int) -> int:
    """See :func:`kraftfast.log.scan.data_end`."""
    data = memoryview(buffer).cast("B")
    if not position <= limit <= len(data):
        raise ValueError(f"bytes {position} to {limit} of a buffer of {len(data)}")
    while limit > position:
        begin = max(position, limit - PIECE_BYTES)
        there = np.flatnonzero(np.frombuffer(data[begin:limit], np.uint8))
        if len(there):
            return begin + int(there[-1]) + 1
        limit = begin
    return position


def page_words(page: Any) -> tuple[int, int | None, Any, Any] | None:
    """Do as :func:`kraftfast.log.scan.page_words`; the layout is cext/page.h's."""
    data = memoryview(page).cast("B")
    if len(data) != limits.PAGE_BYTES:
        raise ValueError(f"a page of {len(data)} bytes")
    word = struct.Struct("=Q")
    if word.unpack_from(data)[0] != PAGE_MAGIC:
        return None
    words = _newest_slot(data, SLOTS_AT)
    target, flushed = ((words[0], words[1]), (words[3], words[4])) if words else (None, None)
    stored = word.unpack_from(data, PREPARED_AT)[0]
    prepared = stored & (1 << PREPARED_BITS) - 1
    check = (prepared ^ prepared >> 16 ^ prepared >> 32 ^ 0x5A5A) & 0xFFFF
    end = prepared if prepared and stored >> PREPARED_BITS == check else None
    if any(data[KEY_AT : KEY_AT + KEY_BYTES]):
        last = _newest_slot(data, END_AT)
        here = last[-1] if last else 0
        end = here if end is None else min(here, end)
    return word.unpack_from(data, GENERATION_AT)[0], end, target, flushed


def _newest_slot(data: Any, slots_at: int) -> tuple[int, ...] | None:
    """Return the words behind the sequence of the newest of two slots, the position last."""
    newest, found = 0, None
    for number in range(2):
        at = slots_at + number * SLOT_BYTES
        sequence, *words, crc = SLOT.unpack_from(data, at)
        if crc == crc32c(data[at : at + SLOT_BYTES - 4]) and sequence & 1 == number:
            if sequence > newest:
                newest, found = sequence, tuple(words)
    return found
