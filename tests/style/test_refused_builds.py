"""A build that cannot work is refused by one line that names a way on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.sources import ROOT

PLANTED = {
    "sys.version_info = (3, 10, 4, 'final', 0)": "needs CPython 3.11 or later",
    "sys.platform = 'darwin'": "needs Linux, and this is darwin",
    "os.environ['CC'] = '/none/gcc -pthread'": "no C compiler (/none/gcc): install one",
    "sysconfig.get_path = lambda name: '/none'": "no /none/Python.h: install the headers",
    "sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED'": "free-threaded",
}
RUN = """
import os, runpy, sys, sysconfig
import Cython.Build, setuptools.command.build_ext
{planted}
sys.argv = ["setup.py", "bdist_wheel"]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.parametrize("planted", PLANTED)
def test_a_build_that_cannot_work_is_refused(planted: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(planted=planted)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup.py: ") and PLANTED[planted] in line
