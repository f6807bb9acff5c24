"""Check where a leader's answer would cut this replica's log, before the core acts on it.

The core knows offsets and epochs only. A cut inside a batch cannot come from a leader of the same
log, since (offset, epoch) names one batch on all replicas (I2): the connection is at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import FetchResponse
from kraftfast.errors import MalformedFrame

if TYPE_CHECKING:
    from kraftfast.core.replica import Replica
    from kraftfast.log.log import Log


def check_cut(core: Replica, log: Log, response: FetchResponse) -> None:
    """Raise ``MalformedFrame`` if the diverging offset would cut the log inside a batch."""
    diverging = response.diverging
    assert diverging is not None
    offset = core.truncation_offset(diverging)
    if log.log_start_offset <= offset < log.end_offset and log.splits_batch(offset):
        raise MalformedFrame(
            f"the diverging offset {diverging.offset} of epoch {diverging.epoch} would cut the log "
            f"at {offset}, inside a batch"
        )
