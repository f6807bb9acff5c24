"""Each invariant is checked: where it says so, in a sweep, and against what is planted here."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftfast.core import invariants as within_one
from kraftfast.core.control import KRaftVoters
from kraftfast.core.messages import FetchRequest, VoteRequest
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.voters import VoterSet
from kraftfast.sim.invariants import Oracle
from kraftfast.sim.process import Process
from kraftfast.sim.require import Violation
from kraftfast.sim.shadow import Entry
from kraftfast.sim.snapshot_oracle import SnapshotOracle
from kraftfast.sim.vote_oracle import VoteOracle, log_end
from kraftfast.sim.voter_oracle import VoterOracle
from kraftfast.sim.world import run_seed
from kraftfast.types import OffsetAndEpoch, ReplicaKey
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
BY_MUTANTS = ("I12", "I17")
"""Those that nothing can be planted for, but a mutant of the core dies of them."""


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
    for seed in (6, 38, 34, 7, 8):
        assert run_seed(seed)["ok"]
    assert set(calls) == set(CHECKED) and min(calls.values()) > 1, calls


# --- what is planted is seen ------------------------------------------------------------------


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    """Three replicas that have committed something and are at rest."""
    quorum = Quorum(1, transport="ring")
    quorum.start()
    quorum.reach(10)
    for producer in quorum.world.producers:
        producer.running = False
    quorum.wait(quorum.world.is_settled)
    yield quorum
    quorum.world.oracle.observe(quorum.process(1))


def planted(quorum: Quorum, name: str) -> None:
    oracle = quorum.world.oracle
    leader = quorum.process(quorum.leader())
    other = quorum.process(next(id for id in quorum.ids if id != leader.id))
    shadow = oracle.shadow(other.id)
    last = shadow.entries[-1].batch
    epoch, end = leader.core.epoch, shadow.end
    plants: dict[str, Callable[[], Any]] = {
        "I1": lambda: oracle.elected(other, epoch),
        "I2": lambda: oracle._know(other, last._replace(crc=last.crc ^ 1), None),
        "I3": lambda: oracle._know(other, last, None),
        "I4": lambda: elected_without(oracle, other, epoch + 1),
        "I5": lambda: committed_in_memory(oracle, leader),
        "I6": lambda: oracle.advances(other, shadow.high_watermark),
        "I7": lambda: oracle.truncates(other, last.base_offset),
        "I8": lambda: committed_otherwise(oracle, other, end),
        "I9": lambda: forgets_a_vote(oracle, other),
        "I10": lambda: oracle.counts_votes(other, epoch + 1),
        "I11": lambda: oracle.request_leaves(other, fetch(other, end + 1)),
        "I13": lambda: oracle.appends(other, epoch),
        "I14": lambda: recovers_something_else(oracle, other),
        "I15": lambda: oracle.snapshots.created(other, OffsetAndEpoch(end + 1, epoch)),
        "I19": lambda: oracle.snapshots.applied(other, end + 1, 0),
        "I16": lambda: another_set_in_the_log(oracle, other),
        "I20": lambda: oracle.was_read(end, end + 1, 0),
        "D21": lambda: asks_with_more(oracle, other),
    }
    plants[name]()


def elected_without(oracle: Oracle, process: Process, epoch: int) -> None:
    """A committed batch is missing in a leader's log."""
    last = oracle.committed[-1]
    oracle.committed.append(last._replace(base_offset=last.end_offset, end_offset=last.end_offset))
    oracle.elected(process, epoch)


def committed_in_memory(oracle: Oracle, leader: Process) -> None:
    """What a leader commits is on no disk."""
    shadow = oracle.shadow(leader.id)
    oracle.committed.pop()
    oracle.is_stable = lambda machine, entry: False  # type: ignore[method-assign]
    oracle._commit(leader, shadow, shadow.end)


def committed_otherwise(oracle: Oracle, process: Process, end: int) -> None:
    """Others have committed another batch there."""
    oracle.committed[-1] = oracle.committed[-1]._replace(crc=0)
    oracle.shadow(process.id).high_watermark = -1
    oracle.advances(process, end)


def forgets_a_vote(oracle: Oracle, process: Process) -> None:
    """Quorum-state goes back to an earlier epoch."""
    oracle.shadow(process.id).promised = QuorumState(process.core.epoch + 1, -1, ReplicaKey(1))
    oracle.persisted(process)


def fetch(process: Process, offset: int) -> FetchRequest:
    return FetchRequest(process.core.epoch, process.machine.key, offset, 0)


def asks_with_more(oracle: Oracle, process: Process) -> None:
    """A candidate asks for votes with more than it has on its disk."""
    epoch, end = log_end(process)
    oracle.request_leaves(process, VoteRequest(epoch + 1, process.machine.key, epoch, end + 1))


def another_set_in_the_log(oracle: Oracle, process: Process) -> None:
    """A voter record of the log that its replica does not know of."""
    oracle.shadow(process.id).changes.append((0, KRaftVoters(VoterSet.of(1))))
    oracle.after_turn(process)


def recovers_something_else(oracle: Oracle, process: Process) -> None:
    """A batch stands in the recovered log that did not stand there before."""
    entries = oracle.shadow(process.id).entries
    batch = entries[-1].batch
    entries[-1] = Entry(replace_crc(batch), *entries[-1][1:])
    oracle.recovered(process, False)


def replace_crc(batch: Any) -> Any:
    return batch._replace(crc=batch.crc ^ 1)


# covers: MonotonicHighWatermark, MonotonicEpoch, MajorityReachedHighWatermark, SingleLeader
# covers: ConsistentCommittedData
@pytest.mark.parametrize("name", [name for name in CHECKED if name not in BY_MUTANTS])
def test_what_is_planted_is_seen(quorum: Quorum, name: str) -> None:
    with pytest.raises(Violation, match=f"{name}[:,]"):
        planted(quorum, name)


def test_a_leader_that_counts_what_it_has_not_flushed_is_seen(quorum: Quorum) -> None:
    """I12, which every replica checks of itself after every step."""
    core = quorum.process(quorum.leader()).core
    state = core._state
    assert state.leader is not None
    state.leader.acknowledged.put(state.leader.slot, state.log.durable_end_offset() + 1)
    with pytest.raises(AssertionError):
        core.check_invariants()
