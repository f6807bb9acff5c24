"""Variable-length integers as Kafka lays them out: the plain-Python twin of ``cext/varint.h``.

Two families that must not be mixed up: lengths and tags of the flexible protocol are read as they
stand; fields of records are zig-zag coded on top (:func:`zigzag`).
"""

from __future__ import annotations


def read(data: bytes | memoryview, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    """Return the unsigned integer at byte ``at`` and the byte behind it, at most ``end``.

    Raises ValueError if it is cut off, wider than ``bits``, or not in its shortest form (S7).

    >>> read(b"\\xac\\x02", 0, 2)
    (300, 2)
    """
    value = shift = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits or (byte == 0 and shift):
                raise ValueError("a varint that is too large or not in its shortest form")
            return value, at
        shift += 7
    raise ValueError("a varint without an end")


def write(out: bytearray, value: int) -> None:
    """Append an unsigned integer in its shortest form."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def encoded(value: int) -> bytes:
    """Return an unsigned integer in its shortest form."""
    out = bytearray()
    write(out, value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Return the unsigned integer that stands for a signed one, small for small of either sign.

    >>> [zigzag(each) for each in (0, -1, 1, -2)]
    [0, 1, 2, 3]
    """
    return value << 1 if value >= 0 else ~(value << 1)


def unzigzag(value: int) -> int:
    """Return the signed integer of :func:`zigzag`."""
    return value >> 1 ^ -(value & 1)
