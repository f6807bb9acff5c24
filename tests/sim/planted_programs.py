"""What is planted for the rules of loops and clients that run as they are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kraftfast.client.admin.admin import Admin
from kraftfast.node.rings import local_door
from kraftfast.sim.clients.remote_clients import (
    RemoteAdmin,
    RemoteClient,
    RemoteNamed,
    RemoteReader,
)
from kraftfast.sim.clients.sum_machine import SimStateMachine
from kraftfast.sim.machines.sim_host import POLLS_MAX
from tests.sim.kit import Quorum
from tests.sim.planting import Scene, plant
from tests.sim.steps import BESIDE, with_snapshots


def with_programs() -> Quorum:
    return Quorum(1, transport="socket", real_named=1, real_readers=1, real_admins=1, **BESIDE)


def program(scene: Scene, kind: type[RemoteClient]) -> Any:
    (found,) = [each for each in scene.world.programs if isinstance(each, kind)]
    return found


@plant("D22: real name {} is told {}; {} was acknowledged", with_programs)
def real_name_is_told_too_little(scene: Scene) -> None:
    named = program(scene, RemoteNamed)
    named.acknowledged = 10_000
    named.restart()
    named.append()
    scene.world.run(10_000)


@plant("I23: the records of real name {} are {}", with_programs)
def record_of_a_real_name_is_missing(scene: Scene) -> None:
    named = program(scene, RemoteNamed)
    named.check({b"m%d:1:" % named.id: 3})


@plant("I23: record {} of real name {} is gone", with_programs)
def last_record_of_a_real_name_is_missing(scene: Scene) -> None:
    named = program(scene, RemoteNamed)
    named.acknowledged = 0
    named.check({})


@plant("I20: a consumer at {} reads on at {}", with_programs)
def real_consumer_skips(scene: Scene) -> None:
    reader = program(scene, RemoteReader)
    reader.position = 1
    last = scene.last
    batch = SimpleNamespace(base_offset=last.base_offset, end_offset=last.end_offset, crc=last.crc)
    reader._read(SimpleNamespace(batches=lambda: [batch]))


@plant(
    "a real read barrier says {}; {} was committed before it was asked for, {} is committed",
    with_programs,
)
def real_barrier_says_too_little(scene: Scene) -> None:
    assert isinstance(program(scene, RemoteAdmin), RemoteAdmin)
    scene.patch.setattr(Admin, "read_barrier", lambda self, **words: -1)
    scene.world.run(10_000)


@plant("I6: an admin is told of {}, committed is {}", with_programs)
def admin_is_told_too_much(scene: Scene) -> None:
    told = SimpleNamespace(high_watermark=1 << 40)
    scene.patch.setattr(Admin, "describe", lambda self, **words: told)
    scene.world.run(10_000)


def with_local_programs() -> Quorum:
    return with_snapshots(
        1,
        snapshot_bytes=4_000,
        retention_bytes=20_000,
        local_producers=1,
        local_admins=1,
        local_askers=1,
    )


def answers(scene: Scene, query: Callable[..., Any]) -> None:
    scene.patch.setattr(SimStateMachine, "query", query)
    scene.world.run(10_000)


@plant("I20: {} was asked for {}, and answers with its state at {}", with_local_programs)
def state_machine_is_behind(scene: Scene) -> None:
    answers(scene, lambda self, padding=0, more=b"": (0, self.digest, bytes(padding)))


@plant("I20: {} answers with what is not the state at {}", with_local_programs)
def state_machine_says_something_else(scene: Scene) -> None:
    answers(scene, lambda self, padding=0, more=b"": (self.applied, self.digest ^ 1, b""))


@plant("I6: {} tells of {}, committed is {}", with_local_programs)
def status_claims_too_much(scene: Scene) -> None:
    real = local_door.status
    told = {"high_watermark": 1 << 40}
    scene.patch.setattr(local_door, "status", lambda node: real(node) | told)
    scene.world.run(10_000)


@plant("the quorum calls itself {}", with_local_programs)
def quorum_has_another_name(scene: Scene) -> None:
    scene.patch.setattr(Admin, "cluster_id", lambda self, **words: "another")
    scene.world.run(10_000)


@plant("L7: the loop of {} never sleeps")
def loop_never_sleeps(scene: Scene) -> None:
    for _ in range(POLLS_MAX):
        scene.other.idle.poll()
