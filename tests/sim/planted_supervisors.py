"""What is planted for the rules of supervisors and workers, which run as they are."""

from __future__ import annotations

from typing import Any

from kraftfast.client.admin.admin import Admin
from kraftfast.core.messages import AddRaftVoterRequest, UpdateFeaturesRequest
from kraftfast.errors import TimedOut
from kraftfast.node.processes.supervisor import Supervisor, Worker
from kraftfast.sim.machines.machine import endpoints_of
from kraftfast.sim.machines.workers import WatchedLoop
from kraftfast.sim.operators import operating, replace_command
from kraftfast.sim.operators.supervising import SimQuorum, Supervising
from kraftfast.types import ReplicaKey
from tests.sim.kit import Quorum
from tests.sim.planting import Scene, plant, with_voter_records
from tests.sim.steps import BESIDE


def supervised(**settings: Any) -> Quorum:
    made = Quorum(3, transport="ring", supervised=True, **BESIDE, **settings)
    assert made.world.supervising is not None
    made.world.supervising.running = False
    return made


def supervising(scene: Scene) -> Any:
    return scene.world.supervising


@plant("D9: replica {} is started again after {}", supervised)
def failed_storage_is_tried_again(scene: Scene) -> None:
    scene.patch.setattr(Worker, "is_final", False)
    scene.leader.machine.disk.failing_syncs = 1
    scene.append()
    scene.world.run(5_000)


@plant("R11: its supervisor starts replica {} twice", supervised)
def a_worker_is_forgotten(scene: Scene) -> None:
    worker = supervising(scene).supervisor.workers[scene.other.id]

    def start() -> None:
        worker.process = None
        worker.start()

    supervising(scene).run(start)
    scene.world.run(5_000)


@plant("L1: replica {} stays down without need: {}", supervised)
def an_end_is_taken_for_final(scene: Scene) -> None:
    scene.patch.setattr(Supervisor, "faults", lambda self: {scene.other.id: OSError("none")})
    scene.world.run(5_000)


@plant("L1: worker {} ends with {}", supervised)
def a_loop_ends_without_an_end(scene: Scene) -> None:
    scene.patch.setattr(WatchedLoop, "run", lambda self: None)
    scene.world.end(scene.other.machine, power=False)
    scene.world.run(5_000)


@plant("L1: the supervisor does not end", supervised)
def a_supervisor_hangs(scene: Scene) -> None:
    scene.patch.setattr(Supervising, "_close", lambda self: None)
    scene.world._stop_all(supervising(scene))


@plant("L1: the supervisor leaves {} behind", supervised)
def a_supervisor_forgets_its_workers(scene: Scene) -> None:
    scene.patch.setattr(Supervisor, "close", lambda self, *words: None)
    scene.world._stop_all(supervising(scene))


def with_directory_ids() -> Quorum:
    return supervised(kraft_version=1)


def replace(scene: Scene) -> None:
    """Have a voter lose its disk, and its program replace it."""
    scene.patch.setattr(replace_command, "REPLACES", 1.0)
    scene.patch.setattr(replace_command, "DEATHS_MAX", 0)
    scene.patch.setattr(replace_command, "REPLACED_MS", 5_000)
    supervising(scene).replace_one()


@plant("L1: replica {} is not replaced: {}", with_directory_ids)
def a_replacement_fails(scene: Scene) -> None:
    def fail(self: SimQuorum, *_: Any, **__: Any) -> None:
        raise TimedOut("no time is left")

    scene.patch.setattr(SimQuorum, "replace", fail)
    replace(scene)


@plant("D19: {} was replaced, and {} vote", with_directory_ids)
def a_replaced_voter_is_an_observer(scene: Scene) -> None:
    scene.patch.setattr(Admin, "add_voter", lambda *_, **__: None)
    replace(scene)


@plant("L6: replica {} was replaced, and does not catch up: {}", with_directory_ids)
def a_replaced_voter_hangs(scene: Scene) -> None:
    replaced = SimQuorum.replace

    def hang(self: SimQuorum, id: int, **words: Any) -> None:
        replaced(self, id, **words)
        process = scene.world.machine(id).process
        assert process is not None
        process.paused = True

    scene.patch.setattr(SimQuorum, "replace", hang)
    replace(scene)


def asked(scene: Scene, name: str, request: Any) -> None:
    """An operator asks by an admin that does nothing, and says that it is done."""
    scene.patch.setattr(operating, "BY_ADMIN", 1.0)
    scene.patch.setattr(Admin, name, lambda *_, **__: None)
    operator = operating.OperatorByAdmin(scene.world)
    operator.ask(scene.leader, request, [])
    scene.world.run(5_000)


@plant("an admin is told that {} is done, and since then {} counted", with_voter_records)
def an_admin_adds_nobody(scene: Scene) -> None:
    stranger = ReplicaKey(77, bytes(range(16)))
    asked(scene, "add_voter", AddRaftVoterRequest(stranger, endpoints_of(77)))


@plant("an admin is told that an upgrade is done, and it is not committed")
def an_admin_upgrades_nothing(scene: Scene) -> None:
    asked(scene, "upgrade", UpdateFeaturesRequest(1))
