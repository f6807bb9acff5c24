"""``python -m kraftfast.sim``: runs seeds, and says how each failure is seen again."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from typing import Any

from kraftfast.errors import KraftfastError
from kraftfast.interrupts import last_signal, send_dropped_again
from kraftfast.sim.pool import WorkerDied, results

NOTHING_RUN = 2


def stop(signo: int, _frame: object) -> None:
    """Take a signal as Ctrl-C."""
    last_signal.signo = signo
    raise KeyboardInterrupt(signo)


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 if every seed held, 1 if one did not, 2 if no seed was run.

    128 and the signal's number if it was stopped before a seed failed.
    """
    parser = argparse.ArgumentParser(prog="python -m kraftfast.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one seed")
    which.add_argument("--seeds", metavar="A:B", help="run the seeds from A up to B, B left out")
    parser.add_argument("--minutes", type=float, help="begin no new seed after so many minutes")
    parser.add_argument("--until-failure", action="store_true", help="end at the first failure")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="run on N processes")
    parser.add_argument(
        "--short", action="store_true", help="cut each run down to about half a second"
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
    if options.trace and (options.json or options.workers > 1):
        parser.error("--trace goes neither with --json nor with --workers")
    try:
        import kraftfast.sim.world  # noqa: F401
    except KraftfastError as error:
        parser.exit(error.exit_code, f"kraftfast: {error}\n")
    return sweep(options, seeds_of(options, parser))


def sweep(options: argparse.Namespace, seeds: range) -> int:
    """Run the seeds and print what came of them; return the exit code.

    What was not run is reported on stderr, with the reason: a sweep that was cut short must not
    look like one that was finished.
    """
    total: Counter[str] = Counter()
    runs = events = code = 0
    failed = []
    why = "time was up"
    began = time.monotonic()
    until = began + options.minutes * 60 if options.minutes else float("inf")
    found = results(iter(seeds), until, options.workers, options.trace, options.short)
    try:
        for result in found:
            runs, events = runs + 1, events + result["events"]
            total.update(result["counts"])
            if not result["ok"]:
                failed.append(result["seed"])
            report(result, options.json, options.seed is not None, options.short)
            if failed and options.until_failure:
                why = "a seed failed"
                break
    except KeyboardInterrupt as stopped:
        why, code = "stopped", 128 + (stopped.args[0] if stopped.args else signal.SIGINT)
    except WorkerDied as error:
        why, code = str(error), 1
    found.close()
    if not options.json:
        took_s = time.monotonic() - began
        print(
            f"{counted(runs)}, {len(failed)} failed, {events} events, {took_s:.0f} s, "
            f"{events / max(took_s, 1e-3):.0f} events/s"
        )
        print(", ".join(f"{what} {count}" for what, count in sorted(total.items())), flush=True)
    if runs < len(seeds):
        rest = len(seeds) - runs
        print(f"{rest} of {len(seeds)} seeds were not run: {why}", file=sys.stderr)
    return 1 if failed else code or (0 if runs else NOTHING_RUN)


def counted(seeds: int) -> str:
    """Return so many seeds in words."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def seeds_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> range:
    """Return the seeds asked for."""
    if options.seed is not None:
        return range(options.seed, options.seed + 1)
    match = re.fullmatch("([0-9]{1,18}):([0-9]{1,18})", options.seeds)
    if match is None or int(match[1]) >= int(match[2]):
        parser.error(f"--seeds wants A:B with A below B, not {options.seeds!r}")
    return range(*map(int, match.groups()))


def report(result: dict[str, Any], as_json: bool, single: bool, short: bool) -> None:
    """Print a failure and the command that shows it again; with ``as_json``, every result."""
    if as_json:
        print(json.dumps(result), flush=True)
    elif not result["ok"]:
        print(f"seed {result['seed']}: {result['violation']}")
        if single:
            print(result["where"])
        words = f"--seed {result['seed']}{' --short' if short else ''} --trace"
        print(f"  again: python -m kraftfast.sim {words}", flush=True)


if __name__ == "__main__":
    send_dropped_again()  # else a sweep goes on that was told to end while it imported something
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main())
    except KeyboardInterrupt as stopped:  # before the first seed
        sys.exit(128 + (stopped.args[0] if stopped.args else signal.SIGINT))
    except BrokenPipeError:  # the reader of the lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:  # its lines cannot be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"kraftfast.sim: cannot write to stdout: {error.strerror}", file=sys.stderr)
        sys.exit(os.EX_IOERR)
