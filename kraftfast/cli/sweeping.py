"""What ``kraftfast spark sweep`` runs, wherever it runs it: a seed, or a benchmark."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kraftfast.errors import InvalidOption

if TYPE_CHECKING:
    from kraftfast.bench.results.plan import BenchPlan, Measure
    from kraftfast.bench.results.result import Result

SEEDS = re.compile("([0-9]{1,18}):([0-9]{1,18})")
SEEDS_MAX = 100_000_000


def simulate(seed: int) -> dict[str, Any]:
    """Run one seed of the simulator."""
    from kraftfast.sim.world import run_seed

    return run_seed(seed)


def simulate_again(seed: int) -> str:
    """Return the command that shows it again."""
    return f"python -m kraftfast.sim --seed {seed} --trace"


def measure(item: dict[str, Any]) -> dict[str, Any]:
    """Run a measure of a plan once, in a process of its own.

    Returns the repetition as a result has it, and the facts of the machine that ran it.
    """
    from kraftfast.bench.results.machine_facts import facts
    from kraftfast.bench.results.plan import run_once
    from kraftfast.cli.scratch import scratch_directory

    with scratch_directory("bench", item["directory"]) as place:
        run = run_once(_measure_of(item), item["repetition"], place)
        return {"machine": facts(place), "run": asdict(run)}


def measure_again(item: dict[str, Any]) -> str:
    """Return the command that shows it again."""
    measure = _measure_of(item)
    return shlex.join(["kraftfast", "bench", measure.command, *measure.options])


def _measure_of(item: dict[str, Any]) -> Measure:
    from kraftfast.bench.results.plan import Measure

    return Measure(item["name"], item["command"], tuple(item["options"]))


def turns(plan: BenchPlan, directory: str | None) -> list[dict[str, Any]]:
    """Return what a plan runs, an item for each repetition of each measure."""
    return [
        {
            "repetition": number,
            "name": measure.name,
            "command": measure.command,
            "options": list(measure.options),
            "directory": directory,
        }
        for number, measure in plan.turns()
    ]


def results(plan: BenchPlan, table: dict[str, Any], rows: list[dict[str, Any]]) -> list[Result]:
    """Return a result for each machine that ran some of a plan.

    A result is complete where its machine ran everything: medians are of one machine.
    """
    from kraftfast.bench.results.result import Result, Run

    runs: dict[str, list[Run]] = {}
    for row in rows:
        if row["ok"]:
            machine = json.dumps(row["result"]["machine"], sort_keys=True)
            runs.setdefault(machine, []).append(Run(**row["result"]["run"]))
    wanted = plan.repeat * len(plan.measures)
    return [
        Result(
            plan.name,
            min(run.began_at for run in found),
            table,
            json.loads(machine),
            found,
            complete=len(found) == wanted,
        )
        for machine, found in runs.items()
    ]


def seeds(text: str) -> list[int]:
    """Parse ``A:B``, B left out. Raises InvalidOption."""
    match = SEEDS.fullmatch(text)
    first, last = map(int, match.groups()) if match is not None else (0, 0)
    if not first < last <= first + SEEDS_MAX:
        raise InvalidOption(f"seeds {text!r}: A:B is wanted, for instance 0:1000")
    return list(range(first, last))
