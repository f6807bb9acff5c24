"""The records of a Fetch answer that came as bytes, on their way into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.wire.fetch import PartitionFetched

if TYPE_CHECKING:
    from kraftfast.link.stats import Stats
    from kraftfast.log.log import Log
    from kraftfast.wire.messages import FetchResponse


class FetchedBytes:
    """What ``WriteFetched`` copies from; ``records`` is the payload of one answer.

    An answer that refuses the whole request names no partition, so it has none.
    """

    __slots__ = ("records",)

    def __init__(self, message: PartitionFetched | FetchResponse) -> None:
        self.records = message.records if isinstance(message, PartitionFetched) else b""

    def copy_records(self, log: Log, epoch: int, _stats: Stats) -> tuple[bool, bool]:
        """Copy into the log: (all taken, a part rejected). Neither: no room yet."""
        taken = log.copy(self.records, epoch)
        return taken == len(self.records) or log.cut_off(), log.damaged()

    def resume(self) -> None:
        """Go on: nothing waits behind these records."""
