"""``wire/fetch`` and ``wire/produce``: ``.pyx``, ``.pxd`` and ``.pyi``, from the tables."""

from __future__ import annotations

import re
from pathlib import Path

from kraftfast.wire.messages import ApiKey
from kraftfast.wire.notation import Field
from tools.flat import FETCH, PRODUCE, Flat, Leaf
from tools.flat_codec import BEHIND_RECORDS, Codec, indented, place_value
from tools.templates import DOORS, HEAD, NOT_BY_HAND

CYTHON = {"i8": "int", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "bint"}
CYTHON |= {"str": "str", "uuid": "bytes", "records": "object"}
PYTHON = {"str": "str", "uuid": "bytes", "records": "Any"}
BOTH = {
    "Fetch": ("fetch", FETCH, "KIP-227, 516, 595, 853, 903, 951, 1166"),
    "Produce": ("produce", PRODUCE, "KIP-98, 467, 482, 516, 951"),
}


def wrapped(words: list[str], indent: str, width: int = 100) -> str:
    """Return words with commas in lines."""
    lines, line = [], indent
    for word in words:
        if len(line) + len(word) + 1 > width:
            lines.append(line.rstrip())
            line = indent
        line += f"{word}, "
    return "\n".join([*lines, line.rstrip()])


def cython_type(leaf: Leaf) -> str:
    return "list" if leaf.is_list else CYTHON[leaf.field.kind]


def python_type(leaf: Leaf, flat: Flat) -> str:
    field = leaf.field
    inside = PYTHON.get(field.kind, "bool" if field.kind == "bool" else "int")
    if field.kind == "struct":
        inside = f"{flat.of}.{field.struct_name}"
    if field.array:
        inside = f"list[{inside}]"
    return f"{inside} | None" if field.nullable.last >= 0 and field.kind != "records" else inside


# --- classes ------------------------------------------------------------------------------------


def versions_note(leaf: Leaf, flat: Flat) -> str:
    """Return what the ``.pxd`` says of a field."""
    has, served = leaf.versions(flat.served), flat.served
    words = [leaf.note] if leaf.note else []
    if has.first > served.first:
        words.append(f"v{has.first}+")
    if has.last < served.last:
        words.append(f"up to v{has.last}")
    return f"  # {'; '.join(words)}" if words else ""


def moves(flat: Flat) -> bool:
    """Return whether a field stands elsewhere in other versions."""
    return any(len(leaf.places) > 1 for leaf in flat.leaves())


def pxd_class(flat: Flat) -> str:
    lines = [f"cdef class {flat.name}:"]
    for leaf in flat.leaves():
        lines.append(
            f"    cdef public {cython_type(leaf)} {leaf.attribute}{versions_note(leaf, flat)}"
        )
    version = ", int version" if moves(flat) else ""
    return "\n".join([*lines, "", f"    cpdef object to_message(self{version})"])


def pyi_class(flat: Flat) -> str:
    leaves = flat.leaves()
    lines = [f"class {flat.name}:", "    FIELDS: ClassVar[tuple[str, ...]]"]
    lines += [f"    {leaf.attribute}: {python_type(leaf, flat)}" for leaf in leaves]
    lines += ["    def __init__(", "        self,", "        *,"]
    for leaf in leaves:
        kind = "Buffer | None" if leaf.field.kind == "records" else python_type(leaf, flat)
        default = "..." if leaf.default in ("ZERO_UUID", "[]") else leaf.default.replace("'", '"')
        lines.append(f"        {leaf.attribute}: {kind} = {default},")
    version = ", version: int" if moves(flat) else ""
    lines += [
        "    ) -> None: ...",
        f"    def to_message(self{version}) -> {flat.of}: ...",
        "    @staticmethod",
        f"    def from_message(message: {flat.of}) -> {flat.name} | None: ...",
    ]
    return "\n".join(lines)


def to_message(flat: Flat, codec: Codec) -> str:
    """Return the expression of the whole message."""

    def struct(kind: str, fields: tuple[Field, ...], path: tuple[Field, ...], deep: int) -> str:
        pad = "    " * deep
        lines = []
        for field in fields:
            leaf = codec.leaf(path, field)
            if leaf is not None:
                place = next(each for each in leaf.places if each.path == path)
                lines.append(f"{field.attribute}={place_value(leaf, place, flat)},")
            elif field.kind == "struct" and (flat.is_sole(field) or not field.array):
                inside = struct(
                    f"messages.{flat.of}.{field.struct_name}",
                    field.fields,
                    (*path, field),
                    deep + 1,
                )
                lines.append(
                    f"{field.attribute}=[{inside}],"
                    if field.array
                    else f"{field.attribute}={inside},"
                )
        body = "".join(f"{pad}    {line}\n" for line in lines)
        return f"{kind}(\n{body}{pad})"

    return struct(f"messages.{flat.of}", flat.message.FIELDS, (), 2)


def from_message(flat: Flat) -> list[str]:
    """Return the keyword arguments of a flat message."""
    found = []
    for leaf in flat.leaves():
        values = []
        for place in leaf.places:
            base, rest = "message", list(place.path)
            while rest and flat.is_sole(rest[0]):
                base = "p" if base == "topic" else "topic"
                rest.pop(0)
            values.append(
                ".".join([base, *(each.attribute for each in rest), place.field.attribute])
            )
        value = values[-1]
        for other in values[:-1]:
            value = f"(\n                {value} if {value} != {leaf.default}"
            value += f"\n                else {other}\n            )"
        found.append(f"{leaf.attribute}={value},")
    return found


def pyx_class(flat: Flat, codec: Codec, room: str) -> str:
    sole = [field for field in flat.message.FIELDS if flat.is_sole(field)][0]
    inside = [field for field in sole.fields if flat.is_sole(field)][0]
    omitted = [each for each in flat.message.FIELDS if each.name in flat.omitted]
    more = "".join(f" or message.{each.attribute}" for each in omitted)
    names = wrapped([f'"{leaf.attribute}"' for leaf in codec.leaves], "        ")
    version = ", int version" if moves(flat) else ""
    for_version = ", for ``version``" if moves(flat) else ""
    arguments = "\n".join(f"            {each}" for each in from_message(flat))
    return f'''cdef class {flat.name}:
    """A {room.title()} {codec.stem} of one partition, by keyword arguments."""

    FIELDS = (
{names}
    )

    def __init__(self, **fields):
        _reset_{codec.stem}(self)
        flat.assign(self, fields)

    def __eq__(self, other):
        return flat.equal(self, other)

    def __repr__(self):
        return flat.text(self)

    cpdef object to_message(self{version}):
        """Return the same as a ``messages.{flat.of}``{for_version}."""
        return {to_message(flat, codec)}

    @staticmethod
    def from_message(message):
        """Return the flat form of a ``messages.{flat.of}``; None for another shape."""
        sole = flat.sole_partition(message.{sole.attribute}, "{inside.attribute}")
        if sole is None{more}:
            return None
        topic, p = sole
        return {flat.name}(
{arguments}
        )'''


# --- functions ----------------------------------------------------------------------------------


def functions(flat: Flat, codec: Codec) -> str:
    """Return what resets, reads and writes a flat message."""
    reset = [f"    m.{leaf.attribute} = {leaf.default}" for leaf in codec.leaves]
    head = f"cdef void _reset_{codec.stem}({flat.name} m) noexcept:"
    found = ["\n".join([head, *reset])]
    size = ", Py_ssize_t* records_bytes" if codec.has_records else ""
    found += halves(
        codec, codec.reading(), "read", "Source", size, [("", f"_reset_{codec.stem}(m)")]
    )
    size = ", Py_ssize_t records_bytes" if codec.has_records else ""
    found += halves(codec, codec.writing(), "write", "Sink", size, codec.guards())
    found += ["\n".join(codec.tag_readers).strip("\n"), "\n".join(codec.tag_writers).strip("\n")]
    return "\n\n\n".join(each for each in found if each)


def halves(
    codec: Codec, lines: list[tuple[str, str]], verb: str, end: str, size: str,
    first: list[tuple[str, str]],
) -> list[str]:  # fmt: skip
    """Return the function of one direction; what is behind the records is another."""
    stem, name = codec.stem, codec.flat.name
    at = next((i for i, line in enumerate(lines) if line[0] == BEHIND_RECORDS), len(lines))
    parts = [(f"_{verb}_{stem}", size, first + lines[:at])]
    if at < len(lines):
        behind = [(under.replace("flexible", ""), text) for under, text in lines[at + 1 :]]
        parts.append((f"_{verb}_{stem}_end", "", behind))
    found = []
    for function, more, body in parts:
        text = indented(body)
        flexible = f"    cdef bint flexible = version >= {codec.flat.flexible_from}"
        uses = any("flexible" in line for line in text)
        head = f"cdef int {function}({name} m, {end}* s, int version{more}) except -1:"
        if len(head) > 100:
            head = f"cdef int {function}(\n    {name} m, {end}* s, int version{more}\n) except -1:"
        lines_of = [head, flexible] if uses else [head]
        found.append("\n".join([*lines_of, *(f"    {line}" for line in text), "    return 0"]))
    return found


def pyx(room: str) -> str:
    stem, flats, source = BOTH[room]
    request, response = (Codec(flat) for flat in flats)
    doors = [
        DOORS[codec.stem, codec.has_records].format(
            flat=codec.flat.name,
            of=codec.flat.of,
            flexible_from=codec.flat.flexible_from,
            version="version" if moves(codec.flat) else "",
        )
        for codec in (request, response)
    ]
    served = request.served
    assert served == response.served
    body = "\n\n\n".join(
        [
            *(pyx_class(codec.flat, codec, stem) for codec in (request, response)),
            *(
                f"# --- {codec.stem}s ---\n\n\n{door.strip()}\n\n\n{functions(codec.flat, codec)}"
                for codec, door in zip((request, response), doors, strict=True)
            ),
        ]
    )
    head = HEAD.format(
        room=room, source=source, key=int(ApiKey[room.upper()]), upper=room.upper(),
        first=served.first, last=served.last, cursor="@CURSOR@", stdint="@STDINT@",
    )  # fmt: skip
    return with_imports(head, body)


def with_imports(head: str, body: str) -> str:
    """Return the module, which imports what it names."""
    cursor = Path(__file__).parents[1] / "kraftfast/wire/cursor.pxd"
    declared = re.findall(
        r"^cdef (?:struct|inline [\w* ]+?) ?\*?(\w+)[:(]|^    (\w+) = \d+",
        cursor.read_text(),
        re.MULTILINE,
    )
    words = set(re.findall(r"\w+", re.sub(r'""".*?"""', "", body, flags=re.DOTALL)))
    names = sorted({a or b for a, b in declared} & words | {"FRAME_BYTES_MAX"}, key=order)
    types = sorted(set(re.findall(r"\bu?int\d+_t\b", body)), key=lambda each: (len(each), each))
    whole = head.replace("@CURSOR@", wrapped(names, "    ")).replace("@STDINT@", ", ".join(types))
    return f"{whole.strip()}\n\n\n{body}\n"


def order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def pxd(room: str) -> str:
    _, flats, _ = BOTH[room]
    return (
        f'{NOT_BY_HAND}"""{room} of one topic and one partition, flattened."""\n\n'
        "from libc.stdint cimport int16_t, int32_t, int64_t\n\n\n"
        + "\n\n\n".join(map(pxd_class, flats))
        + "\n"
    )


def stub(name: str, arguments: str, returned: str) -> str:
    """Return the stub of a function, as ruff lays it out."""
    line = f"def {name}({arguments}) -> {returned}: ..."
    return line if len(line) <= 100 else f"def {name}(\n    {arguments}\n) -> {returned}: ..."


def pyi(room: str) -> str:
    _, flats, _ = BOTH[room]
    of = ", ".join(flat.of for flat in flats)
    functions = []
    for flat in flats:
        codec = Codec(flat)
        made = "list[Buffer]" if codec.has_records else "bytes"
        frame = "version: int, frame: bytes | memoryview"
        if codec.stem == "request":
            functions += [
                stub("decode_request", f"{frame}, start: int", f"{flat.name} | {flat.of}"),
                stub(
                    "encode_request",
                    "version: int, correlation_id: int, client_id: str | None, "
                    f"request: {flat.name}",
                    made,
                ),
            ]
        else:
            functions += [
                stub("decode_response", frame, f"tuple[int, {flat.name} | {flat.of}]"),
                stub(
                    "encode_response",
                    f"version: int, correlation_id: int, response: {flat.name}",
                    made,
                ),
            ]
    return (
        f"{NOT_BY_HAND}from typing import Any, ClassVar\n\n"
        f"from kraftfast.wire.messages import {of}\n"
        "from kraftfast.wire.primitives import Buffer\n\n"
        + "\n\n".join([*map(pyi_class, flats), "\n".join(functions)])
        + "\n"
    )


def generated(root: Path) -> dict[Path, str]:
    """Return the six files."""
    wire = root / "kraftfast/wire"
    return {
        wire / f"{BOTH[room][0]}.{suffix}": make(room)
        for room in BOTH
        for suffix, make in (("pyx", pyx), ("pxd", pxd), ("pyi", pyi))
    }
