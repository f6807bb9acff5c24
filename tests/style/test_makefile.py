"""Every command of the Makefile is listed with its help, and what it calls is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.style.sources import ROOT

RULE = re.compile(r"^([a-z]+):", re.MULTILINE)
PATH = re.compile(r"(?:tests|bench|\.ci)/[\w./]*\w")
MODULE = re.compile(r"python3? -m ([a-z][\w.]+)")
TOOLS = ("pytest", "ruff", "mkdocs", "clang-format", "kraftfast")
"""What the recipes run from the virtual environment, beside Python."""


def make(*words: str) -> str:
    return subprocess.run(
        ["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip


MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = RULE.findall(MAKEFILE)


def test_each_target_is_listed_with_its_help() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    listed = {line.split()[0]: line.split()[1:] for line in make("help").splitlines()}
    assert sorted(listed) == sorted(TARGETS) and len(TARGETS) > 15
    assert all(listed.values())
    phony = MAKEFILE.partition(".PHONY:")[2].replace("\\\n", " ").splitlines()[0].split()
    assert sorted(phony) == sorted(TARGETS)


def test_rewrite_shows_the_difference() -> None:
    """Each line of it, as its help says: one that counts them alone shows nothing."""
    (shown,) = re.findall(r"^\tgit --no-pager diff (.*)$", MAKEFILE, re.MULTILINE)
    assert shown == "-- tests/core/scenarios"


def test_each_target_of_the_contributors_page_is_there() -> None:
    told = set(re.findall(r"`make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert told <= set(TARGETS) and len(told) > 10


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"help"}))
def test_what_a_target_calls_is_there(target: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    said = make("--dry-run", target)
    paths = PATH.findall(said)
    modules = MODULE.findall(said)
    tools = [tool for tool in TOOLS if f".venv/bin/{tool} " in said]
    assert paths or modules or tools or "setup.py" in said, said
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [name for name in modules if not there(name)]
    assert missing == []


def there(module: str) -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([sys.executable, "-c", look, module], cwd=ROOT).returncode == 0
