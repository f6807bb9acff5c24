"""Write what is generated from other sources of this project: ``python -m tools.generate``.

Exit code 1 with ``--check``, which writes nothing, if something is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import conditions, fields, flat_files, pictures, plain, stubs

ROOT = Path(__file__).resolve().parents[1]


def generated() -> dict[Path, str]:
    """Return every generated file with its text."""
    made = plain.generated(ROOT)
    made |= fields.generated(ROOT, made) | stubs.generated(ROOT) | flat_files.generated(ROOT)
    return made | conditions.generated(ROOT) | pictures.generated(ROOT)


def main(words: list[str]) -> int:
    """Write what is out of date, and name it."""
    late = {path: text for path, text in generated().items() if path.read_text() != text}
    for path, text in late.items():
        print(path.relative_to(ROOT))
        if "--check" not in words:
            path.write_text(text)
    return int(bool(late) and "--check" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
