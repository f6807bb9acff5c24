"""Python itself, our compiled modules, and the packages that we always need."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import kraftfast
from kraftfast.doctor.findings import MISSING, NOTE, OK, Fact

PYTHON_MIN, PYTHON_TESTED_MAX = (3, 11), (3, 14)
ENTRANCES = (
    "kraftfast.node.processes.worker",
    "kraftfast.node.processes.sibling",
    "kraftfast.node.processes.supervisor",
    "kraftfast.client.local_connector",
    "kraftfast.client.producer.ring_sender",
    "kraftfast.client.producer.socket_sender",
    "kraftfast.client.producer.aio",
    "kraftfast.log.reading.verify",
    "kraftfast.record.columns",
    "kraftfast.record.digest",
    "kraftfast.record.headers",
    "kraftfast.record.rows",
)
"""Importing these loads every compiled module that a replica or a client uses."""
PACKAGES = {
    "numpy": "numpy",
    "crc32c": "crc32c",
    "zstandard": "zstandard",
    "lz4": "lz4.frame",
    "python-snappy": "snappy",
    "click": "click",
    "rich": "rich",
    "msgspec": "msgspec",
}
"""Distribution -> the module of it that is used; those of ``dependencies`` in pyproject.toml."""


def python() -> Iterator[Fact]:
    """Check version, implementation and build."""
    name, version = sys.implementation.name, platform.python_version()
    gil = "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else "with a GIL"
    text = f"{name} {version}, {gil}, {platform.machine()}, {sys.executable}"
    short = sys.version_info[:2]
    if name != "cpython" or short < PYTHON_MIN:
        hint = "use CPython 3.11 or later, for example `uv venv --python 3.13`"
        yield Fact("Python", MISSING, text, hint, version)
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Fact("Python", MISSING, text, "use the ordinary build of this version", version)
    elif short > PYTHON_TESTED_MAX:
        yield Fact("Python", NOTE, text, "newer than what kraftfast is tested with", version)
    else:
        yield Fact("Python", OK, text, value=version)
    if sys.maxsize < 2**32:
        yield Fact("Python", MISSING, "a 32-bit build", "use a 64-bit one")
    yield Fact(
        "kraftfast", OK, f"{kraftfast.__version__}, {_folder()}", value=kraftfast.__version__
    )


def _folder() -> Path:
    return Path(os.path.abspath(kraftfast.__file__)).parent


def modules() -> Iterator[Fact]:
    """Check that the compiled modules are there, fit this Python, and match their sources."""
    built = [path for path in _folder().rglob("*.so")]
    fitting = [path for path in built if _fits(path)]
    again = "install kraftfast again with this Python (pip install --force-reinstall)"
    if not built:
        yield Fact("compiled modules", MISSING, "none: only the .py files are here", again, value=0)
        return
    if not fitting:
        other = sorted({path.name.partition(".")[2] for path in built})[0]
        text = f"{len(built)} are there, and none fits this Python (they end in .{other})"
        yield Fact("compiled modules", MISSING, text, again, value=0)
        return
    for name in ENTRANCES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - of a broken module anything may come
            first = " ".join(str(error).split())
            text = f"{name} cannot be imported: {type(error).__name__}: {first}"
            yield Fact("compiled modules", MISSING, text, again)
            return
    stale = sorted(path.name.partition(".")[0] for path in fitting if _is_stale(path))
    text = f"{len(fitting)} fit this Python"
    if stale:
        text += f"; older than their sources: {', '.join(stale[:5])}"
        yield Fact("compiled modules", NOTE, text, "run `make rebuild`", len(fitting))
    else:
        yield Fact("compiled modules", OK, text, value=len(fitting))


def _fits(path: Path) -> bool:
    suffix = "." + path.name.partition(".")[2]
    return suffix in EXTENSION_SUFFIXES


def _is_stale(path: Path) -> bool:
    """Return whether a source beside the module, in a clone, was changed after it was compiled."""
    source = path.with_name(path.name.partition(".")[0] + ".pyx")
    return source.exists() and source.stat().st_mtime > path.stat().st_mtime + 1


def packages() -> Iterator[Fact]:
    """Check the packages that kraftfast depends on."""
    versions = {}
    for name, module in PACKAGES.items():
        try:
            importlib.import_module(module)
            versions[name] = importlib.metadata.version(name)
        except Exception as error:  # noqa: BLE001 - of a broken package anything may come
            text = f"{name} cannot be imported: {' '.join(str(error).split())}"
            yield Fact("packages", MISSING, text, f"pip install {name}")
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Fact("packages", OK, text or "none", value=versions)
