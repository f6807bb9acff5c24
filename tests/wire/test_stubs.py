"""The type stubs say what the modules hold.

``messages.pyi`` is written from the tables: KRAFTFAST_REWRITE=1 with this test writes it anew.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from kraftfast.wire import fetch, messages, produce
from kraftfast.wire.messages import REQUESTS, RESPONSES
from kraftfast.wire.notation import Field
from kraftfast.wire.schema import Message

WIRE = Path(messages.__file__).parent
STUB = WIRE / "messages.pyi"

HEAD = """\
# Written from the tables of messages.py by tests/wire/test_stubs.py.
from enum import IntEnum

from msgspec import Struct

from kraftfast.wire.primitives import Buffer
from kraftfast.wire.schema import Message

class ApiKey(IntEnum):
"""
TYPES = {"bool": "bool", "uuid": "bytes", "str": "str", "bytes": "Buffer", "records": "Buffer"}


def attribute(message: type[Message], field: Field) -> str:
    kind = TYPES.get(field.kind, "int")
    if field.kind == "struct":
        kind = f"{message.__name__}.{field.struct_name}"
    if field.array:
        kind = f"list[{kind}]"
    if field.nullable.last >= 0:
        kind += " | None"
    return f"{field.attribute}: {kind} = ..."


def structs(message: type[Message], fields: tuple[Field, ...]) -> list[str]:
    lines = []
    for field in fields:
        if field.kind == "struct":
            lines += structs(message, field.fields)
            lines.append(f"    class {field.struct_name}(Struct):")
            lines += [f"        {attribute(message, inner)}" for inner in field.fields]
    return lines


def render() -> str:
    lines = [f"    {key.name} = {key.value}" for key in messages.ApiKey]
    lines += ["", "REQUESTS: dict[int, type[Message]]", "RESPONSES: dict[int, type[Message]]"]
    for key in messages.ApiKey:
        for message in (REQUESTS[key], RESPONSES[key]):
            lines += ["", f"class {message.__name__}(Message):"]
            inner = structs(message, message.FIELDS)
            inner += [f"    {attribute(message, field)}" for field in message.FIELDS]
            lines += inner or ["    ..."]
    return HEAD + "\n".join(lines) + "\n"


def test_the_messages_stub_is_the_tables() -> None:
    if os.environ.get("KRAFTFAST_REWRITE"):
        STUB.write_text(render())
    assert STUB.read_text() == render()


@pytest.mark.parametrize("module", [fetch, produce], ids=["fetch", "produce"])
def test_the_hot_stubs_name_everything(module: object) -> None:
    name = module.__name__.rpartition(".")[2]
    tree = ast.parse((WIRE / f"{name}.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert callable(getattr(module, node.name))
        elif isinstance(node, ast.ClassDef):
            cls = getattr(module, node.name)
            fields = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]
            assert tuple(fields[1:]) == cls.FIELDS
            (init,) = [n for n in node.body if getattr(n, "name", "") == "__init__"]
            assert tuple(a.arg for a in init.args.kwonlyargs) == cls.FIELDS
            default = cls()
            for argument, value in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
                said = ast.literal_eval(value)
                assert said is ... or said == getattr(default, argument.arg)
    public = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    assert public >= {"decode_request", "encode_request", "decode_response", "encode_response"}
