"""What is planted for the rules of loops and clients that run as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftfast.client.admin.admin import Admin
from kraftfast.sim.clients.remote_clients import (
    RemoteAdmin,
    RemoteClient,
    RemoteNamed,
    RemoteReader,
)
from kraftfast.sim.machines.host import POLLS_MAX
from tests.sim.kit import Quorum
from tests.sim.planting import Scene, plant
from tests.sim.steps import BESIDE


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


@plant("L7: the loop of {} never sleeps")
def loop_never_sleeps(scene: Scene) -> None:
    for _ in range(POLLS_MAX):
        scene.other.idle.poll()
