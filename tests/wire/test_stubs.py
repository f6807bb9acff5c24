"""The type stubs of the hot messages say what the modules hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kraftfast.wire import fetch, messages, produce

WIRE = Path(messages.__file__).parent


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
