"""A leader whose disk fails it lets another voter lead: by turns, less and less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.node.failures import Unanswered

if TYPE_CHECKING:
    from kraftfast.node.node import Node

PAUSE_MS_MIN = 2000
"""Between two attempts of one replica, at first."""
PAUSE_MS_MAX = 60_000
"""The longest time between two such attempts."""


class GivingWay:
    """The attempts of one replica for one reason."""

    # successor: the replica to which leadership was handed last, -1 for none. at_ms: when it may be
    # handed over. pause_ms: between the last attempt and at_ms.

    def __init__(self, at_ms: int = 0) -> None:
        self.at_ms, self.pause_ms, self.successor = at_ms, 0, -1

    def attempt(
        self, node: Node, now_ms: int, end_offset: int, why: str, in_any_case: bool = False
    ) -> None:
        """Hand over to the next voter, by turns, that follows and has all below ``end_offset``.

        ``in_any_case``: resign in the end, though it may not get the rest of the log.

        If two disks that fail preferred each other, a third one would never lead. Nothing happens
        before ``at_ms``, nor where this replica does not lead.
        """
        if node.core.role != "leader" or now_ms < self.at_ms:
            return
        own, oldest_ms = node.config.node_id, now_ms - node.quorum_config.fetch_timeout_ms
        followers = [
            voter.key.id
            for voter in node.core.describe(now_ms).voters
            if voter.key.id != own
            and voter.log_end_offset >= end_offset
            and voter.last_fetch_ms > oldest_ms
        ]
        if not followers:
            return
        last = own if self.successor < 0 else self.successor
        self.successor = min(followers, key=lambda id: (id <= last, id))
        self.pause_ms = min(max(PAUSE_MS_MIN, 2 * self.pause_ms), PAUSE_MS_MAX)
        self.at_ms = now_ms + self.pause_ms
        node.tell("leader_gives_way", why=why, successor_id=self.successor)
        node.step(ev.TransferRequested(Unanswered(), self.successor, in_any_case))
