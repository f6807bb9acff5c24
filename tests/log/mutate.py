"""Breaks the log on purpose: patched copies of the sources, with only what was patched compiled.

A patch under ``mutants/`` is a small unified diff. The lines before it say which condition it
breaks and which test must see it::

    D8: what is broken.
    Killed by: tests/log/test_log.py::test_name

Shipped code has no switches for this.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
BUILT = ("kraftfast", "cext")
TESTS = ("tests/conftest.py", "tests/kafka_tools.py", "tests/log")
SURVIVED, KILLED = 0, 1
"""Exit codes of pytest."""
DIRECTIVES = ("boundscheck=True", "cdivision=True", "annotation_typing=False", "auto_pickle=False")
COMPILE = ["-O0", "-g0", "-w", "-std=gnu11", "-fno-strict-aliasing", "-fPIC", "-shared"]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))  # read here: its cache is for one thread
BUILD_SECONDS_MAX = 300
TEST_SECONDS_MAX = 120


def header(patch: Path, key: str) -> str:
    """The value of one line before the diff."""
    (value,) = re.findall(rf"^{key}: (.+)$", patch.read_text(), re.MULTILINE)
    return value


PARSING = threading.Lock()
"""CPython 3.11 mixes up its depth where two threads make trees at once (SystemError)."""


def kernels() -> dict[str, list[str]]:
    """The C sources of each extension, as setup.py has them."""
    with PARSING:
        return _kernels()


def _kernels() -> dict[str, list[str]]:
    tree = ast.parse((ROOT / "setup.py").read_text())
    wanted = {"MAPPING", "BATCH", "THREAD", "KERNELS"}
    names: dict[str, object] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if {target.id for target in targets if isinstance(target, ast.Name)} & wanted:
            exec(compile(ast.Module([node], []), "setup.py", "exec"), names)
    found = names["KERNELS"]
    assert isinstance(found, dict)
    return found


def copy_tree(root: Path, tests: Sequence[str] = TESTS) -> None:
    """A copy of the sources and of some tests; compiled modules are only linked to."""

    def take(source: str, target: str) -> None:
        if source.endswith(".so"):
            os.symlink(source, target)
        else:
            shutil.copy2(source, target)

    ignored = shutil.ignore_patterns("__pycache__", "mutants")
    for name in (*BUILT, *tests, "pyproject.toml"):
        source = ROOT / name
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, root / name, copy_function=take, ignore=ignored)
        elif source.exists():
            shutil.copy2(source, root / name)


def patched(text: str, root: Path) -> dict[Path, str]:
    """What a diff makes of the files that it names; each hunk's lines stand exactly once there."""
    changed = {}
    for part in re.split(r"^(?=--- a/)", text, flags=re.MULTILINE)[1:]:
        path = root / re.match(r"--- a/(\S+)\n", part)[1]  # type: ignore[index]
        source = path.read_text()
        for hunk in re.split(r"^@@.*@@.*\n", part, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            assert source.count(old) == 1, f"the sources have moved away from this patch:\n{hunk}"
            source = source.replace(old, new)
        assert source != path.read_text(), f"{path} would stay as it is"
        changed[path] = source
    assert changed, "no diff of any file: the sources would stay as they are"
    return changed


def apply(text: str, root: Path) -> list[Path]:
    """Apply a diff; returns the files changed."""
    changed = patched(text, root)
    for path, source in changed.items():
        path.write_text(source)
    return list(changed)


def build(path: Path, root: Path) -> None:
    """Compile the extension of one ``.pyx`` anew, in place."""
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    c, so = path.with_suffix(".c"), path.with_suffix(SUFFIX)
    options = [word for directive in DIRECTIVES for word in ("-X", directive)]
    command = [sys.executable, "-m", "cython", "-3", *options, "-o", str(c), str(path)]
    _run(command, root)
    so.unlink(missing_ok=True)
    includes = [f"-I{sysconfig.get_paths()['include']}", f"-I{root / 'cext'}"]
    sources = [str(root / source) for source in kernels().get(name, [])]
    compiler = ["ccache", "gcc"] if shutil.which("ccache") else ["gcc"]
    _run([*compiler, *COMPILE, *includes, str(c), *sources, "-o", str(so), "-lpthread"], root)


def _run(command: list[str], root: Path) -> None:
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr


def run(
    tests: list[str], root: Path, seconds_max: float = TEST_SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    """Run tests against a copy; one that never ends there is killed, too."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(root), "HYPOTHESIS_STORAGE_DIRECTORY": str(root)}
    try:
        return subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, KILLED, "it did not end", "")


def make(patch: Path, root: Path) -> None:
    """A copy with one mutant in it."""
    copy_tree(root)
    for path in apply(patch.read_text(), root):
        if path.suffix == ".pyx":
            build(path, root)
