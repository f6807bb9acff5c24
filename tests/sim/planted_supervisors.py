"""What is planted for the rules of supervisors and workers, which run as they are."""

from __future__ import annotations

from typing import Any

from kraftfast.node.processes.supervisor import Supervisor, Worker
from kraftfast.sim.clients.supervising import Supervising
from kraftfast.sim.machines.workers import WatchedLoop
from tests.sim.kit import Quorum
from tests.sim.planting import Scene, plant
from tests.sim.steps import BESIDE


def supervised() -> Quorum:
    made = Quorum(3, transport="ring", supervised=True, **BESIDE)
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
