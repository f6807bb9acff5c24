"""Control records that the core wants appended, and the events that tell it what was appended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraftfast.core.effects import AppendControl
from kraftfast.core.events import Appended, FetchedWritten
from kraftfast.record.control import control_batch
from kraftfast.types import KRaftVersion, KRaftVoters, LeaderChange

if TYPE_CHECKING:
    from kraftfast.core.membership.voter_controls import VoterControls
    from kraftfast.log.log import Log
    from kraftfast.log.segment import Segment


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


class Began(NamedTuple):
    """A log at the beginning of a copy to its end."""

    offset: int
    segment: Segment
    position: int
    bytes: int
    """How many had ever been appended."""
    controls: int
    """How many control batches had."""


def began_at(log: Log) -> Began:
    """Return where a copy begins now."""
    active = log.active
    return Began(log.end_offset, active, active.position, log.bytes_appended, log.control_batches)


def fetched_written(
    log: Log, began: Began, rejected: bool, controls: VoterControls
) -> FetchedWritten:
    """Return the event that tells the core what was copied."""
    epochs = tuple(entry for entry in log.epochs if entry[1] >= began.offset)
    size = log.bytes_appended - began.bytes
    return FetchedWritten(log.end_offset, size, epochs, rejected, controls)
