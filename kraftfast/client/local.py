"""Clients of a quorum on this host: they find the leader's socket in its directory.

``directories`` maps replica ids to their directories, as ``LocalQuorum`` lays them out.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from typing import Any

import msgspec

from kraftfast.client.ledger import Ledger
from kraftfast.client.ring_sender import RingSender
from kraftfast.errors import MalformedFrame, NoQuorum, NotLeader, PeerError, PeerGone, TimedOut
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import map_peer_file, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import SOCKET_NAME, OwnDoorbell, RingOffer, close_all
from kraftfast.link.stats import PAGES_BYTES, StatsView
from kraftfast.link.unix_socket import connect, credentials, open_pidfd

RING_BYTES = 4 * 1024 * 1024
ANSWER_RING_BYTES = 1024 * 1024
RING_BYTES_MAX = 32 * 1024 * 1024
CONNECT_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024


class RingTransport(RingSender):
    """A RingSender that can sleep, and notices that its replica is gone."""

    def __init__(self, link: Any, doorbell: OwnDoorbell, ledger: Ledger, **settings: Any) -> None:
        super().__init__(link, ledger, **settings)
        self.doorbell = doorbell
        self._poll = select.poll()
        for fd in (doorbell.bell.fd, link.sock.fileno(), link.pidfd):
            self._poll.register(fd, select.POLLIN)

    def fileno(self) -> int:
        """Readable when there may be news."""
        return self.doorbell.bell.fd

    def pump_sleep(self, timeout_s: float) -> None:
        """Sleep until there is an answer, room that was asked for, or the replica is gone."""
        bell = self.doorbell.bell
        bell.going_to_sleep()
        try:
            ready = () if self.news() else self._poll.poll(timeout_s * 1000)  # R12: look again first
        finally:
            bell.woke_up()
        for fd, _ in ready:
            if fd == bell.fd:
                bell.clear()
            else:
                self.replica_gone()
                return
        self.poll()

    def replica_gone(self) -> None:
        """Its process ended or hung up: take what it still said, then this ring is over."""
        self.poll()
        if self.broken is None:
            self.broken = PeerGone(f"the replica (process {self.link.pid}) is gone")

    def close(self) -> None:
        self.link.close()
        self.doorbell.close()


def connect_producer(
    directories: Mapping[int, str], ledger: Ledger, batch_bytes: int, window: int, record_bytes_max: int = 0
) -> RingTransport:
    """A ring to the leader. Raises NotLeader (nobody leads at the moment), NoQuorum, PeerGone."""
    ring_bytes = RING_BYTES
    while ring_bytes // 2 < record_bytes_max + 4096 and ring_bytes < RING_BYTES_MAX:
        ring_bytes *= 2
    candidates, asked, problems = list(directories), set(), []
    while candidates:
        replica_id = candidates.pop(0)
        if replica_id in asked or replica_id not in directories:
            continue
        asked.add(replica_id)
        try:
            link, doorbell, hello = _offer(directories[replica_id], ring_bytes)
        except PeerGone as error:
            problems.append(str(error))
            continue
        if link is None:
            candidates.insert(0, hello.leader_id)
            continue
        return RingTransport(
            link,
            doorbell,
            ledger,
            batch_bytes=batch_bytes,
            window=window,
            kafka_raft=hello.records == "kafka-raft",
        )
    if len(problems) == len(directories):
        raise NoQuorum(f"no replica runs: {problems[0]}")
    raise NotLeader("no replica leads at the moment")


def _offer(directory: str, ring_bytes: int) -> tuple[Any, OwnDoorbell | None, Hello]:
    sock = connect(os.path.join(directory, SOCKET_NAME), CONNECT_TIMEOUT_S)
    doorbell = None
    try:
        doorbell = OwnDoorbell()
        offer = RingOffer(sock, doorbell, Hello(kind="producer"), ring_bytes, ANSWER_RING_BYTES)
        hello, fds = offer.receive()
        if hello.not_leader:
            close_all(fds)
            offer.abandon()
            doorbell.close()
            return None, None, hello
        link = offer.finish(hello, fds)
        sock.setblocking(False)
        return link, doorbell, hello
    except (PeerError, OSError) as error:
        sock.close()
        if doorbell is not None:
            doorbell.close()
        if isinstance(error, PeerGone):
            raise
        raise PeerGone(f"no ring to the replica in {directory}: {error}") from None


def ask(directory: str, question: dict[str, Any], timeout: float = 5.0) -> dict[str, Any]:
    """Ask a replica one question, ``{"kind": "status"}`` for instance.

    Raises PeerGone if it does not run, TimedOut if it does not answer.
    """
    try:
        return msgspec.json.decode(ask_raw(directory, question, timeout), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise MalformedFrame(f"an answer that is no JSON object: {error}") from None


def ask_raw(directory: str, question: dict[str, Any], timeout: float = 5.0) -> bytes:
    """:func:`ask` with the answer as it came. Raises PeerGone, TimedOut."""
    with connect(os.path.join(directory, SOCKET_NAME), timeout) as sock:
        try:
            send_with_fds(sock, msgspec.json.encode(question), [])
            data = sock.recv(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise TimedOut(f"the replica in {directory} does not answer") from None
        except OSError as error:
            raise PeerGone(f"the replica in {directory} is gone: {error.strerror}") from None
    if not data:
        raise PeerGone(f"the replica in {directory} hung up")
    return data


class Watch:
    """The counters of a running replica, and a bell that rings when its high watermark moves.

    ``log_path``: its segments, which may be read below ``high_watermark`` (D11). Raises PeerGone.
    """

    def __init__(self, directory: str) -> None:
        self.sock = connect(os.path.join(directory, SOCKET_NAME), CONNECT_TIMEOUT_S)
        self.doorbell = OwnDoorbell()
        self.pidfd = -1
        try:
            bell = self.doorbell
            send_with_fds(self.sock, encode_hello(Hello(kind="watch")), [bell.file.fd, bell.bell.fd])
            data, fds = receive_with_fds(self.sock, HELLO_BYTES_MAX)
            if len(fds) != 1:
                close_all(fds)
                raise PeerGone("the replica did not pass its counters")
            self.stats = StatsView(map_peer_file(fds[0], PAGES_BYTES))
            hello = decode_hello(data)
            self.log_path, self.node_id = hello.log, hello.node_id
            self.pidfd = open_pidfd(credentials(self.sock).pid)
        except OSError as error:
            self.close()
            raise PeerGone(f"no answer from the replica in {directory}: {error}") from None
        except PeerError:
            self.close()
            raise
        self.sock.setblocking(False)
        self._poll = select.poll()
        for fd in (bell.bell.fd, self.sock.fileno(), self.pidfd):
            self._poll.register(fd, select.POLLIN)

    @property
    def high_watermark(self) -> int:
        """Records below are committed; -1 while the replica does not know."""
        return self.stats.high_watermark

    def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Until the high watermark is beyond ``offset``; False on timeout. Raises PeerGone."""
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

    def close(self) -> None:
        self.sock.close()
        self.doorbell.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
