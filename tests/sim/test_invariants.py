"""Each invariant is checked where it says so, and in a sweep; ``test_planted``: and reports."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kraftfast.core import invariants as within_one
from kraftfast.sim import WorldSettings
from kraftfast.sim.oracles.snapshot_oracle import SnapshotOracle
from kraftfast.sim.oracles.vote_oracle import VoteOracle
from kraftfast.sim.oracles.voter_oracle import VoterOracle
from kraftfast.sim.oracles.world_invariants import Oracle
from kraftfast.sim.world import run_seed
from tests.sim.kit import Quorum

CHECKED: dict[str, Callable[..., Any]] = {
    "I1": Oracle.elected,
    "I2": Oracle._know,
    "I3": Oracle._know,
    "I4": Oracle.elected,
    "I5": Oracle._commit,
    "I6": Oracle.advances,
    "I7": Oracle.truncates,
    "I8": Oracle.advances,
    "I9": Oracle._check_promise,
    "I10": Oracle.counts_votes,
    "I11": Oracle._acknowledges,
    "I12": within_one.check_leader,
    "I13": Oracle.appends,
    "I14": Oracle.recovered,
    "I15": SnapshotOracle.created,
    "I16": VoterOracle.check,
    "I17": VoterOracle.check,
    "I19": SnapshotOracle.applied,
    "I20": Oracle.was_read,
    "D21": VoteOracle.asked,
}
"""Where invariants and conditions that compare replicas, disks and promises are checked."""
CUT_OFF: dict[str, Any] = {
    "voters": 3,
    "faults": ("isolate", "isolate", "power", "resign"),
    "fault_every_ms": 100.0,
    "append_every_ms": 8.0,
    "chaos_ms": 1_500,
}
"""Settings in which leaders often go on without their quorum."""


@pytest.mark.parametrize("name", CHECKED)
def test_it_is_named_where_it_is_checked(name: str) -> None:
    assert f"{name}:" in inspect.getsource(CHECKED[name]) or f"{name}," in inspect.getsource(
        CHECKED[name]
    )


def test_a_sweep_comes_by_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        return call

    for name, function in CHECKED.items():
        oracles = (Oracle, VoteOracle, VoterOracle, SnapshotOracle)
        places = {each.__name__: each for each in oracles}
        place: Any = places.get(function.__qualname__.split(".")[0], within_one)
        monkeypatch.setattr(
            place, function.__name__, counted(name, getattr(place, function.__name__))
        )
    for seed in (451, 479, 482, 494):  # quick ones
        assert run_seed(seed)["ok"]
    for seed in (8, 10):
        assert run_seed(seed, WorldSettings.of_seed(seed, short=True, **CUT_OFF))["ok"]
    assert set(calls) == set(CHECKED) and min(calls.values()) > 1, calls


def test_a_leader_that_counts_what_it_has_not_flushed_is_seen() -> None:
    """I12, which every replica checks of itself after every step."""
    quorum = Quorum(1, transport="ring")
    quorum.start()
    quorum.reach(10)
    core = quorum.process(quorum.leader()).core
    state = core._state
    assert state.leader is not None
    state.leader.acknowledged.put(state.leader.slot, state.log.ackable_end_offset() + 1)
    with pytest.raises(AssertionError):
        core.check_invariants()
