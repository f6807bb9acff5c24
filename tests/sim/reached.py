"""Runs seeds of the mended sources, and notes which mends each of them needs.

``python -m tests.sim.reached FILE [--seeds A:B] [--minutes M]`` appends a JSON line for each seed
to FILE; seeds that are there already are passed over. ``mended/probes.diff`` notes, at each place
that a patch of ``mended`` reverts, that the code without the mend would have gone on differently. A
seed is the same run with and without the patch up to that moment, so a seed that does not note a
mend cannot find its defect, and ``python -m tests.sim.mended --reached FILE`` does not run it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.command import finish
from tests.log.mutate import apply, build, copy_tree

PROBES = Path(__file__).parent / "mended" / "probes.diff"
UNPROBED = ("a_fresh_leader_tells_consumers_nothing", "d21_votes_outlive_the_tail")
"""Found within tens of seeds, and decided in more places than can be noted with ease."""
REGISTER = """
NOTES = set()
noted = NOTES.add
"""
RUNNER = """
import json, sys, time
from kraftfast.sim.world import run_seed
try:
    from kraftfast.noted import NOTES
except ImportError:
    NOTES = set()
until = time.monotonic() + float(sys.argv[1])
for line in sys.stdin:
    if time.monotonic() >= until:
        break
    NOTES.clear()
    result = run_seed(int(line))
    told = {each: result[each] for each in ("seed", "ok", "violation", "where")}
    print(json.dumps(told | {"reached": sorted(NOTES)}), flush=True)
"""


def main(arguments: list[str] | None = None) -> int:
    """Append to the file; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.reached", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", default="0:3000", metavar="A:B", help="A to B, B left out")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no seed after those")
    options = parser.parse_args(arguments)
    match = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", options.seeds)
    if match is None or int(match[1]) >= int(match[2]):
        parser.error(f"--seeds wants A:B with A below B, not {options.seeds!r}")
    if not options.minutes > 0:
        parser.error(f"--minutes wants more than 0, not {options.minutes}")
    known = read_or_refuse(options.file, parser) if options.file.exists() else {}
    seeds = [seed for seed in range(*map(int, match.groups())) if seed not in known]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, options.file.open("a") as kept:
        make(Path(folder))
        for result in run(Path(folder), seeds, options.minutes):
            print(json.dumps(result), file=kept, flush=True)
            failed += not result["ok"]
    return 1 if failed else 0


def read(file: Path) -> dict[int, list[str]]:
    """The names that each seed of a file noted."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {each["seed"]: each["reached"] for each in lines}


def read_or_refuse(file: Path, parser: argparse.ArgumentParser) -> dict[int, list[str]]:
    """The same; a file that cannot be read, or is no such file, ends the command."""
    try:
        return read(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{file} is no file of tests.sim.reached: {error!r}")


def run(root: Path, seeds: Iterable[int], minutes: float) -> Iterator[dict[str, Any]]:
    """What came of each seed, run by a copy of the sources; none is begun after so long."""
    command = [sys.executable, "-c", RUNNER, str(minutes * 60)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    wanted = root / "seeds"
    wanted.write_text("".join(f"{seed}\n" for seed in seeds))
    with (
        wanted.open() as asked,
        subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=asked,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for this process, which ends that one
        ) as running,
    ):
        assert running.stdout is not None
        try:
            for line in running.stdout:
                yield json.loads(line)
            if running.wait():
                raise SystemExit(f"no more seeds: the runner ended with {running.returncode}")
        finally:
            running.terminate()


def make(root: Path) -> None:
    """A copy of the sources with every probe."""
    copy_tree(root)
    (root / "kraftfast" / "noted.py").write_text(REGISTER)
    for path in apply(PROBES.read_text(), root):
        path.write_text(with_import(path.read_text()))
        build_changed(path, root)


def with_import(source: str) -> str:
    """The source of a module that knows how to note."""
    place = re.search(r"^(?!from __future__)(from|import) ", source, re.MULTILINE)
    assert place is not None
    return f"{source[: place.start()]}from kraftfast.noted import noted\n{source[place.start() :]}"


def build_changed(path: Path, root: Path) -> None:
    """Compile what is compiled; all else is interpreted anyway."""
    if path.suffix == ".pyx" or path.with_suffix(".pxd").exists():
        build(path, root)


if __name__ == "__main__":
    finish("python -m tests.sim.reached", main)
