"""A leader whose disk stays full lets another try, once until there is space again.

Where the others have no room either one of them leads, and refuses appends as this one did.
"""

from __future__ import annotations

from typing import Any

from kraftfast.core import events as ev

FULL_MS_MAX = 2000
"""How long a leader whose disk is full refuses appends before it lets another try."""


class DiskSpace:
    """What is known of the room on a replica's disk."""

    # full_ms: since when there has been none, -1 if there is. yielded: leadership was given up for
    # that already.

    def __init__(self) -> None:
        self.full_ms = -1
        self.yielded = False

    def mind(self, node: Any, now_ms: int) -> None:
        """Look whether the nursery found room, and resign if it has not for long."""
        if node.log.error is None:
            self.full_ms, self.yielded = -1, False
        elif self.full_ms < 0:
            self.full_ms = now_ms
            node.log_line(f"{node.log.error} -> appends are refused until this succeeds")
        elif node.core.role == "leader" and not self.yielded:
            refuses = node.appends_held or node.control is not None
            if refuses and now_ms - self.full_ms >= FULL_MS_MAX:
                self.yielded = True
                node.step(ev.ResignRequested(node.core.epoch))
