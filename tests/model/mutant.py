"""Searches a core that a patch has broken: a copy of the sources, interpreted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.core.test_mutants import copy_sources
from tests.log.mutate import apply

MODEL = Path(__file__).parent


def search_mutant(
    patch: str, root: Path, words: list[str], timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tests.model WORDS`` on the patched sources, below ``root``."""
    copy_sources(root)
    shutil.copytree(MODEL, root / "tests" / "model", ignore=shutil.ignore_patterns("__pycache__"))
    apply(patch, root)
    return subprocess.run(
        [sys.executable, "-m", "tests.model", *words],
        cwd=root, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = search_mutant(Path(sys.argv[1]).read_text(), Path(folder), sys.argv[2:])
        print(done.stdout, done.stderr)
        sys.exit(done.returncode)
