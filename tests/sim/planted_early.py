"""What is planted for rules whose breach does harm only after more faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftfast.core import effects as fx
from kraftfast.core.messages import LeaderIdentity
from kraftfast.core.replication.leader import Barrier
from kraftfast.errors import DiskFull
from kraftfast.log.snapshots import log_start  # type: ignore[attr-defined]
from kraftfast.sim.faults.lost_majority import Survivors
from kraftfast.sim.oracles.early_oracle import IN_FLIGHT_US
from kraftfast.types import ZERO_UUID, OffsetAndEpoch, ReplicaKey, VoterSet
from tests.sim.planting import Scene, plant, with_state, with_voter_records


@plant("D21: {} takes a read barrier for confirmed in round {}, which only {} answered")
def barrier_of_an_earlier_leadership(scene: Scene) -> None:
    leader = scene.leader.core._state.leader
    assert leader is not None
    barrier = Barrier(None, False, scene.leader.now_ms() + 1_000)
    barrier.round, barrier.confirmed = leader.barrier_round, True
    leader.confirmed = set()
    leader.barriers.append(barrier)
    scene.world.early.check(scene.leader)


@plant("L2: {} does not answer {}")
def question_is_forgotten(scene: Scene) -> None:
    leader = scene.leader.core._state.leader
    assert leader is not None
    scene.world.barriers.ask(scene.leader)
    assert leader.barriers
    leader.barriers.clear()
    scene.world.run(200)
    scene.world._is_quiet()


@plant("D10: {} is in doubt up to {}, and its disk holds its log up to {}")
def doubt_that_is_settled(scene: Scene) -> None:
    scene.other.core._state.doubt.phantom_tail = OffsetAndEpoch(1, scene.epoch)
    scene.world.early.check(scene.other)


@plant("D17: {} goes from {} to {}, of whom only {} run", with_voter_records)
def needed_voter_is_removed(scene: Scene) -> None:
    leader = scene.leader
    gone, needed = (each for each in leader.core.voters.ids if each != leader.id)
    silent_us = leader.settings.fetch_timeout_ms * 1000 + IN_FLIGHT_US
    now: VoterSet = leader.core.voters
    scene.quorum.stop(gone, "kill")
    scene.world.run(silent_us / 1000)
    for waited_us in (silent_us - 1, silent_us):
        scene.world.machine(gone).ended_us = scene.world.now_us - waited_us
        scene.world.early.shrinks(leader, now, now.without(needed))


@plant("D23: {} has no log, and begins one though {}, with theirs, refuse")
def log_is_begun_beside_another(scene: Scene) -> None:
    asked = SimpleNamespace(rejected={scene.leader.id}, without_log=set())
    asks = SimpleNamespace(election=asked)
    core: Any = scene.core_of(scene.other, role="candidate")
    process = scene.process_of(core=core, log=scene.log_of(end_offset=0))
    scene.world.early.campaigns(process, asks)


@plant("D23: {} says that it has no log, of {}")
def voter_denies_its_log(scene: Scene) -> None:
    scene.world.early.refuses_without_log(scene.other)


@plant("I15: {} tells of no damage and begins anew at {}, which its log held", with_state)
def damage_is_passed_over(scene: Scene) -> None:
    scene.other.machine.damaged_end = 1
    newest = OffsetAndEpoch(scene.last.end_offset, scene.last.epoch)
    log = scene.log_of(segments=[SimpleNamespace(base_offset=newest.offset)])
    recovered = SimpleNamespace(snapshots=(newest,))
    floor = SimpleNamespace(stored=newest)
    scene.world.early.starts(scene.process_of(log=log, recovered=recovered, floor=floor))


@plant("D25: {} ends of a full disk that it makes room on: {}", with_state)
def trim_ends_the_process(scene: Scene) -> None:
    def full(log: Any, offset: int) -> None:
        raise DiskFull("no space")

    scene.patch.setattr(log_start, "delete_before", full)
    scene.other.delete_before(fx.DeleteBefore(1))


@plant(
    "D23: {} has {} on its disk and committed, begins its newest file at {}, and keeps {} as its "
    "floor"
)
def floor_is_late(scene: Scene) -> None:
    scene.other.floor.stored = OffsetAndEpoch(0, 0)
    scene.world.early.floors(scene.other)


@plant(
    "D23: {} follows {}, whose directory is not {}, by voters at {}, here at {}", with_voter_records
)
def leader_of_another_directory_is_followed(scene: Scene) -> None:
    key = scene.leader.machine.key._replace(directory_id=b"z" * 16)
    state = SimpleNamespace(local=key)
    core: Any = SimpleNamespace(_state=state, history=scene.leader.core.history)
    leader: Any = SimpleNamespace(id=key.id, core=core)
    scene.world.early.copies(scene.other, leader)


OTHER = b"z" * 16
"""Another directory than any of the quorum."""


@plant("D19: {} waits for a Fetch of {}, and has heard {} since", with_voter_records)
def addition_waits_for_a_disk_that_is_gone(scene: Scene) -> None:
    scene.leader.heard[4] = OTHER
    change = SimpleNamespace(probed=True, voter=SimpleNamespace(key=ReplicaKey(4, b"y" * 16)))
    scene.world.early.waits(scene.leader, change)


@plant("D19: {} adds {}, and has heard {} since", with_voter_records)
def disk_that_is_gone_is_added(scene: Scene) -> None:
    now = scene.leader.core.voters
    gone = scene.other.machine
    scene.world.early.hears_disks = True
    scene.leader.heard[gone.id] = OTHER
    scene.world.early.grows(scene.leader, now, now)
    scene.world.early.grows(scene.leader, now.without(gone.id), now)


@plant(
    "D23: {} grants {} a vote, whose directory is not {}, by voters at {}, here at {}",
    with_voter_records,
)
def other_directory_gets_a_vote(scene: Scene) -> None:
    here = scene.other.core.history.latest_offset
    for voters_at in (here + 1, here):
        request: Any = SimpleNamespace(
            replica=scene.leader.machine.key._replace(directory_id=OTHER),
            voters_at=OffsetAndEpoch(voters_at, scene.epoch),
        )
        scene.world.early.grants(scene.other, request)


@plant(
    "D23: {} follows {}, whose directory is known not to be {}, by voters at {}, here at {}",
    with_voter_records,
)
def leader_that_said_another_directory_is_followed(scene: Scene) -> None:
    here = scene.other.core.history.latest_offset
    scene.other.core._state.peers.peer(scene.leader.id).directory_id = ZERO_UUID  # as over TCP
    for voters_at in (here + 1, here):
        place = OffsetAndEpoch(voters_at, scene.epoch)
        scene.other.core._state.leader_identity = LeaderIdentity(OTHER, place)
        scene.world.early.check(scene.other)


@plant("D23: {} keeps its log only to {}, and {} is its floor")
def log_is_cut_below_the_floor(scene: Scene) -> None:
    floor = scene.other.floor.stored.offset
    scene.world.early.cuts(scene.other, floor)
    scene.world.early.cuts(scene.other, floor - 1)


@plant("D3: {} hears of a cut with {} in its log, and {} on its disk")
def replica_asks_before_it_has_flushed(scene: Scene) -> None:
    scene.world.early.asks(scene.other)
    log = scene.log_of(flushed_end_offset=scene.other.log.end_offset - 1)
    scene.world.early.asks(scene.process_of(log=log))


@plant("D23: {} has not kept what was committed up to {}, its floor")
def floor_is_not_kept(scene: Scene) -> None:
    survivors = Survivors(scene.world, [scene.other.machine])
    survivors.check()
    scene.flip(scene.other)
    end = scene.last.end_offset
    survivors.kept[scene.other.id] = end, scene.oracle.content(0, end)
    survivors.check()
