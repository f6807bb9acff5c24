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
"""Key and value of one header of a record; the value may be null."""


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
    """Why a batch is not accepted. ``batch.pxd`` has the same numbers for the compiled side.

    Up to ``TRAILING`` the batch is corrupt (:class:`~kraftfast.errors.CorruptBatch`), from
    ``COMPRESSED`` on it is sound, but this log does not take it
    (:class:`~kraftfast.errors.RecordsRefused`).
    """

    NONE = 0
    # the header
    SHORT = 1
    LENGTH = 2
    MAGIC = 3
    ATTRIBUTES = 4
    COUNT = 5
    OFFSETS = 6
    EPOCH = 7
    TRUNCATED = 8
    CRC = 9
    # the records
    RECORD_LENGTH = 10
    RECORD_FIELD = 11
    RECORD_SIZE = 12
    RECORD_HEADERS = 13
    RECORD_OFFSET = 14
    RECORD_TIMESTAMP = 15
    CONTROL_KEY = 16
    TRAILING = 17
    # sound, but refused
    COMPRESSED = 18
    HAS_TIMESTAMP_DELTA = 19
    HAS_HEADERS = 20
    HAS_KEY = 21
    NO_VALUE = 22
    CONTROL_EMPTY = 23
    CONTROL_UNKNOWN = 24
    CONTROL_BATCH = 25


FAULT_TEXTS: Final[dict[Fault, str]] = {
    Fault.SHORT: "fewer bytes than a batch header",
    Fault.LENGTH: "batch length out of bounds",
    Fault.MAGIC: "magic is not 2",
    Fault.ATTRIBUTES: "unknown codec or attribute bits",
    Fault.COUNT: "record count does not fit the batch",
    Fault.OFFSETS: "base offset or last offset delta out of bounds",
    Fault.EPOCH: "leader epoch below -1",
    Fault.TRUNCATED: "the batch is longer than the bytes there are",
    Fault.CRC: "CRC-32C does not match",
    Fault.RECORD_LENGTH: "record length out of bounds",
    Fault.RECORD_FIELD: "a record field is cut off or not a canonical varint",
    Fault.RECORD_SIZE: "key or value size out of bounds",
    Fault.RECORD_HEADERS: "header count, key or value out of bounds, or bytes behind them",
    Fault.RECORD_OFFSET: "offset delta out of order",
    Fault.RECORD_TIMESTAMP: "timestamp out of bounds",
    Fault.CONTROL_KEY: "control record without version and type in its key",
    Fault.TRAILING: "bytes behind the last record",
    Fault.COMPRESSED: "compressed batch",
    Fault.HAS_TIMESTAMP_DELTA: "record with a timestamp of its own",
    Fault.HAS_HEADERS: "record with headers",
    Fault.HAS_KEY: "data record with a key",
    Fault.NO_VALUE: "null or empty value",
    Fault.CONTROL_EMPTY: "control record with an empty value",
    Fault.CONTROL_UNKNOWN: "unknown type of control record",
    Fault.CONTROL_BATCH: "control batch from a producer",
}

assert set(FAULT_TEXTS) == set(Fault) - {Fault.NONE}, "every fault has its words"


def refusal(fault: int, position: int, record: int = -1) -> errors.KraftfastError:
    """The exception for a fault of the batch that begins at byte ``position``.

    ``record`` counts the records of the batch from 0; -1 if the fault is not one record's.
    """
    reason = FAULT_TEXTS[Fault(fault)]
    where = f"batch at byte {position}" + (f", record {record}" if record >= 0 else "")
    kind = errors.RecordsRefused if fault >= Fault.COMPRESSED else errors.CorruptBatch
    return kind(f"{where}: {reason}", position, reason)
