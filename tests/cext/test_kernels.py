"""Compiles the C programs beside this file with gcc and runs them, once plain, once sanitized."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CEXT = HERE.parents[1] / "cext"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
BUILDS = {
    "plain": ["-O3"],
    "sanitized": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}
# The kernels that each program needs beside its own source.
PROGRAMS = {"crc32c_test": ["crc32c.c"], "varint_test": []}

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, build: str, tmp_path: Path) -> None:
    binary = tmp_path / program
    sources = [HERE / f"{program}.c", *(CEXT / kernel for kernel in PROGRAMS[program])]
    command = ["gcc", "-std=gnu11", *WARNINGS, *BUILDS[build], f"-I{CEXT}", "-pthread"]
    built = subprocess.run([*command, "-o", binary, *sources], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([binary], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "ok" in ran.stdout
