"""How an operator's requests reach the leader: over TCP, or through the doors of this host."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.cluster import Cluster
from kraftfast.client.local_socket import (
    KeptConnection,
    RefusedByReplica,
    add_problem,
    ask,
    ask_raw,
    check_cluster,
)
from kraftfast.client.search import Elsewhere
from kraftfast.errors import (
    KraftfastError,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    PeerGone,
    TimedOut,
    raise_if_scarce,
)
from kraftfast.link.hello import decode_hello
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import frame
from kraftfast.wire.repeated import Repeated
from kraftfast.wire.versions import SERVED

if TYPE_CHECKING:
    from kraftfast.wire.frame import WireMessage

REFUSED = b'{"error"'  # how a refusal (``Hello``) begins; answers are frames of Kafka's
ATTEMPT_S = 1.0
"""For so long one replica is waited for when the leader is looked for."""


class Reached(Protocol):
    """A replica that can be asked. ``deadline``: by the clock of its host."""

    def ask(
        self, api_key: int, body: WireMessage, deadline: float, version_max: int | None = None
    ) -> WireMessage:
        """Return the answer to one request. Raises PeerGone, TimedOut, UnsupportedVersion."""

    def close(self) -> None:
        """Hang up."""


class Way(Protocol):
    """A way to the leader of one quorum; ``topic``: the quorum's log; ``host``: it goes from."""

    topic: str
    host: ClientHost

    def to_leader(self, deadline: float) -> Reached:
        """Reach the leader. Raises NotLeader (no replica leads now), NoQuorum (none answers)."""

    def likely(self, deadline: float) -> Reached | None:
        """Return the replica that led when last seen, in whatever role now, or None.

        Raises PeerGone, TimedOut, UnsupportedVersion.
        """

    def learn_leader(self, leader_id: int) -> None:
        """Record the leader that a replica names; -1: it knows none.

        That one is ``likely`` from now on.
        """

    def close(self) -> None:
        """Hang up where something is kept between questions."""


class RemoteWay:
    """Over TCP."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic, self.host = cluster.topic, cluster.host

    def to_leader(self, deadline: float) -> Reached:
        """Do as :meth:`Way.to_leader`; raise also RequestRefused, InconsistentClusterId."""
        return self.cluster.find_leader(deadline)[0]

    def likely(self, deadline: float) -> Reached | None:
        """Do as :meth:`Way.likely`; only where the leader was found before."""
        address = self.cluster.led
        return None if address is None else self.cluster.reach(address, deadline)

    def learn_leader(self, leader_id: int) -> None:
        """See :meth:`Way.learn_leader`."""
        self.cluster.learn_leader(leader_id)

    def close(self) -> None:
        """Do as :meth:`Way.close`: every question has a connection of its own."""


class LocalReached:
    """A replica on this host, through the socket in its directory.

    Each question goes over a connection of its own, unless one is ``kept``.
    """

    CLIENT_ID = "kraftfast"
    _numbers = itertools.count(1)

    def __init__(
        self,
        directory: str,
        kept: KeptConnection | None = None,
        cluster_id: str = "",
        host: ClientHost = HOST,
    ) -> None:
        self.directory, self.kept, self.cluster_id, self.host = directory, kept, cluster_id, host
        self.repeated = Repeated() if kept is None else kept.repeated

    def ask(
        self, api_key: int, body: WireMessage, deadline: float, version_max: int | None = None
    ) -> WireMessage:
        """Do as :meth:`Reached.ask`: both sides are of one version."""
        version = SERVED[api_key].last
        if version_max is not None:
            version = min(version, version_max)
        number = next(self._numbers) & 0x7FFFFFFF
        data = self.repeated.encode_request(api_key, version, number, self.CLIENT_ID, body)
        text = base64.b64encode(data[frame.LENGTH_BYTES :]).decode()
        left = deadline - self.host.monotonic()
        if left <= 0:
            raise TimedOut(f"no time left for asking the replica in {self.directory}")
        question = {"kind": "request", "args": text, "cluster_id": self.cluster_id}
        if self.kept is None:
            answer = ask_raw(self.directory, question, left, self.host)
            return self._answer(answer, api_key, version, number)
        answer = self.kept.ask_raw(question, left)
        try:
            return self._answer(answer, api_key, version, number)
        except BaseException:
            self.kept.close()  # the next answer there may be to this question
            raise

    def _answer(self, data: bytes, api_key: int, version: int, number: int) -> WireMessage:
        if frame.correlation_id(data) != number:
            if data.startswith(REFUSED):
                hello = decode_hello(data)
                check_cluster(hello, self.cluster_id)
                raise RefusedByReplica(
                    f"the replica in {self.directory} answers nothing: {hello.error}"
                )
            raise MalformedFrame(f"the replica in {self.directory} answers another question")
        return self.repeated.decode_response(api_key, version, data)

    def close(self) -> None:
        """Keep open what later questions need."""


class LocalWay:
    """Through the directories of this host; ``directories``: replica id -> directory, live.

    ``cluster_id``: of the quorum; "" takes any.
    """

    # _led: the last known leader, None: it is to be looked for. _kept: for the questions
    # to it.

    def __init__(
        self,
        directories: Mapping[int, str],
        topic: str = METADATA_TOPIC,
        cluster_id: str = "",
        host: ClientHost = HOST,
    ) -> None:
        self.directories, self.topic, self.cluster_id = directories, topic, cluster_id
        self.host = host
        self._led: int | None = None
        self._kept = KeptConnection("", host)

    def to(self, id: int) -> LocalReached:
        """Return one replica, whatever its role."""
        return LocalReached(self.directories[id], cluster_id=self.cluster_id, host=self.host)

    def likely(self, _deadline: float) -> Reached | None:
        """Do as :meth:`Way.likely`; for one question at a time, which may be put twice."""
        directory = None if self._led is None else self.directories.get(self._led)
        if directory is None:
            return None
        if self._kept.directory != directory:
            self._kept.close()
            self._kept = KeptConnection(directory, self.host)
        return LocalReached(directory, self._kept, self.cluster_id, self.host)

    def learn_leader(self, leader_id: int) -> None:
        """Do as :meth:`Way.learn_leader`; one that is not here is looked for."""
        if leader_id >= 0:
            self._led = leader_id if leader_id in self.directories else None

    def close(self) -> None:
        """See :meth:`Way.close`."""
        self._kept.close()

    def to_leader(self, deadline: float) -> Reached:
        """Do as :meth:`Way.to_leader`: who leads the latest epoch by its own word.

        Raises Elsewhere where the replicas here follow one that is not.
        """
        leaders, problems, elsewhere = [], list[KraftfastError](), set[int]()
        places = sorted(self.directories.items())
        for number, (id, directory) in enumerate(places):
            left = deadline - self.host.monotonic()
            share = left / (len(places) - number + 1)  # some is left over
            try:
                timeout = max(0.001, min(ATTEMPT_S, share))
                status = ask(directory, {"kind": "status"}, timeout, self.host)
            except (PeerGone, TimedOut) as error:
                raise_if_scarce(error, "cannot reach the quorum")
                add_problem(problems, error)
                continue
            if status["role"] == "leader":
                leaders.append((status["epoch"], id))
            elif status["leader_id"] >= 0 and status["leader_id"] not in self.directories:
                elsewhere.add(status["leader_id"])
        if leaders:
            self._led = max(leaders)[1]
            return self.to(self._led)
        if len(problems) == len(places):
            raise problems.pop() if problems else NoQuorum("no replica runs: there is none")
        if elsewhere:
            text = f"{max(elsewhere)} leads, and is not here: ask by --bootstrap-controller"
            raise Elsewhere(text, max(elsewhere))
        raise NotLeader("no replica leads at the moment")
