"""Searches the specification of the quorum and prints what TLC found.

python -m tests.formal.quorum           # what the tests search, and the mutants
python -m tests.formal.quorum --deep    # further, for up to some hours
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.command import Refused, finish
from tests.formal.quorum import tlc
from tests.formal.quorum.searches import DEEP, MUTANTS, PLANTED, SOUND
from tests.formal.quorum.tlc import Report, Search


def main() -> int:
    """Run the command: 1 if a search did not end as it must, 2 without TLC or its verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal.quorum", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="search further")
    parser.add_argument("--only", default="", metavar="WORDS", help="searches with these words")
    parser.add_argument("--seconds", type=float, default=6 * 3600.0, help="bound of each search")
    parser.add_argument("--heap", help="memory for --deep (4g)")
    options = parser.parse_args()
    if not 0 < options.seconds < float("inf"):
        parser.error(f"--seconds wants a bound above 0, not {options.seconds}")
    if options.heap and not options.deep:
        parser.error("--heap goes with --deep")
    options.heap = options.heap or "4g"
    if not re.fullmatch("[1-9][0-9]{0,5}[kmgKMG]?", options.heap):
        parser.error(f"--heap wants a size such as 4g, not {options.heap!r}")
    searches = [each for each in searches_of(options) if options.only in each.name]
    if not searches:
        parser.error(f"no search has {options.only!r} in its name")
    if tlc.missing():
        print(tlc.missing(), file=sys.stderr)
        return 2
    failed = False
    for search in searches:
        with tempfile.TemporaryDirectory(prefix="quorum-") as folder:
            heap = options.heap if options.deep else "512m"
            try:
                report = tlc.run(search, Path(folder), options.seconds, heap)
            except RuntimeError as error:
                raise Refused(f"{search.name}: TLC came to no verdict:\n{error}") from error
        wanted = search.must_hold[0] if search in MUTANTS + PLANTED else ""
        print(told(search, report, wanted), flush=True)
        cut_short = not report.complete and not (options.deep and report.distinct)
        if report.violated != wanted or cut_short:
            failed = True
            print(report.text)
    return 1 if failed else 0


def searches_of(options: argparse.Namespace) -> list[Search]:
    """Those that the command is about."""
    return list(DEEP if options.deep else SOUND + MUTANTS + PLANTED)


def told(search: Search, report: Report, wanted: str = "") -> str:
    """Return one line; ``wanted``: what the search must find violated, empty if nothing."""
    if report.violated:
        found = f"{report.violated} violated after {report.steps} steps"
    elif not report.complete:
        found = f"holds in {report.distinct:,} states, to depth {report.depth}; time is up"
    elif search.walks:
        found = f"holds in {search.walks:,} histories of {report.distinct:,} states"
    else:
        found = f"holds in all {report.distinct:,} states, depth {report.depth}"
    if report.violated != wanted and (report.violated or report.complete):
        found += f"; WRONG: {wanted or 'nothing'} {'must' if wanted else 'may'} be violated"
    return f"{search.name}: {found} ({report.seconds:.0f} s)"


if __name__ == "__main__":
    finish("python -m tests.formal.quorum", main)
