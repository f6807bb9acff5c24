"""Where the replicas of a small host run."""

from __future__ import annotations

import doctest
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast import LocalQuorum
from kraftfast.errors import InvalidOption
from kraftfast.node.processes import placement
from kraftfast.node.processes.placement import FREE_MS, LOOK_MS, processors_for, share

MINE = sorted(os.sched_getaffinity(0))


def test_doctests() -> None:
    assert doctest.testmod(placement).failed == 0


@pytest.mark.parametrize(
    "voters, processors, shared_with_leader",
    [(3, 2, 1), (3, 3, 0), (5, 2, 2), (5, 3, 1), (5, 4, 1), (5, 5, 0)],
)
def test_the_leader_has_as_little_company_as_can_be(
    voters: int, processors: int, shared_with_leader: int
) -> None:
    ids, at = range(1, voters + 1), tuple(range(10, 10 + processors))
    for leader in ids:
        chosen = {id: processors_for(id, leader, ids, at) for id in ids}
        assert all(len(each) == 1 for each in chosen.values())
        company = [id for id in ids if id != leader and chosen[id] == chosen[leader]]
        assert len(company) == shared_with_leader
        assert {each[0] for each in chosen.values()} == set(at), "no processor is left out"


def test_only_a_small_host_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, expected in ((1, 0), (2, 2), (3, 3), (4, 0)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, n=processors: set(range(n)))
        assert len(share(None, 3)) == expected


def allowed(pid: int) -> set[frozenset[int]]:
    """Where the threads of a process may run."""
    found = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        found.add(frozenset(os.sched_getaffinity(int(thread))))
    return found


@pytest.mark.skipif(len(MINE) < 2, reason="one processor: there is nothing to choose")
def test_replicas_move_with_the_leadership(tmp_path: Path) -> None:
    first, last = MINE[0], MINE[1]
    with LocalQuorum(tmp_path / "q", 3, processors=(first, last)) as quorum:

        def settled(leader: int) -> bool:
            others = sorted({1, 2, 3} - {leader})
            wanted = {leader: first, others[0]: last, others[1]: first}
            return all(
                allowed(quorum.supervisor.pid(id)) == {frozenset({at})} for id, at in wanted.items()
            )

        def wait(leader: int) -> None:
            deadline = time.monotonic() + 10
            while not settled(leader):
                assert time.monotonic() < deadline, "replicas are not where they should be"
                time.sleep(0.02)

        leader = quorum.wait_leader()
        wait(leader)
        quorum.transfer(target := leader % 3 + 1)
        wait(target)


def test_the_kernel_decides_where_it_is_asked_to(tmp_path: Path) -> None:
    with LocalQuorum(tmp_path / "q", 3, processors=()) as quorum:
        quorum.wait_leader()
        for id in (1, 2, 3):
            assert allowed(quorum.supervisor.pid(id)) == {frozenset(MINE)}


def test_a_follower_that_falls_behind_runs_anywhere() -> None:
    """With the smaller share of a processor it would fall behind the start of the leader's log."""
    moves: list[tuple[int, ...]] = []
    core = SimpleNamespace(leader_id=1, end_offset=10, leader_high_watermark=10)
    node: Any = SimpleNamespace(
        config=SimpleNamespace(processors=(4, 5), node_id=2), core=core,
        voters=SimpleNamespace(ids=(1, 2, 3)), host=SimpleNamespace(run_on=moves.append),
        on_role=[], on_voters=[],
    )  # fmt: skip
    place = placement.Placement(node)
    node.on_voters[0]()
    place.tend(1000)
    core.leader_high_watermark = 50
    place.tend(1000 + LOOK_MS)
    core.end_offset, core.leader_high_watermark = 50, 90
    place.tend(1000 + 2 * LOOK_MS)
    assert moves == [(5,)], "it has what was committed a look ago"
    core.end_offset = 89
    place.tend(1000 + 3 * LOOK_MS - 1)
    assert moves == [(5,)]
    place.tend(1000 + 3 * LOOK_MS)
    node.on_role[0](None)
    assert moves == [(5,), (4, 5)], "an election does not bind it"
    core.end_offset = 90
    place.tend(999 + 3 * LOOK_MS + FREE_MS)
    assert moves == [(5,), (4, 5)], "nor does it go back at once"
    place.tend(1000 + 4 * LOOK_MS + FREE_MS)
    assert moves == [(5,), (4, 5), (5,)]
    core.end_offset, core.leader_high_watermark = 40, -1  # it leads, or follows another
    for turn in range(5, 9):
        place.tend(1000 + turn * LOOK_MS + FREE_MS)
    assert moves[3:] == [(4, 5)], "of what the leader before it said it has not all"


def test_processors_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"may not use: \[4000\]"):
        LocalQuorum(tmp_path / "q", 3, processors=(MINE[0], 4000))
    assert not (tmp_path / "q").exists(), "refused before anything is made"
