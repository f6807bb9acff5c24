"""Between the core's control records and the log's.

The target of a reassignment travels as a tagged field of KRaftVoters that Kafka skips: ids as
big-endian 32-bit numbers.
"""

from __future__ import annotations

import struct

from kraftfast.core import control as core
from kraftfast.core.effects import AppendControl
from kraftfast.core.events import Appended
from kraftfast.core.voters import VoterSet
from kraftfast.errors import CorruptBatch, InvalidOption
from kraftfast.record import control as record
from kraftfast.types import ReplicaKey
from kraftfast.wire import tags


def to_record(control: core.ControlRecord) -> record.ControlRecord:
    """What the log writes."""
    if isinstance(control, core.LeaderChange):
        voters = tuple(ReplicaKey(id) for id in control.voter_ids)
        granting = tuple(ReplicaKey(id) for id in control.granting_voter_ids)
        return record.LeaderChange(control.leader_id, voters, granting)
    if isinstance(control, core.KRaftVersion):
        return record.KRaftVersion(control.kraft_version)
    fields: record.Tags = ()
    if control.target is not None:
        fields = ((tags.TARGET, struct.pack(f">{len(control.target)}i", *control.target)),)
    return record.KRaftVoters(control.voters.voters, fields)


def from_record(found: object) -> core.KRaftVersion | core.KRaftVoters | None:
    """What the core is told of a control record of the log; None if it does not concern it.

    Raises ``CorruptBatch`` for a target that is no list of ids, and for voters that are no set.
    """
    if isinstance(found, record.KRaftVersion):
        return core.KRaftVersion(found.kraft_version)
    if not isinstance(found, record.KRaftVoters):
        return None
    target = dict(found.tags).get(tags.TARGET)
    try:
        voters = VoterSet(found.voters)
        if target is None:
            return core.KRaftVoters(voters)
        return core.KRaftVoters(voters, struct.unpack(f">{len(target) // 4}i", target))
    except (InvalidOption, struct.error) as error:
        reason = f"control record: {error}"
        raise CorruptBatch(reason, reason=reason) from None


def batch_of(effect: AppendControl, timestamp_ms: int) -> bytes:
    """The control batch that the core wants appended."""
    records = [to_record(each) for each in effect.records]
    return record.control_batch(records, timestamp=timestamp_ms, leader_epoch=effect.epoch)


def appended(effect: AppendControl, end_offset: int, size: int) -> Appended:
    """What the core is told once its ``size`` bytes stand in the log, up to ``end_offset``."""
    controls = tuple(
        (offset, each)
        for offset, each in enumerate(effect.records, end_offset - len(effect.records))
        if not isinstance(each, core.LeaderChange)
    )
    return Appended(effect.epoch, end_offset, size, controls)
