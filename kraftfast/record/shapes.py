"""What the compiled codec, its plain-Python twin and their users all speak of.

Sources: Kafka's ``DefaultRecordBatch`` (attributes), ``CompressionType``, ``DefaultRecord``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from kraftfast import errors

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08  # every record has the batch's max timestamp
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40  # the base timestamp is when a tombstone may go
ATTRIBUTES_KNOWN: Final = 0x7F

Header = tuple[str, bytes | None]
"""Key and value of one header of a record; the value may be null.

A producer's key is UTF-8; of another producer's, each byte that is not is a lone surrogate.
"""


def key_bytes(key: str) -> bytes:
    """Return the key of a header as it stands in the record that it was read from.

    >>> key_bytes("caf\\udce9")
    b'caf\\xe9'
    """
    return key.encode(errors="surrogateescape")


class Record(NamedTuple):
    """One record as it was decoded.

    ``timestamp`` is milliseconds since 1970; ``key`` and ``value`` are ``None`` if null.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Fault(IntEnum):
    """Why a batch is not accepted: the faults of ``cext/batch_header.h``, by the same numbers.

    Up to ``TRAILING`` the batch is corrupt (:class:`~kraftfast.errors.CorruptBatch`), from
    ``COMPRESSED`` on it is sound, but this log does not take it
    (:class:`~kraftfast.errors.RecordsRefused`).
    """

    OK = 0
    # the header
    INCOMPLETE = 1
    EMPTY = 2
    LENGTH = 3
    MAGIC = 4
    ATTRIBUTES = 5
    COUNT = 6
    OFFSET_BOUNDS = 7
    EPOCH_BOUNDS = 8
    CRC = 9
    # what a log asks besides
    OFFSET = 10
    EPOCH = 11
    UNREADABLE = 12
    STALE = 13
    RECORDS = 14
    # the records
    RECORD_LENGTH = 15
    RECORD_FIELD = 16
    RECORD_SIZE = 17
    RECORD_HEADERS = 18
    RECORD_OFFSET = 19
    RECORD_TIMESTAMP = 20
    CONTROL_KEY = 21
    TRAILING = 22
    # sound, but refused
    COMPRESSED = 23
    RECORD_HAS_TIMESTAMP_DELTA = 24
    RECORD_HAS_HEADERS = 25
    RECORD_HAS_KEY = 26
    RECORD_NO_VALUE = 27
    CONTROL_EMPTY = 28
    CONTROL_UNKNOWN = 29
    CONTROL_BATCH = 30


FAULT_TEXTS: Final[dict[int, str]] = {
    Fault.OK: "good",
    Fault.INCOMPLETE: "the batch is longer than the bytes there are",
    Fault.EMPTY: "zeros, where a batch should begin",
    Fault.LENGTH: "batch length out of bounds",
    Fault.MAGIC: "magic is not 2",
    Fault.ATTRIBUTES: "unknown codec or attribute bits",
    Fault.COUNT: "record count does not fit the batch",
    Fault.OFFSET_BOUNDS: "base offset or last offset delta out of bounds",
    Fault.EPOCH_BOUNDS: "leader epoch below -1",
    Fault.CRC: "CRC-32C does not match",
    Fault.OFFSET: "base offset does not follow the log",
    Fault.EPOCH: "leader epoch does not follow the log",
    Fault.UNREADABLE: "source cannot be read",
    Fault.STALE: "source changed while it was read",
    Fault.RECORDS: "records that are compressed or do not hold",
    Fault.RECORD_LENGTH: "record length out of bounds",
    Fault.RECORD_FIELD: "a record field is cut off or not a canonical varint",
    Fault.RECORD_SIZE: "key or value size out of bounds",
    Fault.RECORD_HEADERS: "header count, key or value out of bounds, or bytes behind them",
    Fault.RECORD_OFFSET: "offset delta out of order",
    Fault.RECORD_TIMESTAMP: "timestamp out of bounds",
    Fault.CONTROL_KEY: "control record without version and type in its key",
    Fault.TRAILING: "bytes behind the last record",
    Fault.COMPRESSED: "compressed batch",
    Fault.RECORD_HAS_TIMESTAMP_DELTA: "record with a timestamp of its own",
    Fault.RECORD_HAS_HEADERS: "record with headers",
    Fault.RECORD_HAS_KEY: "data record with a key",
    Fault.RECORD_NO_VALUE: "null or empty value",
    Fault.CONTROL_EMPTY: "control record with an empty value",
    Fault.CONTROL_UNKNOWN: "unknown type of control record",
    Fault.CONTROL_BATCH: "control batch from a producer",
}

assert set(FAULT_TEXTS) == set(Fault), "every fault has its words"


def refusal(fault: int, position: int, record: int = -1) -> errors.KraftfastError:
    """Return the exception for a fault of the batch that begins at byte ``position``.

    ``record`` counts the records of the batch from 0; -1 if the fault is not one record's.
    """
    reason = FAULT_TEXTS[fault]
    where = f"batch at byte {position}" + (f", record {record}" if record >= 0 else "")
    kind = errors.RecordsRefused if fault >= Fault.COMPRESSED else errors.CorruptBatch
    return kind(f"{where}: {reason}", position, reason)
