"""Damage that a leader finds in its own log or snapshot: it is not served, and it is reported.

The leader must not end: a replica that joins reads the whole log, and would end one leader after
the other where each has damage of its own, though between them they have every record. Instead it
hands over to another voter, which serves what is damaged here (D10, L5). The next start refuses
the log, and the operator replaces this disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import CorruptLog, ErrorCode
from kraftfast.node.giving_way import GivingWay

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.node.node import Node


class Damage:
    """What a running replica knows of damage in its log or snapshots."""

    # found: damage since the last attempt to hand over. giving_way: those attempts.

    def __init__(self) -> None:
        self.found = False
        self.giving_way = GivingWay()

    def refuse(self, node: Node, effect: AnswerFetch, error: CorruptLog) -> None:
        """Answer a Fetch of damaged records by CORRUPT_MESSAGE, and report the damage."""
        effect.response.partition_error = ErrorCode.CORRUPT_MESSAGE
        self.report(node, error)

    def report(self, node: Node, error: Exception) -> None:
        """Report the damage, and have the leader hand over at the next :meth:`tend`."""
        node.tell("log_damaged", why=error)
        self.found = True

    def tend(self, node: Node, now_ms: int) -> None:
        """Hand over if damage was found since the last call."""
        if self.found:
            self.found = False  # found again if a follower still needs it
            # A voter that has what is committed gets the rest while appends wait. Damaged records
            # that are not committed it never gets, so it leads without them (L1, L6). A leader that
            # has committed nothing yet goes by what it knew before.
            end_offset = max(node.core.high_watermark, node.core.uncuttable_offset)
            self.giving_way.attempt(node, now_ms, end_offset, "the log is damaged", True)
