"""What is generated is up to date, and state is declared once."""

from __future__ import annotations

import ast

from tests.style.sources import ROOT
from tools import fields, generate


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
