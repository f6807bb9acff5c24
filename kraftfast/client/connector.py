"""What a producer needs to find the leader: ``LocalConnector`` (``local_connector.py``) over
rings, ``RemoteConnector`` (``remote_connector.py``) over TCP.
"""

from __future__ import annotations

from typing import Protocol

from kraftfast.client.admin.admin_ways import Reached
from kraftfast.client.client_host import ClientHost
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender


class Connector(Protocol):
    """Finds the leader.

    One thread at a time calls ``connect`` and ``reach``; another may call ``superseded`` meanwhile.
    """

    host: ClientHost  # what its producers run on
    window: int  # batches that a sender has under way at most

    def connect(self, outcomes: Outcomes, record_bytes: int, deadline: float) -> Sender:
        """Return a sender that takes records of ``record_bytes``.

        Raises NotLeader, NoQuorum, PeerGone.
        """

    def reach(self, sender: Sender, deadline: float) -> Reached:
        """Reach the sender's leader, to ask it something. Raises PeerGone, TimedOut."""

    def superseded(self, sender: Sender, deadline: float) -> bool:
        """Return whether a replica leads in a later epoch than the leader of this sender."""
