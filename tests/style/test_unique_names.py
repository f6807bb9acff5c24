"""No two modules or classes of the package have one name: a reader looks for them by it.

``SHARED_MODULES`` and ``SHARED_CLASSES`` have what is left, with its reason.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tests.style.sources import ROOT, python_files

SHARED_MODULES = {
    "group": "the commands of a folder of the command line, found there by this name",
    "messages": "the core's part of Kafka's messages, and the whole of them (wire)",
}
SHARED_CLASSES = {"Headers": "found by the name of the compiled one, where nothing is compiled"}
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)


def modules() -> dict[str, list[str]]:
    """Return the paths of the modules of the package, by name."""
    found = defaultdict(list)
    for path in python_files():
        if path.suffix in (".py", ".pyx") and not path.stem.startswith("__"):
            found[path.stem].append(path.relative_to(ROOT).as_posix())
    return found


def classes() -> dict[str, list[str]]:
    """Return the modules that define a class at their top level, by its name."""
    found = defaultdict(list)
    for path in python_files():
        if path.suffix in (".py", ".pyx"):
            for name in CLASS.findall(path.read_text()):
                found[name].append(path.relative_to(ROOT).as_posix())
    return found


def shared(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_two_modules_have_one_name() -> None:
    found = shared(modules())
    assert found.keys() == SHARED_MODULES.keys(), found


def test_no_two_classes_have_one_name() -> None:
    found = shared(classes())
    assert found.keys() == SHARED_CLASSES.keys(), found
