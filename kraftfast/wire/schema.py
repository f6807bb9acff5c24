"""The codec that the field tables drive: one plan per (message, version), compiled on first use.

A plan is flat: neighbouring fields of fixed size are one ``struct`` call, everything else is one
function of ``primitives`` a field. Decoding is bounded (S6, S7). Records are never copied:
decoding gives a memoryview into the frame, encoding in pieces gives back the very object.
Sources: KIP-482 (flexible versions, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self

import msgspec

from kraftfast import varints
from kraftfast.errors import UnencodableMessage, UnsupportedVersion
from kraftfast.wire.notation import Default, Field, Versions, parse, versions
from kraftfast.wire.primitives import (
    FIXED,
    UNENCODABLE,
    Buffer,
    Read,
    Reader,
    Write,
    Writer,
    array_reader,
    array_writer,
    bytes_reader,
    bytes_writer,
    field_writer,
    fixed_reader,
    fixed_writer,
    read_tags,
    single_reader,
    single_writer,
    string_reader,
    string_writer,
)

_ABSENT: Any = object()
_PYTHON_TYPES: dict[str, Any] = {
    "bool": bool,
    "uuid": bytes,
    "str": str,
    "bytes": Buffer,
    "records": Buffer,
}


# --- plans ------------------------------------------------------------------------------------


class FieldPlan:
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
    tag_writers: list[tuple[int, Callable[[Any], Any], Any, Write]]  # tag, getter, default; sorted
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
            fixed = field.kind in FIXED and not field.array
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
        """Add neighbours of fixed size: one struct call for all."""
        codes = [FIXED[field.kind] for _, field in run]
        read = fixed_reader("".join(codes))
        self.steps.append((slice(run[0][0], run[-1][0] + 1), read))
        self.writers.append(fixed_writer([field.attribute for _, field in run], codes))
        self.bytes_min += struct.calcsize(">" + "".join(codes))

    def _add(self, message: type[Message], index: int, field: Field, default: Any, v: int) -> None:
        read, write, size = _field_codec(message, field, v)
        if field.tag is None:
            self.steps.append((index, read))
            self.writers.append(field_writer(field.attribute, write))
            self.bytes_min += size
        else:
            assert self.flexible, "tagged fields need a flexible version"
            self.tag_readers[field.tag] = (index, read)
            get = attrgetter(field.attribute)
            self.tag_writers.append((field.tag, get, _value(default), write))

    def read(self, r: Reader) -> Any:
        """Read the struct that starts at ``r.at``."""
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
        varints.write(out, len(told))
        for tag, value, write in told:
            field = Writer()
            write(field, value)
            varints.write(out, tag)
            varints.write(out, len(field))
            out += field


def _field_codec(message: type[Message], field: Field, v: int) -> tuple[Read, Write, int]:
    """Return how one field, or an array of them, is read and written, and its least size."""
    flexible, nullable = v in message.FLEXIBLE, v in field.nullable
    read: Read
    write: Write
    if field.kind == "struct":
        plan = FieldPlan(message, getattr(message, field.struct_name), field.fields, v)
        read, write, size = plan.read, plan.write, plan.bytes_min
    elif field.kind in FIXED:
        code = FIXED[field.kind]
        read, write, size = single_reader(code), single_writer(code), struct.calcsize(">" + code)
    elif field.kind == "str":
        of_string = nullable and not field.array
        read, write = string_reader(flexible, of_string), string_writer(flexible, of_string)
        size = 1 if flexible else 2
    else:
        records = field.kind == "records"
        read = bytes_reader(flexible, nullable, records)
        write = bytes_writer(flexible, nullable, records)
        size = 1 if flexible else 4
    if not field.array:
        return read, write, size
    return (
        array_reader(flexible, nullable, read, size),
        array_writer(flexible, nullable, write),
        1 if flexible else 4,
    )


def _default_of(message: type[Message], field: Field) -> Default | Callable[[], Any]:
    """Return a field's default, or its maker where the default is mutable."""
    if field.default != ():
        return field.default
    return list if field.array else getattr(message, field.struct_name)


def _value(default: Any) -> Any:
    return default() if callable(default) else default


# --- messages ---------------------------------------------------------------------------------


class Message(msgspec.Struct, repr_omit_defaults=True):
    """Base of all requests and responses. Instances compare by value."""

    API_KEY: ClassVar[int]
    IS_REQUEST: ClassVar[bool]
    VERSIONS: ClassVar[Versions]  # those that we speak
    FLEXIBLE: ClassVar[Versions]
    FIELDS: ClassVar[tuple[Field, ...]]
    PLANS: ClassVar[dict[int, FieldPlan]]  # those compiled so far, by version

    @classmethod
    def plan(cls, version: int) -> FieldPlan:
        """Return the plan of ``version``.

        Raises :class:`UnsupportedVersion` for one we do not speak.
        """
        plan = cls.PLANS.get(version)
        if plan is None:
            if version not in cls.VERSIONS:
                raise UnsupportedVersion(
                    f"{cls.__name__} version {version}; known are {cls.VERSIONS}"
                )
            plan = cls.PLANS[version] = FieldPlan(cls, cls, cls.FIELDS, version)
        return plan

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int, start: int = 0) -> Self:
        """Return the message that ``data`` holds from ``start`` to its end.

        Records are memoryviews into ``data``; all else is copied out of it. Unknown tagged fields
        are skipped, and so are bytes behind a request, as Kafka does: librdkafka sends some.
        Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
        """
        assert start >= 0
        plan = cls.plan(version)
        reader = Reader(data, start, f"{cls.__name__} v{version}")
        message: Self = plan.read(reader)
        if reader.at != reader.end and not cls.IS_REQUEST:
            raise reader.malformed(f"{reader.end - reader.at} bytes too many")
        return message

    def encode_into(self, out: Writer, version: int) -> None:
        """Append the message to ``out``.

        Raises :class:`UnsupportedVersion` if a field that may not be dropped is not in
        ``version``, :class:`UnencodableMessage` if a value does not fit its field.
        """
        try:
            self.plan(version).write(out, self)
        except UNENCODABLE as error:
            raise UnencodableMessage(f"{type(self).__name__} v{version}: {error}") from error

    def encode(self, version: int) -> bytes:
        """Return the message as bytes. Raises as :meth:`encode_into`."""
        return b"".join(self.encode_pieces(version))

    def encode_pieces(self, version: int) -> list[Buffer]:
        """Return the message as a list for ``sendmsg``, records not copied.

        Raises as `encode_into`.
        """
        out = Writer()
        self.encode_into(out, version)
        return out.pieces()


def define(
    name: str, key: int, served: str, flexible: str, table: str, module: str
) -> type[Message]:
    """Return the class of the message whose fields ``table`` lists (see ``notation.py``)."""
    fields = parse(table)
    structs: dict[str, Any] = {}
    _define_structs(name, fields, structs, module)
    constants = {
        "API_KEY": key,
        "IS_REQUEST": name.endswith("Request"),
        "VERSIONS": versions(served),
        "FLEXIBLE": versions(flexible),
        "FIELDS": fields,
        "PLANS": {},
        "__doc__": f"{name} ({int(key)}), versions {served}.",
        **structs,
    }
    made = msgspec.defstruct(
        name,
        [_attribute(field, structs) for field in fields],
        bases=(Message,),
        namespace=constants,
        module=module,
    )
    assert issubclass(made, Message)
    return made


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
    kind: Any = _PYTHON_TYPES.get(field.kind, int)
    if field.kind == "struct":
        kind = structs[field.struct_name]
    if field.array:
        kind = list[kind]
    if field.nullable.last >= 0:
        kind = kind | None
    if field.default != ():
        return field.attribute, kind, field.default
    maker = list if field.array else structs[field.struct_name]
    return field.attribute, kind, msgspec.field(default_factory=maker)
