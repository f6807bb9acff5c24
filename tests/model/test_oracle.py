"""Each rule of the oracle is planted broken, and reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core.control import KRaftVoters
from kraftfast.core.voters import VoterSet
from kraftfast.types import OffsetAndEpoch, ReplicaKey
from tests.core.disk import GONE, Record, voter_of
from tests.model.oracle import Known, Oracle, match
from tests.model.alone import Setting, Violation
from tests.model.seen import Seen

A, B, C = (Record(1, f"{each}") for each in "abc")
OTHER = Record(1, "other")


def seen(id: int, records: tuple[Record, ...], flushed: int | None = None) -> Seen:
    values: dict[str, Any] = dict.fromkeys(Seen._fields)
    values |= {
        "records": records,
        "start": 0,
        "flushed": len(records) if flushed is None else flushed,
        "key": ReplicaKey(id, bytes([64 + id]) * 16),
        "epoch": 1,
        "counted": (),
        "told_committed": -1,
    }
    return Seen(**values)


def judge(known: Known, disks: list[Seen], *facts: tuple[Any, ...], dynamic: bool = False) -> Known:
    """What the oracle makes of these facts, of replica 1, whose log was empty before."""
    setting = Setting((1, 2, 3), (1, 2, 3), dynamic=dynamic)
    turns = SimpleNamespace(setting=setting, seen=[*disks, seen(1, ())])
    oracle = Oracle(turns)  # type: ignore[arg-type]
    return oracle.judge(known, tuple(range(len(disks))), 0, len(disks), facts)


COMMITTED = Known((A, B), (1, 1), ((1, 1, 1),))
WHOLE = [seen(id, (A, B)) for id in (1, 2, 3)]
STATIC = VoterSet.of(1, 2, 3)


def test_what_is_sound_is_taken() -> None:
    known = judge(Known(), WHOLE, ("elected", 1, 1, ()), ("committed", 2, (A, B), STATIC, 1))
    assert known == COMMITTED
    judge(known, WHOLE, ("elected", 2, 1, (A, B)), ("read", 2, 2))
    judge(known, WHOLE, ("snapshot", OffsetAndEpoch(2, 1), ()))
    judge(known, [seen(1, (A, B)), seen(2, (GONE, B)), seen(3, ())])


@pytest.mark.parametrize(
    ("rule", "known", "disks", "fact"),
    [
        ("I1", Known(leaders=((1, 2, 1),)), WHOLE, ("elected", 1, 1, (A, B))),
        ("I13", Known(leaders=((1, 1, 1),)), WHOLE, ("elected", 1, 2, (A, B))),
        ("I4", COMMITTED, WHOLE, ("elected", 2, 1, (A,))),
        ("I4", COMMITTED, WHOLE, ("elected", 2, 1, (A, OTHER))),
        ("I8", COMMITTED, WHOLE, ("committed", 2, (A, OTHER), STATIC, 2)),
        ("I5", Known(), [WHOLE[0], seen(2, (A,)), seen(3, ())],
         ("committed", 2, (A, B), STATIC, 1)),
        ("I5", Known(), [seen(1, (A, B), 2), seen(2, (A, B), 1), seen(3, (A, B), 1)],
         ("committed", 2, (A, B), STATIC, 1)),
        ("a stale read", COMMITTED, WHOLE, ("read", 2, 1)),
        ("a stale read", COMMITTED, WHOLE, ("read", 2, 3)),
        ("I8", Known((A, B), (1, 1), (), ((OffsetAndEpoch(2, 1), ()),)), WHOLE,
         ("snapshot", OffsetAndEpoch(2, 1), (KRaftVoters(STATIC),))),
        ("I15", COMMITTED, WHOLE, ("snapshot", OffsetAndEpoch(3, 1), ())),
    ],
)  # fmt: skip
def test_a_broken_rule_is_reported(
    rule: str, known: Known, disks: list[Seen], fact: tuple[Any, ...]
) -> None:
    with pytest.raises(Violation, match=f"^{rule}"):
        judge(known, disks, fact)


def test_what_a_leader_counts_is_on_that_disk() -> None:
    leader = seen(1, (A, B))._replace(counted=((2, bytes(16), 2), (3, bytes(16), 1)))
    judge(COMMITTED, [leader, seen(2, (A, B)), seen(3, (A,))])
    for lacking in (seen(2, (A, B), 1), seen(2, (A, OTHER._replace(epoch=2)))):
        with pytest.raises(Violation, match="^D3"):
            judge(COMMITTED._replace(committed=(A,)), [leader, lacking, seen(3, (A, B))])
    later = seen(2, (A,))._replace(epoch=2)  # a later leader may have cut it
    judge(COMMITTED._replace(committed=(A,)), [leader, later, seen(3, (A, B))])


def test_a_change_is_done_once_it_is_committed() -> None:
    judge(COMMITTED, WHOLE, ("done", 1))
    with pytest.raises(Violation, match="^D17"):
        judge(COMMITTED, WHOLE, ("done", 2))
    with pytest.raises(Violation, match="^D17"):
        judge(COMMITTED, [WHOLE[0]._replace(told_committed=2), *WHOLE[1:]])


def test_more_hurt_disks_than_a_quorum_bears_are_not_judged() -> None:
    hurt = COMMITTED._replace(hurt=frozenset({2, 3}))
    judge(hurt, [WHOLE[0], seen(2, ()), seen(3, ())], ("elected", 2, 1, ()))


def test_what_was_committed_stays_on_a_majority_of_disks() -> None:
    lost = [seen(1, (A, B)), seen(2, (A,)), seen(3, (A, B), 1)]
    with pytest.raises(Violation, match="^I5"):
        judge(COMMITTED, lost)
    judge(COMMITTED._replace(hurt=frozenset({2})), lost)  # a disk that lost it stands for it
    with pytest.raises(Violation, match="^I5"):
        judge(COMMITTED._replace(hurt=frozenset({1})), lost)


def test_the_voters_that_count_are_those_that_were_committed() -> None:
    keys = [ReplicaKey(id, bytes([64 + id]) * 16) for id in (1, 2)]
    record = Record(1, "voters", KRaftVoters(VoterSet(voter_of(each) for each in keys)))
    known = Known((A, record), (1, 1))
    disks = [seen(1, (A, record)), seen(2, (A,)), seen(3, (A, record))]
    with pytest.raises(Violation, match="^I5"):
        judge(known, disks, dynamic=True)
    judge(known, disks[:1] + [seen(2, (A, record))] + disks[2:], dynamic=True)


def test_logs_that_agree_above_agree_below() -> None:
    assert match((A, B), (A, B, C)) and match((A, OTHER._replace(epoch=2)), (A, B))
    assert not match((A, B), (OTHER, B))
    assert not match((A, B), (A, OTHER))
    with pytest.raises(Violation, match="^I2, I3"):
        judge(Known(), [seen(1, (A, B)), seen(2, (OTHER, B)), seen(3, ())])
