"""The base of ``LocalQuorum``: what it asks the replicas of this host, each by its directory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kraftfast.arguments import OFFSET_MAX, whole_number
from kraftfast.client.quorum_base import Quorum
from kraftfast.client.timing import deadline_after
from kraftfast.errors import PeerGone, TimedOut, loading, raise_if_scarce

if TYPE_CHECKING:
    from kraftfast.client.client_host import ClientHost
    from kraftfast.client.consumer.consumer import Consumer
    from kraftfast.client.watch import Watch


STATUS_S, STATUS_S_LEAST = 5.0, 0.01
"""How long a replica may take to tell its status; less where others are to be asked in time."""


@contextmanager
def _not_for_lack_of_descriptors() -> Iterator[None]:
    """Raise OutOfResources instead of PeerGone where this process is what lacks something."""
    try:
        yield
    except PeerGone as error:
        raise_if_scarce(error, "cannot reach a replica")
        raise


class LocalQuorumBase(Quorum):
    """A quorum whose replicas lie in ``directories``, by id.

    What its methods need is imported by them: a program starts the replicas first, and imports
    while they do.
    """

    directories: dict[int, str]

    @property
    def _host(self) -> ClientHost:
        """What its clients are made of."""
        from kraftfast.client.client_host import HOST

        return HOST

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """The id of the quorum: its clients are refused by the replicas of another one."""

    def consumer(
        self,
        from_offset: int = 0,
        *,
        follow: bool = False,
        replica: int | None = None,
        timeout: float = 10.0,
    ) -> Consumer:
        """Return a consumer of the committed records from ``from_offset`` on, in order.

        ``follow``: wait for more at the end. ``replica``: only what this one knows to be committed.
        Raises NoQuorum if none runs within ``timeout`` seconds.
        """
        with loading():
            from kraftfast.client.consumer.consumer import Consumer

        self._check_open()
        directories = self.directories if replica is None else {replica: self.directories[replica]}
        return self._kept(
            Consumer(
                directories,
                from_offset,
                follow=follow,
                timeout=timeout,
                cluster_id=self.cluster_id,
                host=self._host,
            )
        )

    def status(self, id: int) -> dict[str, Any]:
        """Ask replica ``id`` for its status, for 5 s.

        Raises PeerGone, TimedOut, InvalidOption, OutOfResources.
        """
        return self._status(id, STATUS_S)

    def _status(self, id: int, timeout: float) -> dict[str, Any]:
        with loading():
            from kraftfast.client.local_socket import ask

        self._check_open()
        with _not_for_lack_of_descriptors():
            return ask(self.directories[id], {"kind": "status"}, timeout, self._host)

    def query(self, id: int, *args: Any, at_least: int = -1, timeout: float = 5.0) -> Any:
        """Ask the state machine of replica ``id`` once it has applied all below ``at_least``.

        ``at_least``: an exclusive end, for instance the offset of an append plus one: then the
        answer knows of it. Arguments and answer are what MessagePack carries, 16 MiB at most.
        Raises RequestRefused with what the state machine raised, or where its answer is larger
        (code MESSAGE_TOO_LARGE); InvalidOption for such arguments; TimedOut; PeerGone;
        OutOfResources where this process has no descriptors left.
        """
        with loading():
            from kraftfast.client.ask_state_machine import query

        self._check_open()
        at_least = whole_number("at_least", at_least, -1, OFFSET_MAX)
        with _not_for_lack_of_descriptors():
            return query(self.directories[id], args, at_least, timeout, self._host)

    def statuses(self, *, timeout: float = STATUS_S) -> dict[int, dict[str, Any]]:
        """Return the status of every replica that answers, by id, within ``timeout`` seconds, 5 at
        most. Raises Closed, InvalidOption.
        """
        self._check_open()
        found, ids, now = {}, list(self.directories), self._host.monotonic
        deadline = min(deadline_after(timeout, now=now), now() + STATUS_S)
        for number, id in enumerate(ids):  # those that hang share the time
            left = deadline - self._host.monotonic()
            if told := self._status_if_any(id, left / (len(ids) - number)):
                found[id] = told
        return found

    def _status_if_any(self, id: int, timeout: float = STATUS_S) -> dict[str, Any]:
        try:
            return self._status(id, min(STATUS_S, max(STATUS_S_LEAST, timeout)))
        except (PeerGone, TimedOut):
            return {}

    def leader(self) -> int | None:
        """Return the id of the leader, None if there is none at the moment. Raises Closed."""
        told = self.statuses().items()
        leaders = [(each["epoch"], id) for id, each in told if each["role"] == "leader"]
        return max(leaders)[1] if leaders else None

    def watch(self, id: int) -> Watch:
        """Return the live counters of replica ``id``. Raises PeerGone, InvalidOption, Closed."""
        with loading():
            from kraftfast.client.watch import Watch

        self._check_open()
        with _not_for_lack_of_descriptors():
            return Watch(self.directories[id], self.cluster_id, self._host)

    def read_barrier(self, replica: int | None = None, *, timeout: float = 10.0) -> int:
        """Return an end offset: below it stands all that was committed before the call.

        ``replica``: ask this one, which asks its leader. Raises NoQuorum, TimedOut, PeerGone if
        that one does not run.
        """
        if replica is None:
            return self.admin().read_barrier(timeout=timeout)
        with loading():
            from kraftfast.client.admin.admin_ways import LocalWay
            from kraftfast.client.admin.read_barriers import barrier_by

        self._check_open()
        host, directories = self._host, {replica: self.directories[replica]}
        way = LocalWay(directories, self.topic, self.cluster_id, host)
        return barrier_by(way.to(replica), deadline_after(timeout, now=host.monotonic), host)
