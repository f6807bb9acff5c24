"""Questions to state machines, of any size, and what cannot be asked or answered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftfast import limits
from kraftfast.client import ask_state_machine
from kraftfast.errors import ErrorCode, InvalidOption, MalformedFrame, RequestRefused, TimedOut
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.link.kernel import LOCAL
from kraftfast.link.memory_file import MemoryFile, send_with_fds
from kraftfast.node.state_machine import StateMachine
from tests.node.inside import Inside

ABOVE_A_SOCKETS_BUFFER = 300_000
TIMEOUT_S = 60.0


class Answers(StateMachine):
    def apply(self, batch: Any) -> None: ...

    def query(self, what: str, argument: Any = 0) -> Any:
        if what == "bytes":
            return b"x" * argument
        if what == "list":
            return list(range(argument))
        if what == "size":
            return len(argument)
        if what == "object":
            return object()
        if what == "large":
            return 1 << 70
        if what == "exit":
            raise SystemExit(3)
        raise KeyError("x" * 10_000)


class Asked:
    """A replica with such a machine; its loop runs in a thread of the test."""

    def __init__(self, path: Path) -> None:
        self.replica = Inside(path, state_machine=f"{__name__}:Answers")
        self._ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending:
            self.replica.turn()

    def query(self, *args: Any, at_least: int = -1, timeout: float = TIMEOUT_S) -> Any:
        return ask_state_machine.query(self.replica.directory, args, at_least, timeout)

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        self.replica.close()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    made = Asked(tmp_path_factory.mktemp("asked") / "q")
    yield made
    made.close()


@pytest.mark.parametrize("size", [0, 32_700, 32_800, ABOVE_A_SOCKETS_BUFFER, 12 << 20])
def test_any_size_is_asked_and_answered(asked: Asked, size: int) -> None:
    assert asked.query("bytes", size) == b"x" * size
    assert asked.query("size", b"a" * size) == size


def test_lists_are_answered(asked: Asked) -> None:
    assert asked.query("list", 100_000) == list(range(100_000))


def test_what_is_too_large_is_told(asked: Asked) -> None:
    with pytest.raises(RequestRefused, match="has 167[0-9]* bytes, the limit is 16777216") as told:
        asked.query("bytes", limits.QUERY_BYTES_MAX)
    assert told.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(InvalidOption, match="arguments of 167[0-9]* bytes: the limit is 16777216"):
        asked.query("size", b"a" * limits.QUERY_BYTES_MAX)


@pytest.mark.parametrize("what, kind", [("object", "object"), ("large", "int")])
def test_what_cannot_be_packed_is_told(asked: Asked, what: str, kind: str) -> None:
    with pytest.raises(RequestRefused, match=f"of type {kind} that MessagePack cannot carry"):
        asked.query(what)
    with pytest.raises(InvalidOption, match="MessagePack cannot carry"):
        asked.query("size", object() if what == "object" else 1 << 70)


@pytest.mark.parametrize("what, said", [("exit", "SystemExit: 3"), ("nonsense", "KeyError: 'xxx")])
def test_what_the_machine_raises_is_told(asked: Asked, what: str, said: str) -> None:
    """And nothing of the replica ends by it."""
    with pytest.raises(RequestRefused, match=said) as told:
        asked.query(what)
    assert len(str(told.value)) < 5000
    assert asked.query("size", b"a") == 1


def test_an_answer_that_waits_ends_in_time(asked: Asked) -> None:
    with pytest.raises(TimedOut, match="did not answer in 0.05 s"):
        asked.query("size", b"a", at_least=10**9, timeout=0.05)


@pytest.mark.parametrize("claimed", [0, -1, 5000, limits.QUERY_BYTES_MAX + 1])
def test_a_file_that_is_none_ends_its_connection(asked: Asked, claimed: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = MemoryFile("kraftfast-question", 4096)
    with asked.replica.local() as sock:
        sock.settimeout(TIMEOUT_S)
        hello = Hello(kind="query", out=claimed)
        send_with_fds(sock, encode_hello(hello), [file.fd, file.fd])
        assert sock.recv(1000) == b""
    file.close()
    del file  # its map has a descriptor of its own
    assert asked.query("size", b"a") == 1
    deadline = time.monotonic() + TIMEOUT_S
    while len(os.listdir("/proc/self/fd")) > before:  # the loop closes the last ones
        assert time.monotonic() < deadline, "descriptors are left open"
        time.sleep(0.01)


def test_arguments_that_do_not_decode(asked: Asked) -> None:
    with asked.replica.local() as sock:
        sock.settimeout(TIMEOUT_S)
        sock.send(encode_hello(Hello(kind="query", args="kZGR")))
        assert "do not decode" in msgspec.msgpack.decode(sock.recv(1 << 16))["error"]


def test_answers_that_are_none() -> None:
    for data in (b"\xc1", b"[]", b"{", b"\x93\x01", msgspec.msgpack.encode([1])):
        with pytest.raises(MalformedFrame, match="does not decode"):
            ask_state_machine.unpacked(data, [], LOCAL)
    for size in (0, -5, "x", None, limits.QUERY_BYTES_MAX + 1):
        file = MemoryFile("kraftfast-answer", 4096)
        with pytest.raises(MalformedFrame, match="an answer of"):
            ask_state_machine.unpacked(
                msgspec.msgpack.encode({"bytes": size}), [os.dup(file.fd)], LOCAL
            )
    assert ask_state_machine.unpacked(b'{"error": "there are 96 connections"}', [], LOCAL)["error"]
