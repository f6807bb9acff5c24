"""A crowd at the local door locks out nobody of another kind, and no other process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast.link.hello import Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import send_with_fds
from kraftfast.link.ring_link import OwnDoorbell, RingOffer, close_all
from kraftfast.node import slots
from kraftfast.node.rings import ring_producers
from kraftfast.node.slots import Slots
from kraftfast.record.pure import encode_batch, values_to_records
from tests.node.inside import Inside, attached

BATCH = 16
FEW = {"pending": 8, "producer": 8, "watch": 8, "request": 8, "query": 8}


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path / "q")
    made.loop.door.slots = Slots(FEW)
    yield made
    made.close()


def status(replica: Inside) -> dict[str, object]:
    """What the replica says of itself to one who asks."""
    with replica.local() as sock:
        sock.send(encode_hello(Hello(kind="status")))
        found: dict[str, object] = json.loads(replica.message(sock))
        return found


def watch(replica: Inside, bell: OwnDoorbell) -> tuple[socket.socket, str]:
    """One more watcher: its socket, and why it is refused."""
    sock = replica.local()
    send_with_fds(sock, encode_hello(Hello(kind="watch")), [bell.file.fd, bell.bell.far_fd])
    answer, fds = replica.passed(sock)
    close_all(fds)
    return sock, decode_hello(answer).error


def test_watchers_lock_out_watchers_alone(replica: Inside) -> None:
    bell = OwnDoorbell()
    found = [watch(replica, bell) for _ in range(8)]
    assert [bool(refusal) for _, refusal in found] == [False] * 6 + [True] * 2
    assert f"process {os.getpid()} has 6 connections of kind watch" in found[-1][1]
    assert status(replica)["node_id"] == 1
    doorbell = OwnDoorbell()
    sock = replica.local()
    offer = RingOffer(sock, doorbell, Hello(kind="producer"), 1 << 16, 1 << 16)
    replica.until(lambda: replica.loop.door.producers)
    offer.finish(*offer.receive()).close()
    replica.until(lambda: not replica.loop.door.producers)
    for sock, _ in found:
        sock.close()
    replica.until(lambda: not replica.loop.door.watchers)
    assert not +replica.loop.door.slots.shares
    bell.close()
    doorbell.close()


def test_those_who_say_nothing_make_room(replica: Inside) -> None:
    crowd = [replica.local() for _ in range(30)]
    assert status(replica)["node_id"] == 1
    assert len(replica.loop.door.pending) <= 8
    for sock in crowd:
        sock.close()
    replica.until(lambda: not replica.loop.door.pending)
    assert not +replica.loop.door.slots.shares


def test_another_process_gets_in_beside_a_crowd() -> None:
    held = Slots({"watch": 100})
    for _ in range(75):
        assert not held.refusal("watch", 1)
        held.take("watch", 1)
    assert held.refusal("watch", 1) and not held.refusal("watch", 2)
    for pid in range(25):
        held.take("watch", 100 + pid)
    assert held.refusal("watch", 2)
    held.give("watch", 1)
    assert not held.refusal("watch", 2) and not held.refusal("watch", 1)


def test_few_descriptors_are_few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "descriptors", lambda: 1024)
    room = Slots().room
    assert all(8 <= count for count in room.values())
    assert slots.DESCRIPTORS_A_SLOT * sum(room.values()) <= 600


def test_a_watcher_whose_bell_is_full_and_waits(replica: Inside) -> None:
    """The flags of what it passed are its own business: who rings never waits."""
    bell = OwnDoorbell()
    sock, refusal = watch(replica, bell)
    assert not refusal
    with pytest.raises(BlockingIOError):
        while True:
            os.write(bell.bell.far_fd, bytes(4096))
    os.set_blocking(bell.bell.far_fd, True)
    bell.bell.going_to_sleep()
    replica.loop.door._committed(1)
    assert status(replica)["node_id"] == 1
    sock.close()
    bell.close()


def test_few_descriptors_are_few_connections_over_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a review: 1,000 connections at a limit of 1,024 files ended followers."""
    monkeypatch.setattr(slots, "descriptors", lambda: 1024)
    made = Inside(tmp_path / "q")
    assert made.loop.sockets.connections_max == 512 < made.node.config.connections_max
    made.loop.sockets.connections_max = 2
    inside = [made.connect() for _ in range(2)]
    made.until(lambda: len(made.loop.sockets.sessions) == 2)
    late = made.connect()
    made.until(lambda: made.lines)
    assert made.lines == [
        f"a connection from 127.0.0.1 is refused: 2 are open, and {slots.TOO_FEW}"
    ]
    for sock in (*inside, late):
        sock.close()
    made.close()


def test_the_last_descriptors_are_no_clients(replica: Inside) -> None:
    """Neither door takes them; replicas are let in, and whoever asks how things are."""
    replica.node.host.is_kept = lambda _fd: True
    over_tcp = replica.connect()
    replica.until(lambda: replica.lines)
    assert slots.TOO_FEW in replica.lines[0]
    bell = OwnDoorbell()
    sock, refusal = watch(replica, bell)
    assert refusal == slots.TOO_FEW and status(replica)["node_id"] == 1
    del replica.node.host.is_kept
    other, refusal = watch(replica, bell)
    assert refusal == ""
    for each in (over_tcp, sock, other):
        each.close()
    bell.close()


@pytest.mark.parametrize(
    ("open_max", "first"), [(64, 56), (1024, 896), (20_000, 19_744), (-1, 1 << 31)]
)
def test_which_are_the_last(monkeypatch: pytest.MonkeyPatch, open_max: int, first: int) -> None:
    monkeypatch.setattr(slots, "descriptors", lambda: open_max)
    assert slots.is_kept(first) == (open_max > 0) and not slots.is_kept(first - 1)
    assert slots.for_clients() == {64: 32, 1024: 512, 20_000: 19_488, -1: -1}[open_max]


def test_a_producer_without_a_window_is_cut_off(
    replica: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused takes no room in the log, and gives its room in the ring back at once.

    Answers that wait behind a commit were kept without a bound (I25).
    """
    monkeypatch.setattr(ring_producers, "RUNS_MAX", 20)
    bell = OwnDoorbell()
    link = attached(replica, bell, "producer")
    records = values_to_records([b"value"], 0)
    link.out.send(BATCH, bytes(16) + encode_batch(records))
    unknown = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=1)
    for _ in range(40):
        assert link.out.send(BATCH, bytes(16) + unknown)
    link.out.publish()
    link.bell.ring()
    replica.until(lambda: not replica.loop.door.producers)
    assert "more than 20 answers" in replica.lines[-1]
    link.close()
    bell.close()
