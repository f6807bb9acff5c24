"""The table of the core's mutants: which the search finds, by what, after how much.

``python -m tests.model.table [NAME...] [--walks N] [--settings N] [--each N] [--seconds N]``:
searches each mutant of ``tests/core/mutants`` that the table does not call found yet, through the
settings that fit its name first, and writes a row behind each. So it goes on where it was stopped,
and a second run with more walks or settings looks again for what was not found; exit code 1: one of
those named. ``core_mutants.txt`` is the table; ``unseen.txt`` says why each mutant that is not
found is not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.command import Refused, duration, finish, from_least
from tests.core.test_mutants import PATCHES
from tests.model.mutant import broken_core, search_core, time_for
from tests.model.settings import SETTINGS

TABLE = Path(__file__).parent / "core_mutants.txt"
UNSEEN = Path(__file__).parent / "unseen.txt"
NOTHING = "nothing found"
HEAD = "# mutant | settings | walks at most | states | seconds | what was found\n"
FITTING = (
    ("barrier_by_lease", ("reads, observer",)),
    ("barrier_of_a_removed", ("reads, removed leader",)),
    ("beyond_the_log", ("short answers",)),
    ("vote_is_forgotten", ("first election", "five voters")),
    ("own_commit", ("upgrades, one voter", "upgrades")),
    ("phantom_tail_is", ("older tail",)),
    ("only_voter_that_resigned", ("beside its quorum",)),
    ("fetch_is_waited_for", ("new disk, sockets",)),
    ("no_fetch", ("new disk, sockets",)),
    ("before_the_probe", ("new disk, sockets",)),
    ("log_is_forgotten", ("new disk, sockets",)),
    ("seen_late", ("new disk, sockets",)),
    ("anybodys_fetch", ("voters change, sockets",)),
    ("impostor", ("two new disks",)),
    ("lagging_voters", ("upgrade without a voter",)),
    ("of_a_log", ("part of a log",)),
    ("leader_not_followed", ("undone removal",)),
    ("voter_campaigns", ("two dynamic voters", "voters change")),
    ("stranger_moves", ("strangers",)),
    ("moves_the_epoch", ("first election", "rings")),
    ("is_heard_is_deposed", ("voters change", "five voters", "rings")),
    ("is_dropped", ("voters change",)),
    ("that_is_gone", ("replaced observers, sockets", "replaced observers", "replaced disks")),
    ("while_it_is_probed", ("replaced observers, sockets", "replaced observers", "replaced disks")),
    ("counted_on", ("replaced disks, sockets", "replaced observers, sockets", "replaced disks")),
    ("new_disk", ("replaced observers, sockets", "replaced disks, sockets", "replaced disks")),
    ("needed_voter", ("replaced disks, sockets", "voters change")),
    ("without_a_log", ("replaced observers, sockets", "replaced disks, sockets", "replaced disks")),
    ("i09", ("two voters", "sockets", "five voters")),
    ("certain_never_agrees", ("memory alone, witness", "memory alone")),
    ("who_is_certain", ("memory alone", "memory alone, witness")),
    ("doubt_without_log", ("memory alone, witness", "memory alone")),
    ("silent_leader", ("witness, sockets", "witness")),
    ("dead_leader", ("witness", "memory")),
    ("memory_is_taken", ("memory",)),
    ("without_log", ("first election", "damage")),
    ("uncommitted_voters", ("cut upgrades", "upgrades", "installs")),
    ("configured", ("old configurations",)),
    ("other_disk_is", ("old configurations",)),
    ("empty_majority", ("old configurations", "emptied majority")),
    ("floor_says", ("old configurations",)),
    ("static_voter", ("old configuration",)),
    ("rival", ("old configuration",)),
    ("leader_of_another", ("old configuration",)),
    ("pre_vote_beside", ("replaced leader",)),
    ("removes_too", ("two dynamic voters",)),
    ("removed_leader", ("two dynamic voters", "voters change")),
    ("removed_voter", ("observer joins", "voters change")),
    ("i07", ("emptied majority",)),
    ("floor_is", ("emptied majority",)),
    ("only_voter", ("installs, observer", "replaced observers", "one voter")),
    ("l01_nobody", ("first election", "rings", "five voters")),
    ("l01_who", ("first election", "rings", "five voters")),
    ("snapshot", ("snapshots, sockets", "snapshots", "voters change")),
    ("barrier_confirmed", ("reads, again", "reads, no crashes")),
    ("barrier", ("reads, sockets", "reads")),
    ("consumers", ("reads", "reads, sockets")),
    ("d03", ("rings", "sockets", "damage", "memory")),
    ("d10", ("damage, short", "damage", "floors", "witness")),
    ("d12", ("rings", "sockets", "short answers")),
    ("d13", ("rings", "sockets")),
    ("d14", ("rings", "sockets")),
    ("d15", ("one voter",)),
    ("d16", ("voters change", "voters change, sockets")),
    ("d17", ("voters change", "upgrades", "cut upgrades")),
    ("d19", ("replaced disks", "replaced observers", "voters change")),
    ("directory", ("replaced disks", "replaced observers")),
    ("d21", ("sockets", "damage", "rings")),
    ("floor", ("floors",)),
    ("d23", ("replaced disks", "one voter", "replaced observers", "damage")),
    ("i15", ("snapshots", "snapshots, sockets")),
    ("i16", ("cut upgrades", "voters change", "upgrades")),
    ("i17", ("voters change", "voters change, sockets")),
    ("upgrade", ("upgrades", "cut upgrades")),
    ("voter", ("voters change", "replaced disks", "voters change, sockets")),
    ("leader", ("rings", "voters change", "sockets")),
    ("witness", ("witness", "memory")),
    ("slice", ("short answers", "rings", "snapshots, sockets")),
    ("push", ("rings", "five voters")),
)
"""Parts of names, and the settings that are searched first."""
OTHERS = ("sockets", "rings", "voters change", "damage", "replaced disks")


class Row(NamedTuple):
    """What the search of one mutant came to."""

    name: str
    settings: str  # the one in which it was found, and by which way, or how many were searched
    walks: int
    states: int
    seconds: float
    violation: str

    @property
    def is_found(self) -> bool:
        """Whether the search found it."""
        return self.violation != NOTHING

    def told(self) -> str:
        seconds = f"{self.seconds:.0f}"
        fields = (self.name, self.settings, self.walks, self.states, seconds, self.violation)
        return " | ".join(map(str, fields)) + "\n"


def rows(path: Path = TABLE) -> dict[str, Row]:
    """Return what the table holds."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line and not line.startswith("#"):
            try:
                name, settings, walks, states, seconds, told = line.split(" | ", 5)
                row = Row(name, settings, int(walks), int(states), float(seconds), told)
            except ValueError as error:
                raise Refused(f"{path} has a row that is none: {line!r}") from error
            found[name] = row
    return found


def unseen(path: Path = UNSEEN) -> dict[str, str]:
    """Return why mutants are not found."""
    lines = [line.partition(": ") for line in path.read_text().splitlines()]
    return {name: reason for name, colon, reason in lines if colon and not name.startswith("#")}


def store(table: dict[str, Row]) -> None:
    """Write the table, by name; a run that is stopped leaves the old one or the new one."""
    fresh = TABLE.with_suffix(".fresh")
    fresh.write_text(HEAD + "".join(table[name].told() for name in sorted(table)))
    fresh.replace(TABLE)


def settings_for(name: str) -> list[str]:
    """Return all settings, those that fit the name first."""
    fitting = [each for part, names in FITTING if part in name for each in names]
    return list(dict.fromkeys((*fitting, *OTHERS, *SETTINGS)))


def words_for(row_settings: str, walks: int) -> list[str]:
    """Return the words of the search that a row tells of: its setting, and the way if it is not
    "guided"."""
    setting, _, way = row_settings.partition(" by ")
    return ["--setting", setting, "--way", way or "guided", "--walks", str(walks)]


def is_report(violation: str) -> bool:
    """Return whether a rule said it: a broken copy may also fall over its own break."""
    error = violation.partition(":")[0].partition(" ")[0]
    return not error.endswith("Error") or error == "AssertionError"


def search_mutant(path: Path, walks: int, most: int, each: float) -> Row:
    """Search one mutant through so many settings, each by both ways for ``each`` seconds, until
    something is found."""
    states, seconds, tried = 0, 0.0, settings_for(path.stem)[:most]
    with tempfile.TemporaryDirectory() as folder:
        broken_core(path.read_text(), Path(folder))
        for setting in [name + way for way in ("", " by pct") for name in tried]:
            words = [*words_for(setting, walks), "--seconds", str(each)]
            found = search_core(Path(folder), words, time_for(words))
            states, seconds = states + found.states, seconds + found.seconds
            if found.violation and is_report(found.violation):
                told = found.violation[:70].replace("\n", " ")
                return Row(path.stem, setting, walks, found.states, found.seconds, told)
    return Row(path.stem, f"{len(tried)} settings", walks, states, seconds, NOTHING)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model.table", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="of mutants; without any: all")
    add("--walks", type=from_least(1), default=60, help="in each setting")
    add(
        "--settings",
        type=from_least(1),
        default=3,
        help="that are searched for each mutant at most",
    )
    add("--each", type=duration, default=120, help="seconds of each setting and way at most")
    add("--seconds", type=duration, default=1e9, help="no mutant is begun after these")
    return parser


def is_settled(row: Row | None, options: argparse.Namespace) -> bool:
    """Return whether nothing new would come of a search: found, or not found by as much."""
    if row is None or row.is_found:
        return row is not None
    return row.walks >= options.walks and int(row.settings.split()[0]) >= options.settings


def main(words: list[str]) -> int:
    parser = arguments()
    options = parser.parse_args(words)
    unknown = set(options.names) - {path.stem for path in PATCHES}
    if unknown:
        parser.error(f"no mutant of tests/core/mutants: {', '.join(sorted(unknown))}")
    end, table = time.monotonic() + options.seconds, rows()
    for path in PATCHES:
        if options.names and path.stem not in options.names:
            continue
        if is_settled(table.get(path.stem), options):
            if options.names:
                print(f"{path.stem} is not searched again: {table[path.stem].told()}", end="")
            continue
        if time.monotonic() > end:
            break
        row = search_mutant(path, options.walks, options.settings, options.each)
        table = rows() | {path.stem: row}
        store(table)
        print(row.told(), end="", flush=True)
    missed = [each for each in PATCHES if each.stem not in table or not table[each.stem].is_found]
    print(f"{len(PATCHES) - len(missed)} of {len(PATCHES)} mutants are found")
    return 1 if any(path.stem in options.names for path in missed) else 0


if __name__ == "__main__":
    finish("python -m tests.model.table", lambda: main(sys.argv[1:]))
