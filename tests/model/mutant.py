"""Searches cores that patches have broken: copies of the sources, interpreted.

``python -m tests.model.mutant PATCH... [--seeds 1,2,3] [--seconds N] [--with WORDS]``: a table of
what is found in each core, in how many states and seconds. Without ``--with`` a patch is searched
by the words of its line ``Found by:``, or else by each named setting for N seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.command import VIOLATED, Refused, duration, finish
from tests.core.test_mutants import ROOT, copy_sources
from tests.log.mutate import apply
from tests.model.settings import SETTINGS

MODEL = Path(__file__).parent
BESIDE_CORE = ("kraftfast/node/translation/diverging.py", "tests/command.py")
"""What the search uses beside the core."""


class Found(NamedTuple):
    """What a search of a broken core came to."""

    violation: str  # "" if nothing was found
    states: int
    seconds: float
    setting: str  # its name, of --all
    printed: str


def broken_core(patch: str, root: Path) -> None:
    """Make a copy of the sources below ``root``, with the patch applied."""
    copy_sources(root)
    for name in BESIDE_CORE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(MODEL, root / "tests" / "model", ignore=shutil.ignore_patterns("__pycache__"))
    apply(patch, root)


def search_core(root: Path, words: list[str], timeout: float = 900) -> Found:
    """Run ``python -m tests.model WORDS`` there."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.model", *words],
        cwd=root, env=os.environ | {"TMPDIR": str(root)}, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip
    if done.returncode not in (0, VIOLATED):
        raise Refused(f"the search ended with {done.returncode}:\n{done.stderr}")
    counts = re.findall(r"([\d,]+) states.* in [\d.]+ s", done.stdout)
    states = int(counts[-1].replace(",", "")) if counts else 0
    violation = ""
    if done.returncode == VIOLATED:
        (line,) = re.findall("VIOLATION (?:after|before).*", done.stdout)
        violation = line.partition("): ")[2] or done.stdout.split(line)[1].strip().split("\n")[0]
    setting = "".join(re.findall(r"^# (.*): python", done.stdout, re.MULTILINE))
    return Found(violation, states, time.monotonic() - began, setting, done.stdout)


def words_of(patch: str) -> list[str]:
    """Return how a patch says that it is found."""
    found = re.findall("^Found by: (.*)$", patch, re.MULTILINE)
    return shlex.split(found[0]) if found else []


def search_of(patch: str, options: argparse.Namespace) -> list[str]:
    """Return the words of the search to be tried."""
    words = shlex.split(options.words) or words_of(patch)
    if words:
        return [*words, "--seconds", str(options.seconds)]
    every = "--all --rounds 1 --beside 300 --turn-seconds"
    whole = options.seconds * 2 * len(SETTINGS)
    return [*every.split(), str(options.seconds), "--seconds", str(whole)]


def time_for(words: list[str]) -> float:
    """Return after how many seconds a search by these words hangs: it may shrink what it found."""
    return float(words[words.index("--seconds") + 1]) + 900


def some_seeds(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model.mutant", description=__doc__)
    parser.add_argument("patches", nargs="+", type=Path, metavar="PATCH")
    parser.add_argument("--seeds", type=some_seeds, default=[1], metavar="1,2,3")
    parser.add_argument("--seconds", type=duration, default=20, help="for each search")
    parser.add_argument("--with", dest="words", default="", metavar="WORDS")
    return parser


def main(arguments_given: list[str]) -> int:
    options = arguments().parse_args(arguments_given)
    missed = 0
    for path in options.patches:
        try:
            patch = path.read_text()
        except UnicodeDecodeError as error:
            raise Refused(f"{path} is no patch: {error}") from error
        with tempfile.TemporaryDirectory() as folder:
            try:
                broken_core(patch, Path(folder))
            except AssertionError as error:
                print(f"{path.stem} | does not apply: {error}", flush=True)
                missed += 1
                continue
            missed += not search_one(path.stem, patch, Path(folder), options)
    return 1 if missed else 0


def search_one(name: str, patch: str, root: Path, options: argparse.Namespace) -> bool:
    """Print what the searches find in one broken core, and return whether any found it."""
    any_found = False
    for seed in options.seeds:
        words = search_of(patch, options)
        found = search_core(root, [*words, "--seed", str(seed)], time_for(words))
        told = f"{found.states:,} states | {found.seconds:.1f} s | "
        told += found.violation[:90] or "nothing found"
        print(f"{name} | {found.setting or shlex.join(words)} | seed {seed} | {told}", flush=True)
        any_found |= bool(found.violation)
    return any_found


if __name__ == "__main__":
    finish("python -m tests.model.mutant", lambda: main(sys.argv[1:]))
