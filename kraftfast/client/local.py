"""Reach the replicas of a quorum on this host, by the sockets in their directories.

``directories`` maps replica ids to their directories, as ``LocalQuorum`` lays them out.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kraftfast import forks
from kraftfast.client.host import HOST, Host
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.ring_sender import RingSender
from kraftfast.client.search import FEWER, Full
from kraftfast.errors import (
    Closed,
    InconsistentClusterId,
    KraftfastError,
    LocalError,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    PeerError,
    PeerGone,
    RecordsRefused,
    TimedOut,
    forbidden,
    raise_if_scarce,
)
from kraftfast.link.hello import (
    HELLO_BYTES_MAX,
    Hello,
    check_layout,
    decode_hello,
    encode_hello,
)
from kraftfast.link.kernel import LOCAL
from kraftfast.link.ports import Local
from kraftfast.link.ring_link import SOCKET_NAME, OwnDoorbell, RingLink, RingOffer, close_all
from kraftfast.link.stats import PAGES_BYTES, ROLES, StatsView
from kraftfast.link.unix_socket import PidfdOwner, is_refused
from kraftfast.wire.repeated import Repeated

if TYPE_CHECKING:
    from kraftfast.client.admin.admin_ways import Reached
    from kraftfast.client.producer.sender import Sender

RING_BYTES = 4 * 1024 * 1024  # at least, of a producer's batches
ANSWER_RING_BYTES = 1024 * 1024
RING_BYTES_MAX = 32 * 1024 * 1024
CONNECT_TIMEOUT_S = 1.0
RING_OVERHEAD = 4096
ANSWER_BYTES_MAX = 4 * 1024 * 1024
UNREACHED = "cannot reach the quorum"


def unreached(error: KraftfastError) -> KraftfastError:
    """Return what to raise if no replica was reached, and one of them because of ``error``.

    Only if no process listens is it certain that the replica does not run: a process that was
    stopped (SIGSTOP) takes connections and does not answer.
    """
    reason = "no replica runs" if is_refused(error) else UNREACHED
    return forbidden(error) or NoQuorum(f"{reason}: {error}")


def add_problem(problems: list[KraftfastError], error: KraftfastError) -> None:
    """Add why one replica was not reached. Problems of replicas that may run come last, so that
    ``problems.pop()`` says "no replica runs" only if that holds for all."""
    problems.insert(0 if is_refused(error) else len(problems), unreached(error))


class Refused(PeerGone):
    """A replica that runs refuses this connection; the text is the replica's."""


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
        host: Host = HOST,
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
                if isinstance(error, Refused):
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

        Raises Refused, RecordsRefused, InconsistentClusterId.
        """
        check_cluster(hello, self.cluster_id)
        if hello.records == "kafka-raft":
            raise RecordsRefused(f"nothing is appended in {directory}: {hello.error}")
        if not hello.not_leader:
            raise Refused(hello.error)
        return hello.leader_id


def check_cluster(hello: Hello, cluster_id: str) -> None:
    """Check that a replica belongs to this quorum. Raises InconsistentClusterId.

    The directory of another quorum may stand where this one's was, and a client that goes by the
    path alone would append and read there. So each hello names the quorum that is meant, and a
    replica of another one refuses it. ``cluster_id``: "" for any.
    """
    if cluster_id and hello.cluster_id not in ("", cluster_id):
        raise InconsistentClusterId(f"{hello.error}, not {cluster_id}")


def passed_file(
    data: bytes, fds: list[int], cluster_id: str, what: str, local: Local = LOCAL
) -> tuple[Hello, int]:
    """Return a replica's hello, and the memory file that came with it.

    Raises PeerGone, MalformedFrame, InconsistentClusterId, UnsupportedVersion: ``fds`` are closed.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(close_all, fds, local)
        hello = decode_hello(data)
        check_cluster(hello, cluster_id)
        check_layout(hello)
        if len(fds) != 1:
            raise PeerGone(hello.error or f"the replica did not pass its {what}")
        undo.pop_all()
    return hello, fds[0]


def ask(
    directory: str, question: dict[str, Any], timeout: float = 5.0, host: Host = HOST
) -> dict[str, Any]:
    """Ask a replica one question, ``{"kind": "status"}`` for instance.

    Raises PeerGone if it does not run, TimedOut if it does not answer.
    """
    try:
        data = ask_raw(directory, question, timeout, host)
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise MalformedFrame(f"an answer that is no JSON object: {error}") from None


def ask_raw(
    directory: str, question: dict[str, Any], timeout: float = 5.0, host: Host = HOST
) -> bytes:
    """Do as :func:`ask`; return the answer as it came. Raises PeerGone, TimedOut."""
    with host.local.connect(os.path.join(directory, SOCKET_NAME), timeout) as sock:
        return _answer_on(sock, directory, question, host)


def _answer_on(sock: socket.socket, directory: str, question: dict[str, Any], host: Host) -> bytes:
    """Put a question over a connection. Raises PeerGone, TimedOut, MalformedFrame."""
    try:
        host.local.send(sock, msgspec.json.encode(question), [])
        waiting = sock.recv_into(bytearray(1), 1, socket.MSG_PEEK | socket.MSG_TRUNC)
        if waiting > ANSWER_BYTES_MAX:
            raise MalformedFrame(f"the replica in {directory} answers {waiting} bytes")
        data = sock.recv(waiting)  # a buffer for the largest answer costs more than asking
    except TimeoutError:
        raise TimedOut(f"the replica in {directory} does not answer") from None
    except OSError as error:
        raise PeerGone(f"the replica in {directory} is gone: {error.strerror}") from None
    if not data:
        raise PeerGone(f"the replica in {directory} hung up")
    return data


class KeptConnection:
    """A connection to a replica that is kept between two questions; for one thread at a time.

    To connect for each question would cost a twentieth of a read barrier's time.
    """

    # repeated: the last request and answer, to encode and decode equal ones once.
    # _sock: None until the first question, while one is put, and after one without an answer.

    def __init__(self, directory: str, host: Host = HOST) -> None:
        self.directory, self.host, self.repeated = directory, host, Repeated()
        self._sock: socket.socket | None = None
        forks.own(self)

    def ask_raw(self, question: dict[str, Any], timeout: float) -> bytes:
        """Do as :func:`ask_raw`, of a request that may be put twice.

        The replica may have given up an idle connection, or have been restarted: then the
        request goes out again over a fresh one.
        """
        question = question | {"again": True}
        until = self.host.monotonic() + timeout
        if self._sock is not None:
            with contextlib.suppress(PeerGone):
                return self._put(question, until)
        left = max(0.001, until - self.host.monotonic())  # both tries share the timeout
        self._sock = self.host.local.connect(os.path.join(self.directory, SOCKET_NAME), left)
        return self._put(question, until)

    def _put(self, question: dict[str, Any], until: float) -> bytes:
        sock, self._sock = self._sock, None
        assert sock is not None, "a connection was made"
        with contextlib.ExitStack() as undo:
            undo.enter_context(sock)  # closed if it fails: a late answer is not the next
            sock.settimeout(max(0.001, until - self.host.monotonic()))
            answer = _answer_on(sock, self.directory, question, self.host)
            undo.pop_all()
        self._sock = sock
        return answer

    def close(self) -> None:
        """Close the connection, if there is one."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    disown = __del__ = close


def wait_started(directory: str, deadline: float, host: Host = HOST) -> dict[str, Any]:
    """Return the status of a replica, once it runs.

    Raises NoQuorum at ``host.monotonic()`` deadline.
    """
    while True:
        try:
            return ask(directory, {"kind": "status"}, 1.0, host)
        except (PeerGone, TimedOut) as error:
            if host.monotonic() >= deadline:
                raise NoQuorum(f"the replica in {directory} does not run: {error}") from None
            host.sleep(0.05)


class Watch(PidfdOwner):
    """The counters of a running replica, and a bell that rings when its high watermark moves.

    ``directory``: the replica's. ``log_path``: its segments, which may be read below
    ``high_watermark`` (D11) while ``meta.properties`` there says ``directory_id``. ``cluster_id``:
    of its quorum; "" takes any. ``host``: of this process. ``timeout``: seconds that the replica
    has for each answer. Raises PeerGone, InconsistentClusterId, UnsupportedVersion.
    """

    # refusal: why it can no longer be waited on, or None.

    def __init__(
        self,
        directory: str,
        cluster_id: str = "",
        host: Host = HOST,
        timeout: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self.refusal: LocalError | None = None
        local, self._close_fd = host.local, host.local.close
        self.sock = local.connect(os.path.join(directory, SOCKET_NAME), timeout)
        try:
            self.doorbell = host.doorbell()
        except OSError as error:
            self.sock.close()
            raise PeerGone(f"no descriptors to watch {directory} with: {error}") from None
        forks.own(self)
        try:
            bell = self.doorbell
            mine = encode_hello(Hello(kind="watch", cluster_id=cluster_id))
            local.send(self.sock, mine, [bell.file.fd, bell.bell.far_fd])
            data, fds = local.receive(self.sock, HELLO_BYTES_MAX)
            hello, counters = passed_file(data, fds, cluster_id, "counters", local)
            self.stats = StatsView(local.map_peer_file(counters, PAGES_BYTES))
            self.log_path, self.node_id = hello.log, hello.node_id
            self.directory_id = hello.directory_id
            self.pidfd = local.open_pidfd(local.credentials(self.sock).pid)
        except OSError as error:
            self.close()
            raise PeerGone(f"no answer from the replica in {directory}: {error}") from None
        except (PeerError, InconsistentClusterId):
            self.close()
            raise
        self.sock.setblocking(False)
        self._poll = host.poll()
        for fd in (bell.bell.fd, self.sock.fileno(), self.pidfd):
            self._poll.register(fd, select.POLLIN)

    @property
    def high_watermark(self) -> int:
        """Records below are committed; -1 while the replica does not know."""
        return self.stats.high_watermark

    @property
    def log_start_offset(self) -> int:
        """Records below must not be read, though some may still be in the first segment."""
        return self.stats["log_start_offset"]

    @property
    def end_offset(self) -> int:
        """The end of its log, committed or not."""
        return self.stats["end_offset"]

    @property
    def leads(self) -> bool:
        """Whether the replica says that it leads."""
        return ROLES[self.stats["role"]] == "leader"

    def alive(self) -> bool:
        """Return whether the replica still runs, without waiting. Raises Closed, WrongProcess."""
        self._check_open()
        return all(fd == self.doorbell.bell.fd for fd, _ in self._poll.poll(0))

    def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Wait until the high watermark is beyond ``offset``; return False after ``timeout_s``.

        Raises PeerGone, Closed, WrongProcess.
        """
        self._check_open()
        bell = self.doorbell.bell
        bell.going_to_sleep()
        try:
            if self.high_watermark > offset:  # R12: look again after announcing it
                return True
            ready = self._poll.poll(max(0.0, timeout_s) * 1000)
        finally:
            bell.woke_up()
        for fd, _ in ready:
            if fd == bell.fd:
                bell.clear()
            else:
                raise PeerGone("the replica is gone")
        return self.high_watermark > offset

    def _check_open(self) -> None:
        if self.refusal is not None:
            raise self.refusal.again()

    def close(self) -> None:
        """Close the connection; calls raise Closed from now on. Raises nothing."""
        self._let_go(Closed("the watch is closed"))

    def disown(self) -> None:
        """Leave the replica's connection to the parent, in a forked child."""
        self._let_go(forks.refusal("watch"))

    def _let_go(self, refusal: LocalError) -> None:
        self.refusal = self.refusal or refusal
        self.sock.close()
        self.doorbell.close()
        self.close_pidfd()
