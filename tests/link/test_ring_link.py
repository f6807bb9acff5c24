"""Rings that are offered and accepted between processes, and peers that keep no rules (R4-R7)."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

import msgspec
import pytest

from kraftfast.errors import MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.hello import LAYOUT, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import send_with_fds
from kraftfast.link.ring_link import (
    RING_BYTES_MAX,
    OwnDoorbell,
    RingLink,
    RingOffer,
    accept_rings,
    close_all,
)
from kraftfast.ring.spsc import PAGE_BYTES
from tests.link.kit import (
    CAPACITY,
    Doorbells,
    Forger,
    linked,
    memory_file,
    pair,
    received,
)


def faulted(link: RingLink) -> bool:
    """Whether the other side has broken the rules of either ring."""
    return link.out.faulted() or link.inbox.faulted()


def test_both_ends_talk() -> None:
    with Doorbells() as bells:
        a, b = linked(bells, out=CAPACITY, into=2 * CAPACITY)
        assert a.pid == b.pid == os.getpid()
        for end, other in ((a, b), (b, a)):
            assert end.out.send(1, b"ping") and end.out.send(2, b"")
            assert other.inbox.receive() is None, "nothing is seen before it is published"
            end.out.publish()
            assert [other.inbox.receive(), other.inbox.receive()] == [(1, b"ping"), (2, b"")]
        assert b.out.payload_max > a.out.payload_max, "each side asked for its own capacity"
        assert not faulted(a) and not faulted(b)
        a.close()
        assert b.sock.recv(1) == b"", "the end of the connection tells"
        b.close()


def test_the_doorbell_wakes_who_sleeps_and_nobody_else() -> None:
    with Doorbells() as bells:
        a, b = linked(bells)
        assert not a.bell.ring(), "the other side is awake"
        bells.yours.bell.going_to_sleep()
        assert a.bell.ring()
        poll = select.poll()
        poll.register(bells.yours.bell.fd, select.POLLIN)
        assert poll.poll(0)
        bells.yours.bell.clear()
        bells.yours.bell.woke_up()
        assert not poll.poll(0) and not a.bell.ring()
        a.close()
        b.close()


@pytest.mark.parametrize(
    ("place", "word"), [("data", 1 << 40), ("data", 8), ("cursor", 1 << 40), ("cursor", 8)]
)
def test_a_peer_whose_words_make_no_sense_has_broken_the_rules(place: str, word: int) -> None:
    """R7: the head of his ring, the cursor of ours; both are his to write."""
    with Doorbells() as bells:
        a, b = pair()
        forger = Forger()
        forger.send(a)
        link = accept_rings(b, bells.yours, *received(b), Hello(kind="peer"))
        assert not faulted(link)
        memory = getattr(forger.files, place).memory
        memory[128:136] = word.to_bytes(8, "little")
        assert link.inbox.receive() is None
        while link.out.send(1, b"x" * 1000):
            link.out.publish()
        assert faulted(link)
        link.close()
        forger.close()
        a.close()


# --- offers that are refused ----------------------------------------------------------------------


def cut_files(forger: Forger) -> None:
    os.close(forger.fds.pop())


def add_file(forger: Forger) -> None:
    forger.fds.append(os.dup(forger.fds[0]))


def unseal_data(forger: Forger) -> None:
    forger.replace(0, memory_file(PAGE_BYTES + CAPACITY, 0))


def shrink_data(forger: Forger) -> None:
    forger.replace(0, memory_file(PAGE_BYTES + CAPACITY - 1))


def empty_data(forger: Forger) -> None:
    forger.replace(0, memory_file(PAGE_BYTES + CAPACITY))


def shrink_cursor(forger: Forger) -> None:
    forger.replace(1, memory_file(PAGE_BYTES - 1))


def swap_files(forger: Forger) -> None:
    forger.fds[0], forger.fds[1] = forger.fds[1], forger.fds[0]


def eventfd_for_a_doorbell(forger: Forger) -> None:
    forger.replace(3, os.eventfd(0))  # whoever has it decides whether a ring waits


def no_flag(forger: Forger) -> None:
    forger.replace(2, memory_file(PAGE_BYTES, 0))


def say(**fields: int) -> Callable[[Forger], None]:
    def change(forger: Forger) -> None:
        forger.hello = msgspec.structs.replace(forger.hello, **fields)

    change.__name__ = ",".join(f"{name}={value}" for name, value in fields.items())
    return change


FORGERIES = [
    cut_files, add_file, unseal_data, shrink_data, empty_data, shrink_cursor, swap_files,
    eventfd_for_a_doorbell, no_flag, say(out=2 * CAPACITY), say(out=CAPACITY // 2),
    say(into=2 * CAPACITY),
    say(out=CAPACITY - 1), say(out=0), say(out=-1), say(into=-1), say(out=2 * RING_BYTES_MAX),
    say(out=1 << 62), say(into=1 << 62), say(generation=0), say(generation=-1), say(generation=8),
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_offers_are_refused_and_leave_nothing(forge: Callable[[Forger], None]) -> None:
    with Doorbells() as bells:
        a, b = pair()
        forger = Forger()
        forge(forger)
        forger.send(a)
        hello, fds = received(b)
        with pytest.raises(PeerGone):
            accept_rings(b, bells.yours, hello, fds, Hello(kind="peer"))
        forger.close()
        a.close()
        b.close()


@pytest.mark.parametrize(
    "forge",
    [cut_files, unseal_data, shrink_data, empty_data, swap_files, eventfd_for_a_doorbell],
    ids=lambda forge: forge.__name__,
)
def test_forged_answers_are_refused_and_leave_nothing(forge: Callable[[Forger], None]) -> None:
    with Doorbells() as bells:
        a, b = pair()
        offer = RingOffer(a, bells.mine, Hello(kind="peer"), CAPACITY, CAPACITY)
        hello, fds = received(b)
        close_all(fds)
        forger = Forger(generation=hello.generation)
        forge(forger)
        forger.send(b)
        with pytest.raises(PeerGone):
            offer.finish(*offer.receive())
        forger.close()
        a.close()
        b.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", PeerGone),
        (b"{", MalformedFrame),
        (b"[1]", MalformedFrame),
        (b'{"node_id": [1]}', MalformedFrame),
        (b'{"node_id": "1"}', MalformedFrame),
        (b'{"generation": 1e300}', MalformedFrame),
        (b'{"kind": "\xff"}', MalformedFrame),
        (b'{"error": "not you", "layout": %d}' % LAYOUT, PeerGone),
        (b'{"layout": %d}' % (LAYOUT + 1), UnsupportedVersion),
        (b'{"node_id": 1}', UnsupportedVersion),
    ],
)
def test_answers_that_make_no_sense(answer: bytes, error: type[Exception]) -> None:
    with Doorbells() as bells:
        a, b = pair()
        offer = RingOffer(a, bells.mine, Hello(kind="peer"), CAPACITY, CAPACITY)
        close_all(received(b)[1])
        if answer:
            send_with_fds(b, answer, [memory := memory_file(4096)])
            os.close(memory)
        b.close()
        with pytest.raises(error):
            offer.finish(*offer.receive())
        a.close()


def test_an_offer_is_refused_by_its_reason() -> None:
    with Doorbells() as bells:
        a, b = pair()
        offer = RingOffer(a, bells.mine, Hello(kind="peer"), CAPACITY, CAPACITY)
        send_with_fds(b, encode_hello(Hello(error="cluster id x, not y")), [])
        with pytest.raises(PeerGone, match="cluster id x, not y"):
            offer.finish(*offer.receive())
        a.close()
        b.close()


def test_nobody_there_to_answer() -> None:
    with Doorbells() as bells:
        a, b = pair()
        b.close()
        with pytest.raises(PeerGone):
            RingOffer(a, bells.mine, Hello(kind="peer"), CAPACITY, CAPACITY)
        a.close()
        a, b = pair()
        forger = Forger()
        forger.send(a)
        a.close()
        hello, fds = received(b)
        with pytest.raises(PeerGone, match="cannot answer"):
            accept_rings(b, bells.yours, hello, fds, Hello(kind="peer"))
        forger.close()
        b.close()


def test_a_hello_says_what_it_said() -> None:
    hello = Hello(
        kind="peer", node_id=3, cluster_id="c", durability="memory", generation=5, out=6, into=7
    )
    said = msgspec.structs.replace(hello, layout=LAYOUT)
    assert decode_hello(encode_hello(hello)) == said
    assert decode_hello(b'{"kind": "poke", "later": {"more": 1}}') == Hello(kind="poke")
    assert b"at_least" not in encode_hello(hello), "only what differs from nothing is said"


def test_a_link_needs_descriptors() -> None:
    """Out of descriptors: the link is not made, and nothing of it stays."""
    import resource

    bells = Doorbells()
    a, b = pair()
    forger = Forger()
    forger.send(a)
    hello, fds = received(b)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number that is free: above it others may be in use
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(PeerGone, match="no memory"):
            accept_rings(b, bells.yours, hello, fds, Hello(kind="peer"))
        fresh, _ = pair_or_none()
        with pytest.raises(PeerGone, match="no memory"):
            RingOffer(a, bells.mine, Hello(kind="peer"), CAPACITY, CAPACITY)
        assert fresh is None or fresh.close() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        forger.close()
        bells.__exit__()
        a.close()
        b.close()


def pair_or_none() -> tuple[socket.socket | None, socket.socket | None]:
    try:
        return pair()
    except OSError:
        return None, None


def test_an_own_doorbell_lets_go() -> None:
    bell = OwnDoorbell()
    bell.close()
