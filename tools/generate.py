"""Write what is generated from other sources of this project: ``python -m tools.generate``.

Exit code 1 with ``--check``, which writes nothing, if something is out of date. Other words are
refused: a misspelt ``--check`` must not write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import conditions, fields, flat_files, pictures, plain, stubs

ROOT = Path(__file__).resolve().parents[1]


def generated() -> dict[Path, str]:
    """Return every generated file with its text."""
    made = plain.generated(ROOT)
    made |= fields.generated(ROOT, made) | stubs.generated(ROOT) | flat_files.generated(ROOT)
    return made | conditions.generated(ROOT) | pictures.generated(ROOT)


def main(words: Sequence[str]) -> int:
    """Write what is out of date, and name it."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only name what is out of date")
    check = parser.parse_args(words).check
    late = {path: text for path, text in generated().items() if path.read_text() != text}
    for path, text in late.items():
        print(path.relative_to(ROOT))
        if not check:
            path.write_text(text)
    return int(bool(late) and check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
