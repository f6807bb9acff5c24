"""Batches of the control records that the core wants appended, and their ``Appended`` events."""

from __future__ import annotations

from kraftfast.core.effects import AppendControl
from kraftfast.core.events import Appended
from kraftfast.record.control import control_batch
from kraftfast.types import KRaftVersion, KRaftVoters, LeaderChange


def for_core(found: object) -> KRaftVersion | KRaftVoters | None:
    """Return a control record without what the core does not know; None if it is not concerned."""
    match found:
        case KRaftVersion(kraft_version):
            return KRaftVersion(kraft_version)
        case KRaftVoters(voters, target):
            return KRaftVoters(voters, target)
    return None


def batch_of(effect: AppendControl, timestamp_ms: int) -> bytes:
    """Return the control batch that the core wants appended."""
    return control_batch(effect.records, timestamp=timestamp_ms, leader_epoch=effect.epoch)


def appended(effect: AppendControl, end_offset: int, size: int) -> Appended:
    """Return what the core is told once ``size`` bytes stand in the log, up to ``end_offset``."""
    controls = tuple(
        (offset, each)
        for offset, each in enumerate(effect.records, end_offset - len(effect.records))
        if not isinstance(each, LeaderChange)
    )
    return Appended(effect.epoch, end_offset, size, controls)
