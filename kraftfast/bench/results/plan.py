"""Plans of benchmarks: what is measured, how often, and by turns with what."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kraftfast.bench.loads.sustained import machine_stolen_s
from kraftfast.bench.results.machine_facts import facts
from kraftfast.bench.results.result import Result, Run, content
from kraftfast.errors import InputError, KraftfastError, TimedOut

COMMANDS = (
    "throughput", "latency", "load", "sustained", "floor",
    "consume", "recover", "start", "idle", "failover", "peer",
)  # fmt: skip
NOT_OPTIONS = ("name", "command")
PLAN_BYTES_MAX = 1 << 20
TOO_LONG = "it has a number of too many digits"
REPEAT_MAX = 10_000
MEASURES_MAX = 10_000
KEY = re.compile("[a-z][a-z0-9_-]*")
RUN_TIMEOUT_S, END_S = 24 * 3600.0, 20.0


class MeasurementFailed(KraftfastError):
    """A command of a plan failed; its last line and its exit code are this one's."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Measure:
    """One command of a plan, with the options of ``kraftfast bench COMMAND``.

    ``python``: of the environment whose kraftfast is measured; "" is this one.
    """

    name: str
    command: str
    options: tuple[str, ...]
    python: str = ""

    @classmethod
    def of(cls, table: Any, number: int) -> Measure:
        """Return the measure that a table describes. Raises InputError."""
        if not isinstance(table, dict) or not isinstance(table.get("command"), str):
            raise InputError(f"measure {number} names no command ({', '.join(COMMANDS)})")
        command, name = table["command"], table.get("name", table["command"])
        if command not in COMMANDS:
            raise InputError(f"measure {number}: {command!r} is not one of {', '.join(COMMANDS)}")
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"measure {number}: its name is {name!r}")
        options: list[str] = []
        asked = [key for key in table if key not in NOT_OPTIONS]
        for key in asked:
            options += _option(key, table[key], name)
        for key in twice(asked):
            raise InputError(f"measure {name!r}: {key} is given twice")
        return cls(name, command, tuple(options))


def twice(keys: Iterable[str]) -> list[str]:
    """Return the keys that name an option which one before them names, too.

    >>> twice(["record-size", "window", "record_size"])
    ['record_size']
    """
    seen: set[str] = set()
    found = []
    for key in keys:
        plain = key.replace("_", "-")
        if plain in seen:
            found.append(key)
        seen.add(plain)
    return found


def _option(key: str, value: Any, measure: str) -> list[str]:
    """Return a key of a plan as the command line has it."""
    flag = f"--{key.replace('_', '-')}"
    if not KEY.fullmatch(key):
        raise InputError(f"measure {measure!r}: {key!r} is no option")
    if value is False:
        raise InputError(f"measure {measure!r}: leave {key} out where it is not wanted")
    if flag in ("--dir", "--json", "--samples", "--help"):
        raise InputError(f"measure {measure!r}: {key} belongs to the plan's own command line")
    if value is True:
        return [flag]
    if not isinstance(value, (str, int, float)):
        raise InputError(f"measure {measure!r}: {key} is neither text, a number nor true")
    return [flag, str(value)]


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """``repeat`` turns; in each every measure once, in every other turn backwards."""

    name: str
    repeat: int
    measures: tuple[Measure, ...]

    def turns(self) -> Iterator[tuple[int, Measure]]:
        """Yield each repetition and what it runs. A drift of the machine hurts all alike."""
        for number in range(self.repeat):
            order = self.measures if number % 2 == 0 else reversed(self.measures)
            for measure in order:
                yield number, measure


def read(path: Path) -> tuple[BenchPlan, dict[str, Any]]:
    """Read a plan; return it and what the file says. Raises InputError."""
    try:
        table = tomllib.loads(content(path, PLAN_BYTES_MAX, "plan").decode())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is no plan: it is nested too deep") from None
    except ValueError:  # Python reads and writes integers of some thousands of digits only
        raise InputError(f"{path} is no plan: {TOO_LONG}") from None
    stem = path.stem.encode(errors="replace").decode()  # a result is UTF-8, not any file's name
    try:
        return of_table(table, stem), table
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError:
        raise InputError(f"{path} is no plan: {TOO_LONG}") from None


def combinations(table: Any) -> Iterator[Any]:
    """Yield a table for each combination of the values in its lists, named by them.

    >>> [each["name"] for each in combinations({"name": "a", "window": [1, 8], "voters": 3})]
    ['a window=1', 'a window=8']
    """
    lists = table.items() if isinstance(table, dict) else ()
    keys = [key for key, value in lists if isinstance(value, list) and key not in NOT_OPTIONS]
    if not keys:
        yield table
        return
    count = math.prod(len(table[key]) for key in keys)
    name = table.get("name", table.get("command"))
    if not 0 < count <= MEASURES_MAX:
        raise InputError(f"{name!r} has {count} combinations: from 1 to {MEASURES_MAX}")
    for values in itertools.product(*(table[key] for key in keys)):
        named = " ".join(f"{key}={value}" for key, value in zip(keys, values))
        yield table | dict(zip(keys, values)) | {"name": f"{name} {named}"}


def of_table(table: dict[str, Any], stem: str) -> BenchPlan:
    """Return the plan of a table; ``stem`` is its name if it has none. Raises InputError."""
    unknown = sorted(table.keys() - {"name", "repeat", "measure"})
    if unknown:
        raise InputError(f"a plan has no {unknown[0]!r}: it has name, repeat and [[measure]]")
    repeat, name, found = table.get("repeat", 5), table.get("name", stem), table.get("measure")
    if not isinstance(repeat, int) or isinstance(repeat, bool) or not 1 <= repeat <= REPEAT_MAX:
        raise InputError(f"repeat is {repeat!r}, not from 1 to {REPEAT_MAX}")
    if not isinstance(name, str):
        raise InputError(f"its name is {name!r}")
    if not isinstance(found, list) or not found:
        raise InputError("it has no [[measure]]")
    tables = [each for table in found for each in combinations(table)]
    if len(tables) > MEASURES_MAX:
        raise InputError(f"it has {len(tables)} measures, {MEASURES_MAX} at most")
    measures = tuple(Measure.of(each, number) for number, each in enumerate(tables, 1))
    for each, count in Counter(each.name for each in measures).items():
        if count > 1:
            raise InputError(f"two measures are called {each!r}")
    return BenchPlan(name, repeat, measures)


def run(
    plan: BenchPlan,
    table: dict[str, Any],
    directory: str,
    save: Callable[[Result], None],
    progress: Callable[[int, int, Measure, float], None],
    earlier: Result | None = None,
    failures: dict[str, str] | None = None,
) -> Result:
    """Run a plan below a directory; return the result.

    ``earlier``: of the same plan, cut short; what it has is not run again.
    ``failures``: measures that cannot be run, and why; one that fails is added, and left out from
    then on. None: what fails is raised.

    ``save`` is called after each repetition of each measure: what ends early keeps what it has.
    ``progress``: before each, with the runs done, all runs, what comes, and the seconds so far.
    Raises MeasurementFailed, and InputError where ``earlier`` is of another machine.
    """
    began, here = time.monotonic(), facts(directory)
    if earlier is not None:
        _refuse_another(earlier.machine, here)
    result = earlier or Result(plan.name, _now(), table, here)
    result = replace(result, failures=dict(failures or {}))
    save(result)  # what cannot be saved is told before hours are spent
    done_before = {(run.repetition, run.measure) for run in result.runs}
    todo = [
        turn
        for turn in plan.turns()
        if (turn[0], turn[1].name) not in done_before and turn[1].name not in result.failures
    ]
    for done, (number, measure) in enumerate(todo):
        if measure.name in result.failures:
            continue
        progress(done, len(todo), measure, time.monotonic() - began)
        try:
            result = result.with_run(run_once(measure, number, directory))
        except MeasurementFailed as error:
            if failures is None:
                raise
            result = result.with_failure(measure.name, str(error))
        save(result)
    result = replace(result, complete=True)
    save(result)
    return result


def _refuse_another(machine: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise InputError where this machine, or what is installed, is not what it was: the medians
    of a result are of one."""
    changed = [
        f"{key} was {machine.get(key)!r} and is {here.get(key)!r}"
        for key in sorted(machine.keys() | here.keys())
        if machine.get(key) != here.get(key)
    ]
    if changed:
        raise InputError(f"the result cannot be gone on with here: {'; '.join(changed)}")


def run_once(measure: Measure, number: int, directory: str) -> Run:
    """Run a measure below a directory, as repetition ``number``. Raises MeasurementFailed."""
    python = measure.python or sys.executable
    command = [python, "-P", "-m", "kraftfast", "bench", measure.command, "--dir", directory]
    command += ["--json", *measure.options]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    load, stolen_s, began_at = os.getloadavg()[0], machine_stolen_s(), _now()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment if measure.python else None,
    )
    with process:
        try:
            out, said = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            told = f"measure {measure.name!r} did not end within {RUN_TIMEOUT_S / 3600:.0f} h"
            raise MeasurementFailed(told, TimedOut.exit_code) from None
        finally:
            _end(process)
    if process.returncode:
        told = (said.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        code = process.returncode
        code = code if code > 0 else 128 - code  # of a signal, as shells say it
        raise MeasurementFailed(f"measure {measure.name!r}: {told}", code)
    lines = [json.loads(line) for line in out.splitlines()]
    stolen_s = round(machine_stolen_s() - stolen_s, 2)
    return Run(measure.name, number, began_at, round(load, 2), stolen_s, lines)


def _end(process: subprocess.Popen[str]) -> None:
    """End a command that still runs: asked first, so that it ends what it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
