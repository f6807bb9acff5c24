"""The kill matrix of the node: without the line that keeps a condition, seeds see it.

Each file in ``mutants/`` says what is broken and the kind of world (``tests.sim.kill``) that must
show it. The simulator runs the node itself; here a copy with the patch applied.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.sim.kill import KILLED
from tests.sim.test_mutants import copy_with, run

PATCHES = sorted((Path(__file__).parent / "mutants").glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_of_the_node_is_killed(patch: Path) -> None:
    text = patch.read_text()
    (kind,) = re.findall(r"^Killed by: seeds of (\w+)$", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as root:
        copy_with(patch, Path(root))
        done = run(Path(root), kind=kind)
    assert done.returncode == KILLED, f"it lives: {done.stdout}{done.stderr}"
