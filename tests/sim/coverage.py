"""Runs seeds, and shows which lines of the replica's and the clients' code they execute.

``python -m tests.sim.coverage --seeds A:B [--short] [--lines]``: a line for each file of ``node``,
``link`` and ``client`` with the share that was executed, the least first; ``--lines`` names the
lines that were not. Why the rest of a file is for other tests stands in ``not_in_seeds.txt`` and
beside it; shares of the rooms come last, with and without those files. Compiled modules
cannot be traced, and are named at the end. A seed that fails ends the run with 1.
"""

from __future__ import annotations

import argparse
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from coverage import Coverage

from kraftfast.sim.__main__ import seeds_of

PACKAGE = Path(__file__).parents[2] / "kraftfast"
ROOMS = "node", "link", "client"
REASONS = Path(__file__).with_name("not_in_seeds.txt")


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 if every seed held, 1 if one did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.coverage", description=__doc__)
    parser.add_argument("--seeds", metavar="A:B", required=True, help="run the seeds from A to B")
    parser.add_argument("--short", action="store_true", help="as the simulator's option")
    parser.add_argument("--lines", action="store_true", help="name the lines that did not run")
    options = parser.parse_args(arguments)
    options.seed = None
    seeds = seeds_of(options, parser)
    sources = [str(PACKAGE / room) for room in ROOMS]
    traced = Coverage(data_file=None, source=sources, concurrency="greenlet", config_file=False)
    traced.start()
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import run_seed

    for seed in seeds:
        result = run_seed(seed, WorldSettings.of_seed(seed, short=options.short))
        if not result["ok"]:
            print(f"seed {seed}: {result['violation']}")
            return 1
    traced.stop()
    show(traced, options.lines)
    return 0


def show(traced: Coverage, lines: bool) -> None:
    """Print the share of each file, and what could not be traced."""
    found, compiled = [], []
    reasons = dict(line.split(": ", 1) for line in REASONS.read_text().splitlines())
    for path in (each for room in ROOMS for each in (PACKAGE / room).rglob("*.py*")):
        name = str(path.relative_to(PACKAGE))
        if path.suffix == ".pyx" or (path.suffix == ".py" and is_compiled(path)):
            compiled.append(name)
        elif path.suffix == ".py":
            _, statements, _, missing, text = traced.analysis2(str(path))
            if statements:
                found.append((len(statements) - len(missing), len(statements), name, text))
    for ran, all, name, text in sorted(found, key=lambda each: each[0] / each[1]):
        why = f" ({reasons[name]})" if name in reasons else ""
        print(f"{100 * ran // all:4} % {ran:5} of {all:5}  {name}{why}")
        if lines and text:
            print(f"       {text}")
    for part in (*ROOMS, ""):
        share(f"of {part or 'all'}", [each for each in found if each[2].startswith(part)])
    share("of all but those with a reason", [each for each in found if each[2] not in reasons])
    print(f"compiled: {', '.join(sorted(compiled))}")


def share(of_what: str, found: list[tuple[int, int, str, str]]) -> None:
    """Print the share of some files together."""
    ran, all = sum(each[0] for each in found), sum(each[1] for each in found)
    print(f"{100 * ran // max(1, all):4} % {ran:5} of {all:5}  {of_what}")


def is_compiled(path: Path) -> bool:
    """Whether a module is imported as an extension."""
    return any(path.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)


if __name__ == "__main__":
    sys.exit(main())
