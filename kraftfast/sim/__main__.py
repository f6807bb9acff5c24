"""``python -m kraftfast.sim``: runs seeds, and says how each failure is seen again."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from kraftfast.errors import KraftfastError


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 if every seed held, 1 if one did not."""
    parser = argparse.ArgumentParser(prog="python -m kraftfast.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one seed")
    which.add_argument("--seeds", metavar="A:B", help="run the seeds from A up to B, B left out")
    parser.add_argument("--minutes", type=float, help="begin no new seed after so many minutes")
    parser.add_argument("--until-failure", action="store_true", help="end at the first failure")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="run on N processes")
    parser.add_argument(
        "--short", action="store_true", help="cut each run down to a third of a second"
    )
    parser.add_argument("--trace", action="store_true", help="one line an event: fact -> action")
    parser.add_argument("--json", action="store_true", help="one JSON object a seed")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error(f"--workers wants at least 1, not {options.workers}")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes wants more than 0, not {options.minutes}")
    if options.trace and options.seed is None:
        parser.error("--trace goes with --seed: the lines of many runs say nothing")
    try:
        import kraftfast.sim.world  # noqa: F401
    except KraftfastError as error:
        parser.exit(error.exit_code, f"kraftfast: {error}\n")
    until = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    total: Counter[str] = Counter()
    runs = events = 0
    failed = []
    began = time.monotonic()
    seeds = seeds_of(options, parser)
    for result in results(seeds, until, options.workers, options.trace, options.short):
        runs, events = runs + 1, events + result["events"]
        total.update(result["counts"])
        if not result["ok"]:
            failed.append(result["seed"])
        report(result, options.json, options.seed is not None, options.short)
        if failed and options.until_failure:
            break
    if not options.json:
        took_s = time.monotonic() - began
        print(
            f"{runs} seeds, {len(failed)} failed, {events} events, {took_s:.0f} s, "
            f"{events / max(took_s, 1e-3):.0f} events/s"
        )
        print(", ".join(f"{what} {count}" for what, count in sorted(total.items())))
    return 1 if failed else 0


def seeds_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[int]:
    """The seeds asked for."""
    if options.seed is not None:
        return iter((options.seed,))
    match = re.fullmatch("([0-9]{1,18}):([0-9]{1,18})", options.seeds)
    if match is None or int(match[1]) >= int(match[2]):
        parser.error(f"--seeds wants A:B with A below B, not {options.seeds!r}")
    return iter(range(*map(int, match.groups())))


def results(
    seeds: Iterator[int], until: float, workers: int, trace: bool, short: bool = False
) -> Iterator[dict[str, Any]]:
    """What came of each seed that was begun before ``until``, in the order in which they end."""
    from kraftfast.sim.settings import Settings
    from kraftfast.sim.world import run_seed

    if workers == 1:
        for seed in seeds:
            if time.monotonic() >= until:
                return
            settings = Settings.of_seed(seed, short=short)
            yield run_seed(seed, settings, print if trace else None)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        pending: set[Future[dict[str, Any]]] = set()
        more = True
        while more or pending:
            while more and len(pending) < 2 * workers:
                following = next(seeds, None)
                more = following is not None and time.monotonic() < until
                if following is not None and more:
                    pending.add(
                        pool.submit(run_seed, following, Settings.of_seed(following, short=short))
                    )
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def report(result: dict[str, Any], as_json: bool, single: bool, short: bool) -> None:
    """What there is to say of one run."""
    if as_json:
        print(json.dumps(result), flush=True)
    elif not result["ok"]:
        print(f"seed {result['seed']}: {result['violation']}")
        if single:
            print(result["where"])
        words = f"--seed {result['seed']}{' --short' if short else ''} --trace"
        print(f"  again: python -m kraftfast.sim {words}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read the lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
