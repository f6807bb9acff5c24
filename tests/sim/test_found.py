"""What the simulator has found, each by the smallest history that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from greenlet import getcurrent

from kraftfast.log.snapshots.snapshot_files import snapshot_name
from kraftfast.log.spare import Spare
from kraftfast.sim import WorldSettings, run_seed
from kraftfast.sim.oracles.end_of_run import check_disks
from kraftfast.sim.settings import Delays
from tests.sim.kill import outcome
from tests.sim.kit import Home, Quorum
from tests.sim.steps import begun, followers, shortened, with_snapshots


def test_a_flush_counts_only_the_segments_that_fit_its_job() -> None:
    """A job holds eight files; what the ninth holds was called flushed without a sync (D1)."""
    home = Home()
    while len(home.log.segments) < 12:
        home.append(size=6_000)
    home.flush()
    flushed = home.log.flushed_end_offset
    assert 0 < flushed < home.log.end_offset
    home.lose_power()
    home.open()
    assert home.log.end_offset >= flushed


def test_a_cut_back_into_a_rolled_segment_prepares_nothing_under_its_batches() -> None:
    """After a restart only the last segment knew how far it was prepared; the nursery, asked for
    room behind a cut into the one before, wrote zeros from its start: over committed batches."""
    home = Home()
    home.append(size=6_000)
    first = home.log.segments[0]
    reader = home.disk.open_segment(first.file.path, False)
    assert reader.share()  # a follower maps it: it is rolled, but not trimmed
    while len(home.log.segments) < 2:
        home.append(size=6_000)
    home.flush()
    home.kill()
    home.open()
    first = home.log.segments[0]
    assert len(home.log.segments) == 2 and first.has_page
    before = bytes(first.file.view(0, first.position))
    home.log.truncate(first.end_offset)
    home.append(epoch=2, size=1_000)
    assert bytes(first.file.view(0, len(before))) == before


def test_a_segment_that_goes_as_it_begins_takes_the_nursery_away_from_its_file() -> None:
    """Its thread wrote zeros ahead into the spare file when the log rolled into that, and was told
    to stop. A snapshot then took the log's place, and the file was closed under the thread."""
    home = Home()
    nursery = home.log.nursery
    home.append(size=6_000)
    while (
        nursery.spare is None or nursery.spare.stage != Spare.READY or not nursery.preparer.busy()
    ):
        home.step()
    while len(home.log.segments) < 2:
        home.append(size=6_000)
    home.log.truncate(1)
    home.tend()
    assert nursery.error is None


@pytest.mark.parametrize("seed", [5014, 5049])
def test_a_voter_in_doubt_without_a_log_does_not_keep_a_new_quorum_from_beginning(
    seed: int,
) -> None:
    """durability=memory: a minority lost its memory before anybody had a log, and the others, who
    were refused by it, waited for the log that it might have (D23)."""
    result = run_seed(seed, WorldSettings.of_seed(seed, reach=False))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [288, 1668])
def test_a_campaign_does_not_go_back_to_a_leader_whose_disk_was_replaced(seed: int) -> None:
    """It remembered the leader of its epoch, and a link named another directory since (D23)."""
    result = run_seed(seed)
    assert result["ok"], result["violation"]


def test_a_leader_that_a_reassignment_replaces_may_hand_over_in_one_step() -> None:
    """The oracle of stuck disks looked for a transfer before the step, and found none after it."""
    result = run_seed(33_974, WorldSettings.of_seed(33_974, short=True))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [531, 807, 935, 1439, 1822, 1915, 2004, 2319])
def test_the_oracles_judge_what_there_was(seed: int) -> None:
    """They took the leader's new disk for the one that had sent the records, looked for batches in
    a log that was closed already or below its start, and believed a bit that had turned."""
    result = run_seed(seed)
    assert result["ok"], result["violation"]


def test_who_stops_while_its_log_is_cleaned_holds_what_is_in_its_snapshot() -> None:
    """A voter stopped with its old segments gone, before the oracle was told: it missed them on
    that disk (durability=all, I5), though a snapshot there had all that was in them."""
    quorum = with_snapshots(3, observers=0, durability="all")
    victim = quorum.process(followers(quorum, shortened(quorum))[0])
    machine, oracle = victim.machine, quorum.world.oracle
    machine.may_start = False
    machine.disk.crash_at(0, snapshot_name(victim.core.snapshots[0]))  # goes after the segments
    quorum.wait(lambda: machine.process is None)
    gone = oracle.shadow(victim.id).between(0, victim.log.segments[0].base_offset)
    assert gone and not any(oracle.is_stable(machine, each) for each in gone)
    assert all(oracle._holds(machine, [each]) for each in gone)
    check_disks(quorum.world)
    quorum.restart(victim.id)
    quorum.finish()


def test_durability_all_waits_for_a_voter_whose_damage_is_found_last() -> None:
    """A voter that starts when all heals refuses its damaged log: appends wait for it (L1)."""
    result = run_seed(50, WorldSettings.of_seed(50, reach=False))
    assert result["ok"] and result["counts"]["a voter of all is missing"], result["violation"]


def test_a_copy_that_ends_with_its_link_does_not_stop_the_other_links() -> None:
    """A follower's copy waited for room when its link broke. It no longer looked at its other
    links, and the full ring of the next leader was never read (L1)."""
    holds(2025)


@pytest.mark.parametrize("seed", [3274, 3842])
def test_clocks_run_alike_in_a_healed_world(seed: int) -> None:
    """A follower's clock still ran twice as fast as the leader's, a leader's half as fast as those
    of others: requests ended before answers that were on time, and an idle quorum elected."""
    holds(seed)


def test_a_disk_that_is_gone_is_not_added_while_the_new_one_fetches_a_snapshot() -> None:
    """A reassignment added the directory that a machine had had a moment ago. Over sockets its new
    disk already fetched a snapshot, but counted as nobody: no majority was left for ever (D19)."""
    holds(4052)


def test_the_operator_reassigns_only_through_sets_that_go_on() -> None:
    """From 1, 2 and 3, of which 1 is damaged, to 4 alone: on the way 1 and 2 vote, and one of two
    is no majority. Both ends had one."""
    holds(2085)


def test_many_moments_looked_for_side_by_side_are_no_endless_run() -> None:
    """Twenty-three strikes of one planned fault each looked for theirs every 50 us (L7)."""
    holds(5128)


def test_a_flush_under_way_ends_before_its_files_are_closed() -> None:
    """A loop that ended by a failed sync left its flusher with a descriptor that was free again."""
    assert outcome("log", 28) == ""


def holds(seed: int) -> None:
    """Run a plain seed, as ``python -m kraftfast.sim --seed`` does."""
    result = run_seed(seed)
    assert result["ok"], result["violation"]


def test_what_a_stopped_process_was_told_runs_on_a_stack_that_may_be_left() -> None:
    """What SIGSTOP kept back could not wait for the disk: it ran on the world's own stack."""
    process = begun(Quorum(1))
    process.paused = True
    stacks: list[Any] = []
    process.enter(lambda: stacks.append(getcurrent().parent))
    assert not stacks
    process.resume()
    assert stacks and None not in stacks


def test_a_leader_that_moved_is_found_by_who_was_told_its_old_place() -> None:
    """Two observers learnt of it from one with an old voter set, and asked where it had been for
    as long as it led: each got one batch now and then through a bootstrap server (L1, L6)."""
    holds(10_021)


def test_a_leader_whose_process_ended_once_is_followed_where_it_answers_itself() -> None:
    """An observer that knows only bootstrap servers never called it by its id, so it took it for
    dead for as long as it led, though it answered as one of those servers (L1, L6)."""
    result = run_seed(37_037, WorldSettings.of_seed(37_037, short=True))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [31_324, 31_634])
def test_a_consumer_goes_on_where_the_log_that_it_reads_is_replaced_or_has_ended(seed: int) -> None:
    """It was told that a log begins where a segment had been listed that was gone by then (I20);
    and of damage by a replica that had ended, and lost what it had not flushed."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True, supervised=False))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [40_095, 40_123])
def test_a_quorum_that_was_half_made_twice_is_made(seed: int) -> None:
    """A power cut brought back what the first attempt had made, beside the plan of the second: the
    directory belonged to another quorum for ever (D18). The other seed: what a dead program's
    handlers did to its supervisor."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True))
    assert result["ok"], result["violation"]


def test_what_a_program_appended_as_the_world_healed_may_fail() -> None:
    """Its connection was lost before; five rounds each met one more (an error of the oracle)."""
    result = run_seed(42_159, WorldSettings.of_seed(42_159, short=True))
    assert result["ok"], result["violation"]


def test_a_candidate_may_win_its_epoch_after_a_later_one_has_committed() -> None:
    """The votes that it lacked came late: it can commit nothing (I4; an error of the oracle)."""
    result = run_seed(44_739, WorldSettings.of_seed(44_739, short=True))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [45_323, 45_428])
def test_many_records_that_are_late_are_named(seed: int) -> None:
    """All were handed over; the call said that none was, and who believed it appended them twice
    (D24)."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [45_065, 45_261])
def test_a_replica_that_may_open_nothing_more_outlives_its_links(seed: int) -> None:
    """It ended when a ring broke: it wanted another descriptor of the process behind that."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True))
    assert result["ok"], result["violation"]


def test_a_signal_goes_to_nobody_while_a_worker_is_taken_out() -> None:
    """Its replica was known and its worker was not: a KeyError."""
    result = run_seed(45_227, WorldSettings.of_seed(45_227, short=True))
    assert result["ok"], result["violation"]


def test_a_seed_in_which_an_exchange_and_an_append_woke_each_other() -> None:
    """Both waited for room in an async producer, and simulated time stood still."""
    result = run_seed(45_152, WorldSettings.of_seed(45_152, short=True))
    assert result["ok"], result["violation"]


def test_a_dead_program_starts_no_thread_in_the_next_one() -> None:
    """Of the simulator: an async producer that its collector closed did, with numbers of
    descriptors that were of other files there."""
    result = run_seed(45_275, WorldSettings.of_seed(45_275, short=True))
    assert result["ok"], result["violation"]


MEMORY: dict[str, Any] = {
    "durability": "memory",
    "kraft_version": 1,
    "observers": 3,
    "changes": ("add_voter", "remove_voter", "reassign", "wipe"),
    "change_every_ms": 150.0,
}


def violated(seed: int, **overrides: Any) -> str:
    return str(run_seed(seed, WorldSettings.of_seed(seed, **overrides))["violation"])


def test_a_majority_stays_certain_where_voters_change_in_memory() -> None:
    """A plan cut the power of a second voter of three: no quorum survives that (D10)."""
    assert violated(30_173, **MEMORY) == ""


def test_a_consumer_that_rests_may_take_long_for_a_long_log() -> None:
    assert violated(30_138, **MEMORY) == ""


def test_the_only_voter_is_none_that_the_rest_needs() -> None:
    assert violated(30_008, voters=1, observers=2) == ""


@pytest.mark.parametrize("seed", [45_048, 45_108])
def test_nobody_is_judged_where_a_majority_was_replaced(seed: int) -> None:
    """Strangers and users compared what they were told with what a silent oracle knew."""
    assert violated(seed) == ""


def test_who_says_a_batch_again_is_told_where_the_first_stands() -> None:
    """A stranger took a producer id, and sent two batches under one sequence: the second is a
    duplicate, and is not appended (D22)."""
    assert violated(45_069) == ""


def test_a_leader_that_hands_over_before_a_slow_snapshot_has_a_reason() -> None:
    """Its disk had been slow, so that its machine took long to write the snapshot before."""
    slow: dict[str, Any] = {
        "disk": Delays(60_000, 900_000, 0.2),
        "snapshots": "machine",
        "snapshot_bytes": 3_000,
        "state_bytes": 60_000,
        "fetch_snapshot_max_bytes": 2_000,
        "retention_bytes": 4_000,
        "segment_bytes": 8 * 1024,
        "observers": 1,
        "latecomer": True,
        "append_every_ms": 30.0,
        "settle_ms": 120_000,
    }
    found = run_seed(50_158, WorldSettings.of_seed(50_158, **slow))
    assert found["ok"], found["violation"]
    assert found["counts"]["hand-overs of idle quorums"] > 0


def test_a_thread_that_ends_later_than_its_event_loop_ends_no_run() -> None:
    """Of the simulator: what ran in an executor told a loop that was closed meanwhile."""
    result = run_seed(47_264, WorldSettings.of_seed(47_264, short=True))
    assert result["ok"], result["violation"]


def test_a_thread_that_outlives_its_event_loop_tells_nobody() -> None:
    """As in asyncio. The simulator's loop raised, and the run was taken for a failed one."""
    found = WorldSettings.of_seed(950_057, short=True)
    clients = {"async_producers": "local", "local_producers": 1, "real_producers": 1}
    result = run_seed(950_057, replace(found, **clients))  # type: ignore[arg-type]
    assert result["ok"], result["violation"]


def test_a_program_that_makes_another_quorum_first_is_not_late() -> None:
    """It waited for a lock there, for longer than the load lasted in which all were to catch up."""
    faults = ("clock",) * 6 + tuple(WorldSettings.of_seed(46_010).faults)
    assert violated(46_010, faults=faults, fault_every_ms=40.0) == ""


def test_a_replica_that_was_made_before_is_durable_before_the_quorum_names_it() -> None:
    """The first try was killed before it synced the name of meta.properties, and the second one
    found that; then the power was cut."""
    result = run_seed(60_800, WorldSettings.of_seed(60_800, short=True))
    assert result["ok"], result["violation"]


def test_an_observer_that_never_starts_keeps_no_other_replica_from_being_replaced() -> None:
    """L1: its log was damaged. Whoever replaced a voter waited for it, and not for that voter."""
    result = run_seed(61_921, WorldSettings.of_seed(61_921, short=True))
    assert result["ok"], result["violation"]


def test_no_disk_is_lost_beside_as_many_voters_as_may_be_down() -> None:
    """Of four voters one stayed down for good, and a second one lost its disk: nobody can lead."""
    result = run_seed(61_338, WorldSettings.of_seed(61_338, short=True))
    assert result["ok"], result["violation"]


def test_a_voter_that_moved_while_nobody_led_is_asked_by_none() -> None:
    """Of five voters one was in doubt and one wiped, and one had moved with a shorter log than the
    last two: by design none is elected, which the simulator did not allow for."""
    result = run_seed(62_106, WorldSettings.of_seed(62_106, short=True))
    assert result["ok"], result["violation"]
    assert result["counts"]["stuck as designed"] == 1


def test_a_program_that_syncs_a_directory_does_not_stop_where_a_replica_is_to() -> None:
    """Of the simulator: the next system call of a replica was to be its last, and a program of its
    host made that, and ended the run."""
    result = run_seed(62_798, WorldSettings.of_seed(62_798, short=True))
    assert result["ok"], result["violation"]


def test_a_slice_that_nobody_waits_for_any_more_is_refused() -> None:
    """L5: it was dropped. Answers leave a connection in order, so the next slice never left, and
    kept one of the leader's two places: no replica got a snapshot."""
    result = run_seed(67_773, WorldSettings.of_seed(67_773, short=True))
    assert result["ok"], result["violation"]


def test_a_replaced_voter_is_not_configured_any_more() -> None:
    """Of the simulator: it gave a replica that was replaced the static voters of the first start,
    which was the replica alone, and so it led a quorum of its own. ``LocalQuorum`` gives none."""
    result = run_seed(71_409, WorldSettings.of_seed(71_409, short=True))
    assert result["ok"], result["violation"]


def test_a_loop_that_waits_for_a_slow_disk_does_not_spin() -> None:
    """Of the simulator: a batch waited for a segment whose preparation took seconds, begun while
    the disk was slow. The leader looked for it each millisecond, which was taken for spinning."""
    result = run_seed(72_061, WorldSettings.of_seed(72_061, short=True))
    assert result["ok"], result["violation"]


def test_what_was_never_flushed_may_go_with_the_power_while_a_replica_is_recovered() -> None:
    """Of the simulator: the tail of a leader that was killed was in the page cache alone, and was
    not acknowledged. The run demanded it."""
    result = run_seed(67_776, WorldSettings.of_seed(67_776))
    assert result["ok"], result["violation"]


def test_a_voter_that_said_that_it_has_no_log_may_fetch_one() -> None:
    """Of the simulator: a replica that was cut off began a campaign by an answer from before the
    voter that gave it had fetched a log. Its log is what counts at the time of the answer (D23)."""
    result = run_seed(76_197, WorldSettings.of_seed(76_197, short=True))
    assert result["ok"], result["violation"]


def test_a_refusal_on_a_stream_is_asked_for_again_outside_streams() -> None:
    """L1: it names the new leader and not its disk. An observer whose only bootstrap server had
    lost its leadership opened stream after stream there, and never followed the new leader."""
    result = run_seed(77_530, WorldSettings.of_seed(77_530, short=True))
    assert result["ok"], result["violation"]


def test_a_leader_that_a_reassignment_removes_leaves_an_idle_quorum() -> None:
    """Of the simulator: it handed over in the second in which nothing may be elected."""
    result = run_seed(80_886, WorldSettings.of_seed(80_886, short=True))
    assert result["ok"], result["violation"]


def test_an_epoch_that_was_damaged_on_its_way_is_no_strangers() -> None:
    """Of the simulator: a flipped bit of an answer moved the epoch of an observer, and a stranger
    that had just asked for votes was blamed."""
    result = run_seed(81_556, WorldSettings.of_seed(81_556, short=True))
    assert result["ok"], result["violation"]


def test_the_head_of_a_frame_is_not_changed_on_its_way() -> None:
    """Of the simulator: it took a head for records, and a changed epoch let an observer follow
    another leader of the epoch than its quorum's. TCP's checksum has to hold there."""
    result = run_seed(83_609, WorldSettings.of_seed(83_609, short=True))
    assert result["ok"], result["violation"]


@pytest.mark.parametrize("seed", [86_995, 94_321, 94_449])
def test_an_operator_is_not_kept_by_what_its_program_does(seed: int) -> None:
    """Of the simulator: a program waited for one outcome after the other, or for a replica that
    never starts, for longer than a quorum may need to come to rest, and a replica without which
    that does not was its to mend."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True))
    assert result["ok"], result["violation"]


def test_a_quorum_that_waits_for_a_voter_is_not_watched_for_a_minute() -> None:
    """Of the simulator: voters without a log and a voter that never returns, as it is designed
    (D10). Producers that tried again all the while were taken for events without end."""
    result = run_seed(6_102, WorldSettings.of_seed(6_102))
    assert result["ok"], result["violation"]


def test_readers_of_a_follower_try_again_together() -> None:
    """Each had a pause of its own: with several, one request or another failed each millisecond,
    and the replica was busy for as long as its leader took none (L7)."""
    result = run_seed(160_592, WorldSettings.of_seed(160_592, short=True))
    assert result["ok"], result["violation"]


def test_what_arrives_late_is_no_spinning() -> None:
    """Of the simulator: a producer's connection was slow, and what it had sent was appended in the
    time in which an idle replica's steps are counted (L7)."""
    result = run_seed(172_020, WorldSettings.of_seed(172_020, short=True))
    assert result["ok"], result["violation"]


def test_a_voter_that_moved_and_is_ahead_has_the_leader_come_to_its_epoch() -> None:
    """Its first votes went out in a later epoch than that of the leader, which knew it by its
    former address alone, and which no request of a voter moved: it waited for an election (L1)."""
    result = run_seed(181_749, WorldSettings.of_seed(181_749, short=True))
    assert result["ok"], result["violation"]


def test_a_disk_that_was_replaced_is_no_damage_to_who_read_it() -> None:
    """Of the simulator: a consumer of that host is told DirectoryMoved, as it should be."""
    result = run_seed(201_501, WorldSettings.of_seed(201_501, short=True))
    assert result["ok"], result["violation"]
