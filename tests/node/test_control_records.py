"""The core's control records through their bytes and back; targets in a field that Kafka skips."""

from __future__ import annotations

import pytest

from kraftfast.core import control as core
from kraftfast.core.effects import AppendControl
from kraftfast.core.events import Appended
from kraftfast.core.voters import VoterSet
from kraftfast.errors import CorruptBatch
from kraftfast.node.control_records import (
    appended,
    batch_of,
    from_record,
    to_record,
)
from kraftfast.record import control as record
from kraftfast.record import pure
from kraftfast.types import Endpoint, Voter
from kraftfast.wire import tags

VOTERS = VoterSet(
    Voter(id, bytes([id % 251]) * 16, (Endpoint("CONTROLLER", f"h{id}", 9000),), 0, 1)
    for id in (1, 2, 70000)
)


# covers: VoterSetTest.testRecordRoundTrip
@pytest.mark.parametrize(
    "control",
    [
        core.KRaftVersion(1),
        core.KRaftVoters(VOTERS),
        core.KRaftVoters(VOTERS, (2, 5, 2**31 - 1)),
        core.KRaftVoters(VOTERS, ()),
    ],
)
def test_there_and_back(control: core.KRaftVersion | core.KRaftVoters) -> None:
    batch = batch_of(AppendControl(3, (control,)), 1)
    (decoded,) = pure.batch_at(batch).records()
    assert from_record(record.decode_control(decoded)) == control


def test_what_the_core_is_not_told_of() -> None:
    change = core.LeaderChange(1, (1, 2), (2,))
    written = to_record(change)
    assert isinstance(written, record.LeaderChange)
    assert [key.id for key in written.granting_voters] == [2]
    assert from_record(written) is None
    version, voters = core.KRaftVersion(1), core.KRaftVoters(VOTERS)
    told = appended(AppendControl(3, (change, version, voters)), 10, 99)
    assert told == Appended(3, 10, 99, ((8, version), (9, voters)))


@pytest.mark.parametrize(
    "found",
    [
        record.KRaftVoters(VOTERS.voters, ((tags.TARGET, b"\0\0\0"),)),
        record.KRaftVoters((Voter(1), Voter(1))),
        record.KRaftVoters((Voter(-1),)),
        record.KRaftVoters(tuple(Voter(id) for id in range(65))),
    ],
)
def test_what_cannot_be_is_corrupt(found: record.KRaftVoters) -> None:
    with pytest.raises(CorruptBatch):
        from_record(found)
