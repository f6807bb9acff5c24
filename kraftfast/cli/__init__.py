"""The command line: one file a command, loaded only when it is the one that was asked for."""

from __future__ import annotations

import sys
from typing import NoReturn

EXIT_INTERRUPTED = 130
"""As shells say it of SIGINT."""


def main() -> NoReturn:
    """The ``kraftfast`` program."""
    try:
        from kraftfast.cli.root import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the program is loaded, or again while it ends
        code = EXIT_INTERRUPTED
    sys.exit(code)
