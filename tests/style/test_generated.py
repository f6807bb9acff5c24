"""What is generated is up to date, and state is declared once."""

from __future__ import annotations

import ast
import re

import pytest
from msgspec.structs import replace

from kraftfast.wire import messages
from kraftfast.wire.notation import Field, parse
from kraftfast.wire.schema import Message
from tests.style.sources import ROOT
from tools import fields, generate, pictures


def test_what_is_generated_is_up_to_date() -> None:
    late = [path for path, text in generate.generated().items() if path.read_text() != text]
    assert not late, "python -m tools.generate writes it"


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--chekc", 2)])
def test_nothing_is_written_by_one_who_asks_for_help(
    word: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "generated", lambda: pytest.fail("it goes to work"))
    with pytest.raises(SystemExit) as ended:
        generate.main([word])
    assert ended.value.code == code


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
    for path in (ROOT / "kraftfast/core").rglob("*.py"):
        assert not declared_twice(path.read_text()), path


def with_one_more(fields: tuple[Field, ...], table: str) -> tuple[Field, ...]:
    """The fields of a table, and one more in the partition."""
    found = []
    for each in fields:
        if each.name in ("Topics", "Partitions"):
            inside = each.fields + (parse(table) if each.name == "Partitions" else ())
            each = replace(each, fields=with_one_more(inside, table))
        found.append(each)
    return tuple(found)


@pytest.mark.parametrize("message", [messages.FetchRequest, messages.VoteRequest])
def test_a_field_more_is_one_line_of_the_table(
    message: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "Patience:i16@13+=-7 #10099 ign > patience"
    monkeypatch.setattr(message, "FIELDS", with_one_more(message.FIELDS, line))
    made = {path.name: text for path, text in generate.generated().items()}
    before = {path.name: path.read_text() for path in generate.generated()}
    wanted = {
        "messages.py": ["    patience: int = -7\n"],
        "messages.pyi": ["        patience: int = ...\n"],
        "generated.py": ["patience=message.patience,"],
    }
    if message is messages.FetchRequest:
        wanted |= {
            "messages.pxd": ["    cdef public long long patience\n"],  # its fields are in C
            "fetch.pxd": ["    cdef public int16_t patience  # v13+\n"],
            "fetch.pyi": ["        patience: int = -7,\n"],
            "fetch.pyx": [
                "patience=self.patience,",
                "patience=p.patience,",
                "m.patience = -7",
                "tags.tag == 10099 and version >= 13:\n            m.patience = get_int16(s)",
                "cdef bint has_patience = version >= 13 and m.patience != -7",
                "put_uvarint(s, 10099)\n        put_uvarint(s, 2)\n        put_int16(s, m.pat",
            ],
        }
    for name, lines in wanted.items():
        for each in lines:
            assert each in made[name] and each not in before[name], (name, each)
    assert {name for name in made if made[name] != before[name]} == set(wanted)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("box a 0 0 90 40 | a", "neither a box nor an arrow"),
        ("link one -> gone 0 0", "neither a box nor an arrow"),
        ("thread a 0 0 40 40 | too long for it", "does not fit"),
        ("thread a 50 0 90 40 | over it", "overlaps"),
        ("thread a 200 200 90 40 | apart\nlink one -> a 0 0", "use bend"),
    ],
)
def test_a_picture_with_a_mistake_is_refused(line: str, said: str) -> None:
    with pytest.raises(pictures.BadPicture, match=rf"^p\.txt:[34]: .*{said}"):
        pictures.picture(f"size 300 300 | p\nthread one 0 0 90 40 | one\n{line}\n", "p.txt")


def test_pictures_name_files_that_exist() -> None:
    for table in (ROOT / pictures.FOLDER).glob("*.txt"):
        for name in re.findall(r"\b[\w/]+/\w+\.(?:pyx?|c)\b", table.read_text()):
            assert name.startswith("tools/") or (ROOT / "kraftfast" / name).exists(), name
