"""The fields of compiled classes, for the ``.pxd`` beside a ``.py``, from its annotations.

A class declares its state once, in Python. The ``cdef public`` lines of its ``.pxd`` follow from
that; all other lines there are written by hand.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TYPES = {
    "int": "long long",
    "bool": "bint",
    "str": "str",
    "bytes": "bytes",
    "Uuid": "bytes",
    "tuple": "tuple",
    "list": "list",
    "dict": "dict",
    "set": "set",
}
NULLABLE = {"str", "bytes", "tuple", "list", "dict", "set"}
"""Types of Cython whose values may also be None."""
CLASS = re.compile(r"^cdef class (\w+):\n((?:(?:    .*)?\n)+)", re.MULTILINE)
FIELD = re.compile(r"^    cdef public .*\n", re.MULTILINE)


def with_fields(pxd: str, py: str) -> str:
    """Return the text of a ``.pxd`` with the fields of the classes of ``py``."""
    classes = {node.name: node for node in ast.parse(py).body if isinstance(node, ast.ClassDef)}
    imported = re.findall(r"^from [\w.]+ cimport (.+)$", pxd, re.MULTILINE)
    compiled = {name.strip() for names in imported for name in names.split(",")}
    compiled |= set(re.findall(r"^cdef class (\w+)", pxd, re.MULTILINE))

    def changed(found: re.Match[str]) -> str:
        name, body = found.groups()
        fields = "".join(
            f"    cdef public {type_of(each.annotation, compiled)} {each.target.id}\n"
            for each in classes[name].body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        )
        others = FIELD.sub("", body) if fields else body
        return f"cdef class {name}:\n{fields}{others}"

    return CLASS.sub(changed, pxd)


def type_of(annotation: ast.expr, compiled: set[str]) -> str:
    """Return Cython's type for an annotation, ``object`` for what it has none for."""
    if isinstance(annotation, ast.BinOp):
        sides = [annotation.left, annotation.right]
        others = [each for each in sides if ast.unparse(each) != "None"]
        inside = type_of(others[0], compiled)
        may_be_none = len(others) == 1 and (inside in NULLABLE or inside in compiled)
        return inside if may_be_none else "object"
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    name = ast.unparse(annotation)
    return name if name in compiled else TYPES.get(name, "object")


def generated(root: Path, made: dict[Path, str]) -> dict[Path, str]:
    """Return the text of each ``.pxd`` of the core that has fields; ``made``: new sources."""
    found = {}
    for path in sorted(root.glob("kraftfast/core/**/*.pxd")):
        source = path.with_suffix(".py")
        text = path.read_text()
        if source.exists() and "\ncdef class " in text:
            found[path] = with_fields(text, made.get(source) or source.read_text())
    return found
