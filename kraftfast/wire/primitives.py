"""Reading and writing of Kafka's types, one function each: what the plans of ``schema`` consist of.

Every count and length is compared with what remains before anything is allocated or moved (S7),
and what Python objects can outgrow their bytes (small array elements, non-ASCII text) is capped
for a whole message. Sources: KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kraftfast import limits, varints
from kraftfast.errors import MalformedFrame

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 2**15 - 1  # in compact form too (Kafka: MessageGenerator's string reader)

FIXED = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "bool": "?", "uuid": "16s"}
"""The types of fixed size, as ``struct`` calls them."""

UNENCODABLE = (struct.error, TypeError, AttributeError, ValueError, OverflowError)
"""What writing a value that does not fit its field can raise; callers make one error of them."""


# --- reading ----------------------------------------------------------------------------------


class Reader:
    """A place in a frame, and what may still be spent on it."""

    __slots__ = ("data", "at", "end", "elements", "text", "what")

    data: bytes | memoryview
    at: int  # next byte; at <= end always
    end: int  # len(data)
    elements: int  # array elements that may still come, >= 0
    text: int  # bytes of strings that may still come, >= 0
    what: str  # for error messages

    def __init__(self, data: bytes | memoryview, at: int, what: str) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.elements = limits.MESSAGE_ELEMENTS_MAX
        self.text = limits.MESSAGE_TEXT_BYTES_MAX
        self.what = what

    def malformed(self, why: str) -> MalformedFrame:
        """Return the error to raise for what stands here."""
        return MalformedFrame(f"{self.what}, near byte {self.at} of {self.end}: {why}")


Read = Callable[[Reader], Any]


def read_uvarint(r: Reader) -> int:
    """Read an unsigned varint of at most 32 bits in its shortest form (S7)."""
    try:
        value, r.at = varints.read(r.data, r.at, r.end)
    except ValueError as error:
        raise r.malformed(str(error)) from None
    return value


def _read_compact_length(r: Reader) -> int:
    return read_uvarint(r) - 1


def _read_int16_length(r: Reader) -> int:
    at = r.at
    if r.end - at < 2:
        raise r.malformed("cut off in a length")
    r.at = at + 2
    return int.from_bytes(r.data[at : at + 2], "big", signed=True)


def _read_int32_length(r: Reader) -> int:
    at = r.at
    if r.end - at < 4:
        raise r.malformed("cut off in a length")
    r.at = at + 4
    return int.from_bytes(r.data[at : at + 4], "big", signed=True)


def _span_reader(length: Callable[[Reader], int], nullable: bool) -> Callable[[Reader], int]:
    """Return a reader of a length that fits what remains, or -1 for null where null may stand."""

    def read(r: Reader) -> int:
        n = length(r)
        if n > r.end - r.at:  # S7: against what remains, never at + n
            raise r.malformed(f"a length of {n}")
        if n < 0 and (n < -1 or not nullable):
            raise r.malformed(f"a length of {n}")
        return n

    return read


def string_reader(flexible: bool, nullable: bool) -> Read:
    """Return a reader of a string, or None for null."""
    span = _span_reader(_read_compact_length if flexible else _read_int16_length, nullable)

    def read(r: Reader) -> str | None:
        n = span(r)
        if n < 0:
            return None
        if n > STRING_BYTES_MAX or n > r.text:
            raise r.malformed(f"a string of {n} bytes")
        r.text -= n
        at = r.at
        r.at = at + n
        try:
            return str(r.data[at : at + n], "utf-8")
        except UnicodeDecodeError:
            raise r.malformed("a string that is not UTF-8") from None

    return read


def bytes_reader(flexible: bool, nullable: bool, records: bool) -> Read:
    """Return a reader of bytes, or None for null; records as a view into the frame."""
    span = _span_reader(_read_compact_length if flexible else _read_int32_length, nullable)

    def read(r: Reader) -> bytes | memoryview | None:
        n = span(r)
        if n < 0:
            return None
        at = r.at
        r.at = at + n
        return memoryview(r.data)[at : at + n] if records else bytes(r.data[at : at + n])

    return read


def array_reader(flexible: bool, nullable: bool, element: Read, element_bytes: int) -> Read:
    """Return a reader of a list, or None for null; no element takes less than ``element_bytes``."""
    length = _read_compact_length if flexible else _read_int32_length
    assert element_bytes > 0, "every element takes at least a byte"

    def read(r: Reader) -> list[Any] | None:
        n = length(r)
        if n < 0:
            if n == -1 and nullable:
                return None
            raise r.malformed(f"an array of {n}")
        if n > (r.end - r.at) // element_bytes or n > r.elements:  # S7
            raise r.malformed(f"an array of {n}")
        r.elements -= n
        return [element(r) for _ in range(n)]

    return read


def fixed_reader(code: str) -> Read:
    """Return a reader of fields of fixed size, as a tuple."""
    unpack, size = struct.Struct(">" + code).unpack_from, struct.calcsize(">" + code)

    def read(r: Reader) -> tuple[Any, ...]:
        at = r.at
        if size > r.end - at:
            raise r.malformed(f"{size} bytes are needed")
        r.at = at + size
        return unpack(r.data, at)

    return read


def single_reader(code: str) -> Read:
    """Return a reader of one value of fixed size."""
    read = fixed_reader(code)
    return lambda r: read(r)[0]


def read_tags(r: Reader, known: dict[int, tuple[int, Read]], values: list[Any]) -> None:
    """Read the tagged fields at the end of a struct (S7).

    ``known`` maps a tag to where in ``values`` it goes and how it is read; others are skipped.
    """
    count = read_uvarint(r)
    if count == 0:
        return
    if count > limits.TAGGED_FIELDS_MAX:
        raise r.malformed(f"{count} tagged fields")
    last = -1
    for _ in range(count):
        tag = read_uvarint(r)
        if tag <= last:
            raise r.malformed(f"tag {tag} after tag {last}")
        last = tag
        size = read_uvarint(r)
        if size > r.end - r.at or size > limits.TAGGED_FIELD_BYTES_MAX:  # S7
            raise r.malformed(f"a tagged field of {size} bytes")
        field_end = r.at + size
        if tag in known:
            index, read = known[tag]
            values[index] = read(r)
            if r.at != field_end:
                raise r.malformed(f"tag {tag} is not of {size} bytes")
        r.at = field_end  # a tag that we do not know is skipped and not kept


# --- writing ----------------------------------------------------------------------------------


class Writer(bytearray):
    """A frame in the making: the bytes of this array, with records let in where they belong."""

    __slots__ = ("payloads",)

    payloads: list[tuple[int, Buffer]]  # (position in this array, records that come there)

    def __init__(self) -> None:
        super().__init__()
        self.payloads = []

    def size(self) -> int:
        """Return the bytes of the whole, records included."""
        return len(self) + sum(memoryview(records).nbytes for _, records in self.payloads)

    def pieces(self) -> list[Buffer]:
        """Return what to send, in order; records as the objects that were given."""
        pieces: list[Buffer] = []
        start = 0
        for position, records in self.payloads:
            if position > start:
                pieces.append(bytes(self[start:position]))
            pieces.append(records)
            start = position
        if start < len(self):
            pieces.append(bytes(self[start:]))
        return pieces


Write = Callable[[Writer, Any], None]


def _write_compact_length(out: Writer, n: int) -> None:
    varints.write(out, n + 1)


def _length_writer(flexible: bool, size: int) -> Callable[[Writer, int], None]:
    if flexible:
        return _write_compact_length

    def write(out: Writer, n: int) -> None:
        out += n.to_bytes(size, "big", signed=True)

    return write


def _null_writer(write: Write, length: Callable[[Writer, int], None], nullable: bool) -> Write:
    """``write``, with null as length -1 where this version allows it."""

    def write_or_null(out: Writer, value: Any) -> None:
        if value is not None:
            write(out, value)
        elif nullable:
            length(out, -1)
        else:
            raise TypeError("null is not possible here")

    return write_or_null


def string_writer(flexible: bool, nullable: bool) -> Write:
    """Return a writer of a string, or None as null."""
    length = _length_writer(flexible, 2)

    def write(out: Writer, text: str) -> None:
        raw = text.encode()
        if len(raw) > STRING_BYTES_MAX:
            raise ValueError(f"a string of {len(raw)} bytes")
        length(out, len(raw))
        out += raw

    return _null_writer(write, length, nullable)


def bytes_writer(flexible: bool, nullable: bool, records: bool) -> Write:
    """Return a writer of bytes, or None as null; records are let in as the object that they are."""
    length = _length_writer(flexible, 4)

    def write(out: Writer, value: Buffer) -> None:
        view = memoryview(value)
        if not view.c_contiguous:
            raise ValueError("records or bytes that do not lie in one piece")
        n = view.nbytes
        length(out, n)
        if not records:
            out += value
        elif n:
            out.payloads.append((len(out), value))

    return _null_writer(write, length, nullable)


def array_writer(flexible: bool, nullable: bool, element: Write) -> Write:
    """Return a writer of a list, or None as null."""
    length = _length_writer(flexible, 4)

    def write(out: Writer, values: list[Any]) -> None:
        length(out, len(values))
        for value in values:
            element(out, value)

    return _null_writer(write, length, nullable)


def fixed_writer(names: list[str], codes: list[str]) -> Write:
    """Return a writer of the attributes ``names`` of a struct, all of fixed size."""
    pack, get = struct.Struct(">" + "".join(codes)).pack, attrgetter(*names)
    uuids = [attrgetter(name) for name, code in zip(names, codes) if code == "16s"]
    single = len(names) == 1

    def write(out: Writer, message: Any) -> None:
        for uuid in uuids:
            if len(uuid(message)) != 16:
                raise ValueError("a uuid has 16 bytes")
        out += pack(get(message)) if single else pack(*get(message))

    return write


def single_writer(code: str) -> Write:
    """Return a writer of one value of fixed size."""
    pack = struct.Struct(">" + code).pack

    def write(out: Writer, value: Any) -> None:
        if code == "16s" and len(value) != 16:
            raise ValueError("a uuid has 16 bytes")
        out += pack(value)

    return write


def field_writer(name: str, write: Write) -> Write:
    """Return a writer of the attribute ``name`` of a struct."""
    get = attrgetter(name)
    return lambda out, message: write(out, get(message))
