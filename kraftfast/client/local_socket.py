"""Ask the replicas of this host, through the sockets in their directories."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import msgspec

from kraftfast import forks
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.errors import (
    InconsistentClusterId,
    KraftfastError,
    MalformedFrame,
    NoQuorum,
    PeerGone,
    TimedOut,
    forbidden,
)
from kraftfast.link.hello import Hello, check_layout, decode_hello
from kraftfast.link.host_ports import Local
from kraftfast.link.kernel import LOCAL
from kraftfast.link.ring_link import SOCKET_NAME, close_all
from kraftfast.link.unix_socket import is_refused
from kraftfast.wire.repeated import Repeated

CONNECT_TIMEOUT_S = 1.0
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


class RefusedByReplica(PeerGone):
    """A replica that runs refuses this connection; the text is the replica's."""


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
    directory: str, question: dict[str, Any], timeout: float = 5.0, host: ClientHost = HOST
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
    directory: str, question: dict[str, Any], timeout: float = 5.0, host: ClientHost = HOST
) -> bytes:
    """Do as :func:`ask`; return the answer as it came. Raises PeerGone, TimedOut."""
    with host.local.connect(os.path.join(directory, SOCKET_NAME), timeout) as sock:
        return _answer_on(sock, directory, question, host)


def _answer_on(
    sock: socket.socket, directory: str, question: dict[str, Any], host: ClientHost
) -> bytes:
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

    def __init__(self, directory: str, host: ClientHost = HOST) -> None:
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


def wait_started(directory: str, deadline: float, host: ClientHost = HOST) -> dict[str, Any]:
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
