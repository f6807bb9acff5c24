"""Find the leader among the replicas of this host, and reach it over a pair of rings.

``directories`` maps replica ids to their directories, as ``LocalQuorum`` lays them out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.local_socket import (
    CONNECT_TIMEOUT_S,
    UNREACHED,
    RefusedByReplica,
    add_problem,
    ask,
    check_cluster,
)
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.ring_sender import RingSender
from kraftfast.client.search import FEWER, Full
from kraftfast.errors import (
    InconsistentClusterId,
    KraftfastError,
    MalformedFrame,
    NotLeader,
    PeerGone,
    RecordsRefused,
    TimedOut,
    raise_if_scarce,
)
from kraftfast.link.hello import Hello
from kraftfast.link.ring_link import SOCKET_NAME, OwnDoorbell, RingLink, RingOffer, close_all

if TYPE_CHECKING:
    from kraftfast.client.admin.admin_ways import Reached
    from kraftfast.client.producer.sender import Sender

RING_BYTES = 4 * 1024 * 1024  # at least, of a producer's batches
ANSWER_RING_BYTES = 1024 * 1024
RING_BYTES_MAX = 32 * 1024 * 1024
RING_OVERHEAD = 4096


class LocalConnector:
    """Make a producer's senders: over rings, to the leader.

    ``directories`` is looked at again each time: replicas may be added. ``batch_bytes``,
    ``window``: of the senders. A ring holds a window, and two of the largest records.
    ``cluster_id``: of the quorum; "" takes any. ``host``: of the senders.
    """

    # directories: replica id -> directory. _order: ids, the most promising first.

    def __init__(
        self,
        directories: Mapping[int, str],
        batch_bytes: int,
        window: int,
        cluster_id: str = "",
        host: ClientHost = HOST,
    ) -> None:
        self.directories, self.cluster_id, self.host = directories, cluster_id, host
        self.batch_bytes, self.window = batch_bytes, window
        self._order = list(directories)

    def connect(self, outcomes: Outcomes, record_bytes: int, deadline: float) -> RingSender:
        """Return a ring to the leader that takes records of ``record_bytes``.

        Another quorum's replica is passed over. Raises NotLeader (no replica leads now), NoQuorum
        (no replica runs), InconsistentClusterId (those that run are others'), Full, PeerGone,
        OutOfResources (this process has no descriptors, say).
        """
        ring_bytes = self._ring_bytes(record_bytes)
        known = [id for id in list(self.directories) if id not in self._order]
        candidates, asked, problems = [*self._order, *known], set[int](), list[KraftfastError]()
        refusals, foreign = list[str](), None
        while candidates:
            id = candidates.pop(0)
            if id in asked or id not in self.directories:
                continue
            asked.add(id)
            try:
                place = self.directories[id]
                answer = self._offer(place, ring_bytes, self._attempt(deadline))
            except (PeerGone, InconsistentClusterId) as error:
                raise_if_scarce(error, UNREACHED)
                add_problem(problems, error)
                if isinstance(error, InconsistentClusterId):
                    foreign = error
                if isinstance(error, RefusedByReplica):
                    refusals.append(f"replica {id} takes no more producers: {error}; {FEWER}")
                self._promise(id, False)
                continue
            if isinstance(answer, int):
                candidates.insert(0, answer)
                continue
            self._promise(id, True)
            try:
                return RingSender(*answer, outcomes, self.batch_bytes, self.window, self.host)
            except OSError as error:
                for each in answer:
                    each.close()
                del answer, each  # a kept error keeps this frame alive
                raise_if_scarce(error, UNREACHED)
                raise PeerGone(f"no descriptors for the way to the leader: {error}") from None
        if refusals:
            raise Full(refusals[0])
        if len(problems) == len(asked):
            if foreign is not None:
                raise foreign
            raise problems.pop()
        raise NotLeader("no replica leads at the moment")

    def _ring_bytes(self, record_bytes: int) -> int:
        """Return the capacity for records of this size.

        A batch takes its room until it is acknowledged (D24): a smaller ring is a smaller window.
        """
        wanted = max(self.window * self.batch_bytes, 2 * (record_bytes + RING_OVERHEAD))
        ring_bytes = RING_BYTES
        while ring_bytes < min(wanted, RING_BYTES_MAX):
            ring_bytes *= 2
        return ring_bytes

    def _promise(self, id: int, good: bool) -> None:
        """Move a replica to the front of the order in which they are asked, or to its end."""
        order = [other for other in self._order if other != id]
        self._order = [id, *order] if good else [*order, id]

    def reach(self, sender: Sender, _deadline: float) -> Reached:
        """Return the way to the sender's leader, for questions of an ``Admin``."""
        from kraftfast.client.admin.admin_ways import LocalReached  # which imports this module

        directory = self.directories.get(sender.node_id)
        if directory is None:
            raise PeerGone(f"replica {sender.node_id} is no longer part of the quorum")
        return LocalReached(directory, cluster_id=self.cluster_id, host=self.host)

    def superseded(self, sender: Sender, deadline: float) -> bool:
        """Return whether a replica leads in a later epoch than the leader of this sender."""
        places = list(self.directories.items())
        others = [path for id, path in places if id != sender.node_id]
        for number, directory in enumerate(others):
            now = self.host.monotonic()
            share = (deadline - now) / (len(others) - number)  # one may be silent too
            try:
                timeout = self._attempt(now + share)
                status = ask(directory, {"kind": "status"}, timeout, self.host)
            except (PeerGone, TimedOut):
                continue
            if status["leader_id"] >= 0 and status["epoch"] > sender.epoch:
                return True
        return False

    def _attempt(self, deadline: float) -> float:
        """Return for how many seconds to wait for one replica before the next one is asked."""
        return min(CONNECT_TIMEOUT_S, max(0.001, deadline - self.host.monotonic()))

    def _offer(
        self, directory: str, ring_bytes: int, timeout: float
    ) -> tuple[RingLink, OwnDoorbell] | int:
        """Return a link to the replica, or the id of the leader that it names; -1: it knows none.

        Raises PeerGone, InconsistentClusterId, UnsupportedVersion.
        """
        host, local = self.host, self.host.local
        with contextlib.ExitStack() as undo:
            path = os.path.join(directory, SOCKET_NAME)
            sock = undo.enter_context(local.connect(path, timeout))
            try:
                doorbell = undo.enter_context(contextlib.closing(host.doorbell()))
                mine = Hello(kind="producer", cluster_id=self.cluster_id)
                offer = RingOffer(sock, doorbell, mine, ring_bytes, ANSWER_RING_BYTES, local)
                hello, fds = offer.receive()
                if hello.error or hello.not_leader or hello.records == "kafka-raft":
                    close_all(fds, local)
                    offer.abandon()
                    return self._elsewhere(directory, hello)
                link = offer.finish(hello, fds)
            except (MalformedFrame, OSError) as error:
                raise PeerGone(f"no ring to the replica in {directory}: {error}") from None
            sock.setblocking(False)
            undo.pop_all()
            return link, doorbell

    def _elsewhere(self, directory: str, hello: Hello) -> int:
        """Return the id of the leader that is named by a replica which takes no batches.

        Raises RefusedByReplica, RecordsRefused, InconsistentClusterId.
        """
        check_cluster(hello, self.cluster_id)
        if hello.records == "kafka-raft":
            raise RecordsRefused(f"nothing is appended in {directory}: {hello.error}")
        if not hello.not_leader:
            raise RefusedByReplica(hello.error)
        return hello.leader_id
