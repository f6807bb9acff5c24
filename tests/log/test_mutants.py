"""The kill matrix of the log: without the line that keeps a condition, the named test fails.

Each mutant of a compiled module costs a build, so that the suite runs only two of them; all are run
by ``python -m tests.mutants log``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.log.mutate import KILLED, PATCHES, SURVIVED, copy_tree, header, make, patched, run

CONDITIONS = {5, 8, 9, 10, 11, 18, 20, 22, 23, 25}
"""Of docs/explanation/conditions.md, those that the log keeps."""
ALWAYS = ("d08_zeros_are_not_written", "d18_directory_not_synced")
CHOSEN = [each for each in PATCHES if each.stem in ALWAYS]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("patch", CHOSEN, ids=lambda patch: patch.stem)
def test_a_mutant_is_killed(patch: Path, tmp_path: Path) -> None:
    make(patch, tmp_path)
    outcome = run([header(patch, "Killed by")], tmp_path)
    assert outcome.returncode == KILLED, f"nobody saw it: {outcome.stdout}{outcome.stderr}"


def test_every_condition_has_a_mutant() -> None:
    named = {int(patch.stem[1:3]) for patch in PATCHES if re.match(r"d\d\d_", patch.stem)}
    assert named == CONDITIONS
    assert set(ALWAYS) <= {patch.stem for patch in PATCHES}


@pytest.mark.slow
def test_without_a_patch_the_killers_pass(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    outcome = run(sorted({header(patch, "Killed by") for patch in CHOSEN}), tmp_path)
    assert outcome.returncode == SURVIVED, outcome.stdout + outcome.stderr


def test_no_patch_leaves_a_file_as_it_is(tmp_path: Path) -> None:
    """The line before a hunk may end in a function's name, and a patch may change nothing."""
    (tmp_path / "a.py").write_text("one\ntwo\n")
    head = "--- a/a.py\n+++ b/a.py\n"
    changed = patched(f"{head}@@ -1,2 +1,2 @@ def count():\n one\n-two\n+three\n", tmp_path)
    assert changed == {tmp_path / "a.py": "one\nthree\n"}
    for nothing in (head, f"{head}@@ -1,2 +1,2 @@\n one\n-two\n+two\n"):
        with pytest.raises(AssertionError, match="would stay as"):
            patched(nothing, tmp_path)
