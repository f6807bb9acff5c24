"""The kill matrix of the simulator: without the line that keeps a condition, seeds find it.

The core's mutants are those of ``tests/core/mutants``, applied to a copy; the log's are functions
of ``tests.sim.seams``. What the core asserts of itself is switched off: each has to show in what
the replicas do to each other, their disks or their clients.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.ahead import in_threads
from tests.core.test_mutants import PATCHES
from tests.log.mutate import apply, copy_tree
from tests.sim.kill import KILLED
from tests.sim.reached import build_changed

ROOT = Path(__file__).parents[2]
Completed = subprocess.CompletedProcess[str]
Outcome = Callable[[str, str], Completed]
SEEDS = "0", "60"
"""The first of them that dies ends a run; without a mutant all of them hold."""
DIRECTED_SEEDS = "0", "9"
CORE = (
    "d01_leader_counts_what_is_not_on_its_disk",
    "d03_stream_acknowledges_memory",
    "d04_leader_resumes_as_unattached",
    "d05_vote_not_written",
    "d05_leader_not_written",
    "d06_old_records_commit_alone",
    "d07_vote_is_an_acknowledgement",
    "d12_high_watermark_beyond_the_log",
    "d15_sole_voter_commits_unflushed",
    "i20_consumers_read_ahead",
)
DIRECTED = {
    "d10_doubt_campaigns": "who_lost_what_he_acknowledged_elects_nobody_without_it",
    "d10_doubt_votes_for_anybody": "who_lost_what_he_acknowledged_elects_nobody_without_it",
    "d14_flush_starts_too_late": "a_leader_flushes_though_nobody_else_does",
    "d14_flush_takes_for_ever": "a_leader_whose_disk_stands_still_takes_no_more",
    "d14_unflushed_age_unbounded": "a_leader_flushes_though_nobody_else_does",
    "d14_unflushed_bytes_unbounded": "a_leader_whose_disk_stands_still_takes_no_more",
    "d16_observer_offset_counts": "a_new_voter_counts_from_its_record_on",
    "d16_old_set_counts": "a_new_voter_counts_from_its_record_on",
    "d16_removed_leader_counts_itself": "a_removed_leader_does_not_count_itself",
    "d17_change_before_own_commit": "no_upgrade_before_an_own_record_is_committed",
    "d17_change_over_uncommitted": "no_change_above_one_that_is_not_committed",
    "d17_two_changes_at_once": "no_second_change_beside_one",
    "d19_any_directory_counts": "a_replaced_disk_is_no_voter",
    "d21_a_vote_is_asked_for_unflushed": "elections",
    "d21_votes_outlive_the_tail": "a_candidate_that_loses_its_tail_does_not_lead",
    "x_barrier_before_own_commit": "a_new_leader_answers_no_barrier_before_its_own_record",
    "x_barrier_confirmed_before": "a_deposed_leader_answers_no_barrier",
    "x_barrier_without_majority": "a_deposed_leader_answers_no_barrier",
    "i15_snapshot_beyond_commit": "nothing_is_in_a_snapshot_that_is_not_on_disk",
    "i17_removed_leader_stays": "a_removed_leader_does_not_count_itself",
    "x_removed_leader_never_campaigns": (
        "a_leader_that_only_removed_itself_in_its_own_log_campaigns"
    ),
}
"""Mutants of the core, each with the directed history, or kind of world, that it dies of."""
DIRECTED_LOG = {
    "i05_damage_is_left_for_a_snapshot_that_has_less": (
        "a_missing_end_behind_the_newest_snapshot_costs_no_commit"
    ),
    "d20_a_copy_is_taken_unchecked": "bytes_change_on_their_way",
    "i23_a_snapshot_forgets_the_producers": "who_began_at_a_snapshot_knows_the_producers",
    "d08_a_cut_leaves_its_bytes": "what_was_cut_does_not_come_back",
    "d08_a_cut_is_not_synced": "what_was_cut_does_not_come_back",
}
LOG = (
    "d01_flushed_before_the_disk_has_it",
    "d03_a_restart_takes_the_page_cache_for_the_disk",
    "d09_a_failed_sync_is_tried_again",
    "d09_a_failed_sync_is_no_end",
    "d10_damage_is_cut_like_a_torn_tail",
    "d18_the_name_of_a_segment_is_not_synced",
    "d18_the_epoch_checkpoint_is_not_synced",
)
SNAPSHOTS = {
    "i05_a_log_is_left_for_its_snapshot_without_need": SEEDS,
}
"""Of the log too, where replicas make snapshots, and the seeds."""
LATER = {"d03_a_restart_takes_the_page_cache_for_the_disk": ("60", "120")}
"""Seeds of others: it needs an end between an append and its flush, and power cut soon after."""


def copy_with(patch: Path, root: Path) -> None:
    """Copy the sources with one patch; compile what it changes if that is compiled here."""
    copy_tree(root)
    (root / "tests" / "sim").symlink_to(ROOT / "tests" / "sim")
    for path in apply(patch.read_text(), root):
        build_changed(path, root)


def run(root: Path, *seam: str, seeds: tuple[str, str] = SEEDS, kind: str = "log") -> Completed:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.kill", kind, *seeds, *seam],
        cwd=root,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def outcome_of(matrix: str, name: str) -> Completed:
    """Run what a mutant of one of the lists below must die of; the empty name is no mutant."""
    if matrix == "directed log":
        return run(ROOT, name, seeds=DIRECTED_SEEDS, kind=DIRECTED_LOG[name])
    if matrix not in ("core", "directed"):
        seam = [name] if name else []
        return run(ROOT, *seam, seeds=(SNAPSHOTS | LATER).get(name, SEEDS), kind=matrix)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (patch,) = [each for each in PATCHES if each.stem == name]
        copy_with(patch, root)
        if matrix == "core":
            return run(root)
        return run(root, seeds=DIRECTED_SEEDS, kind=DIRECTED[name])


def mutants(matrix: str, names: Iterable[str]) -> pytest.MarkDecorator:
    cases = [pytest.param(matrix, name, id=name) for name in names]
    return pytest.mark.parametrize("matrix, name", cases)


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """What came of a mutant."""
    with in_threads(request, ("matrix", "name"), outcome_of) as wait:
        yield wait


def assert_killed(done: Completed) -> None:
    assert done.returncode == KILLED, f"it lives: {done.stdout}{done.stderr}"


@mutants("core", CORE)
def test_a_mutant_of_the_core_is_killed(matrix: str, name: str, outcome: Outcome) -> None:
    assert_killed(outcome(matrix, name))


@mutants("directed", DIRECTED)
def test_a_mutant_dies_of_the_history_told_for_it(matrix: str, name: str, outcome: Outcome) -> None:
    assert_killed(outcome(matrix, name))


@mutants("log", LOG)
def test_a_mutant_of_the_log_is_killed(matrix: str, name: str, outcome: Outcome) -> None:
    assert_killed(outcome(matrix, name))


@mutants("snapshots", SNAPSHOTS)
def test_a_mutant_of_the_log_is_killed_beside_snapshots(
    matrix: str, name: str, outcome: Outcome
) -> None:
    assert_killed(outcome(matrix, name))


@mutants("directed log", DIRECTED_LOG)
def test_a_mutant_of_the_log_dies_of_the_history_told_for_it(
    matrix: str, name: str, outcome: Outcome
) -> None:
    assert_killed(outcome(matrix, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [""], ids=["none"])
@pytest.mark.parametrize("matrix", [pytest.param("log", marks=pytest.mark.long), "snapshots"])
def test_without_a_mutant_all_seeds_hold(matrix: str, name: str, outcome: Outcome) -> None:
    done = outcome(matrix, name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_seam_is_in_the_matrix() -> None:
    text = (Path(__file__).parent / "seams.py").read_text()
    seams = re.findall(r"^def ([di]\d\w+)\(", text, re.MULTILINE)
    assert sorted(seams) == sorted((*LOG, *SNAPSHOTS, *DIRECTED_LOG))
