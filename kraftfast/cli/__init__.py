"""The command line: one file a command, loaded only when it is the one that was asked for."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The ``kraftfast`` program."""
    from kraftfast.cli.root import run

    sys.exit(run(sys.argv[1:]))
