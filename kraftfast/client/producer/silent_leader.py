"""Give up a leader that is silent, as a producer."""

from __future__ import annotations

from kraftfast.client.client_host import ClientHost
from kraftfast.client.connector import Connector
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.own_threads import LEADER_SILENCE_S
from kraftfast.client.producer.sender import Sender
from kraftfast.errors import KraftfastError, PeerGone


class SilentLeader:
    """A part of :class:`~kraftfast.client.producer.producer.Producer`, whose fields these are."""

    host: ClientHost
    outcomes: Outcomes
    _connector: Connector
    _progress_at: tuple[int, float]

    def check_silence(self, sender: Sender, deadline: float) -> None:
        """Give up this leader if nothing was acknowledged for long and a later one is known.

        A process that was stopped, or a host that went silent, closes no connection.
        """
        resolved, at = self._progress_at
        now = self.host.monotonic()
        if self.outcomes.resolved != resolved or not sender.under_way:
            self._progress_at = (self.outcomes.resolved, now)
        elif now - at >= LEADER_SILENCE_S:
            self._progress_at = (resolved, now)
            try:
                later = self._connector.superseded(sender, min(deadline, now + LEADER_SILENCE_S))
            except KraftfastError:
                return  # no replica could be asked: that says nothing of this leader
            if later:
                sender.fail(PeerGone("its leader does not answer, and there is a later one"))
