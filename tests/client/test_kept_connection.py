"""The connection that is kept between read barriers: what it must survive, and leave behind."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client import local_socket
from kraftfast.client.admin.admin import Admin
from kraftfast.client.admin.admin_ways import LocalReached, LocalWay
from kraftfast.client.client_host import HOST
from kraftfast.client.connection import Connection
from kraftfast.errors import MalformedFrame, PeerGone, TimedOut
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.quorum import LocalQuorum
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED
from tests.client.conftest import SMALL
from tests.client.test_forks import in_child
from tests.client.test_interrupted import interrupt

KEY = ApiKey.DESCRIBE_QUORUM


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """A quorum of one voter."""
    with LocalQuorum(tmp_path_factory.mktemp("one"), **SMALL | {"voters": 1}) as quorum:
        yield quorum


def connections() -> int:
    """How many sockets this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except OSError:
            pass
    return found


def pair() -> tuple[local_socket.KeptConnection, socket.socket]:
    """A kept connection, and its other side."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = local_socket.KeptConnection("nowhere")
    kept._sock = mine
    return kept, theirs


def test_an_answer_to_another_question_ends_the_connection() -> None:
    """Else each later question would be answered by what the one before it had asked for."""
    kept, theirs = pair()
    version = SERVED[KEY].last
    with theirs:
        theirs.send(frame.encode_response(KEY, version, -7, wire.DescribeQuorumResponse())[4:])
        body = wire.DescribeQuorumRequest(topics=[])
        with pytest.raises(MalformedFrame, match="answers another question"):
            LocalReached("nowhere", kept).ask(KEY, body, time.monotonic() + 5)
        assert kept._sock is None


def test_a_refusal_is_told_in_its_own_words() -> None:
    """A replica that has no descriptor left says so; "another question" would help nobody."""
    kept, theirs = pair()
    with theirs:
        theirs.send(encode_hello(Hello(error="too few file descriptors are left")))
        body = wire.DescribeQuorumRequest(topics=[])
        with pytest.raises(PeerGone, match="answers nothing: too few file descriptors"):
            LocalReached("nowhere", kept).ask(KEY, body, time.monotonic() + 5)
        assert kept._sock is None


@pytest.mark.parametrize("size", [1, 3, 7])
def test_an_answer_that_is_cut_off_ends_the_connection(size: int) -> None:
    kept, theirs = pair()
    with theirs:
        theirs.send(bytes(size))
        body = wire.DescribeQuorumRequest(topics=[])
        with pytest.raises(MalformedFrame):
            LocalReached("nowhere", kept).ask(KEY, body, time.monotonic() + 5)
        assert kept._sock is None


def test_a_forked_child_does_not_hold_it(one: LocalQuorum) -> None:
    """The replica learns by its end that nothing more is asked."""
    admin = Admin(LocalWay(one.directories))
    before, inherited = connections(), in_child(connections)
    admin.read_barrier()
    admin.read_barrier()
    assert connections() == before + 1
    assert in_child(connections) == inherited
    assert admin.read_barrier() >= 0 and connections() == before + 1, "the parent's goes on"


def test_it_goes_with_its_quorum(tmp_path: Path) -> None:
    gc.collect()
    before = connections()
    with LocalQuorum(tmp_path / "q", **SMALL | {"voters": 1}) as quorum:
        quorum.read_barrier()
        quorum.read_barrier()
    assert connections() == before


def test_an_interrupted_barrier_is_followed_by_others(one: LocalQuorum) -> None:
    """A signal handler that raises, at any line: nobody waits for a question that nobody puts."""
    admin = Admin(LocalWay(one.directories))
    for lines in itertools.count():
        reached = interrupt(lambda: admin.read_barrier(timeout=5), lines)
        assert admin.read_barrier(timeout=0.5) >= 0, f"after {lines} lines"
        if not reached:
            break
    assert lines > 10


def in_a_process_with_sigpipe(ask: Any) -> Any:
    """What a process answers that ends by SIGPIPE, as a command in a pipeline does."""

    def run() -> Any:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        return ask()

    return in_child(run)


def test_a_replica_that_hung_up_ends_no_process() -> None:
    def over_a_kept_connection() -> str:
        kept, theirs = pair()
        theirs.close()
        try:
            kept.ask_raw({"kind": "request"}, 1)
        except PeerGone as error:
            return str(error)
        return "answered"

    def over_tcp() -> str:
        connection = Connection.__new__(Connection)
        connection.address, connection.host = ("there", 1), HOST
        connection.sock, theirs = socket.socketpair()
        theirs.close()
        try:
            connection.send(b"x", time.monotonic() + 1)
        except PeerGone as error:
            return str(error)
        return "sent"

    assert "no replica answers" in in_a_process_with_sigpipe(over_a_kept_connection)
    assert "broken: Broken pipe" in in_a_process_with_sigpipe(over_tcp)


def test_a_silent_replica_costs_one_timeout() -> None:
    kept, theirs = pair()
    with theirs, pytest.raises(TimedOut):
        kept.ask_raw({"kind": "request"}, 0.05)
