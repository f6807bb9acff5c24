"""The node's check of where an answer would cut a log, over the disk of a search."""

from __future__ import annotations

from kraftfast.core.messages import FetchResponse
from kraftfast.core.replica import Replica
from kraftfast.errors import MalformedFrame
from kraftfast.node.translation.diverging import check_cut
from tests.core.disk import Disk, splits_batch


class Batches:
    """What ``check_cut`` asks of a log: where it begins and ends, and whether a cut fits."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.log_start_offset = disk.start
        self.end_offset = len(disk.records)

    def splits_batch(self, offset: int) -> bool:
        """Return whether a cut at ``offset`` would lie within a batch."""
        return splits_batch(self.disk.records, offset)


def ends_connection(replica: Replica, disk: Disk, response: FetchResponse) -> bool:
    """Return whether the node ends the connection instead of handing this answer over."""
    if response.diverging is None:
        return False
    try:
        check_cut(replica, Batches(disk), response)
    except MalformedFrame:
        return True
    return False
