"""The supervisor as it is, over simulated processes: what it does there, and what is seen of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kraftfast.errors import NotFormatted
from kraftfast.node.processes.supervisor import PAUSE_S_MAX, Supervisor, Worker
from kraftfast.node.storage import local_layout
from kraftfast.sim import WorldSettings, run_seed
from kraftfast.sim.machines.workers import WorkerProcess
from kraftfast.sim.operators import replace_command
from kraftfast.sim.operators.supervising import Supervising
from kraftfast.sim.require import Violation
from tests.sim.kit import Quorum
from tests.sim.steps import begun


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    """Three voters that a supervisor keeps alive; nothing goes wrong by itself."""
    made = Quorum(3, transport="ring", supervised=True)
    supervising_of(made).running = False
    begun(made)
    yield made
    made.world.close()


def supervising_of(quorum: Quorum) -> Supervising:
    assert quorum.world.supervising is not None
    return quorum.world.supervising


def supervisor_of(quorum: Quorum) -> Supervisor:
    found = supervising_of(quorum).supervisor
    assert found is not None
    return found


def pids(quorum: Quorum) -> dict[int, int]:
    """The process ids of the workers that run."""
    workers = supervisor_of(quorum).workers.items()
    return {id: each.process.pid for id, each in workers if each.process is not None}


def runs_anew(quorum: Quorum, id: int, pid: int) -> bool:
    process = quorum.world.machine(id).process
    return process is not None and process.pid != pid


def test_one_interpreter_forks_itself_for_the_others(quorum: Quorum) -> None:
    found = pids(quorum)
    processes = [quorum.world.local.processes[found[id]] for id in quorum.ids]
    assert all(isinstance(each, WorkerProcess) and each.replica is not None for each in processes)
    assert len({each.parent_pid for each in processes}) == 1


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_ends_is_started_again(quorum: Quorum, signo: int) -> None:
    for id, pid in pids(quorum).items():
        supervising = supervising_of(quorum)
        supervising.run(lambda id=id: supervisor_of(quorum).kill(id, signo))  # type: ignore[misc]
        quorum.wait(lambda: runs_anew(quorum, id, pid))  # noqa: B023
    quorum.finish()


def test_one_that_keeps_ending_is_given_longer_and_longer_pauses(quorum: Quorum) -> None:
    world, machine = quorum.world, quorum.world.machine(2)
    began: list[int] = []
    for _ in range(8):
        quorum.wait(lambda: machine.process is not None)
        began.append(world.now_us)
        world.end(machine, power=False)
    pauses = [after - before for before, after in zip(began, began[1:], strict=False)]
    assert pauses[3] > 2 * pauses[1] and max(pauses) < (PAUSE_S_MAX + 1) * 1e6
    assert "ended 7 times" in supervisor_of(quorum).restarts_text()
    quorum.finish()


def test_storage_that_failed_stays_down_until_it_is_tried_again(quorum: Quorum) -> None:
    """D9, by what the supervisor does; its user has it tried again after a while."""
    machine = quorum.world.machine(quorum.leader())
    machine.disk.failing_syncs = 1
    quorum.wait(lambda: machine.process is None)
    quorum.wait(lambda: bool(quorum.world.counts["workers tried again"]))
    quorum.wait(lambda: machine.process is not None)
    quorum.finish()


def test_a_supervisor_that_starts_failed_storage_again_is_seen(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "is_final", False)
    quorum.world.machine(quorum.leader()).disk.failing_syncs = 1
    with pytest.raises(Violation, match="D9: replica . is started again"):
        quorum.world.run(5_000)


def test_a_supervisor_that_starts_a_replica_twice_is_seen(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(self: Worker) -> None:
        self.process = None

    worker = supervisor_of(quorum).workers[2]
    with pytest.raises(Violation, match="R11: its supervisor starts replica 2 twice"):
        supervising_of(quorum).run(lambda: (forget(worker), worker.start()))
        quorum.world.run(5_000)


def test_workers_end_with_their_supervisor_and_the_next_one_waits_for_them(quorum: Quorum) -> None:
    before = pids(quorum)
    supervising_of(quorum).restart()
    for id, pid in before.items():
        quorum.wait(lambda: runs_anew(quorum, id, pid))  # noqa: B023
    quorum.finish()


def test_all_end_in_order_and_none_is_left(quorum: Quorum) -> None:
    """D1, I5: what was on the disks is there still."""
    quorum.finish()
    quorum.world._stop_all(supervising_of(quorum))
    assert all(machine.process is None for machine in quorum.world.machines)
    exits = quorum.world.local.exit_codes
    assert set(exits.values()) <= {0}


def test_one_that_does_not_end_is_killed(quorum: Quorum) -> None:
    process = quorum.process(2)
    process.paused = True
    supervising_of(quorum).close()
    quorum.wait(lambda: not supervising_of(quorum).alive)
    assert quorum.world.machine(2).process is None and not process.closed


def test_a_worker_that_is_slow_to_stop_holds_up_no_other() -> None:
    """One of two voters was not started again while an observer was waited for (L1)."""
    quorum = Quorum(3, observers=1, transport="ring", supervised=True)
    supervising = supervising_of(quorum)
    supervising.running = False
    begun(quorum)
    before, removed = pids(quorum), []
    quorum.process(4).paused = True
    told: list[Any] = []
    supervising.host.tell.show = told.append

    def remove() -> None:
        supervisor_of(quorum).remove(4, timeout_s=10.0)
        removed.append(quorum.world.now_us)

    supervising.run(remove)
    quorum.world.run(50)
    quorum.world.end(quorum.world.machine(2), power=False)
    quorum.wait(lambda: runs_anew(quorum, 2, before[2]))
    assert not removed
    quorum.wait(lambda: bool(removed))
    assert quorum.world.machine(4).process is None
    ended = [each.node_id for each in told if each.event == "worker_ended"]
    assert ended == [2], "who removes it waits for its end, alone"
    quorum.world.close()


def test_equal_seeds_are_equal_runs_with_it() -> None:
    settings: dict[str, Any] = {"short": True, "supervised": True}
    runs = [run_seed(10_002, WorldSettings.of_seed(10_002, **settings)) for _ in range(2)]
    assert runs[0]["ok"], runs[0]["violation"]
    assert runs[0]["digest"] == runs[1]["digest"] and runs[0]["events"] == runs[1]["events"]


def test_some_seeds_have_one_and_none_of_before() -> None:
    assert not any(WorldSettings.of_seed(seed).supervised for seed in range(300))
    assert any(WorldSettings.of_seed(seed).supervised for seed in range(10_000, 10_100))


@pytest.mark.parametrize("seed", range(6))
def test_a_quorum_is_made_though_its_program_dies_at_any_call(quorum: Quorum, seed: int) -> None:
    supervising = supervising_of(quorum)
    supervising.random = Random(seed)
    supervising.run(supervising._make)
    quorum.wait(lambda: bool(quorum.world.counts["directories of quorums made"]))


def test_a_quorum_that_is_described_before_it_is_made_is_seen(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D19: the description comes last, and each directory before it."""
    monkeypatch.setattr(local_layout, "at_once", lambda calls, host: None)
    supervising = supervising_of(quorum)
    with pytest.raises(NotFormatted):
        supervising.run(supervising._make)
        quorum.world.run(1_000)


@pytest.mark.parametrize("seed", range(6))
def test_a_voter_that_lost_its_disk_is_replaced(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """D19: under a new directory id, though the program that replaces it may die at any moment."""
    monkeypatch.setattr(replace_command, "REPLACES", 1.0)
    quorum = Quorum(3, transport="ring", supervised=True, kraft_version=1)
    supervising = supervising_of(quorum)
    supervising.running = False
    supervising.random = Random(seed)
    begun(quorum)
    quorum.finish()
    before = {each.id: each.key for each in quorum.world.machines}
    supervising.replace_one()
    assert quorum.world.counts["replicas replaced"] == 1
    changed = [each.id for each in quorum.world.machines if each.key != before[each.id]]
    assert len(changed) == 1
    quorum.world.close()
