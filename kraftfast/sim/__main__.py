"""``python -m kraftfast.sim``: runs seeds, and says how each failure is seen again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kraftfast.sim.world import run_seed


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 if every seed held, 1 if one did not."""
    parser = argparse.ArgumentParser(prog="python -m kraftfast.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one seed")
    which.add_argument("--seeds", metavar="A:B", help="run the seeds from A up to B, B left out")
    parser.add_argument("--minutes", type=float, help="begin no new seed after so many minutes")
    parser.add_argument("--trace", action="store_true", help="one line an event: fact -> action")
    parser.add_argument("--json", action="store_true", help="one JSON object a seed")
    options = parser.parse_args(arguments)
    tracer = (lambda line: print(line)) if options.trace else None
    until = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    total: Counter[str] = Counter()
    failed = runs = events = 0
    began = time.monotonic()
    for seed in seeds_of(options, parser):
        if time.monotonic() >= until:
            break
        result = run_seed(seed, tracer=tracer)
        runs, events = runs + 1, events + result["events"]
        total.update(result["counts"])
        failed += not result["ok"]
        report(result, options.json, single=options.seed is not None)
    if not options.json:
        print(f"{runs} seeds, {failed} failed, {events} events, {time.monotonic() - began:.0f} s")
        print(", ".join(f"{what} {count}" for what, count in sorted(total.items())))
    return 1 if failed else 0


def seeds_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[int]:
    """The seeds asked for."""
    if options.seed is not None:
        yield options.seed
        return
    first, colon, last = options.seeds.partition(":")
    if not colon or not first.isdigit() or not last.isdigit():
        parser.error(f"--seeds wants A:B, not {options.seeds!r}")
    yield from range(int(first), int(last))


def report(result: dict[str, Any], as_json: bool, single: bool) -> None:
    """What there is to say of one run."""
    if as_json:
        print(json.dumps(result), flush=True)
    elif not result["ok"]:
        print(f"seed {result['seed']}: {result['violation']}")
        if single:
            print(result["where"])
        print(f"  again: python -m kraftfast.sim --seed {result['seed']} --trace", flush=True)


if __name__ == "__main__":
    sys.exit(main())
