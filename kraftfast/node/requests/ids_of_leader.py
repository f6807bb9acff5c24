"""Producer ids for the clients of a replica that does not lead: it asks its leader for each.

Only leaders make ids (``log/small_files/id_ranges.py``). The request is Kafka's InitProducerId,
with a tag that keeps it from being passed on again. While there is no leader, clients are told to
ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.wire import messages as wire

if TYPE_CHECKING:
    from kraftfast.core.messages import Response
    from kraftfast.node.node import Node

WAITING_MAX = 1024  # I25: more are told to ask again
WAIT_MS_MAX = 5000
NO_TRANSACTION_MS = 1
CORRELATION_FIRST, CORRELATION_LAST = -1, -(2**31)
"""Below 0: the core numbers its own requests upwards."""

Answer = Callable[[int, int], None]
"""Takes an error and the id."""


class IdsOfLeader:
    """Requests for ids that are under way to the leader of ``node``."""

    # waiting: correlation id -> (answer, until ms), the oldest first.
    # _correlation: of the last request.

    def __init__(self, node: Node) -> None:
        self.node = node
        self.waiting: dict[int, tuple[Answer, int]] = {}
        self._correlation = CORRELATION_FIRST + 1

    def ask(self, answer: Answer) -> None:
        """Call ``answer`` with an id of the leader, or with an error that makes clients retry."""
        link = self.node.links.get(self.node.core.leader_id)
        if link is None or len(self.waiting) >= WAITING_MAX:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            return
        wrapped = self._correlation == CORRELATION_LAST
        self._correlation = CORRELATION_FIRST if wrapped else self._correlation - 1
        correlation = self._correlation
        request = wire.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_MS, from_replica=True
        )
        self.waiting[correlation] = answer, self.node.now_ms() + WAIT_MS_MAX
        try:
            sent = link.send_request(correlation, request)
        except Exception as error:
            link.failed(error)
            sent = False
        if not sent:
            self.took(correlation, None)

    def took(
        self, correlation: int, response: Response | wire.InitProducerIdResponse | None
    ) -> bool:
        """Return whether an answer, None for a failure, is to a request for an id; pass it on."""
        if correlation >= 0:
            return False
        answer, _ = self.waiting.pop(correlation, (None, 0))
        if answer is not None:
            if isinstance(response, wire.InitProducerIdResponse) and not response.error_code:
                answer(ErrorCode.NONE, response.producer_id)
            else:
                answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        return True

    def tend(self, now_ms: int) -> None:
        """Have clients ask again whose request was not answered in time."""
        while self.waiting:
            correlation, (_, until_ms) = next(iter(self.waiting.items()))
            if now_ms < until_ms:
                break
            self.took(correlation, None)

    def give_up(self) -> None:
        """Have all that wait ask again: there is another leader, or none."""
        for correlation in list(self.waiting):
            self.took(correlation, None)
