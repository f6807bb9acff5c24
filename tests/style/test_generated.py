"""What is generated is up to date, and state is declared once."""

from __future__ import annotations

import ast
from dataclasses import replace

from kraftfast.wire.notation import Field, parse
from tests.style.sources import ROOT
from tools import fields, flat, flat_files, generate
from tools.flat_codec import Codec


def test_what_is_generated_is_up_to_date() -> None:
    late = [path for path, text in generate.generated().items() if path.read_text() != text]
    assert not late, "python -m tools.generate writes it"


PY = """
class A:
    size: int
    name: str | None
    others: list[int] = []
    b: B | None
    either: int | None
"""
PXD = """
from kraftfast.core.b cimport B


cdef class A:
    cdef public long long gone

    cpdef go(self)
"""


def test_fields_follow_from_annotations() -> None:
    assert fields.with_fields(PXD, PY) == PXD.replace(
        "    cdef public long long gone\n",
        "    cdef public long long size\n"
        "    cdef public str name\n"
        "    cdef public list others\n"
        "    cdef public B b\n"
        "    cdef public object either\n",
    )


def declared_twice(source: str) -> list[str]:
    """Fields that a class annotates and that its ``__init__`` assigns."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        annotated = {
            ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)
        }
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                found += [
                    f"{node.name}.{each.attr}"
                    for each in ast.walk(method)
                    if isinstance(each, ast.Attribute)
                    and isinstance(each.ctx, ast.Store)
                    and each.attr in annotated
                ]
    return found


def test_state_of_the_core_is_declared_once() -> None:
    assert declared_twice("class A:\n    b: int\n    def __init__(self):\n        self.b = 1\n")
    for path in (ROOT / "kraftfast/core").glob("*.py"):
        assert not declared_twice(path.read_text()), path


def with_one_more(fields: tuple[Field, ...], table: str) -> tuple[Field, ...]:
    """The fields of Fetch's table, and one more in the partition."""
    found = []
    for each in fields:
        if each.name in ("Topics", "Partitions"):
            inside = each.fields + (parse(table) if each.name == "Partitions" else ())
            each = replace(each, fields=with_one_more(inside, table) if inside else inside)
        found.append(each)
    return tuple(found)


def test_a_field_more_of_fetch_is_one_line_of_the_table() -> None:
    of = flat.FETCH[0]
    longer = with_one_more(of.message.FIELDS, "Patience:i16@13+=-7 #10099 ign")
    message = type("FetchRequest", (), {
        "VERSIONS": of.served, "FLEXIBLE": of.message.FLEXIBLE, "FIELDS": longer,
    })  # fmt: skip
    made = replace(of, message=message)
    assert "    cdef public int16_t patience  # v13+\n" in flat_files.pxd_class(made)
    assert "        patience: int = -7,\n" in flat_files.pyi_class(made)
    codec = Codec(made)
    functions = flat_files.functions(made, codec)
    text = flat_files.pyx_class(made, codec, "fetch") + functions
    for line in (
        "patience=self.patience,",
        "patience=p.patience,",
        "m.patience = -7",
        "elif tags.tag == 10099 and version >= 13:\n            m.patience = get_int16(s)",
        "cdef bint has_patience = version >= 13 and m.patience != -7",
        "put_uvarint(s, 10099)\n        put_uvarint(s, 2)\n        put_int16(s, m.patience)",
    ):
        assert line in text, line
