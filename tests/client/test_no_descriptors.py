"""A program without a descriptor left: a typed error that says so, at once, and not of replicas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.client.search import Search
from kraftfast.errors import OutOfResources
from kraftfast.quorum import LocalQuorum

SPENT = """
import os, resource, sys, time
import kraftfast
where, left = sys.argv[1], int(sys.argv[2])

def spend():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        for _ in range(left):
            os.close(held.pop())
    return held

def told(call):
    began = time.monotonic()
    try:
        call()
    except kraftfast.OutOfResources as error:
        assert "Too many open files: raise the limit of open files (ulimit -n)" in str(error), error
        assert time.monotonic() - began < 5, f"it ends after {time.monotonic() - began} s"
    else:
        raise AssertionError(f"not refused: {call}")
"""
FIRST_USE = """
spend()
told(lambda: kraftfast.connect(where, timeout=30))
"""
CLIENTS = """
quorum = kraftfast.connect(where, timeout=30)
spend()
told(lambda: quorum.producer(timeout=30))
told(lambda: quorum.producer(connect=False).append_wait(b"never", timeout=30))
told(lambda: quorum.consumer(timeout=30).wait(30))
"""
IMPORTED = """
with kraftfast.connect(where, timeout=30) as first, first.producer() as producer:
    producer.append_wait(b"imports all that is needed", timeout=30)
    first.consumer().close()
"""
ADMIN = """
told(lambda: quorum.admin().describe(timeout=30))
"""

OWN = """
with kraftfast.LocalQuorum(where, voters=1) as quorum:
    quorum.status(1), quorum.watch(1).close()
    spent = spend()
    told(lambda: quorum.status(1))
    told(lambda: quorum.statuses())
    told(lambda: quorum.watch(1))
    for fd in spent:
        os.close(fd)
"""


def run(program: str, where: object, left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SPENT + program, str(where), str(left)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_the_first_use_of_a_name_needs_a_descriptor(tmp_path: Path) -> None:
    run(FIRST_USE, tmp_path, 0)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_clients_of_this_host(quorum: LocalQuorum, left: int) -> None:
    run(CLIENTS if left == 0 else IMPORTED + CLIENTS, quorum.path, left)


def test_a_search_goes_on_for_records_that_were_handed_over() -> None:
    """D24: nothing says yet that they are not appended; another descriptor may be free soon."""
    lack, now = OutOfResources("no descriptors"), 0.0
    patient, first = (Search(5.0, each, lambda: now) for each in (True, False))
    assert first.is_over(lack) and not patient.is_over(lack)
    now = 5.0
    assert patient.is_over(lack)


def test_clients_over_tcp(socket_quorum: LocalQuorum) -> None:
    servers = ",".join(f"{host}:{port}" for host, port in socket_quorum.addresses.values())
    run(IMPORTED + CLIENTS + ADMIN, servers, 0)


def test_questions_to_the_replicas_of_a_program(tmp_path: Path) -> None:
    """They seemed to be gone."""
    run(OWN, tmp_path / "quorum", 0)
