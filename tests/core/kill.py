"""Runs tests of this folder by themselves: exit status 3 if one fails, 0 if they pass.

``python -m tests.core.kill scenario NAME MODULE FUNCTION ...``: pairs of words, without a test
runner, for the kill matrix starts it once per mutant.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable

KILLED = 3


def find(module: str, name: str) -> Callable[[], object]:
    if module == "scenario":
        from tests.core.scenario import SCENARIOS, run_file

        return lambda: run_file(SCENARIOS / f"{name}.txt")
    return getattr(importlib.import_module(f"tests.core.{module}"), name)


def main(words: list[str]) -> int:
    tests = [find(*pair) for pair in zip(words[::2], words[1::2], strict=True)]
    for test in tests:
        try:
            test()
        except Exception:  # whatever a mutant breaks
            traceback.print_exc()
            return KILLED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
