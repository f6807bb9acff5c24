"""The reading and writing of flat messages, as Cython source: what ``wire/fetch.pyx`` and
``wire/produce.pyx`` do between bytes and fields.

Whatever is unusual clears ``s.ok``, and the tables do it all again: arrays with anything in them,
tags that are not known, and fields that the version lacks and may not drop.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from kraftfast.wire.notation import Field, Versions
from tools.flat import Flat, Leaf, Place, both

SIZES = {"i8": 1, "bool": 1, "i16": 2, "i32": 4, "i64": 8, "uuid": 16}
BEHIND_RECORDS = "# behind the records"

Line = tuple[str, str]
"""A condition, "" for always, and a statement."""


def condition(versions: Versions, served: Versions) -> str:
    """Return whether a version is one of these, as source; "" if all that we speak are."""
    first, last = versions.first > served.first, versions.last < served.last
    if first and last:
        return f"{versions.first} <= version <= {versions.last}"
    if first:
        return f"version >= {versions.first}"
    return f"version <= {versions.last}" if last else ""


def indented(lines: Iterable[Line]) -> list[str]:
    """Return statements under their conditions, neighbours of one condition together."""
    found = []
    for under, group in groupby(lines, lambda line: line[0]):
        if under:
            found.append(f"if {under}:")
        found += [
            ("    " if under else "") + line for _, text in group for line in text.split("\n")
        ]
    return found


class Codec:
    """The two directions of one flat message."""

    def __init__(self, flat: Flat) -> None:
        self.flat, self.served = flat, flat.served
        self.leaves = flat.leaves()
        self.of_path = {
            (*(each.name for each in place.path), place.field.name): leaf
            for leaf in self.leaves
            for place in leaf.places
        }
        self.stem = "request" if flat.of.endswith("Request") else "response"
        self.tag_readers: list[str] = []
        self.tag_writers: list[str] = []

    @property
    def has_records(self) -> bool:
        """Whether records stand inside, which are not copied."""
        return any(leaf.field.kind == "records" for leaf in self.leaves)

    def leaf(self, path: tuple[Field, ...], field: Field) -> Leaf | None:
        """The flat field of a field of the table; None if it has none."""
        return self.of_path.get((*(each.name for each in path), field.name))

    def struct_name(self, path: tuple[Field, ...]) -> str:
        """What a struct is: the message, its topic, or its partition."""
        return (self.stem, "topic", "partition")[len(path)]

    def tags_function(self, verb: str, name: str) -> str:
        """The function of a struct's tags."""
        return f"_{verb}_{self.stem}_" + ("tags" if name == self.stem else f"{name}_tags")

    def tags_head(self, verb: str, name: str, end: str) -> str:
        """The first line of that function."""
        function = self.tags_function(verb, name)
        return f"cdef int {function}({self.flat.name} m, {end}* s, int version) except -1:"

    def when(self, versions: Versions) -> str:
        """The condition for these versions."""
        return condition(versions, self.served)

    # --- reading ------------------------------------------------------------------------------

    def reading(self) -> list[Line]:
        """What reads a message, in the order of the bytes."""
        return self.read_struct(self.flat.message.FIELDS, (), self.served)

    def read_struct(
        self, fields: tuple[Field, ...], path: tuple[Field, ...], versions: Versions
    ) -> list[Line]:
        """A struct: its fields, then its tags."""
        lines = []
        for field in fields:
            if field.tag is None:
                lines += self.read_field(field, path, both(versions, field.versions))
        tagged = [field for field in fields if field.tag is not None and self.is_read(field)]
        lines.append(("flexible", self.read_tags(tagged, path)))
        return lines

    def is_read(self, field: Field) -> bool:
        """Whether a tagged field is read here: arrays are for the tables."""
        return not field.array

    def read_field(self, field: Field, path: tuple[Field, ...], versions: Versions) -> list[Line]:
        """One field, of the versions that have it."""
        under, leaf = self.when(versions), self.leaf(path, field)
        if self.flat.is_sole(field):
            inside = self.read_struct(field.fields, (*path, field), versions)
            return [(under, "get_one(s, flexible)"), *inside]
        if field.kind == "records":
            return [
                (under, "records_bytes[0] = get_records_bytes(s, flexible)"),
                (BEHIND_RECORDS, ""),
            ]
        if field.array and field.nullable.last >= 0:
            assert leaf is not None
            return [(under, f"if get_null(s, flexible):\n    m.{leaf.attribute} = None")]
        if field.array:
            return [(under, "get_nothing(s, flexible)")]
        assert leaf is not None
        return [(under, f"m.{leaf.attribute} = {self.getter(field)}")]

    def getter(self, field: Field, flexible: str = "flexible") -> str:
        """What reads a value."""
        if field.kind == "str":
            return f"get_string(s, {flexible}, {field.nullable.last >= 0})"
        if field.kind == "uuid":
            return "get_uuid(s)"
        return f"get_int{SIZES[field.kind] * 8}(s)"

    def read_tags(self, tagged: list[Field], path: tuple[Field, ...]) -> str:
        """The call that reads the tags of a struct, whose function is made if it has known ones."""
        name = self.struct_name(path)
        if not tagged:
            return f"get_no_tags(s)  # of the {name}"
        lines = [
            self.tags_head("read", name, "Source"),
            "    cdef Tags tags = begin_tags(s)",
            "    while next_tag(s, &tags):",
        ]
        word = "if"
        for field in sorted(tagged, key=lambda each: each.tag or 0):
            under = self.when(both(field.versions, self.flat.message.FLEXIBLE))
            known = under and field.versions.first > self.flat.flexible_from
            lines.append(
                f"        {word} tags.tag == {field.tag}" + (f" and {under}:" if known else ":")
            )
            lines += [f"            {each}" for each in self.read_tagged(field, path)]
            word = "elif"
        lines += ["        else:", "            s.ok = False  # for the tables", "    return 0"]
        self.tag_readers += ["", "", *lines]
        return f"{self.tags_function('read', name)}(m, s, version)"

    def read_tagged(self, field: Field, path: tuple[Field, ...]) -> list[str]:
        """What reads one tagged field."""
        inside = field.fields or (field,)
        around = (*path, field) if field.fields else path
        found = []
        for each in inside:
            leaf = self.leaf(around, each)
            assert leaf is not None, f"{field.name} has no flat field"
            found.append(f"m.{leaf.attribute} = {self.getter(each, 'True')}")
        return [*found, "get_no_tags(s)"] if field.fields else found

    # --- writing ------------------------------------------------------------------------------

    def guards(self) -> list[Line]:
        """What the tables must write, or refuse."""
        lines: list[Line] = [("not VERSION_MIN <= version <= VERSION_MAX", "s.ok = False")]
        for leaf in self.leaves:
            if leaf.is_list:
                name = f"m.{leaf.attribute}"
                may_be_null = leaf.field.nullable.last >= 0
                lines.append((name if may_be_null else f"{name} is None or {name}", "s.ok = False"))
        for leaf in self.leaves:
            has, lacks = leaf.versions(self.served), []
            if has.first != self.served.first:
                lacks.append(f"version < {has.first}")
            if has.last != self.served.last:
                lacks.append(f"version > {has.last}")
            if lacks and not leaf.is_list and not self.may_be_dropped(leaf):
                lines.append((f"{lacks[0]} and {self.is_told(leaf)}", "s.ok = False"))
        return lines

    def may_be_dropped(self, leaf: Leaf) -> bool:
        """Whether a version without the field drops it in silence."""
        return all(
            place.field.ignorable or any(each.ignorable for each in place.path)
            for place in leaf.places
        )

    def is_told(self, leaf: Leaf) -> str:
        """Whether a field differs from its default."""
        if leaf.field.default is None:
            return f"m.{leaf.attribute} is not None"
        return f"m.{leaf.attribute} != {leaf.default}"

    def writing(self) -> list[Line]:
        """What writes a message, in the order of the bytes."""
        return self.write_struct(self.flat.message.FIELDS, (), self.served)

    def write_struct(
        self, fields: tuple[Field, ...], path: tuple[Field, ...], versions: Versions
    ) -> list[Line]:
        """A struct: its fields, then its tags."""
        lines = []
        for field in fields:
            if field.tag is None:
                lines += self.write_field(field, path, both(versions, field.versions))
        tagged = [field for field in fields if field.tag is not None and self.is_read(field)]
        lines.append(("flexible", self.write_tags(tagged, path)))
        return lines

    def write_field(self, field: Field, path: tuple[Field, ...], versions: Versions) -> list[Line]:
        """One field, of the versions that have it."""
        under, leaf = self.when(versions), self.leaf(path, field)
        if self.flat.is_sole(field):
            inside = self.write_struct(field.fields, (*path, field), versions)
            return [(under, "put_one(s, flexible)"), *inside]
        if field.kind == "records":
            return [(under, "put_records_bytes(s, records_bytes, flexible)"), (BEHIND_RECORDS, "")]
        if field.array:
            null = leaf is not None and field.nullable.last >= 0
            is_null = f"m.{leaf.attribute} is None" if null and leaf is not None else "False"
            return [(under, f"put_nothing(s, {is_null}, flexible)")]
        assert leaf is not None
        return [(under, self.putter(field, leaf))]

    def putter(self, field: Field, leaf: Leaf, flexible: str = "flexible") -> str:
        """What writes a value."""
        value = f"m.{leaf.attribute}"
        if field.kind == "str":
            return f"put_string(s, {value}, {flexible}, {field.nullable.last >= 0})"
        if field.kind == "uuid":
            return f"put_uuid(s, {value})"
        if field.kind == "i8":
            return f"put_checked_int8(s, {value})"
        return f"put_int{SIZES[field.kind] * 8}(s, {value})"

    def write_tags(self, tagged: list[Field], path: tuple[Field, ...]) -> str:
        """The call that writes the tags of a struct, whose function is made if it has any."""
        name = self.struct_name(path)
        if not tagged:
            return f"put_uvarint(s, 0)  # tags of the {name}"
        tagged = sorted(tagged, key=lambda each: each.tag or 0)
        lines = [
            self.tags_head("write", name, "Sink"),
        ]
        names = []
        for field in tagged:
            leaves = self.leaves_of(field, path)
            told = " or ".join(map(self.is_told, leaves))
            under = condition(field.versions, both(self.served, self.flat.message.FLEXIBLE))
            if under and len(leaves) > 1:
                told = f"({told})"
            names.append(f"has_{field.attribute}")
            lines.append(f"    cdef bint {names[-1]} = {f'{under} and ' if under else ''}{told}")
        lines.append(f"    put_uvarint(s, {' + '.join(names)})")
        for field, told in zip(tagged, names, strict=True):
            lines.append(f"    if {told}:")
            lines += [f"        {each}" for each in self.write_tagged(field, path)]
        self.tag_writers += ["", "", *lines, "    return 0"]
        return f"{self.tags_function('write', name)}(m, s, version)"

    def leaves_of(self, field: Field, path: tuple[Field, ...]) -> list[Leaf]:
        """The flat fields of a tagged one."""
        around = (*path, field) if field.fields else path
        found = [self.leaf(around, each) for each in field.fields or (field,)]
        return [leaf for leaf in found if leaf is not None]

    def write_tagged(self, field: Field, path: tuple[Field, ...]) -> list[str]:
        """What writes one tagged field: its number, its size, its value."""
        leaves = self.leaves_of(field, path)
        inside = field.fields or (field,)
        if field.kind == "str":
            size = f"<uint32_t>compact_string_bytes(m.{leaves[0].attribute})"
        else:
            size = str(sum(SIZES[each.kind] for each in inside) + bool(field.fields))
        values = [
            self.putter(each, leaf, "True") for each, leaf in zip(inside, leaves, strict=True)
        ]
        end = ["put_uvarint(s, 0)"] if field.fields else []
        return [f"put_uvarint(s, {field.tag})", f"put_uvarint(s, {size})", *values, *end]


def place_value(leaf: Leaf, place: Place, flat: Flat) -> str:
    """Return the value of a field of the table, from the flat one: its default elsewhere."""
    if len(leaf.places) == 1:
        return f"self.{leaf.attribute}"
    return f"self.{leaf.attribute} if {condition(place.versions, flat.served)} else {leaf.default}"
