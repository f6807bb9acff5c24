"""The node's check of where an answer would cut a log, over the disk of a search."""

from __future__ import annotations

from kraftfast.core.messages import FetchResponse
from kraftfast.core.replica import Replica
from kraftfast.errors import MalformedFrame
from kraftfast.node.translation.diverging import check_cut
from tests.core.disk import Disk, splits_batch


class Batches:
    """What ``check_cut`` asks of a log: where it begins and ends, and the batch of an offset."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.log_start_offset = disk.start
        self.end_offset = len(disk.records)
        self.file = self
        self.base_offset = 0

    def locate(self, offset: int, max_bytes: int) -> tuple[Batches, int, int]:
        """Return a segment that shows the base offset of the batch with this record."""
        while splits_batch(self.disk.records, offset):
            offset -= 1
        self.base_offset = offset
        return self, 0, 0

    def view(self, begin: int, end: int) -> bytes:
        """Return the first bytes of the batch that was located."""
        return self.base_offset.to_bytes(end - begin, "big")


def ends_connection(replica: Replica, disk: Disk, response: FetchResponse) -> bool:
    """Return whether the node ends the connection instead of handing this answer over."""
    if response.diverging is None:
        return False
    try:
        check_cut(replica, Batches(disk), response)
    except MalformedFrame:
        return True
    return False
