"""Kafka's ListOffsets: the offsets of timestamps, and of what Kafka has special timestamps for.

A search by time may have to walk over much of the log (``log/reading/by_time.py``), and must not
keep the loop from anything else meanwhile: all searches together get a bounded share of each of
its turns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.log.reading.by_time import COST_MAX
from kraftfast.node.failures import contained
from kraftfast.node.tcp.partition_leader import NOWHERE, OffsetAt, PartitionLeader
from kraftfast.types import METADATA_PARTITION, NO_EPOCH
from kraftfast.wire import messages as wire

if TYPE_CHECKING:
    from kraftfast.node.node import Node
    from kraftfast.node.tcp.session import SessionRequest

CONSUMER = -1
"""The replica id of a client that is no replica."""
EPOCH_VERSION = 4  # that can tell the epoch
NOT_AVAILABLE_VERSION = 5  # whose clients know OFFSET_NOT_AVAILABLE (KIP-207)


class Listing:
    """A request that is answered when its search has ended.

    ``response``: whole but for ``place``, of our partition. ``search``: None: there is none.
    """

    __slots__ = ("request", "response", "place", "current_leader_epoch", "search")

    def __init__(self, request: SessionRequest, response: wire.ListOffsetsResponse) -> None:
        self.request, self.response = request, response
        self.place: wire.ListOffsetsResponse.Partition | None = None
        self.current_leader_epoch = NO_EPOCH
        self.search: Generator[int, None, tuple[ErrorCode, OffsetAt]] | None = None


class ListOffsets:
    """What is answered to ListOffsets."""

    # node: whose. leader: what may be answered. searching: requests whose search goes on, the next
    # first. spent: what searches cost since the last turn.

    def __init__(self, node: Node, leader: PartitionLeader) -> None:
        self.node, self.leader = node, leader
        self.searching: deque[Listing] = deque()
        self.spent = 0

    @contained
    def ask(self, request: SessionRequest, message: wire.ListOffsetsRequest) -> None:
        """Answer a request, now or when its search has ended."""
        listing = self._listing(request, message)
        if listing.search is None:
            request.respond(listing.response)
            return
        self.searching.append(listing)
        self._search()

    def tend(self) -> None:
        """Let searches go on, for a turn's share."""
        self.spent = 0
        self._search()

    def left_leadership(self) -> None:
        """Tell all whose search goes on: they must look for the next leader now."""
        searching, self.searching = self.searching, deque()
        for each in searching:
            error = self.leader.refusal(each.current_leader_epoch)
            self._answer(each.request, each, error, NOWHERE)

    def _listing(self, request: SessionRequest, message: wire.ListOffsetsRequest) -> Listing:
        """Return what is answered at once, and the search for our partition.

        Only one partition can be ours: a request that names one twice is refused, as in Kafka.
        """
        kind = wire.ListOffsetsResponse
        named = Counter(
            (topic.name, part.partition_index)
            for topic in message.topics
            for part in topic.partitions
        )
        listing = Listing(request, kind(topics=[]))
        for topic in message.topics:
            places = []
            for part in topic.partitions:
                place = kind.Partition(partition_index=part.partition_index)
                times = named[topic.name, part.partition_index]
                place.error_code = self._refusal(topic.name, part, times)
                if place.error_code == ErrorCode.NONE:
                    listing.place = place
                    listing.current_leader_epoch = part.current_leader_epoch
                    listing.search = self.leader.offset_at(
                        part.timestamp, request.version, message.replica_id == CONSUMER
                    )
                places.append(place)
            listing.response.topics.append(kind.Topic(name=topic.name, partitions=places))
        return listing

    def _refusal(
        self, topic: str, part: wire.ListOffsetsRequest.Partition, times: int
    ) -> ErrorCode:
        if topic != self.node.partition.topic or part.partition_index != METADATA_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if times > 1:
            return ErrorCode.INVALID_REQUEST
        return self.leader.refusal(part.current_leader_epoch)

    def _search(self) -> None:
        """Go on with one search after the other until the turn's share is spent."""
        while self.searching and self.spent < COST_MAX:
            listing = self.searching.popleft()
            if listing.request.session is not None:
                self._go_on(listing.request, listing)

    @contained
    def _go_on(self, request: SessionRequest, listing: Listing) -> None:
        assert listing.search is not None
        try:
            while self.spent < COST_MAX:
                self.spent += next(listing.search)
        except StopIteration as done:
            self._answer(request, listing, *done.value)
        else:
            self.searching.append(listing)

    @contained
    def _answer(
        self, request: SessionRequest, listing: Listing, error: ErrorCode, found: OffsetAt
    ) -> None:
        version, place = request.version, listing.place
        assert place is not None, "its search is for one"
        if error is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_VERSION:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        place.error_code = error
        place.offset, place.timestamp, place.leader_epoch = found
        if version < EPOCH_VERSION:
            place.leader_epoch = NO_EPOCH
        request.respond(listing.response)
