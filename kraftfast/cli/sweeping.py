"""What ``kraftfast spark sweep`` runs, wherever it runs it: a seed, or a benchmark's settings."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from typing import Any

from kraftfast.errors import InvalidOption, KraftfastError

MODES = ("throughput", "latency")
BENCH_WAIT_S = 1800
SEEDS = re.compile("([0-9]{1,18}):([0-9]{1,18})")
SEEDS_MAX = 100_000_000


def simulate(seed: int) -> dict[str, Any]:
    """Run one seed of the simulator."""
    from kraftfast.sim.world import run_seed

    return run_seed(seed)


def simulate_again(seed: int) -> str:
    """Return the command that shows it again."""
    return f"python -m kraftfast.sim --seed {seed} --trace"


def measure(settings: dict[str, str]) -> dict[str, Any]:
    """Run ``kraftfast bench`` once in a process of its own; return the line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "kraftfast", *words(settings)],
        capture_output=True, text=True, timeout=BENCH_WAIT_S,
    )  # fmt: skip
    if done.returncode:
        raise KraftfastError(done.stderr.strip() or f"exit code {done.returncode}")
    line: dict[str, Any] = json.loads(done.stdout)
    return line


def measure_again(settings: dict[str, str]) -> str:
    """Return the command that shows it again."""
    return shlex.join(["kraftfast", *words(settings)])


def words(settings: dict[str, str]) -> list[str]:
    """Return the arguments of ``kraftfast``.

    >>> words({"mode": "latency", "record-size": "100"})
    ['bench', 'latency', '--json', '--record-size', '100']
    """
    options = [
        word for name, value in settings.items() if name != "mode" for word in (f"--{name}", value)
    ]
    return ["bench", settings["mode"], "--json", *options]


def seeds(text: str) -> list[int]:
    """Parse ``A:B``, B left out. Raises InvalidOption."""
    match = SEEDS.fullmatch(text)
    first, last = map(int, match.groups()) if match is not None else (0, 0)
    if not first < last <= first + SEEDS_MAX:
        raise InvalidOption(f"seeds {text!r}: A:B is wanted, for instance 0:1000")
    return list(range(first, last))


def combinations(mode: str, settings: tuple[str, ...]) -> list[dict[str, str]]:
    """Return every combination of ``name=value,value`` settings. Raises InvalidOption.

    >>> combinations("latency", ("seconds=1", "flush=adaptive,parallel"))[1]
    {'mode': 'latency', 'seconds': '1', 'flush': 'parallel'}
    """
    names, values = [], []
    for each in settings:
        name, equals, text = each.partition("=")
        if not equals or not name or not text:
            raise InvalidOption(f"setting {each!r}: name=value,value is wanted")
        names.append(name)
        values.append(text.split(","))
    return [{"mode": mode, **dict(zip(names, row))} for row in itertools.product(*values)]
