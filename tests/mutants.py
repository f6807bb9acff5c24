"""Every mutant of Python and Cython: what it breaks and what kills it. Writes ``tests/MUTANTS.md``.

Those of C are run by ``tests/cext``, those of the ring's model by ``tests/formal``.

``python -m tests.mutants [NAME|ROOM...] [--write] [--jobs N]`` breaks copies of the sources, one
mutant each, and runs what must see it: those named, those of a room (``wire``), or all. ``--write``
stores what was measured in the page; ``--page`` only writes the page anew. Exit code 1: one lives.

A mutant is a patch in ``tests/ROOM/mutants``. The lines before its diff say what goes wrong, after
the condition that it breaks if there is one, and what kills it::

    S6: a frame of any length is believed.
    Killed by: tests/wire/test_frame.py::test_name
    Killed by: seeds 0:100 short

The first form names a test, the second seeds of ``python -m kraftfast.sim``. Older rooms have forms
of their own: a scenario or test of ``tests.core.kill``, ``seeds of KIND`` of ``tests.sim.kill``,
a search of ``tests.model`` (``Found by``).
"""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.command import Refused, finish, from_least
from tests.core import test_mutants as core
from tests.core.kill import KILLED as KILLED_BY_CORE
from tests.log.mutate import KILLED, ROOT, SURVIVED, TEST_SECONDS_MAX, apply, copy_tree, patched
from tests.log.mutate import run as run_pytest
from tests.model import mutant as model
from tests.model import table as search_table
from tests.sim import kill, mended, seams
from tests.sim import test_mutants as sim
from tests.sim.reached import build_changed

PAGE = ROOT / "tests" / "MUTANTS.md"
FOLDERS = ("core", "log", "node", "client", "wire", "record", "model", "spark", "sim")
CONDITION = re.compile(r"([DIRSL]\d+(?:(?:,| and) [DIRSL]\d+)*): ")
TEST = re.compile(r"(tests/[\w/]+\.py)::([\w:]+)(\[.*\])?")
SEEDS = re.compile(r"seeds (\d+):(\d+) short")
FAILING_SEED = re.compile(r"^seed (\d+): ", re.MULTILINE)
SEEDS_SECONDS_MAX = 900
NEVER = "not measured"
HEAD = """# Mutants

<!-- Made by `python -m tests.mutants --page`. -->

Each breaks one rule of the sources. "Seeds": how many were run until one failed; of a search, its
states. "Seconds": of that run, with the build where one is needed. "{never}": it is run by the
tests of its room, or by its own command, and not yet by `python -m tests.mutants NAME --write`.
"""


class Mutant(NamedTuple):
    """One way to break the sources."""

    room: str
    name: str
    breaks: str  # the sentence, behind its condition if it names one
    killer: str
    path: Path | None  # of its patch; None: a function of tests.sim.seams

    @property
    def condition(self) -> str:
        """The conditions that it breaks, '' if none is named."""
        found = CONDITION.match(self.breaks)
        return found[1] if found else ""


class Outcome(NamedTuple):
    """What came of one; ``count``: of seeds or states, '' where nothing is counted."""

    killed: bool
    count: str
    said: str


class Measure(NamedTuple):
    """The last two cells of a row."""

    count: str
    seconds: str


def described(text: str) -> tuple[str, str]:
    """Return what a patch says goes wrong, and what kills it."""
    words, _, rest = text.partition("\n--- a/")
    found = re.search(r"^(?:Killed|Found) by: (.+)$", words, re.MULTILINE)
    assert rest and found, f"no diff, or nothing that kills it:\n{words}"
    return " ".join(words[: found.start()].split()), found[1]


def mutants() -> list[Mutant]:
    """Return all, room by room."""
    found = []
    for room in FOLDERS:
        for path in sorted((ROOT / "tests" / room / "mutants").glob("*.patch")):
            found.append(Mutant(room, path.stem, *described(path.read_text()), path))
    for path in sorted(mended.PATCHES.glob("*.patch")):
        words = path.read_text().partition("\n--- a/")[0]
        found.append(Mutant("sim", path.stem, " ".join(words.split()), "seeds of any world", path))
    for matrix, names in (("log", sim.LOG), ("snapshots", sim.SNAPSHOTS)):
        found += [seam(name, matrix) for name in names]
    found += [seam(name, kind) for name, kind in sim.DIRECTED_LOG.items()]
    return found


def seam(name: str, kind: str) -> Mutant:
    """Return a mutant that replaces a method in the process that runs the seeds."""
    text = (inspect.getdoc(getattr(seams, name)) or "").partition("\n\n")[0]
    cited = re.match(r"([dirsl])(\d\d)_", name)
    condition = f"{cited[1].upper()}{int(cited[2])}: " if cited else ""
    return Mutant("sim", name, condition + " ".join(text.split()), f"seeds of {kind}", None)


# --- running them ---------------------------------------------------------------------------------


def broken(path: Path | None, root: Path) -> None:
    """Copy the sources with all tests; apply a patch, and compile what it changes."""
    copy_tree(root, ("tests",))
    for changed in apply(path.read_text(), root) if path else ():
        build_changed(changed, root)


def run_seeds(root: Path, first: int, last: int) -> Outcome:
    """Run seeds of ``kraftfast.sim`` until one fails."""
    words = ["--seeds", f"{first}:{last}", "--short", "--until-failure"]
    done = subprocess.run(
        [sys.executable, "-m", "kraftfast.sim", *words],
        cwd=root, capture_output=True, text=True, timeout=SEEDS_SECONDS_MAX,
    )  # fmt: skip
    return counted(done, 1, first)


def counted(done: subprocess.CompletedProcess[str], code: int, first: int) -> Outcome:
    """Return what a run of seeds from ``first`` on says; ``code`` is that of a failing seed."""
    seed = FAILING_SEED.search(done.stdout)
    killed = done.returncode == code and seed is not None
    count = str(int(seed[1]) - first + 1) if seed else ""
    return Outcome(killed, count, done.stdout[-2000:] + done.stderr[-2000:])


def by_test(mutant: Mutant) -> Outcome:
    """Run the test that is named for it, or the seeds."""
    with tempfile.TemporaryDirectory() as folder:
        broken(mutant.path, Path(folder))
        if seeds := SEEDS.fullmatch(mutant.killer):
            return run_seeds(Path(folder), int(seeds[1]), int(seeds[2]))
        done = run_pytest([mutant.killer], Path(folder))
    return Outcome(done.returncode == KILLED, "", done.stdout[-3000:] + done.stderr[-1000:])


def by_core(mutant: Mutant) -> Outcome:
    """Run the scenario or test of ``tests/core`` that is named for it."""
    assert mutant.path is not None
    done = core.outcome_of(mutant.path)
    return Outcome(done.returncode == KILLED_BY_CORE, "", done.stdout + done.stderr)


def by_world(mutant: Mutant) -> Outcome:
    """Run the seeds of a kind of world of ``tests.sim.kill``."""
    kind = mutant.killer.removeprefix("seeds of ")
    if mutant.path is None:
        matrix = kind if kind in ("log", "snapshots") else "directed log"
        first = (sim.SNAPSHOTS | sim.LATER).get(mutant.name, sim.SEEDS)[0]
        return counted(sim.outcome_of(matrix, mutant.name), kill.KILLED, int(first))
    with tempfile.TemporaryDirectory() as folder:
        sim.copy_with(mutant.path, Path(folder))
        return counted(sim.run(Path(folder), kind=kind), kill.KILLED, int(sim.SEEDS[0]))


def by_mended(mutant: Mutant) -> Outcome:
    """Count the seeds of every sweep until one finds it."""
    assert mutant.path is not None
    said = mended.hunt(mutant.path, list(range(1_000)), 10)
    runs = re.search(r", (\d+) runs: ", said)
    return Outcome(runs is not None, runs[1] if runs else "", said)


def by_search(mutant: Mutant) -> Outcome:
    """Search the states of the core by the words of its patch."""
    assert mutant.path is not None
    text = mutant.path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        model.broken_core(text, Path(folder))
        words = [*model.words_of(text), "--seconds", "60"]
        found = model.search_core(Path(folder), words, model.time_for(words))
    return Outcome(bool(found.violation), f"{found.states} states", found.printed)


def way_of(mutant: Mutant) -> Callable[[Mutant], Outcome]:
    """Return what runs a mutant's killer."""
    if mutant.room in ("core", "model") and not TEST.fullmatch(mutant.killer):
        return by_core if mutant.room == "core" else by_search
    if mutant.killer == "seeds of any world":
        return by_mended
    return by_world if mutant.killer.startswith("seeds of ") else by_test


def check_unbroken(chosen: list[Mutant]) -> None:
    """Run the named tests and seeds once on unbroken sources. Raises Refused if one fails there."""
    own = {each.killer for each in chosen if way_of(each) is by_test}
    with tempfile.TemporaryDirectory() as folder:
        broken(None, Path(folder))
        for seeds in filter(None, map(SEEDS.fullmatch, own)):
            found = run_seeds(Path(folder), int(seeds[1]), int(seeds[2]))
            if found.count:
                raise Refused(f"seeds fail without a mutant:\n{found.said}")
        tests = sorted(each for each in own if TEST.fullmatch(each))
        done = run_pytest(tests, Path(folder), TEST_SECONDS_MAX * len(tests)) if tests else None
        if done is not None and done.returncode != SURVIVED:
            raise Refused(f"a test fails without a mutant:\n{done.stdout}{done.stderr}")


def outcomes(chosen: list[Mutant], jobs: int) -> Iterator[tuple[Mutant, Outcome, float]]:
    """Run what must kill each, ``jobs`` at a time."""

    def one(mutant: Mutant) -> tuple[Mutant, Outcome, float]:
        began = time.monotonic()
        outcome = way_of(mutant)(mutant)
        return mutant, outcome, time.monotonic() - began

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(one, chosen)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


# --- the page -------------------------------------------------------------------------------------


def measured(page: str) -> dict[tuple[str, str], Measure]:
    """Return what the page says of each (room, name)."""
    found, room = {}, ""
    for line in page.splitlines():
        if line.startswith("## "):
            room = line[3:]
        elif line.startswith("| `"):
            cells = [each.strip() for each in line.strip("|").split(" | ")]
            found[room, cells[0].strip("`")] = Measure(*cells[-2:])
    return found


def known() -> dict[tuple[str, str], str]:
    """Return the seeds or states that older tables count, by (room, name)."""
    counts = {}
    for name, row in search_table.rows().items():
        if row.is_found:
            counts["core", name] = f"{row.states} states"
    told = (mended.PATCHES / "seeds.txt").read_text()
    rooms = {each.name: each.room for each in mutants()}
    for name, _, runs in re.findall(r"^(\w+) +(\d+) +(\d+)$", told, re.MULTILINE):
        if name in rooms:
            counts[rooms[name], name] = f"{runs} seeds, found by any"
    return counts


def page_of(measures: dict[tuple[str, str], Measure]) -> str:
    """Return the page."""
    everything, counts = mutants(), known()
    parts = [HEAD.format(never=NEVER)]
    for room in dict.fromkeys(each.room for each in everything):
        parts.append(f"\n## {room}\n\n| mutant | condition | what goes wrong | killed by | seeds |")
        parts[-1] += " seconds |\n| --- | --- | --- | --- | --- | --- |\n"
        for each in everything:
            if each.room == room:
                key = room, each.name
                count, seconds = measures.get(key, Measure("", NEVER))
                breaks = each.breaks[len(each.condition) + 2 :] if each.condition else each.breaks
                cells = (f"`{each.name}`", each.condition, breaks.replace("|", "\\|"))
                killer = each.killer.replace("|", "\\|")
                last = (f"`{killer}`", count or counts.get(key, ""), seconds)
                parts.append("| " + " | ".join((*cells, *last)) + " |\n")
    return "".join(parts)


def store(measures: dict[tuple[str, str], Measure]) -> None:
    """Write the page; what was measured before stays."""
    before = measured(PAGE.read_text()) if PAGE.exists() else {}
    PAGE.write_text(page_of(before | measures))


def fits(mutant: Mutant) -> bool:
    """Return whether the sources that it breaks and the test that must see it are there."""
    if mutant.path is not None:
        patched(mutant.path.read_text(), ROOT)
    if not (named := TEST.fullmatch(mutant.killer)):
        return True
    return f"def {named[2].rpartition('::')[2] or named[2]}(" in (ROOT / named[1]).read_text()


# --- the command ----------------------------------------------------------------------------------


def chosen_of(names: list[str], parser: argparse.ArgumentParser) -> list[Mutant]:
    """Return the mutants of these names or rooms, or all."""
    everything = mutants()
    unknown = [name for name in names if not any(name in (m.name, m.room) for m in everything)]
    if unknown:
        parser.error(f"neither a mutant nor a room: {', '.join(unknown)}")
    return [m for m in everything if not names or m.name in names or m.room in names]


def main(words: list[str]) -> int:
    """Print a line for each mutant; 1 if one lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="of mutants, or of rooms; without any: all")
    add("--write", action="store_true", help="store what was measured in the page")
    add("--page", action="store_true", help="run nothing; write the page anew")
    add("--jobs", type=from_least(1), default=1, metavar="N", help="so many at a time")
    options = parser.parse_args(words)
    chosen = chosen_of(options.names, parser)
    if options.page and (options.names or options.write or options.jobs > 1):
        parser.error("--page runs nothing: it takes no other option, and no name")
    if options.page:
        store({})
        return 0
    check_unbroken(chosen)
    lives = []
    for mutant, outcome, seconds in outcomes(chosen, options.jobs):
        told = "killed" if outcome.killed else "LIVES"
        seeds = f"{outcome.count} runs, " if outcome.count else ""
        print(f"{mutant.room}/{mutant.name}: {told}, {seeds}{seconds:.0f} s", flush=True)
        if not outcome.killed:
            lives.append(mutant.name)
            print(outcome.said, flush=True)
        elif options.write:
            store({(mutant.room, mutant.name): Measure(outcome.count, f"{seconds:.0f}")})
    print(f"{len(chosen) - len(lives)} of {len(chosen)} mutants are killed")
    return 1 if lives else 0


if __name__ == "__main__":
    finish("python -m tests.mutants", lambda: main(sys.argv[1:]))
