"""The commands of the simulator and of the specification refuse what would show nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import reached

ROOT = Path(__file__).parents[2]
REFUSED = {
    "kraftfast.sim": [
        "--seeds 5:5",
        "--seeds 9:3",
        "--seed 1 --minutes -1",
        "--seed 1 --minutes nan",
    ],
    "tests.sim.mended": ["nosuch", "--seeds 0", "--minutes nan", "--reached /none", "no.patch"],
    "tests.sim.coverage": ["--seeds 3", "--short"],
    "tests.sim.reached": ["x --seeds 3", "x --seeds 3:3", "x --minutes 0", "/proc/version"],
    "tests.formal.quorum": ["--only nosuch", "--seconds nan", "--seconds 0", "--heap foo"],
    "tests.model.table": ["nosuch"],
}


@pytest.mark.parametrize(
    "module, words", [(module, words) for module, all in REFUSED.items() for words in all]
)
def test_it_is_refused_in_a_line(module: str, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *words.split()],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert "error: " in done.stderr.splitlines()[-1]


def test_a_runner_that_dies_is_no_hole(tmp_path: Path) -> None:
    (tmp_path / "kraftfast").mkdir()
    (tmp_path / "kraftfast" / "__init__.py").write_text("raise OSError('as planted')\n")
    with pytest.raises(SystemExit, match="the runner ended with 1"):
        list(reached.run(tmp_path, [1, 2], 1.0))


def test_coverage_names_the_lines_that_no_seed_runs() -> None:
    words = ["-m", "tests.sim.coverage", "--seeds", "4:5", "--short", "--lines"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shares = re.findall(r"^ *(\d+) % .*  node/session.py$", done.stdout, re.MULTILINE)
    assert len(shares) == 1 and 30 < int(shares[0]) < 100
    assert re.search(r"^compiled: .*node/mesh.py", done.stdout, re.MULTILINE)
