"""Host names: what a silent name server takes of a caller's time."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kraftfast
from kraftfast.client import name_lookup
from kraftfast.client.name_lookup import Names, NameUnknownYet, connect
from kraftfast.errors import NoQuorum

real = socket.getaddrinfo


class NameServer:
    """Answers for ``*.test`` once ``may_answer`` is set; everything is at ``found``."""

    def __init__(self) -> None:
        self.may_answer, self.asked = threading.Event(), list[str]()
        self.found: list[Any] = []

    def getaddrinfo(self, host: str, port: int, *args: Any, **named: Any) -> list[Any]:
        if not host.endswith(".test") or named.get("flags", 0) & socket.AI_NUMERICHOST:
            return real(host, port, *args, **named)
        self.asked.append(host)
        assert self.may_answer.wait(30), "a test let it wait for ever"
        if not self.found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.may_answer.set()


def test_a_silent_name_server_takes_no_longer_than_the_timeout(server: NameServer) -> None:
    began = time.monotonic()
    timer = threading.Timer(8, server.may_answer.set)
    timer.start()
    with pytest.raises(NoQuorum, match=r"silent\.test:9092.*no name server says where silent"):
        kraftfast.connect("silent.test:9092", timeout=0.5)
    timer.cancel()
    assert time.monotonic() - began < 4
    assert server.asked == ["silent.test"], "it is asked once, however often one looks"


def test_an_answer_that_comes_late_serves_who_asks_next(server: NameServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        server.found = real(host, port, type=socket.SOCK_STREAM)
        names = Names()
        with pytest.raises(NameUnknownYet):
            connect(("late.test", port), 0.01, names)
        server.may_answer.set()
        connect(("late.test", port), 10, names).close()
        assert server.asked == ["late.test"]
        connect(("late.test", port), 10, names).close()
        assert server.asked == ["late.test"] * 2, "what was fetched is asked for anew"


def test_an_old_answer_that_nobody_fetched_is_asked_for_anew(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = Names()
    with pytest.raises(NameUnknownYet):
        looked_up.addresses("old.test", 1, 0.01)
    server.may_answer.set()
    for lookup in looked_up._lookups.values():
        assert lookup.done.wait(10)
    monkeypatch.setattr(name_lookup, "FRESH_S", 0.0)
    with pytest.raises(OSError, match="not known"):
        looked_up.addresses("old.test", 1, 10)
    assert server.asked == ["old.test"] * 2


def test_lookups_are_bounded(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookup, "LOOKUPS_MAX", 2)
    looked_up = Names()
    for number in range(4):
        with pytest.raises(NameUnknownYet):
            looked_up.addresses(f"n{number}.test", 1, 0.01)
    assert sorted(server.asked) == ["n0.test", "n1.test"]


def test_without_threads_it_is_looked_up_all_the_same(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server.may_answer.set()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="not known"):
        Names().addresses("no.test", 1, 5)


def test_a_forked_child_asks_anew(server: NameServer) -> None:
    looked_up = Names()
    with pytest.raises(NameUnknownYet):
        looked_up.addresses("fork.test", 1, 0.01)
    child = os.fork()
    if child == 0:
        asked: list[str] = server.asked
        try:
            server.may_answer = threading.Event()
            server.may_answer.set()
            looked_up.addresses("fork.test", 1, 5)
        except NameUnknownYet:
            os._exit(1)
        except OSError:
            os._exit(0 if len(asked) == 2 else 2)
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_is_forked_during_a_lookup_is_not_stuck(server: NameServer) -> None:
    """R11: the thread that held the lock is not in the child."""
    name_lookup.NAMES._lock.acquire()
    try:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            try:
                server.may_answer.set()
                name_lookup.NAMES.addresses("fork.test", 1, 5)
            except OSError:
                os._exit(0)
            os._exit(1)
    finally:
        name_lookup.NAMES._lock.release()
    assert os.waitpid(child, 0)[1] == 0


def test_the_addresses_of_a_host_share_its_time(server: NameServer) -> None:
    """As "localhost" has two; and the first of them that answers is taken (L1).

    Behind one that is silent the others had no time left, at every attempt.
    """
    server.may_answer.set()
    with (
        socket.create_server(("127.0.0.1", 0)) as full,
        socket.create_server(("127.0.0.1", 0)) as (free),
    ):
        busy = fill(full)
        silent = real(*full.getsockname(), type=socket.SOCK_STREAM)
        answers = real(*free.getsockname(), type=socket.SOCK_STREAM)
        server.found = silent * 5
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connect(("many.test", 1), 0.5, Names())
        assert time.monotonic() - began < 1.2
        server.found = silent * 4 + answers
        with connect(("many.test", 1), 2, Names()) as sock:
            assert sock.getpeername() == free.getsockname()
        server.found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", closed_port()))]
        server.found += answers
        with connect(("many.test", 1), 10, Names()) as sock:
            assert sock.getpeername() == free.getsockname()
        for sock in busy:
            sock.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


def fill(listener: socket.socket) -> list[socket.socket]:
    """Connect until a listener takes no more: what follows waits."""
    listener.listen(0)
    busy = []
    while len(busy) < 1000:
        sock = socket.socket()
        busy.append(sock)
        sock.settimeout(0.2)
        try:
            sock.connect(listener.getsockname())
        except TimeoutError:
            return busy
    raise AssertionError("it takes any number")
