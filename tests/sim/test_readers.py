"""Consumers and watches as they are, in the simulator: what they go through, and still read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.sim.clients.watched_consumers import LocalReading, Reading
from kraftfast.sim.machines.program_disk import ProgramDisk
from kraftfast.sim.settings import LOCAL_CLIENTS_FROM, WorldSettings
from tests.sim.kit import Quorum
from tests.sim.steps import begun, with_snapshots

READERS: dict[str, Any] = {"real_consumers": 1, "local_consumers": 2, "local_watchers": 1}


def readers(quorum: Quorum) -> list[Reading]:
    return [each for each in quorum.world.programs if isinstance(each, Reading)]


def of_kind(quorum: Quorum, kind: type[Reading]) -> list[Any]:
    return [each for each in readers(quorum) if isinstance(each, kind)]


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    made = Quorum(5, transport="ring", append_every_ms=10.0, **READERS)
    begun(made)
    yield made
    made.world.close()


@pytest.mark.parametrize("how", ["kill", "power", "shutdown"])
def test_consumers_go_on_when_leaders_end(quorum: Quorum, how: str) -> None:
    for _ in range(4):
        before, leader = quorum.elections(), quorum.leader()
        quorum.stop(leader, how)
        quorum.wait(lambda: quorum.elections() > before)  # noqa: B023
        quorum.restart(leader)
        quorum.world.run(300)
    quorum.finish()
    counts = quorum.world.counts
    assert counts["consumers that have everything"] == len(readers(quorum)) == 4
    assert counts["batches handed out"] > 50 and counts["records handed out"] > 50
    assert counts["high watermarks seen by watches"] > 20


def test_consumers_that_are_killed_go_on_where_they_were(quorum: Quorum) -> None:
    for _ in range(20):
        quorum.world.run(100)
        quorum.world.nemesis._client_kill()
    quorum.finish()
    assert any(each.lives > 2 for each in readers(quorum))


def test_power_takes_the_readers_of_a_machine_with_it(quorum: Quorum) -> None:
    reading = of_kind(quorum, LocalReading)[0]
    quorum.wait(lambda: bool(reading.host.disk._shared))
    (machine,) = [each for each in quorum.world.machines if reading.host.disk.reads(each)]
    lives, disk = reading.lives, reading.host.disk
    held = [disk._open[fd].file for fd in disk._shared]
    before = sum(file.sharers for file in held)
    quorum.world.end(machine, power=True)
    assert reading.host.disk is not disk and not disk.reads(machine)
    assert held and sum(file.sharers for file in held) < before
    quorum.wait(lambda: reading.lives > lives)
    quorum.finish()


def test_a_consumer_that_is_too_late_is_told() -> None:
    made = with_snapshots(3, transport="ring", **READERS)
    begun(made)
    made.wait(lambda: made.world.counts["consumers that were too late"] > 3)
    made.finish()
    assert made.world.counts["records handed out"] > 50
    made.world.close()


def test_what_a_reader_holds_is_neither_trimmed_nor_used_again(quorum: Quorum) -> None:
    """D20: by the lock of the file, in whichever process."""
    machine = quorum.world.machines[0]
    disk: ProgramDisk = of_kind(quorum, LocalReading)[0].host.disk
    pausing, disk._pause = disk._pause, lambda seconds: None
    file = machine.disk.segment_files()[0]
    path = next(
        path
        for name in machine.disk.list_directory(quorum.world.log_path(machine))
        if machine.disk.paged_file(path := f"{quorum.world.log_path(machine)}/{name}") is file
    )
    fd = disk.open_to_read(path)
    held = file.sharers
    assert disk.share(fd) and disk.share(fd) and file.sharers == held + 1
    mapped = machine.disk.open_segment(path, True)
    assert not mapped.exclude()
    disk.close(fd)
    assert file.sharers == held
    mapped.close()
    disk._pause = pausing


def test_equal_seeds_are_equal_runs_with_readers() -> None:
    digests = set()
    for _ in range(2):
        made = Quorum(5, transport="mixed", **READERS)
        made.start()
        made.world.run(1_500)
        digests.add((made.world.digest, made.world.events))
        made.world.close()
    assert len(digests) == 1


def test_seeds_of_before_have_no_readers() -> None:
    names = "real_consumers", "local_consumers", "local_watchers"
    many = range(LOCAL_CLIENTS_FROM, LOCAL_CLIENTS_FROM + 50)
    for name in names:
        assert not any(getattr(WorldSettings.of_seed(seed), name) for seed in range(50))
        assert any(getattr(WorldSettings.of_seed(seed), name) for seed in many)
