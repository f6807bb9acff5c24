"""The codec that the field tables drive: one plan per (message, version), compiled on first use.

A plan is flat: neighbouring fields of fixed size are one ``struct`` call, everything else is one
function a field. Decoding is bounded (S6, S7): every count and length is compared with what
remains before anything is allocated or moved, and what Python objects can outgrow their bytes
(small array elements, non-ASCII text) is capped by ``limits``. Records are never copied: decoding
gives a memoryview into the frame, encoding in pieces gives back the very object.

Sources: KIP-482 (flexible versions, tagged fields), kraft-reference.md section 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self

import msgspec

from kraftfast import limits
from kraftfast.errors import MalformedFrame, UnencodableMessage, UnsupportedVersion
from kraftfast.wire.notation import Default, Field, Versions, parse, versions

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 2**15 - 1  # in compact form too (Kafka: MessageGenerator's string reader)

_ABSENT: Any = object()
_FIXED = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "bool": "?", "uuid": "16s"}
_PYTHON_TYPES = {"bool": bool, "uuid": bytes, "str": str, "bytes": bytes, "records": Buffer}


# --- reading ----------------------------------------------------------------------------------


class Reader:
    """A place in a frame, and what may still be spent on it."""

    __slots__ = ("data", "at", "end", "elements", "text", "what")

    data: bytes | memoryview
    at: int  # next byte; at <= end always
    end: int  # <= len(data); within a tagged field, where that field ends
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
        """The error to raise for what stands here."""
        return MalformedFrame(f"{self.what}, near byte {self.at} of {self.end}: {why}")


Read = Callable[[Reader], Any]


def read_uvarint(r: Reader) -> int:
    """An unsigned varint of at most 32 bits in its shortest form (S7)."""
    data, at, end = r.data, r.at, r.end
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF or (byte == 0 and shift):
                raise r.malformed("a varint that is too large or not in its shortest form")
            r.at = at
            return value
        shift += 7
        if shift > 28:
            break
    raise r.malformed("a varint without an end")


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
    """Reads a length that fits what remains, or -1 for null where null may stand."""

    def read(r: Reader) -> int:
        n = length(r)
        if n > r.end - r.at:  # S7: against what remains, never at + n
            raise r.malformed(f"a length of {n}")
        if n < 0 and (n < -1 or not nullable):
            raise r.malformed(f"a length of {n}")
        return n

    return read


def string_reader(flexible: bool, nullable: bool) -> Read:
    """Reads a string, or None for null."""
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


def _bytes_reader(flexible: bool, nullable: bool, records: bool) -> Read:
    span = _span_reader(_read_compact_length if flexible else _read_int32_length, nullable)

    def read(r: Reader) -> bytes | memoryview | None:
        n = span(r)
        if n < 0:
            return None
        at = r.at
        r.at = at + n
        return memoryview(r.data)[at : at + n] if records else bytes(r.data[at : at + n])

    return read


def _array_reader(flexible: bool, nullable: bool, element: Read, element_bytes: int) -> Read:
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


def _fixed_reader(code: str) -> Read:
    unpack, size = struct.Struct(">" + code).unpack_from, struct.calcsize(">" + code)

    def read(r: Reader) -> tuple[Any, ...]:
        at = r.at
        if size > r.end - at:
            raise r.malformed(f"{size} bytes are needed")
        r.at = at + size
        return unpack(r.data, at)

    return read


def _single_reader(code: str) -> Read:
    read = _fixed_reader(code)
    return lambda r: read(r)[0]


def read_tags(r: Reader, known: dict[int, tuple[int, Read]], values: list[Any]) -> None:
    """The tagged fields at the end of a struct; ``known`` maps a tag to (index in values, reader)."""
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
            outer_end, r.end = r.end, field_end
            values[index] = read(r)
            if r.at != field_end:
                raise r.malformed(f"tag {tag} holds more than its field")
            r.end = outer_end
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
        """Bytes of the whole, records included."""
        return len(self) + sum(memoryview(records).nbytes for _, records in self.payloads)

    def pieces(self) -> list[Buffer]:
        """What to send, in order; records as the objects that were given."""
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


def write_uvarint(out: bytearray, value: int) -> None:
    """An unsigned varint in its shortest form."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_compact_length(out: Writer, n: int) -> None:
    write_uvarint(out, n + 1)


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
    """Writes a string, or None as null."""
    length = _length_writer(flexible, 2)

    def write(out: Writer, text: str) -> None:
        raw = text.encode()
        if len(raw) > STRING_BYTES_MAX:
            raise ValueError(f"a string of {len(raw)} bytes")
        length(out, len(raw))
        out += raw

    return _null_writer(write, length, nullable)


def _bytes_writer(flexible: bool, nullable: bool, records: bool) -> Write:
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


def _array_writer(flexible: bool, nullable: bool, element: Write) -> Write:
    length = _length_writer(flexible, 4)

    def write(out: Writer, values: list[Any]) -> None:
        length(out, len(values))
        for value in values:
            element(out, value)

    return _null_writer(write, length, nullable)


def _fixed_writer(names: list[str], codes: list[str]) -> Write:
    pack, get = struct.Struct(">" + "".join(codes)).pack, attrgetter(*names)
    uuids = [attrgetter(name) for name, code in zip(names, codes) if code == "16s"]
    single = len(names) == 1

    def write(out: Writer, message: Any) -> None:
        for uuid in uuids:
            if len(uuid(message)) != 16:
                raise ValueError("a uuid has 16 bytes")
        out += pack(get(message)) if single else pack(*get(message))

    return write


def _single_writer(code: str) -> Write:
    pack = struct.Struct(">" + code).pack

    def write(out: Writer, value: Any) -> None:
        if code == "16s" and len(value) != 16:
            raise ValueError("a uuid has 16 bytes")
        out += pack(value)

    return write


def _write_field(name: str, write: Write) -> Write:
    get = attrgetter(name)
    return lambda out, message: write(out, get(message))


# --- plans ------------------------------------------------------------------------------------


class Plan:
    """How one struct of one version is read and written."""

    __slots__ = (
        "cls", "steps", "template", "fresh", "flexible", "tag_readers", "bytes_min",
        "writers", "tag_writers", "absent",
    )  # fmt: skip

    cls: type
    steps: list[tuple[int | slice, Read]]  # where in ``template`` each reader's result goes
    template: list[Any]  # the constructor's arguments: defaults, _ABSENT for those in ``fresh``
    fresh: list[tuple[int, Callable[[], Any]]]  # makers of the defaults that are mutable
    flexible: bool
    tag_readers: dict[int, tuple[int, Read]]
    bytes_min: int  # no struct of this version is shorter; > 0
    writers: list[Write]
    tag_writers: list[tuple[int, Callable[[Any], Any], Any, Write]]  # tag, value of, default; by tag
    absent: list[tuple[Callable[[Any], Any], Any, Field]]  # not ignorable, not in this version

    def __init__(self, message: type[Message], cls: type, fields: tuple[Field, ...], v: int):
        self.cls = cls
        self.flexible = v in message.FLEXIBLE
        self.steps, self.template, self.fresh, self.tag_readers = [], [], [], {}
        self.writers, self.tag_writers, self.absent = [], [], []
        self.bytes_min = 1 if self.flexible else 0
        run: list[tuple[int, Field]] = []
        for index, field in enumerate(fields):
            default = _default_of(message, field)
            self.template.append(_ABSENT if callable(default) else default)
            if callable(default):
                self.fresh.append((index, default))
            fixed = field.kind in _FIXED and not field.array
            present = v in field.versions
            if run and not (present and fixed and field.tag is None):
                self._add_run(run)
                run = []
            if not present:
                if not field.ignorable:
                    self.absent.append((attrgetter(field.attribute), _value(default), field))
            elif field.tag is None and fixed:
                run.append((index, field))
            else:
                self._add(message, index, field, default, v)
        if run:
            self._add_run(run)
        self.tag_writers.sort(key=lambda entry: entry[0])

    def _add_run(self, run: list[tuple[int, Field]]) -> None:
        """Neighbours of fixed size: one struct call for all."""
        codes = [_FIXED[field.kind] for _, field in run]
        read = _fixed_reader("".join(codes))
        self.steps.append((slice(run[0][0], run[-1][0] + 1), read))
        self.writers.append(_fixed_writer([field.attribute for _, field in run], codes))
        self.bytes_min += struct.calcsize(">" + "".join(codes))

    def _add(self, message: type[Message], index: int, field: Field, default: Any, v: int) -> None:
        read, write, size = _field_codec(message, field, v)
        if field.tag is None:
            self.steps.append((index, read))
            self.writers.append(_write_field(field.attribute, write))
            self.bytes_min += size
        else:
            assert self.flexible, "tagged fields need a flexible version"
            self.tag_readers[field.tag] = (index, read)
            get = attrgetter(field.attribute)
            self.tag_writers.append((field.tag, get, _value(default), write))

    def read(self, r: Reader) -> Any:
        """The struct that starts at ``r.at``."""
        values = self.template.copy()
        for index, read in self.steps:
            values[index] = read(r)
        if self.flexible:
            read_tags(r, self.tag_readers, values)
        for index, make in self.fresh:
            if values[index] is _ABSENT:
                values[index] = make()
        return self.cls(*values)

    def write(self, out: Writer, message: Any) -> None:
        """Append the struct to ``out``."""
        for get, default, field in self.absent:
            if get(message) != default:
                raise UnsupportedVersion(
                    f"{type(message).__qualname__}.{field.attribute} = {get(message)!r} can be"
                    f" said in versions {field.versions} only"
                )
        for write in self.writers:
            write(out, message)
        if self.flexible:
            self._write_tags(out, message)

    def _write_tags(self, out: Writer, message: Any) -> None:
        told = [
            (tag, value, write)
            for tag, get, default, write in self.tag_writers
            if (value := get(message)) != default
        ]
        write_uvarint(out, len(told))
        for tag, value, write in told:
            field = Writer()
            write(field, value)
            write_uvarint(out, tag)
            write_uvarint(out, len(field))
            out += field


def _field_codec(message: type[Message], field: Field, v: int) -> tuple[Read, Write, int]:
    """How one field, or one array of them, is read and written, and its least number of bytes."""
    flexible, nullable = v in message.FLEXIBLE, v in field.nullable
    if field.kind == "struct":
        plan = Plan(message, getattr(message, field.struct_name), field.fields, v)
        read, write, size = plan.read, plan.write, plan.bytes_min
    elif field.kind in _FIXED:
        code = _FIXED[field.kind]
        read, write, size = _single_reader(code), _single_writer(code), struct.calcsize(">" + code)
    elif field.kind == "str":
        of_string = nullable and not field.array
        read, write = string_reader(flexible, of_string), string_writer(flexible, of_string)
        size = 1 if flexible else 2
    else:
        records = field.kind == "records"
        read = _bytes_reader(flexible, nullable, records)
        write = _bytes_writer(flexible, nullable, records)
        size = 1 if flexible else 4
    if not field.array:
        return read, write, size
    return (
        _array_reader(flexible, nullable, read, size),
        _array_writer(flexible, nullable, write),
        1 if flexible else 4,
    )


def _default_of(message: type[Message], field: Field) -> Default | Callable[[], Any]:
    """A field's default, or its maker where the default is mutable."""
    if field.default != ():
        return field.default
    return list if field.array else getattr(message, field.struct_name)


def _value(default: Any) -> Any:
    return default() if callable(default) else default


# --- messages ---------------------------------------------------------------------------------


class Message(msgspec.Struct, repr_omit_defaults=True):
    """Base of all requests and responses. Instances compare by value."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]  # those that we speak
    FLEXIBLE: ClassVar[Versions]
    FIELDS: ClassVar[tuple[Field, ...]]
    PLANS: ClassVar[dict[int, Plan]]  # those compiled so far, by version

    @classmethod
    def plan(cls, version: int) -> Plan:
        """The plan of ``version``. Raises :class:`UnsupportedVersion` for one we do not speak."""
        plan = cls.PLANS.get(version)
        if plan is None:
            if version not in cls.VERSIONS:
                raise UnsupportedVersion(
                    f"{cls.__name__} version {version}; known are {cls.VERSIONS}"
                )
            plan = cls.PLANS[version] = Plan(cls, cls, cls.FIELDS, version)
        return plan

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int, start: int = 0) -> Self:
        """The message that ``data`` holds from ``start`` to its end.

        Records are memoryviews into ``data``; all else is copied out of it. Unknown tagged fields
        are skipped. Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
        """
        plan = cls.plan(version)
        reader = Reader(data, start, f"{cls.__name__} v{version}")
        message: Self = plan.read(reader)
        if reader.at != reader.end:
            raise reader.malformed(f"{reader.end - reader.at} bytes too many")
        return message

    def encode_into(self, out: Writer, version: int) -> None:
        """Append the message to ``out``.

        Raises :class:`UnsupportedVersion` if a field that may not be dropped is not in
        ``version``, :class:`UnencodableMessage` if a value does not fit its field.
        """
        try:
            self.plan(version).write(out, self)
        except (struct.error, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise UnencodableMessage(f"{type(self).__name__} v{version}: {error}") from error

    def encode(self, version: int) -> bytes:
        """The message as bytes. Raises as :meth:`encode_into`."""
        return b"".join(self.encode_pieces(version))

    def encode_pieces(self, version: int) -> list[Buffer]:
        """The message as a list for ``sendmsg``, records not copied. Raises as `encode_into`."""
        out = Writer()
        self.encode_into(out, version)
        return out.pieces()


def define(
    name: str, key: int, served: str, flexible: str, table: str, module: str
) -> type[Message]:
    """The class of the message whose fields ``table`` lists (see ``notation.py``)."""
    fields = parse(table)
    structs: dict[str, Any] = {}
    _define_structs(name, fields, structs, module)
    constants = {
        "API_KEY": key,
        "VERSIONS": versions(served),
        "FLEXIBLE": versions(flexible),
        "FIELDS": fields,
        "PLANS": {},
        "__doc__": f"{name} ({int(key)}), versions {served}.",
        **structs,
    }
    return msgspec.defstruct(
        name,
        [_attribute(field, structs) for field in fields],
        bases=(Message,),
        namespace=constants,
        module=module,
    )


def _define_structs(
    message: str, fields: tuple[Field, ...], structs: dict[str, Any], module: str
) -> None:
    for field in fields:
        if field.kind != "struct":
            continue
        _define_structs(message, field.fields, structs, module)
        name = field.struct_name
        assert name not in structs, f"two structs of {message} are called {name}"
        structs[name] = msgspec.defstruct(
            name,
            [_attribute(inner, structs) for inner in field.fields],
            namespace={"__qualname__": f"{message}.{name}"},
            module=module,
            repr_omit_defaults=True,
        )


def _attribute(field: Field, structs: dict[str, Any]) -> tuple[str, Any, Any]:
    """Name, type and default of the attribute that stands for ``field``."""
    kind = structs[field.struct_name] if field.kind == "struct" else None
    kind = kind or _PYTHON_TYPES.get(field.kind, int)
    if field.array:
        kind = list[kind]  # type: ignore[valid-type]
    if field.nullable.last >= 0:
        kind = kind | None
    if field.default != ():
        return field.attribute, kind, field.default
    maker = list if field.array else structs[field.struct_name]
    return field.attribute, kind, msgspec.field(default_factory=maker)
