"""What a value's class checks is checked: `__post_init__` is called by dataclasses and Structs."""

from __future__ import annotations

import re

from tests.style.sources import ROOT, python_files

CLASS = re.compile(r"^((?:@.*\n)*)(?:cdef )?class (\w+)(.*):\n((?:(?:[ \t].*)?\n)*)", re.MULTILINE)


def unchecked(text: str) -> list[str]:
    """Classes with a ``__post_init__`` that nothing calls."""
    return [
        name
        for decorators, name, bases, body in CLASS.findall(text)
        if "def __post_init__(" in body and "dataclass" not in decorators and "Struct" not in bases
    ]


def test_every_check_of_a_value_is_called() -> None:
    assert not {
        str(path.relative_to(ROOT)): found
        for path in python_files()
        if (found := unchecked(path.read_text()))
    }


def test_one_that_is_not_called_is_found() -> None:
    body = "    a: int\n\n    def __post_init__(self):\n        pass\n"
    assert unchecked(f"class A(NamedTuple):\n{body}\n\nx = 1\n") == ["A"]
    assert unchecked(f"class A(Struct, frozen=True):\n{body}") == []
    assert unchecked(f"@dataclass(eq=False)\nclass A:\n{body}\nclass B:\n{body}") == ["B"]
