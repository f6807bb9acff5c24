"""The sdist holds every file of the project, and a tree without its sources does not build."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.style.sources import ROOT

WRITTEN = {"build", "dist", "site", "__pycache__"}
"""Folders that a build or a test run writes; so does every folder whose name begins with a dot."""
KEPT = {".ci", ".github"}
TOP = {".clang-format", ".gitignore", "LICENSE", "Makefile"}
BUILD = """
import sys
import setuptools.build_meta
print(setuptools.build_meta.build_sdist(sys.argv[1]))
"""


def ships(path: Path) -> bool:
    """True for a file that somebody wrote, False for one that a build or a test run writes."""
    parts = path.relative_to(ROOT).parts
    if any(part in WRITTEN or part.endswith(".egg-info") for part in parts):
        return False
    if any(part.startswith(".") and part not in KEPT for part in parts[:-1]):
        return False
    if len(parts) == 1:  # of the top folder: what a clone holds, not what somebody puts beside it
        return path.suffix in {".md", ".py", ".toml", ".in"} or path.name in TOP
    return path.suffix not in {".so", ".pyc"} and path.name != "messages.pyi"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project by symbolic links: what the build writes at the top does not land there."""
    place = tmp_path_factory.mktemp("tree")
    for path in ROOT.iterdir():
        if path.name != ".git" and not path.name.endswith(".egg-info"):
            (place / path.name).symlink_to(path)
    return place


def test_the_sdist_holds_the_whole_project(tree: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], cwd=tree, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with tarfile.open(next(tmp_path.glob("kraftfast-*.tar.gz"))) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    files = (path for path in ROOT.rglob("*") if path.is_file() and ships(path))
    wanted = {str(path.relative_to(ROOT)) for path in files}
    assert len([name for name in wanted if name.endswith(".pyx")]) > 30
    assert wanted - held == set()
    assert {name for name in held if name.endswith((".so", ".pyc"))} == set()


@pytest.mark.parametrize("lost", ["kraftfast/**/*.pyx", "kraftfast/log/scan.pyx", "cext/*.h"])
def test_a_tree_without_sources_does_not_build(tmp_path: Path, lost: str) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("kraftfast", "cext"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    for path in tmp_path.glob(lost):
        path.unlink()
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "the source tree is incomplete" in done.stderr
    assert lost in done.stderr or "kraftfast.log.scan" in done.stderr
