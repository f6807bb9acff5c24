"""Every rule of the simulator's oracles reports what breaks it, by its own name; none is silent.

A rule is a ``require``, or a ``Violation``, below ``kraftfast/sim``. One that is added must have
something planted for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kraftfast import sim
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.limits import PAGE_BYTES
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.node.storage import voter_records
from kraftfast.sim.require import Violation
from tests.sim import (  # noqa: F401
    planted_clients,
    planted_early,
    planted_logs,
    planted_programs,
    planted_readers,
    planted_supervisors,
    planted_votes,
)
from tests.sim.kit import Quorum
from tests.sim.planting import PLANTS, Scene, static, with_voter_records
from tests.sim.steps import begun, with_snapshots


def rules() -> Iterator[str]:
    """What each ``require`` or ``Violation`` says, with ``{}`` for what it fills in."""
    for path in sorted(Path(sim.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name == "require":
                yield text_of(node.args[1])
            elif name == "Violation" and isinstance(node.args[0], ast.JoinedStr):
                yield text_of(node.args[0])


def text_of(said: ast.expr) -> str:
    if isinstance(said, ast.Constant):
        return str(said.value)
    assert isinstance(said, ast.JoinedStr)
    return "".join(
        str(each.value) if isinstance(each, ast.Constant) else "{}" for each in said.values
    )


def test_something_is_planted_for_each_rule() -> None:
    found = sorted(rules())
    assert len(found) == len({*found}) > 100, "two rules say the same"
    assert sorted({*found} - {*PLANTS}) == []
    assert sorted({*PLANTS} - {*rules()}) == []


# covers: MonotonicHighWatermark, MonotonicEpoch, MajorityReachedHighWatermark, SingleLeader
# covers: ConsistentCommittedData
@pytest.mark.parametrize("rule", PLANTS)
def test_what_is_planted_is_seen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, quorum = PLANTS[rule]
    scene = Scene(quorum(), monkeypatch)
    said = "(?s)^" + ".*".join(map(re.escape, rule.split("{}"))) + "$"
    with pytest.raises(Violation, match=said):
        function(scene)
    monkeypatch.undo()
    scene.world.close()


def test_a_run_that_is_stuck_as_designed_is_judged() -> None:
    """durability=all, and a voter that never comes: what was acknowledged must be there still."""
    quorum = Quorum(1, durability="all", leave_broken=True)
    quorum.start()
    quorum.reach(10)
    world = quorum.world
    other = next(id for id in quorum.ids if id != quorum.leader())
    world.end(world.machine(other), power=False)
    world.machine(other).dead = "for good"
    append = next(each for each in world.history if each.outcome == "acknowledged")
    append.values[0] += b" was something else"
    with pytest.raises(Violation, match="^I23:"):
        world.finish()
    assert world.counts["a voter of all is missing"] == 1


def test_voters_that_a_start_files_at_the_newest_snapshot_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D22: the log begins before it, and what it says of the offsets between is forgotten."""
    quorum = with_snapshots(1, retention_bytes=-1, snapshot_bytes=500)
    process = begun(quorum)
    quorum.wait(lambda: bool(process.core.snapshots))
    assert process.log.log_start_offset == 0

    def newest(disk: Any, path: str, start: int, later: Any) -> VoterHistory:
        last = snapshot_ids(disk, path)[-1]
        return voter_records._history_behind(disk, path, last, [last], later)

    quorum.stop(process.id, "kill")
    monkeypatch.setattr(voter_records, "history_of", newest)
    with pytest.raises(Violation, match="^I16: "):
        quorum.restart(process.id)
        quorum.wait(lambda: process.machine.process is not None)


def test_a_follower_of_another_disk_than_its_link_names_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it was told: what it fetches from is what the link names (D23)."""
    scene = Scene(with_voter_records(), monkeypatch)
    state, machine = scene.other.core._state, scene.leader.machine
    assert state.leader_identity.directory_id == machine.key.directory_id
    machine.formats += 1
    state.peers.peer(machine.id).directory_id = machine.key_of(machine.formats).directory_id
    with pytest.raises(Violation, match=r"^D23: .* known not to be"):
        scene.world.early.follows(scene.other)


@pytest.mark.parametrize("written", ["nothing", "another", "the same elsewhere", "it"])
def test_a_batch_that_was_cut_comes_back_only_from_a_write_that_was_cut(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """I14: a process that ends inside a pwrite may leave those bytes, and no others."""
    scene = Scene(static(), monkeypatch)
    machine = scene.other.machine
    scene.quorum.stop(machine.id, "kill")
    last = scene.shadow.entries.pop()  # as if it had been cut
    scene.shadow.end = last.batch.base_offset
    scene.shadow.durable = min(scene.shadow.durable, scene.shadow.end)
    if written != "nothing":
        data, position = scene.oracle.bytes_of(last.batch), last.position
        data = bytes(len(data)) if written == "another" else data
        position += PAGE_BYTES if written == "the same elsewhere" else 0
        machine.disk.cut_in_write(position, data)
    told = nullcontext() if written == "it" else pytest.raises(Violation, match="^I14: ")
    with told:
        scene.quorum.restart(machine.id)
        scene.quorum.wait(lambda: machine.process is not None)
