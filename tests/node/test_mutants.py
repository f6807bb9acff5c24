"""The kill matrix of the node: without the line that keeps a condition, seeds see it.

Files in ``mutants/`` that name a kind of world (``tests.sim.kill``) are run here, on a copy with
the patch applied: the simulator runs the node itself. ``python -m tests.mutants`` runs the others.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.sim.kill import KILLED
from tests.sim.test_mutants import copy_with, run

WORLD = re.compile(r"^Killed by: seeds of (\w+)$", re.MULTILINE)
PATCHES = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
KINDS = {path: found[1] for path in PATCHES if (found := WORLD.search(path.read_text()))}


@pytest.mark.parametrize("patch, kind", KINDS.items(), ids=[path.stem for path in KINDS])
def test_a_mutant_of_the_node_is_killed(patch: Path, kind: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        copy_with(patch, Path(root))
        done = run(Path(root), kind=kind)
    assert done.returncode == KILLED, f"it lives: {done.stdout}{done.stderr}"
