"""The core's control records through their bytes and back; targets in a field that Kafka skips."""

from __future__ import annotations

import struct

import pytest

from kraftfast.core.effects import AppendControl
from kraftfast.core.events import Appended
from kraftfast.errors import CorruptBatch
from kraftfast.node.control_records import appended, batch_of, for_core
from kraftfast.record import control, pure
from kraftfast.types import Endpoint, KRaftVersion, KRaftVoters, LeaderChange, Voter, VoterSet

VOTERS = VoterSet(
    Voter(id, bytes([id % 251]) * 16, (Endpoint("CONTROLLER", f"h{id}", 9000),), 0, 1)
    for id in (1, 2, 70000)
)
OTHERS = ((5, b"of a later version"),)


# covers: VoterSetTest.testRecordRoundTrip
@pytest.mark.parametrize(
    "record",
    [
        KRaftVersion(1),
        KRaftVoters(VOTERS),
        KRaftVoters(VOTERS, (2, 5, 2**31 - 1)),
        KRaftVoters(VOTERS, ()),
    ],
)
def test_there_and_back(record: KRaftVersion | KRaftVoters) -> None:
    batch = batch_of(AppendControl(3, (record,)), 1)
    (decoded,) = pure.batch_at(batch).records()
    assert for_core(control.decode_control(decoded)) == record


def test_what_the_core_is_not_told_of() -> None:
    change = LeaderChange.of(1, (1, 2), (2,))
    assert [key.id for key in change.granting_voters] == [2]
    assert for_core(change) is None
    version, voters = KRaftVersion(1), KRaftVoters(VOTERS)
    told = appended(AppendControl(3, (change, version, voters)), 10, 99)
    assert told == Appended(3, 10, 99, ((8, version), (9, voters)))
    assert for_core(KRaftVersion(1, OTHERS)) == version
    assert for_core(KRaftVoters(VOTERS, (1,), OTHERS)) == KRaftVoters(VOTERS, (1,))


def value_of(voters: list[Voter], *tags: tuple[int, bytes]) -> bytes:
    """A KRaftVoters value of whatever stands in a log."""
    array = control._array([control._voter(voter) for voter in voters])
    return struct.pack(">h", 0) + array + control._tags(tags)


@pytest.mark.parametrize(
    "value",
    [
        value_of([Voter(1)], (control.TARGET, b"\0\0\0")),
        value_of([Voter(1), Voter(1)]),
        value_of([Voter(-1)]),
        value_of([Voter(id) for id in range(65)]),
    ],
)
def test_what_cannot_be_is_corrupt(value: bytes) -> None:
    key = struct.pack(">hh", 0, control.ControlType.KRAFT_VOTERS)
    with pytest.raises(CorruptBatch):
        control.decode_control(pure.Record(0, 0, key, value))
