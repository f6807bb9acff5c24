"""A build makes anew what has changed since the last one, and nothing else.

``setup.py`` runs in a small tree: one module in Cython, which includes a declaration and a header,
and one in Python with declarations beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.style.sources import ROOT

TREE = {
    "kraftfast/__init__.py": "",
    "kraftfast/core/__init__.py": "",
    "kraftfast/core/__init__.pxd": "",
    "kraftfast/core/beside.py": "def beside():\n    return 1\n",
    "kraftfast/core/beside.pxd": "cpdef beside()\n",
    "kraftfast/node/__init__.py": "",
    "kraftfast/node/__init__.pxd": "",
    "kraftfast/node/words.pxd": "cdef enum:\n    WORD = 1\n",
    "kraftfast/__init__.pxd": "",
    "kraftfast/node/one.pyx": (
        "from kraftfast.node.words cimport WORD\n"
        'cdef extern from "number.h":\n    int NUMBER\n'
        "def one(list of=[5]):\n    return WORD, NUMBER, of[0]\n"
    ),
    "kraftfast/two.pyx": "from libc.string cimport strlen\ndef two():\n    return 2\n",
    "cext/number.h": "#define NUMBER 1\n",
}
SAYS = "from kraftfast.node.one import one; print(*one())"
LONG_AGO = 1_500_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree after a build; its setup.py names no C sources of modules that are not there."""
    settings, count = re.subn(
        r"((?:KERNELS: [^\n]*|HOT) = \{)\n.*?\n\}\n",
        lambda found: found[1] + ('"kraftfast.two"}\n' if found[1].startswith("HOT") else "}\n"),
        (ROOT / "setup.py").read_text(),
        flags=re.S,
    )
    assert count == 2
    settings = settings.replace('"-O3"', '"-O0"').replace("_FORTIFY_SOURCE=3", "UNUSED")
    tree = tmp_path_factory.mktemp("built")
    for name, text in (TREE | {"setup.py": settings}).items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        os.utime(tree / name, (LONG_AGO, LONG_AGO))
    assert build(tree) == "1 1 5"
    return tree


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    """A copy of it, with the age of its files."""
    return shutil.copytree(built, tmp_path / "tree")


def build(tree: Path, **environment: str) -> str:
    """What the module says once it was built."""
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return subprocess.check_output([sys.executable, "-c", SAYS], cwd=tree, text=True).strip()


def change(path: Path, before: str, after: str, age: int = LONG_AGO + 10) -> None:
    """As an archive does that is unpacked over the tree: the new file is old."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    os.utime(path, (age, age))


def made(tree: Path) -> dict[str, int]:
    """When each C file and module was made."""
    found = [*tree.glob("build/cython*/**/*.c"), *tree.glob("build/plain/modules/**/*.so")]
    assert len(found) == 8
    return {str(path): path.stat().st_mtime_ns for path in found}


def test_what_changed_is_made_anew_however_old_it_is(tree: Path) -> None:
    change(tree / "kraftfast/node/one.pyx", "[5]", "[6]")
    assert build(tree) == "1 1 6"
    change(tree / "kraftfast/node/words.pxd", "= 1", "= 2")
    assert build(tree) == "2 1 6"
    change(tree / "cext/number.h", "NUMBER 1", "NUMBER 3")
    assert build(tree) == "2 3 6"
    before = made(tree)
    assert build(tree) == "2 3 6" and made(tree) == before
    for path in tree.glob("kraftfast/**/*.p*"):
        os.utime(path)  # as a checkout that goes back and forth
    assert build(tree) == "2 3 6" and made(tree) == before


def test_a_directive_and_a_lost_declaration_are_noticed(tree: Path) -> None:
    change(tree / "setup.py", '"boundscheck": True', '"boundscheck": True, "nonecheck": True')
    before = made(tree)
    assert build(tree) == "1 1 5"
    after = made(tree)
    assert all(after[path] > before[path] for path in before if path.endswith(".c"))
    (tree / "kraftfast/node/words.pxd").unlink()
    with pytest.raises(AssertionError, match="CompileError: kraftfast/node/one.pyx"):
        build(tree)


def test_cython_that_is_installed_again_makes_nothing_anew(tree: Path) -> None:
    """As after `make build`: pip built with a Cython of its own, then installed another."""
    (two,) = tree.glob("build/cython*/kraftfast/two.c")
    two.write_text(two.read_text() + "/* kept */\n")
    for path in tree.glob("build/cython*/**/*.c"):
        os.utime(path, (LONG_AGO + 5, LONG_AGO + 5))  # older than Cython's own declarations
    change(tree / "kraftfast/node/one.pyx", "[5]", "[8]", int(time.time()) + 10)
    assert build(tree) == "1 1 8"
    assert two.read_text().endswith("/* kept */\n")


HALF_GENERATED = """
import os, runpy, sys
import Cython.Build
def killed(*_modules, **_settings):
    with open(sys.argv.pop(1), "r+") as made:
        made.truncate(1000)
    os.kill(os.getpid(), 9)
Cython.Build.cythonize = killed
runpy.run_path("setup.py", run_name="__main__")
"""
HALF_LINKED = """#!/bin/sh
case "$*" in
*-shared*one*) if [ -e die ]; then
    rm die
    for last; do [ "$before" = -o ] && echo half > "$last"; before=$last; done
    kill -9 $PPID
    exit 1
fi;;
esac
exec gcc "$@"
"""


def test_what_was_interrupted_is_made_anew(tree: Path) -> None:
    """A killed process leaves a C file or a module that looks new, and is half there."""
    (source,) = tree.glob("build/cython*/kraftfast/node/one.c")
    change(tree / "kraftfast/node/one.pyx", "[5]", "[7]", LONG_AGO + 20)
    command = [sys.executable, "-c", HALF_GENERATED, str(source), "-q", "build_ext", "--inplace"]
    assert subprocess.run(command, cwd=tree).returncode == -9
    assert source.stat().st_size == 1000
    assert build(tree) == "1 1 7"

    compiler = tree / "compiler"
    compiler.write_text(HALF_LINKED)
    compiler.chmod(0o755)
    assert build(tree, CC=str(compiler)) == "1 1 7"
    change(tree / "cext/number.h", "NUMBER 1", "NUMBER 4")
    (tree / "die").touch()
    with pytest.raises(AssertionError):
        build(tree, CC=str(compiler))
    (module,) = tree.glob("build/plain/modules/kraftfast/node/one*.so")
    assert module.read_text() == "half\n" and not (tree / "die").exists()
    assert build(tree, CC=str(compiler)) == "1 4 7"
