"""Hand over leadership, to each voter in turn and less and less often, where the disk fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.node.failures import Unanswered

if TYPE_CHECKING:
    from kraftfast.node.node import Node

PAUSE_MS_MIN = 2000
"""The time between the first two attempts of one replica."""
PAUSE_MS_MAX = 60_000
"""The longest time between two such attempts."""


class GivingWay:
    """The attempts of one replica for one reason."""

    # successor: the voter that was chosen last, -1 for none. at_ms: when the next attempt may be
    # made. pause_ms: from the last attempt to at_ms.

    def __init__(self, at_ms: int = 0) -> None:
        self.at_ms, self.pause_ms, self.successor = at_ms, 0, -1

    def attempt(
        self, node: Node, now_ms: int, end_offset: int, why: str, in_any_case: bool = False
    ) -> None:
        """Hand over to the next voter, in turn, that follows and has all below ``end_offset``.

        In turn, because two voters whose disks fail could else choose each other for ever, and a
        third one would never lead. ``in_any_case``: resign when the transfer times out even if the
        voter does not have the whole log. Do nothing before ``at_ms``, or without leadership.
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
