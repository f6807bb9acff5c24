"""``wire/messages.pyi``: the classes that the tables of ``messages.py`` make, for type checkers."""

from __future__ import annotations

from pathlib import Path

from kraftfast.wire import messages
from kraftfast.wire.messages import REQUESTS, RESPONSES
from kraftfast.wire.notation import Field
from kraftfast.wire.schema import Message

HEAD = """\
# Made by tools/stubs.py from the tables of messages.py: make generate.
from collections.abc import Mapping
from enum import IntEnum

from msgspec import Struct

from kraftfast.wire.notation import Versions
from kraftfast.wire.primitives import Buffer
from kraftfast.wire.schema import Message

class ApiKey(IntEnum):
"""
TYPES = {"bool": "bool", "uuid": "bytes", "str": "str", "bytes": "Buffer", "records": "Buffer"}


def attribute(message: type[Message], field: Field) -> str:
    """Return the line of a field."""
    kind = TYPES.get(field.kind, "int")
    if field.kind == "struct":
        kind = f"{message.__name__}.{field.struct_name}"
    if field.array:
        kind = f"list[{kind}]"
    if field.nullable.last >= 0:
        kind += " | None"
    return f"{field.attribute}: {kind} = ..."


def structs(message: type[Message], fields: tuple[Field, ...]) -> list[str]:
    """Return the classes of the structs inside."""
    lines = []
    for field in fields:
        if field.kind == "struct":
            lines += structs(message, field.fields)
            lines.append(f"    class {field.struct_name}(Struct):")
            lines += [f"        {attribute(message, inner)}" for inner in field.fields]
    return lines


def render() -> str:
    """Return the whole stub."""
    lines = [f"    {key.name} = {key.value}" for key in messages.ApiKey]
    lines += ["", *(f"{name}: Mapping[int, type[Message]]" for name in ("REQUESTS", "RESPONSES"))]
    lines += ["SERVED: dict[int, Versions]"]
    for key in messages.ApiKey:
        for message in (REQUESTS[key], RESPONSES[key]):
            lines += ["", f"class {message.__name__}(Message):"]
            inner = structs(message, message.FIELDS)
            inner += [f"    {attribute(message, field)}" for field in message.FIELDS]
            lines += inner or ["    ..."]
    return HEAD + "\n".join(lines) + "\n"


def generated(root: Path) -> dict[Path, str]:
    """Return the stub."""
    return {root / "kraftfast/wire/messages.pyi": render()}
