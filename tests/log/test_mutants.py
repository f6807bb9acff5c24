"""The kill matrix of the log: without the line that keeps a condition, the named test fails.

Each mutant of a compiled module costs a build, so that the whole suite runs only two of them::

    KRAFTFAST_MUTANTS=all python -m pytest tests/log/test_mutants.py
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.log.mutate import (
    KILLED,
    PATCHES,
    ROOT,
    SURVIVED,
    copy_tree,
    header,
    make,
    patched,
    run,
)

CONDITIONS = {8, 9, 10, 11, 18, 20}
"""Of D1 to D20 (docs/explanation/conditions.md), those that the log keeps."""
ALWAYS = ("d08_zeros_are_not_written", "d18_directory_not_synced")
CHOSEN = [
    each for each in PATCHES if os.environ.get("KRAFTFAST_MUTANTS") == "all" or each.stem in ALWAYS
]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("patch", CHOSEN, ids=lambda patch: patch.stem)
def test_a_mutant_is_killed(patch: Path, tmp_path: Path) -> None:
    make(patch, tmp_path)
    outcome = run([header(patch, "Killed by")], tmp_path)
    assert outcome.returncode == KILLED, f"nobody saw it: {outcome.stdout}{outcome.stderr}"


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_still_fits(patch: Path) -> None:
    """The sources that it breaks, and the test that must see it, are there."""
    assert patched(patch.read_text(), ROOT)
    file, _, name = header(patch, "Killed by").partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_every_condition_has_a_mutant() -> None:
    named = {int(patch.stem[1:3]) for patch in PATCHES if re.match(r"d\d\d_", patch.stem)}
    assert named == CONDITIONS
    assert set(ALWAYS) <= {patch.stem for patch in PATCHES}


@pytest.mark.slow
def test_without_a_patch_the_killers_pass(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    outcome = run(sorted({header(patch, "Killed by") for patch in CHOSEN}), tmp_path)
    assert outcome.returncode == SURVIVED, outcome.stdout + outcome.stderr
