"""The notation of the field tables, and its parser.

A table is a list of fields, one a line or parted by ``;``, in the order of the bytes::

    Name:type?1+@2-5=default #7 ign > core

* ``type``: ``i8 i16 i32 i64 u16 bool uuid str bytes records``, or ``[i32]`` for an array of those.
* ``Name[...]`` is an array of structs, ``Name{...}`` one struct, with the fields inside.
* ``?``: may be null; ``?1+``: from version 1 on.
* ``@2+ @2-5 @0``: the versions that have the field; without it, all versions of the struct.
* ``=``: the default, else 0, false, the empty string, the zero uuid, the empty array.
* ``#7``: a tagged field with this tag (KIP-482).
* ``ign``: ignorable. A version without the field drops it silently, where otherwise a value other
  than the default is an error at the sender (this is how a pre-vote to an old peer is detected).
* ``>``: what the core's message has for it, as ``epoch`` or ``replica.id``. ``tools/plain.py``
  makes the translations from that; a field without it is translated by hand, or not at all.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

from kraftfast import limits
from kraftfast.types import ZERO_UUID

VERSION_MAX = 2**15 - 1

Default = int | bool | str | bytes | tuple[()] | None
"""Of a field; ``()`` stands for the empty array and for a struct with all of its own defaults."""


class Versions(NamedTuple):
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last == VERSION_MAX:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


ALL_VERSIONS = Versions(0, VERSION_MAX)
NO_VERSIONS = Versions(0, -1)


def versions(text: str) -> Versions:
    """Parse ``"2+"``, ``"2-5"``, ``"2"`` or ``"none"`` as a range."""
    if text == "none":
        return NO_VERSIONS
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return Versions(int(first), VERSION_MAX)
    return Versions(int(first), int(last) if dash else int(first))


class Field(Struct, frozen=True):
    """One field of a table."""

    name: str  # as in Kafka's definition
    attribute: str  # the same in snake_case
    kind: str  # a primitive type's name, or "struct"
    array: bool
    fields: tuple[Field, ...]  # of a struct; empty for primitives
    nullable: Versions
    versions: Versions
    default: Default
    tag: int | None
    ignorable: bool
    core: str | None  # of the core's message

    @property
    def struct_name(self) -> str:
        """The class of one element: the field's name, in the singular for an array."""
        return self.name.removesuffix("s") if self.array else self.name


ZEROS: dict[str, Default] = {
    "i8": 0,
    "i16": 0,
    "i32": 0,
    "i64": 0,
    "u16": 0,
    "bool": False,
    "uuid": ZERO_UUID,
    "str": "",
    "bytes": b"",
    "records": b"",
}

_HEAD = re.compile(r"[\s;]*(?P<name>[A-Za-z]\w*)(?::(?P<type>\w+|\[\w+\])|(?P<open>[\[{]))")
_TAIL = re.compile(
    r"(?P<null>\?(?P<null_versions>\d+\+)?)?"
    r"(?: ?@(?P<versions>\d+(?:\+|-\d+)?))?"
    r"(?: ?=(?P<default>[\w-]+))?"
    r"(?: \#(?P<tag>\d+))?"
    r"(?: (?P<ign>ign))?"
    r"(?: > (?P<core>[a-z_.]+))?(?= *(?:[\n;\]}]|$))"
)
_CLOSE = re.compile(r"[\s;]*(?P<close>[\]}]|$)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(name: str) -> str:
    """Return ``LeaderEpoch`` as ``leader_epoch``; ``KRaft`` counts as one word."""
    return _WORD.sub("_", name.replace("KRaft", "Kraft")).lower()


def parse(table: str) -> tuple[Field, ...]:
    """Parse the fields of ``table``.

    A table is our own text: a mistake in one is an AssertionError.
    """
    fields, at = _parse_fields(table, 0, "", 1)
    assert at == len(table), f"unbalanced brackets in a table: {table[at : at + 40]!r}"
    return fields


def _parse_fields(table: str, at: int, closer: str, depth: int) -> tuple[tuple[Field, ...], int]:
    # S7: the depth of every message is the depth of its table; what arrives cannot add to it.
    assert depth <= limits.SCHEMA_DEPTH_MAX, "a table is nested too deeply"
    fields: list[Field] = []
    while True:
        close = _CLOSE.match(table, at)
        if close is not None:
            assert close["close"] == closer, f"wrong bracket in a table at {table[at : at + 40]!r}"
            return tuple(fields), close.end()
        head = _HEAD.match(table, at)
        assert head is not None, f"not a field: {table[at : at + 40]!r}"
        inner: tuple[Field, ...] = ()
        at = head.end()
        if head["open"]:
            inner, at = _parse_fields(table, at, "]" if head["open"] == "[" else "}", depth + 1)
        tail = _TAIL.match(table, at)
        assert tail is not None, f"not a field's ending: {table[at : at + 40]!r}"
        at = tail.end()
        fields.append(_field(head, inner, tail))


def _field(head: re.Match[str], inner: tuple[Field, ...], tail: re.Match[str]) -> Field:
    kind = "struct" if head["open"] else head["type"].strip("[]")
    array = head["open"] == "[" or (head["type"] or "").startswith("[")
    assert kind == "struct" or kind in ZEROS, f"unknown type {kind}"
    nullable = NO_VERSIONS
    if tail["null"]:
        nullable = versions(tail["null_versions"]) if tail["null_versions"] else ALL_VERSIONS
    tag = int(tail["tag"]) if tail["tag"] else None
    assert array or kind != "struct" or not tail["null"], "nullable structs are not in use"
    assert tag is None or kind != "records", "records are never tagged"
    return Field(
        name=head["name"],
        attribute=snake_case(head["name"]),
        kind=kind,
        array=array,
        fields=inner,
        nullable=nullable,
        versions=versions(tail["versions"]) if tail["versions"] else ALL_VERSIONS,
        default=_default(tail["default"], kind, array),
        tag=tag,
        ignorable=bool(tail["ign"]),
        core=tail["core"],
    )


def _default(text: str | None, kind: str, array: bool) -> Default:
    if text == "null":
        return None
    if array or kind == "struct":
        assert text is None, "an array or struct has no default but null"
        return ()
    if text is None:
        return ZEROS[kind]
    if kind == "bool":
        return {"true": True, "false": False}[text]
    assert kind[0] in "iu" and kind != "uuid", f"a default for {kind} is not in use"
    return int(text, 0)
