"""Damage that a leader finds in its own log or snapshot as it serves others: not served, and told.

The leader does not end: a replica that joins reads the whole log, and would end one leader after
the other where each has damage of its own, though between them they have every record. Another
voter leads instead, which serves what is damaged here (D10, L5), and the operator replaces this
disk. The next start refuses the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import CorruptLog, ErrorCode
from kraftfast.node.giving_way import GivingWay

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.log.reading.served import Served
    from kraftfast.log.segment import Segment
    from kraftfast.node.node import Node


class Damage:
    """What is known of damage in the log of a replica that runs."""

    # found: since the last attempt to let another lead; giving_way: those attempts.

    def __init__(self) -> None:
        self.found = False
        self.giving_way = GivingWay()

    def refuse(self, node: Node, effect: AnswerFetch, error: CorruptLog) -> None:
        """Make an answer that has no records of one that is to have damaged ones."""
        effect.response.partition_error = ErrorCode.CORRUPT_MESSAGE
        self.report(node, error)

    def report(self, node: Node, error: Exception) -> None:
        """Tell what was found, and let another voter lead soon."""
        node.tell("log_damaged", why=error)
        self.found = True

    def mind(self, node: Node, now_ms: int) -> None:
        """Let another voter lead, once, for what was found."""
        if self.found:
            self.found = False  # a follower that still needs it finds it again
            # A voter that has what is committed soon has all, since appends wait: but for what is
            # damaged and not committed, for which all would wait for ever (L1, L6).
            # A leader that has committed nothing yet goes by what it knew before.
            end_offset = max(node.core.high_watermark, node.core.committed_offset)
            self.giving_way.attempt(node, now_ms, end_offset, "the log is damaged", True)


def locate(
    node: Node, served: Served, effect: AnswerFetch, bytes_max: int
) -> tuple[Segment, int, int] | None:
    """Return (segment, position, length) of what a Fetch asks for; None if it gets no records."""
    if effect.read_offset < 0:
        return None
    try:
        return served.locate(node.log, effect.read_offset, bytes_max, effect.read_end_offset)
    except CorruptLog as error:
        node.disk_space.damage.refuse(node, effect, error)
        return None
