"""Takes mends out again, one at a time, and counts the seeds until the simulator finds the defect.

``python -m tests.sim.mended [NAME...] [--seeds N] [--first SEED] [--minutes M] [--reached FILE]``:
a table of all that are kept (``all_patches``), or of those named; ``NAME`` may be a path to any
patch. A patch is a small unified diff that reverts what was mended; the lines before it say what
goes wrong then. The seeds are those of every sweep: nothing is arranged for the defect. With a
file of ``tests.sim.reached`` only those of its seeds are run that can find it. One that takes more
than 3,000 seeds shows what the nemesis does not reach. What was found is in ``mended/seeds.txt``.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.command import Refused, finish
from tests.log.mutate import apply, copy_tree
from tests.sim.reached import UNPROBED, build_changed, read_or_refuse, run

PATCHES = Path(__file__).parent / "mended"
TESTS = PATCHES.parents[1]
SEEDS_MAX = 1_000_000
MUTANTS = {
    "core": (
        "a_directory_that_is_gone_is_added",
        "a_silent_leader_keeps_pre_votes_back",
        "a_snapshot_being_fetched_goes",
        "an_upgrade_is_done_before_its_commit",
        "d10_a_doubt_that_was_settled_stays",
        "d10_doubt_without_log_waits",
        "d10_who_is_certain_never_agrees",
        "d13_a_late_flush_looks_stuck",
        "d19_a_disk_that_knows_no_epoch_is_not_heard",
        "d19_replaced_while_its_fetch_is_waited_for",
        "d21_a_barrier_stays_confirmed",
        "d21_votes_outlive_the_tail",
        "d23_empty_majority_begins",
        "d23_floor_is_forgotten",
        "d23_impostor_gets_a_vote",
        "d23_leader_of_another_directory",
        "i16_cut_leaves_voters",
        "l01_a_download_holds_an_observer",
        "x_barrier_by_lease",
        "x_barrier_confirmed_before",
        "x_barrier_of_a_removed_leader",
        "x_barrier_without_majority",
        "x_needed_voter_removed",
    ),
    "log": (
        "a_lost_quorum_state_is_a_new_one",
        "a_trim_on_a_full_disk_ends_the_process",
        "a_trimmed_end_passes_for_a_page",
        "a_wrong_quorum_state_is_believed",
        "d10_a_missing_end_is_not_missed",
        "d10_words_stay_behind_a_cut",
        "d18_a_flush_is_one_job",
        "d18_close_without_flush",
        "i15_a_snapshot_excuses_damage_inside",
        "old_batches_behind_the_prepared_bytes",
        "producers_of_the_newest_snapshot",
        "the_floor_follows_late",
        "the_log_goes_before_what_may_fail",
        "the_newest_segment_is_not_missed",
    ),
}
"""Mutants of ``core/mutants`` and ``log/mutants`` that take a mend out, too."""


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mended", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=1_000, help="at most so many for each")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most so long for each")
    parser.add_argument("--reached", type=Path, help="run what this file of tests.sim.reached says")
    options = parser.parse_args(arguments)
    if not 1 <= options.seeds <= SEEDS_MAX or options.first < 0 or not options.minutes > 0:
        parser.error(f"--seeds wants 1 to {SEEDS_MAX}, --first at least 0, --minutes more than 0")
    unknown = [name for name in options.names if name not in all_patches() and not is_patch(name)]
    if unknown:
        parser.error(f"neither a defect nor a patch: {', '.join(unknown)}")
    reached = read_or_refuse(options.reached, parser) if options.reached else None
    missed = 0
    for patch in chosen(options.names):
        seeds: Iterable[int] = range(options.first, options.first + options.seeds)
        if reached is not None:
            seeds = [each for each in seeds if may_find(patch.stem, reached.get(each))]
        found = hunt(patch, list(seeds), options.minutes)
        print(f"{patch.stem:44} {found}", flush=True)
        missed += found.startswith("none")
    return 1 if missed else 0


def may_find(name: str, noted: list[str] | None) -> bool:
    """Whether a seed that noted this can find that defect; None: it was not looked at."""
    return noted is not None and (name in noted or name in UNPROBED)


def all_patches() -> dict[str, Path]:
    """Every defect by its name."""
    found = sorted(PATCHES.glob("*.patch"))
    for room, names in MUTANTS.items():
        found += [TESTS / room / "mutants" / f"{name}.patch" for name in names]
    return {path.stem: path for path in found}


def is_patch(name: str) -> bool:
    """Whether this is the path of a patch."""
    return name.endswith(".patch") and Path(name).is_file()


def chosen(names: list[str]) -> list[Path]:
    """The patches of these names or paths, or all."""
    known = all_patches()
    return [known[name] if name in known else Path(name) for name in names or known]


def make(patch: Path, root: Path) -> None:
    """Make a copy of the sources without a mend; raises Refused where the patch does not apply."""
    copy_tree(root)
    try:
        changed = apply(patch.read_text(), root)
    except (AssertionError, UnicodeDecodeError) as error:
        raise Refused(f"{patch.name} does not apply: {error}") from error
    for path in changed:
        build_changed(path, root)


def hunt(patch: Path, seeds: list[int], minutes: float) -> str:
    """Which seed found it, after how many runs, and what it violated."""
    with tempfile.TemporaryDirectory() as folder:
        make(patch, Path(folder))
        tried, last = 0, -1
        for result in run(Path(folder), seeds, minutes):
            tried, last = tried + 1, result["seed"]
            if not result["ok"]:
                return f"seed {last}, {tried} runs: {told(result)}"
    return f"none in {tried} runs of {len(seeds)}, the last of seed {last}"


def told(result: dict[str, Any]) -> str:
    """What a run ended with, in short: the violation, or the line that failed."""
    text = re.sub(r"^Violation: ", "", result["violation"]).splitlines()[0]
    if text.endswith(": "):
        lines = [line.strip(" ^~") for line in result["where"].splitlines()]
        text += [line for line in lines if line][-2]
    return text[:100]


if __name__ == "__main__":
    finish("python -m tests.sim.mended", main)
