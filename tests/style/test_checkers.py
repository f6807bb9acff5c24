"""What other checkers say of the sources: ruff of style, names and layout, mypy of types,
cython-lint and clang-format of what is compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = [str(path) for path in sorted(ROOT.glob("cext/*.[ch]"))]
CHECKERS = {
    "ruff": ["ruff", "check", "--output-format=concise", "."],
    "format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "cython": ["cython-lint", "--max-line-length=100", "kraftfast"],
    "kernels": ["clang-format", "--dry-run", "--Werror", *KERNELS],
}


@pytest.mark.parametrize("name", CHECKERS)
def test_it_finds_nothing(name: str) -> None:
    tool, *words = CHECKERS[name]
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which(tool, path=beside)
    if found is None:
        pytest.skip(f"{tool} is not installed: pip install -e '.[dev]'")
    done = subprocess.run(
        [found, *words],
        cwd=ROOT, env=os.environ | {"PATH": beside}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_leaves_no_room_out() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    overrides = settings.pop("overrides")
    assert settings == {"strict": True, "packages": ["kraftfast"], "warn_unused_configs": True}
    assert all(set(each) == {"module", "ignore_missing_imports"} for each in overrides)
