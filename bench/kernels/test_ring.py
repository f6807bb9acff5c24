"""Messages through the shared-memory ring, beside a pipe, a socket pair and a queue of Python's.

    python -m pytest bench/kernels/test_ring.py --benchmark-sort=mean

A round sends a few messages and takes them out again, within one process: what the calls cost, not
what waking another process does.
"""

from __future__ import annotations

import mmap
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftfast.ring import spsc

CAPACITY = 1 << 22
MESSAGES = 16
SIZES = {"64 B": 64, "4 KiB": 4096, "64 KiB": 1 << 16}
PIPE_HOLDS = 1 << 16
"""A pipe holds as many bytes before a send waits (Linux)."""

Round = Callable[[bytes, int], int]


def by_ring() -> Iterator[Round]:
    data = mmap.mmap(-1, spsc.producer_file_bytes(CAPACITY))
    cursor = mmap.mmap(-1, spsc.PAGE_BYTES)
    spsc.format_producer(data, CAPACITY, 1)
    spsc.format_consumer(cursor, CAPACITY, 1)
    out, inbox = spsc.RingOut(data, cursor), spsc.RingIn(cursor, data)

    def exchange(payload: bytes, count: int) -> int:
        for _ in range(count):
            out.send(1, payload)
        out.publish()
        taken = 0
        while (message := inbox.receive()) is not None:
            taken += len(message[1])
        inbox.publish_tail()
        return taken

    yield exchange


def by_pipe() -> Iterator[Round]:
    inbox, out = multiprocessing.Pipe(duplex=False)

    def exchange(payload: bytes, count: int) -> int:
        taken = 0
        for _ in range(count):  # one by one: a pipe holds little
            out.send_bytes(payload)
            taken += len(inbox.recv_bytes())
        return taken

    yield exchange
    inbox.close()
    out.close()


def by_socket_pair() -> Iterator[Round]:
    out, inbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def exchange(payload: bytes, count: int) -> int:
        taken = 0
        for _ in range(count):
            out.send(payload)
            taken += len(inbox.recv(len(payload)))
        return taken

    yield exchange
    out.close()
    inbox.close()


def by_deque() -> Iterator[Round]:
    """No bytes are copied: the floor of what calls from Python cost."""
    held: deque[bytes] = deque()

    def exchange(payload: bytes, count: int) -> int:
        for _ in range(count):
            held.append(payload)
        taken = 0
        while held:
            taken += len(held.popleft())
        return taken

    yield exchange


WAYS = {
    "ring": by_ring,
    "multiprocessing pipe": by_pipe,
    "socket pair": by_socket_pair,
    "deque": by_deque,
}


@pytest.fixture(params=WAYS)
def exchange(request: pytest.FixtureRequest) -> Iterator[Round]:
    yield from WAYS[request.param]()


@pytest.mark.parametrize("size", SIZES)
def test_ring(benchmark: Any, exchange: Round, size: str) -> None:
    benchmark.group = f"{MESSAGES} messages of {size}"
    if exchange.__qualname__.startswith("by_pipe") and SIZES[size] >= PIPE_HOLDS:
        pytest.skip("one thread alone would wait for itself: a pipe holds 64 KiB")
    payload = bytes(SIZES[size])
    assert benchmark(exchange, payload, MESSAGES) == MESSAGES * len(payload)
