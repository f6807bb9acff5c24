"""Generates ``node/translation/generated.py``: plain translations of messages.

The tables of ``wire/messages.py`` name, behind ``>``, what the core has for a field. What decides
something is written by hand in ``node/translation/translate*.py``: whether a message names our
partition alone, where a leader is and which directory, candidates and successors, how an
acknowledgement holds, what a version cannot say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kraftfast.wire import messages
from kraftfast.wire.notation import Field, snake_case
from kraftfast.wire.schema import Message
from tools.flat import FETCH, Flat

CORE_NAMES = {
    "BeginQuorumEpochResponse": "QuorumEpochResponse",
    "EndQuorumEpochResponse": "QuorumEpochResponse",
}
"""The core's class where it has another name."""
SOLE = ("Topics", "Partitions")
"""The arrays that hold the one topic, and the one partition."""
PARTS = {
    "id": "ReplicaKey",
    "directory_id": "ReplicaKey",
    "offset": "OffsetAndEpoch",
    "epoch": "OffsetAndEpoch",
}
"""The class of a field of which a part is named."""
ORDER = ("id", "directory_id", "offset", "epoch")
TYPES = {"bool": "bool", "str": "str", "uuid": "Uuid"}

HEAD = '''\
# Made by tools/plain.py from the tables of wire/messages.py: make generate.
"""Between the core's messages and Kafka's, field by field: see ``translate``.

``more``: what is translated by hand; ``inside``: of that, what stands in the partition. ``fields``:
the one partition of a message.
"""

from __future__ import annotations

from kraftfast.core import messages as core
from kraftfast.node.translation.wire_values import FieldValue, Partition, error_code
from kraftfast.types import METADATA_PARTITION, OffsetAndEpoch, ReplicaKey
from kraftfast.wire import messages as wire
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.frame import WireMessage

Inside = dict[str, FieldValue] | None
'''


@dataclass
class Value:
    """A field of a table, the structs around it, and what the core has for it."""

    field: Field
    path: tuple[Field, ...]

    @property
    def core(self) -> tuple[str, str]:
        """The core's field, and the part of it."""
        name, _, part = (self.field.core or "").partition(".")
        return name, part

    def read(self, base: str) -> str:
        """Its value, as the core has it."""
        inside = [each.attribute for each in self.path if not each.array]
        value = ".".join([base, *inside, self.field.attribute])
        return f"error_code({value})" if self.field.attribute == "error_code" else value


def values(fields: tuple[Field, ...], path: tuple[Field, ...] = ()) -> Iterator[Value]:
    """Yield the fields of which the core has something."""
    for field in fields:
        if field.core is not None:
            yield Value(field, path)
        if field.kind == "struct" and (not field.array or field.name in SOLE):
            yield from values(field.fields, (*path, field))


def core_class(message: type[Message]) -> str:
    name = message.__name__
    return CORE_NAMES.get(name, name)


def plain_messages() -> list[type[Message]]:
    """Return the messages of which the core has something, but Fetch's."""
    all_of_them = [
        each
        for key in messages.ApiKey
        for each in (messages.REQUESTS[key], messages.RESPONSES[key])
    ]
    flat = [each.message for each in FETCH]
    return [each for each in all_of_them if each not in flat and any(values(each.FIELDS))]


# --- the core's fields --------------------------------------------------------------------------


def assembled(pairs: list[tuple[tuple[str, str], str]]) -> list[str]:
    """Return keyword arguments for the core's class, parts put together."""
    found: dict[str, dict[str, str]] = {}
    for (name, part), value in pairs:
        found.setdefault(name, {})[part] = value
    lines = []
    for name, parts in found.items():
        if "" in parts:
            lines.append(f"{name}={parts['']},")
            continue
        kind = PARTS[next(iter(parts))]
        told = ", ".join(parts[each] for each in ORDER if each in parts)
        lines.append(f"{name}={kind}({told}),")
    return lines


def of_core(value: Value, base: str) -> str:
    name, part = value.core
    return f"{base}.{name}.{part}" if part else f"{base}.{name}"


# --- functions ----------------------------------------------------------------------------------


def is_sole(field: Field) -> bool:
    """Return whether an array stands for the one topic or partition."""
    return field.array and field.name in SOLE and any(values(field.fields))


def call(kind: str, lines: list[str], deep: int) -> str:
    """Return a call, with an argument a line."""
    pad = "    " * deep
    return f"{kind}(\n" + "".join(f"{pad}    {line}\n" for line in lines) + f"{pad})"


def arguments(fields: tuple[Field, ...], deep: int) -> list[str]:
    """Return what the core has for the fields of a struct."""
    found = []
    for field in fields:
        if field.core is not None:
            found.append(f"{field.attribute}={of_core(Value(field, ()), 'message')},")
        elif field.kind == "struct" and not field.array and any(values(field.fields)):
            inside = call(f"kind.{field.struct_name}", arguments(field.fields, deep + 1), deep + 1)
            found.append(f"{field.attribute}={inside},")
    return found


def defined(head: str, given: str, returned: str) -> str:
    """Return the head of a function, in three lines or one for each argument if it is long."""
    line = f"def {head}({given}) -> {returned}:"
    if len(line) <= 100:
        return line
    apart = given if len(given) <= 96 else given.replace(", ", ",\n    ") + ","
    return f"def {head}(\n    {apart}\n) -> {returned}:"


def to_wire(message: type[Message]) -> str:
    """Return the function from the core's message to Kafka's."""
    of, lines = message.__name__, []
    topics = next((field for field in message.FIELDS if is_sole(field)), None)
    given = f"message: core.{core_class(message)}"
    outside = [*arguments(message.FIELDS, 1), "**more,"]
    if topics is not None:
        given += ", partition: Partition, inside: Inside = None"
        (within,) = [field for field in topics.fields if is_sole(field)]
        inside = [
            f"{within.fields[0].attribute}=METADATA_PARTITION,",
            *arguments(within.fields, 1),
            "**(inside or {}),",
        ]
        name = topics.fields[0].attribute
        lines = [
            f"    fields = {call(f'kind.{within.struct_name}', inside, 1)}",
            f"    topic = kind.{topics.struct_name}({name}=partition.topic, "
            f"{within.attribute}=[fields])",
        ]
        outside.insert(-1, f"{topics.attribute}=[topic],")
    body = [
        defined(f"{snake_case(of)}_to_wire", f"{given}, **more: FieldValue", "WireMessage"),
        f'    """Return {of}."""',
        f"    kind = wire.{of}",
        *lines,
        f"    return {call('kind', outside, 1)}",
    ]
    return "\n".join(body)


def from_wire(message: type[Message]) -> str:
    """Return the function from Kafka's message to the core's."""
    name, core = snake_case(message.__name__), core_class(message)
    in_partition = any(is_sole(field) for field in message.FIELDS)
    pairs = [
        (each.core, each.read("fields" if any(map(is_sole, each.path)) else "message"))
        for each in values(message.FIELDS)
    ]
    lines = "".join(f"        {line}\n" for line in assembled(pairs))
    given = "message: WireMessage"
    if in_partition:
        given += ", fields: WireMessage"
    head = defined(f"{name}_from_wire", f"{given}, **more: FieldValue", f"core.{core}")
    return (
        f'{head}\n    """Return {core}."""\n    return core.{core}(\n{lines}        **more,\n    )'
    )


def flat_functions(flat: Flat) -> list[str]:
    """Return both directions of Fetch, whose form on the wire is flat."""
    name, core = snake_case(flat.of), core_class(flat.message)
    leaves = [
        (leaf, Value(leaf.field, ())) for leaf in flat.leaves() if leaf.field.core is not None
    ]
    told = "".join(
        f"        {leaf.attribute}={of_core(value, 'message')},\n" for leaf, value in leaves
    )
    is_error = {leaf.attribute for leaf, _ in leaves if leaf.field.attribute == "error_code"}
    pairs = [
        (
            value.core,
            f"error_code(message.{leaf.attribute})"
            if leaf.attribute in is_error
            else f"message.{leaf.attribute}",
        )
        for leaf, value in leaves
    ]
    lines = "".join(f"        {line}\n" for line in assembled(pairs))
    return [
        f"def {name}_to_wire(\n    message: core.{core}, partition: Partition, **more: FieldValue\n"
        f') -> {flat.name}:\n    """Return {flat.of}, flat."""\n    return {flat.name}(\n'
        "        topic=partition.topic,\n        topic_id=partition.topic_id,\n"
        f"        partition=METADATA_PARTITION,\n{told}        **more,\n    )",
        f"def {name}_from_wire(message: {flat.name}, **more: FieldValue) -> core.{core}:\n"
        f'    """Return {core}."""\n    return core.{core}(\n{lines}        **more,\n    )',
    ]


def render() -> str:
    """Return the whole module."""
    functions = [text for flat in FETCH for text in flat_functions(flat)]
    for message in plain_messages():
        functions += [to_wire(message), from_wire(message)]
    return HEAD + "\n\n" + "\n\n\n".join(functions) + "\n"


# --- the core's classes -------------------------------------------------------------------------


def with_new_fields(text: str) -> str:
    """Return ``core/messages.py`` with a field for each that a table names and no class has."""
    lines = text.split("\n")
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    added: dict[str, dict[str, str]] = {}
    for message in [*plain_messages(), *(flat.message for flat in FETCH)]:
        node = classes[core_class(message)]
        known = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
        for value in values(message.FIELDS):
            name, part = value.core
            if name not in known:
                assert not part, f"{node.name}.{name} has parts: write it by hand"
                added.setdefault(node.name, {})[name] = declaration(name, value.field)
    for name in sorted(added, key=lambda each: -classes[each].lineno):
        end = classes[name].end_lineno or 0
        lines[end:end] = added[name].values()
    return "\n".join(lines)


def declaration(name: str, field: Field) -> str:
    """Return the line of a field of the core."""
    kind = TYPES.get(field.kind, "int")
    if field.nullable.last >= 0:
        kind += " | None"
    return f"    {name}: {kind} = {field.default!r}"


def generated(root: Path) -> dict[Path, str]:
    """Return the translations, and the core's messages with what is new."""
    core = root / "kraftfast/core/messages.py"
    return {
        root / "kraftfast/node/translation/generated.py": render(),
        core: with_new_fields(core.read_text()),
    }
