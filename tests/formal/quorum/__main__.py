"""Searches the specification of the quorum and prints what TLC found.

python -m tests.formal.quorum           # what the tests search, and the mutants
python -m tests.formal.quorum --deep    # further, for up to some hours
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.formal.quorum import tlc
from tests.formal.quorum.searches import DEEP, MUTANTS, PLANTED, SOUND
from tests.formal.quorum.tlc import Report, Search


def main() -> int:
    """0, 1 if a search did not end as it must, 2 without TLC."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal.quorum", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="search further")
    parser.add_argument("--only", default="", metavar="WORDS", help="searches with these words")
    parser.add_argument("--seconds", type=float, default=6 * 3600.0, help="bound of each search")
    parser.add_argument("--heap", default="4g", help="memory for a deep search")
    options = parser.parse_args()
    if tlc.missing():
        print(tlc.missing(), file=sys.stderr)
        return 2
    searches = DEEP if options.deep else SOUND + MUTANTS + PLANTED
    failed = False
    for search in searches:
        if options.only not in search.name:
            continue
        with tempfile.TemporaryDirectory(prefix="quorum-") as folder:
            heap = options.heap if options.deep else "512m"
            report = tlc.run(search, Path(folder), options.seconds, heap)
        print(told(search, report), flush=True)
        wanted = search.must_hold[0] if search in MUTANTS + PLANTED else ""
        if report.violated != wanted or not report.complete and not options.deep:
            failed = True
            print(report.text)
    return 1 if failed else 0


def told(search: Search, report: Report) -> str:
    """One line."""
    if report.violated:
        found = f"{report.violated} violated after {report.steps} steps"
    elif not report.complete:
        found = f"holds in {report.distinct:,} states, to depth {report.depth}; time is up"
    elif search.walks:
        found = f"holds in {search.walks:,} histories of {report.distinct:,} states"
    else:
        found = f"holds in all {report.distinct:,} states, depth {report.depth}"
    return f"{search.name}: {found} ({report.seconds:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
