"""What is planted for the rules of logs, disks, starts, flushes and snapshots."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kraftfast.core import on_tick
from kraftfast.errors import CorruptLog, InvalidOption, NotLeader
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.record.batch import batch_at
from kraftfast.sim.clients.sum_machine import SimStateMachine
from kraftfast.sim.faults import trim_command
from kraftfast.sim.machines.process import Process
from kraftfast.sim.machines.sim_host import SimFlusher
from kraftfast.sim.operators.recover_command import look
from kraftfast.sim.oracles.end_of_run import check_disks, check_log
from kraftfast.sim.oracles.producer_oracle import check_epochs, check_producers
from kraftfast.sim.oracles.shadow import BatchId, Shadow
from kraftfast.types import NO_NODE, ElectionState, KRaftVoters, OffsetAndEpoch, ReplicaKey
from tests.sim.planting import Scene, plant, with_state

# --- a log ----------------------------------------------------------------------------------------


@plant("the log of {} shrank without a cut")
def log_shrinks(scene: Scene) -> None:
    scene.oracle.observe(scene.process_of(log=scene.log_of(end_offset=1)))


@plant("I14: no batch at offset {} of {}")
def log_has_a_hole(scene: Scene) -> None:
    end = scene.other.log.end_offset + 5
    scene.oracle.observe(scene.process_of(log=scene.log_of(end_offset=end)))


@plant("I14: {} of {} leaves a gap")
def batch_leaves_a_gap(scene: Scene) -> None:
    scene.shadow.end -= 1  # the batch that comes begins one further than the last one ended
    scene.append()
    scene.world.run(200)


def know(scene: Scene, batch: BatchId) -> None:
    """Let the oracle see a batch in the place of the last one, and none before it."""
    segment, position = scene.other.log.segments[-1], scene.shadow.entries[-1].position
    scene.oracle._know(scene.other, batch, None, segment, position)


@plant("I2: {} holds {}, which the leader of epoch {} ({}) never appended")
def follower_invents_a_batch(scene: Scene) -> None:
    know(scene, scene.last._replace(epoch=99))


@plant("I2: {} holds {}, others {}")
def other_bytes_in_one_place(scene: Scene) -> None:
    know(scene, scene.last._replace(crc=scene.last.crc ^ 1))


@plant("I3: {}: before {}: {}, not {}")
def another_batch_before(scene: Scene) -> None:
    know(scene, scene.last)


@plant("D1: replica {} calls {} flushed, but {} is not on its disk")
def memory_is_called_flushed(scene: Scene) -> None:
    scene.unflushed()
    log = scene.leader.log
    words = {"flushed_end_offset": log.end_offset, "end_offset": log.end_offset}
    scene.oracle.observe(
        SimpleNamespace(id=scene.leader.id, machine=scene.leader.machine, log=scene.log_of(**words))
    )  # type: ignore[arg-type]


@plant("I7: {} cuts {}, which is committed")
def committed_is_cut(scene: Scene) -> None:
    scene.oracle.truncates(scene.other, scene.last.base_offset)


@plant("I7: {} cuts to {} below {}")
def cut_below_the_high_watermark(scene: Scene) -> None:
    scene.oracle.committed.pop()  # no leader committed it, and the replica takes it for committed
    scene.oracle.truncates(scene.other, scene.last.base_offset)


@plant("{} cuts to {}, inside a batch")
def cut_inside_a_batch(scene: Scene) -> None:
    scene.oracle.committed.pop()
    scene.shadow.high_watermark = scene.last.base_offset
    wide = scene.last._replace(base_offset=scene.last.base_offset - 1)
    scene.shadow.entries[-1] = scene.shadow.entries[-1]._replace(batch=wide)
    scene.oracle.truncates(scene.other, scene.last.base_offset)


@plant("D22: {} knows other producers than its log from {} to {}")
def producers_of_nowhere(scene: Scene) -> None:
    forged_producers(scene, encode=lambda: b"of nowhere")


@plant("D22: {} knows other producers at the start of its log, {}")
def producers_of_nowhere_at_the_start(scene: Scene) -> None:
    forged_producers(scene, freeze=lambda *words: b"of nowhere")


def forged_producers(scene: Scene, **words: Any) -> None:
    producers = scene.other.log.producers
    names = ("producers_max", "encode", "freeze")
    forged = SimpleNamespace(**({each: getattr(producers, each) for each in names} | words))
    check_producers(scene.process_of(log=scene.log_of(producers=forged)))


@plant("D22: {} tells of the epochs {}, its log holds {}")
def epochs_of_nowhere(scene: Scene) -> None:
    """That of the whole log is missing: it did not begin before the log."""
    check_epochs(scene.process_of(log=scene.log_of(epochs=[])), scene.shadow)


# --- at the end -----------------------------------------------------------------------------------


@plant("I8: the log of {} differs")
def log_has_other_bytes(scene: Scene) -> None:
    scene.flip(scene.other)
    check_log(scene.world, scene.other)


@plant("I5: {} was on the disk of {}, and is not any more")
def disk_of_one_that_is_down_loses_a_batch(scene: Scene) -> None:
    scene.quorum.stop(scene.other.id, "kill")
    scene.flip(scene.other)
    check_disks(scene.world)


# --- a start --------------------------------------------------------------------------------------


@plant("I14: {} recovered {} where {} stood")
def something_else_is_recovered(scene: Scene) -> None:
    entry = scene.shadow.entries[-1]
    entry = entry._replace(batch=scene.last._replace(crc=scene.last.crc ^ 1))
    scene.shadow.entries[-1] = entry
    scene.oracle.recovered(scene.other, False)


@plant("I5: {} begins anew at {} and drops {}")
def log_begins_anew_without_need(scene: Scene) -> None:
    new = Shadow()
    new.start = new.end = scene.last.base_offset
    scene.oracle._began_anew(scene.shadow, new, scene.other, True)


@plant("I5: {} recovered {} of {} (power: {})")
def flushed_batch_is_not_recovered(scene: Scene) -> None:
    new = Shadow()
    new.end = scene.last.base_offset
    scene.oracle._check_kept(scene.shadow, new, scene.other, True)


@plant("D10: {} forgot silently what it had flushed: {} of {}")
def damage_is_cut_silently(scene: Scene) -> None:
    scene.other.machine.rotten = True
    new = Shadow()
    new.end = scene.last.base_offset
    scene.oracle._check_kept(scene.shadow, new, scene.other, True)


@plant("I9: {} forgot {}")
def quorum_state_is_gone(scene: Scene) -> None:
    scene.other.persisted = None
    scene.oracle.recovered(scene.other, False)


@plant("I9: {} went from {} to {}")
def epoch_falls(scene: Scene) -> None:
    scene.shadow.promised = ElectionState(scene.epoch + 1, -1, ReplicaKey(1))
    scene.oracle.persisted(scene.other)


@plant("I9: {} votes again: {}, then {}")
def vote_changes(scene: Scene) -> None:
    scene.shadow.promised = ElectionState(scene.epoch, -1, ReplicaKey(9))
    scene.oracle.persisted(scene.other)


@plant("{} refuses its own log: {}")
def sound_log_is_refused(scene: Scene) -> None:
    def refuses(machine: Any) -> None:
        raise CorruptLog("no reason", "a log")

    scene.patch.setattr("kraftfast.sim.world.WatchedProcess", refuses)
    scene.quorum.stop(scene.other.id, "kill")
    scene.quorum.restart(scene.other.id)
    scene.world.run(100)


@plant("L1: {} does not start: {}")
def process_does_not_start(scene: Scene) -> None:
    def refuses(machine: Any) -> None:
        raise InvalidOption("no reason")

    scene.patch.setattr("kraftfast.sim.world.WatchedProcess", refuses)
    scene.quorum.stop(scene.other.id, "kill")
    scene.quorum.restart(scene.other.id)
    scene.world.run(100)


@plant("L1: {} ends without need: {}")
def process_ends_without_need(scene: Scene) -> None:
    def ends() -> None:
        raise NotLeader("as if that were a reason")

    scene.other.enter(ends)


# --- flushes --------------------------------------------------------------------------------------


def waiting(scene: Scene, share: float, age_ms: int, running: bool) -> Process:
    """The leader has so much of its bound that is not on disk, for so long."""
    scene.unflushed()
    config = scene.leader.quorum_config
    _, unflushed = scene.oracle.flushes._unflushed[scene.leader.id]
    unflushed.look(scene.leader)
    unflushed.bytes = int(config.unflushed_bytes_max * share)
    end, size, _ = unflushed.appends[0]
    unflushed.appends[0] = end, size, scene.leader.now_ms() - age_ms
    if not running:
        scene.patch.setattr(SimFlusher, "busy", lambda self: False)
    return scene.leader


@plant("D14: {} takes more above {} bytes that are not on disk")
def more_is_taken_above_the_bound(scene: Scene) -> None:
    scene.oracle.flushes.drains(waiting(scene, 1, 0, True))


@plant("D14: {} takes more, and the oldest waits {} ms for its disk")
def more_is_taken_while_the_disk_stands_still(scene: Scene) -> None:
    scene.oracle.flushes.drains(waiting(scene, 0, 100_000, True))


@plant("D14: {} has {} bytes that are not on disk, and no flush")
def much_is_not_flushed(scene: Scene) -> None:
    scene.oracle.flushes.check(waiting(scene, 1, 0, False), False)


@plant("D14: {} has records that wait {} ms for their disk, and no flush")
def old_records_are_not_flushed(scene: Scene) -> None:
    scene.oracle.flushes.check(waiting(scene, 0, 100_000, False), True)


@plant("D13: {} leads on, and its disk has not answered for {} ms")
def leader_with_a_stuck_disk(scene: Scene) -> None:
    scene.patch.setattr(on_tick, "flush_deadline_ms", lambda *words: on_tick.NEVER_MS)
    scene.unflushed()
    scene.world.run(5_000)


@plant("D13: {} resigns though others fetch, and its flush has run for {} ms")
def leader_with_a_disk_that_is_only_slow(scene: Scene) -> None:
    scene.patch.setattr(on_tick, "flush_deadline_ms", lambda *words: 0)
    scene.unflushed()
    scene.world.run(1_000)


# --- snapshots ------------------------------------------------------------------------------------


@plant("I19: {} applied {} of {}")
def applied_beyond_commits(scene: Scene) -> None:
    scene.oracle.snapshots.applied(scene.other, scene.last.end_offset + 1, 0)


@plant("I19: {} came to another state at {}", with_state)
def another_state(scene: Scene) -> None:
    end, digest = max(scene.oracle.snapshots.states.items())
    scene.oracle.snapshots.applied(scene.other, end, digest ^ 1)


@plant("I15: {} makes a snapshot at {} with {} on disk and {} committed")
def snapshot_beyond_commits(scene: Scene) -> None:
    snapshot_id = OffsetAndEpoch(scene.shadow.end + 1, scene.epoch)
    scene.oracle.snapshots.created(scene.other, snapshot_id)


@plant("I7: {} goes back from {} to {}")
def snapshot_undoes_commits(scene: Scene) -> None:
    scene.oracle.snapshots.installs(scene.other, OffsetAndEpoch(1, scene.epoch))


@plant("I7: {} drops {} for {}, and it is committed")
def snapshot_drops_commits(scene: Scene) -> None:
    scene.shadow.high_watermark = -1  # a process that has just begun
    scene.oracle.snapshots.installs(scene.other, OffsetAndEpoch(1, scene.epoch))


@plant("I15: {} begins at {}, at no snapshot")
def log_begins_at_no_snapshot(scene: Scene) -> None:
    scene.oracle.snapshots.check(scene.process_of(log=scene.log_of(log_start_offset=3)))


@plant("I15: snapshot {} of {} is not on its disk")
def snapshot_is_not_synced(scene: Scene) -> None:
    stands(scene, OffsetAndEpoch(scene.last.end_offset, scene.epoch))


def stands(scene: Scene, snapshot_id: OffsetAndEpoch) -> None:
    scene.oracle.snapshots.stands(scene.other.machine, snapshot_id)


def newest(scene: Scene) -> OffsetAndEpoch:
    """The newest snapshot of the other replica."""
    ids = snapshot_ids(scene.other.disk, scene.other.directory.log_path)
    return [each for each in ids if each != BOOTSTRAP][-1]


@plant("I15: snapshot {} of {} ends where nothing committed does", with_state)
def snapshot_of_another_epoch(scene: Scene) -> None:
    scene.patch.setattr(scene.oracle.snapshots, "boundary", lambda snapshot_id: None)
    stands(scene, newest(scene))


@plant("I15: snapshot {} of {} is damaged", with_state)
def snapshot_is_damaged(scene: Scene) -> None:
    path = snapshot_path(scene.world.log_path(scene.other.machine), newest(scene))
    file: Any = scene.other.disk.stable_file(path)
    file.flip(len(file.data) // 2, 0)
    stands(scene, newest(scene))


@plant("I8: snapshot {} of {} says {}, the log {}", with_state)
def snapshot_says_other_voters(scene: Scene) -> None:
    voters = scene.oracle.voters
    voters.committed.insert(1, (0, KRaftVoters(scene.world.voter_set().without(1))))
    voters.committed = voters.committed[:2]
    stands(scene, newest(scene))


@plant("I8: snapshot {} of {}: {}", with_state)
def snapshot_of_another_state(scene: Scene) -> None:
    at, states = newest(scene).offset, scene.oracle.snapshots.states
    states[max(each for each in states if each <= at)] ^= 1
    stands(scene, newest(scene))


@plant("I8: snapshot {} holds another state: that at {}", with_state)
def snapshot_of_a_state_that_never_was(scene: Scene) -> None:
    machine, states = machine_of(scene, scene.other), scene.oracle.snapshots.states
    at = newest(scene)
    states[max(each for each in states if each <= at.offset)] ^= 1
    with open_snapshot(scene.other.disk, scene.other.directory.log_path, at) as reader:
        machine.restore(reader)


@plant("I19: {} leads {}, and is handed a snapshot", with_state)
def state_machine_of_a_leader_is_replaced(scene: Scene) -> None:
    machine, leader = machine_of(scene, scene.leader), scene.leader
    at = snapshot_ids(leader.disk, leader.directory.log_path)[-1]
    with open_snapshot(leader.disk, leader.directory.log_path, at) as reader:
        machine.restore(reader)


def machine_of(scene: Scene, process: Process) -> SimStateMachine:
    """The state machine of a replica, which takes no time from now on."""
    assert process.applier is not None
    machine = process.applier.machine
    assert isinstance(machine, SimStateMachine)
    scene.patch.setattr(machine, "_pause", lambda: None)
    return machine


@plant("I19: {} applies {} after {}", with_state)
def state_machine_skips(scene: Scene) -> None:
    machine, last = machine_of(scene, scene.other), scene.shadow.entries[-1].batch
    machine.applied = 0
    machine.apply(batch_at(scene.oracle.contents[last.epoch, last.base_offset]))


@plant("I19: {} is told that {} leads {}, after {}", with_state)
def state_machine_forgets_its_leader(scene: Scene) -> None:
    machine_of(scene, scene.other).leader_changed(NO_NODE, scene.epoch)


@plant("I19: {} is told that it leads at {}, before {}", with_state)
def state_machine_leads_too_early(scene: Scene) -> None:
    machine, leader = machine_of(scene, scene.leader), scene.leader
    assert leader.applier is not None
    machine._told, leader.applier.applied = (NO_NODE, 0), -1
    machine.leader_changed(leader.id, scene.epoch)


@plant("I20: {} answers for {} with its state at {}", with_state)
def state_machine_answers_too_early(scene: Scene) -> None:
    assert scene.other.applier is not None
    applied, machine = scene.other.applier.applied, machine_of(scene, scene.other)
    answer = {"value": machine.query(), "applied": applied}
    scene.world.askers[0].told(scene.other, applied, answer)  # it may
    scene.world.askers[0].told(scene.other, applied + 1, answer)


# --- a log that is trimmed ------------------------------------------------------------------------


def trim_one(scene: Scene, **as_if: Any) -> None:
    """Trim the log of the other replica, which was as this says before that."""
    machine = scene.other.machine
    scene.quorum.stop(machine.id, "kill")
    before = replace(look(machine), **as_if)
    trim_command.trim(machine)
    trim_command.check_trimmed(scene.world, machine, before)


@plant("I14: the log of {} begins and ends at {}, {} once it is trimmed; before: {}, {}")
def trim_cuts_the_log(scene: Scene) -> None:
    trim_one(scene, end_offset=scene.shadow.end + 1)


@plant("D10: {} may lack records up to {}, and says {} once it is trimmed")
def trim_forgets_a_phantom_tail(scene: Scene) -> None:
    trim_one(scene, phantom_tail=OffsetAndEpoch(10_000, 3))


@plant("zeros are left behind the last batch of {}, which were trimmed")
def trim_leaves_zeros(scene: Scene) -> None:
    scene.patch.setattr(trim_command, "trim", lambda machine: None)
    trim_one(scene)


@plant("D1: {} is not on the disk of {}, whose log was trimmed")
def trim_syncs_nothing(scene: Scene) -> None:
    scene.patch.setattr(scene.oracle, "is_stable", lambda *_: False)
    trim_one(scene)


@plant("L1: the log of {} cannot be trimmed: {}")
def trim_is_refused(scene: Scene) -> None:
    def refuse(*_: Any) -> None:
        raise CorruptLog("it is damaged")

    scene.patch.setattr(trim_command, "trim_log", refuse)
    scene.world.nemesis._trim()
