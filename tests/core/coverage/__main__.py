"""Writes ``tests/core/SCENARIOS.md`` and ``SEEDS.md``, and prints what they say is still open.

python -m tests.core.coverage
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.core.coverage import scenarios_page, seeds_page
from tests.core.coverage.known import HERE, Mistake

PAGES = {"SCENARIOS.md": scenarios_page.page, "SEEDS.md": seeds_page.page}


def main(words: Sequence[str]) -> int:
    """0, or 1 after saying what is wrong with the lists or the tags."""
    argparse.ArgumentParser(prog="python -m tests.core.coverage", description=__doc__).parse_args(
        words
    )
    for name, make in PAGES.items():
        try:
            text, still_open = make()
        except Mistake as mistake:
            print(f"{name}: {mistake}", file=sys.stderr)
            return 1
        (HERE.parent / name).write_text(text)
        print(f"{name}: {len(still_open)} not yet" + "".join(f"\n  {each}" for each in still_open))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
