"""Samples of replicas that never ran, and requests to what serves them."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kraftfast.link.stats import NOTED, STAGES, WORDS, bucket_tops
from kraftfast.live.facts import LogPlace, ReplicaProcess
from kraftfast.live.pages import Sample, StageFigures

TIMEOUT_S = 60
SMALL: dict[str, Any] = {"segment_bytes": 32 << 20, "stride_bytes": 8 << 20}
TOPS_NS = np.array(bucket_tops(), np.float64)


def stage(times_ns: list[int]) -> StageFigures:
    """The histogram of a stage that took these times."""
    buckets = np.zeros(len(TOPS_NS), np.uint64)
    for each in times_ns:
        last = len(TOPS_NS) - 1
        buckets[min(int(np.searchsorted(TOPS_NS, each)), last)] += np.uint64(1)
    return StageFigures(sum(times_ns), buckets.tobytes())


def sample(id: int = 1, times_ns: tuple[int, ...] = (), **changed: Any) -> Sample:
    """A follower that is up, and has nothing wrong with it; ``changed``: fields, words, noted."""
    words = dict.fromkeys(WORDS, 0) | {"leader_id": 1, "high_watermark": 5, "end_offset": 5}
    noted = dict.fromkeys(NOTED, 0) | {"leader_high_watermark": 5, "is_voter": 1, "voters": 3}
    noted["noted_ns"] = 1
    for name in list(changed):
        for known in (words, noted):
            if name in known and name != "role":
                known[name] = changed.pop(name)
    del words["role"]
    made = Sample(
        id=id,
        at_ns=noted["noted_ns"],
        up=True,
        pid=100 + id,
        role="follower",
        words=words,
        noted=noted,
        stages={name: stage(list(times_ns)) for name in STAGES},
        process=ReplicaProcess(1.5, 1e9, 4096, 3, 7, 8, 9),
        place=LogPlace(1000, 2, 3000, 4000),
    )
    return dataclasses.replace(made, **changed)


def request(address: tuple[str, int], text: str, timeout: float = TIMEOUT_S) -> tuple[str, str]:
    """The head and the body that these words are answered with; "" where it was hung up."""
    with socket.create_connection(address, timeout) as sock:
        sock.sendall(text.encode())
        data = b""
        try:
            while part := sock.recv(1 << 16):
                data += part
        except ConnectionResetError:
            pass
    head, _, body = data.decode().partition("\r\n\r\n")
    return head, body


def get(
    address: tuple[str, int], path: str, method: str = "GET", more: str = ""
) -> tuple[int, str]:
    """Status and body of one request."""
    head, body = request(address, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n")
    return int(head.split()[1]), body


def wait_until(is_so: Callable[[], Any], timeout: float = TIMEOUT_S) -> Any:
    """Wait for a condition; return what it was."""
    deadline = time.monotonic() + timeout
    while not (found := is_so()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
    return found
