"""Whatever another process of this host writes into its rings ends its own session at most.

A process of the same user may say that it is a replica, or produce: its messages are of the right
kinds and check, their fields say anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftfast.core.effects import AnswerFetch
from kraftfast.core.messages import FetchResponse
from kraftfast.link.ring_link import OwnDoorbell, RingLink
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import batch
from tests.node.inside import Inside, attached
from tests.node.test_fuzz import ALL, Replicas, a_frame, only_refusals

REQUEST, RESPONSE, FETCH, ANSWER, BATCH = 1, 2, 3, 4, 16
FETCH_MESSAGE = "<IiqqqiiiIQ"
ANSWER_MESSAGE = "<IiihhqqqiIqQQQQ"
EDGES = (0, 1, -1, 2, 3, 100, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
much = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    made = Replicas(tmp_path_factory.mktemp("rings"))
    yield made
    for voters in list(made.standing):
        made.drop(voters)


@pytest.fixture(scope="module")
def doorbell() -> Iterator[OwnDoorbell]:
    made = OwnDoorbell()
    yield made
    made.close()


def turns(replica: Inside, link: RingLink) -> None:
    """Let the replica look at all of it; then it must be as it was for others."""
    link.out.publish()
    link.bell.ring()
    for _ in range(8):
        replica.loop.turn()
    link.close()
    replica.until(lambda: not replica.node.links and not replica.loop.door.producers)
    only_refusals(replica)
    assert not replica.node.lost


def number(data: Any, letter: str, near: tuple[int, ...]) -> int:
    bits = {"h": 16, "i": 32, "I": 32, "q": 64, "Q": 64}[letter]
    found = data.draw(st.sampled_from((*near, *near, *EDGES))) & (2**bits - 1)
    return found if letter.isupper() or found < 2 ** (bits - 1) else found - 2**bits


def fields(data: Any, layout: str, replica: Inside) -> bytes:
    """A message of numbers: those of the replica's state, and the edges of their types."""
    state = replica.node.core
    near = (0, state.epoch, state.epoch + 1, replica.node.log.end_offset, 1)
    return struct.pack(layout, *(number(data, letter, near) for letter in layout[1:]))


def a_message(data: Any, replica: Inside) -> tuple[int, bytes]:
    kind = data.draw(st.sampled_from((REQUEST, RESPONSE, FETCH, FETCH, ANSWER, ANSWER, 99)))
    if kind == FETCH:
        return kind, fields(data, FETCH_MESSAGE, replica)
    if kind == ANSWER:
        inline = data.draw(st.sampled_from((b"", batch(), b"\xff" * 70)))
        return kind, fields(data, ANSWER_MESSAGE, replica) + inline
    if kind == REQUEST:
        return kind, a_frame(data, replica, *data.draw(st.sampled_from(ALL)))[4:]
    return kind, data.draw(st.binary(max_size=40))


@pytest.mark.parametrize("voters", [1, 3], ids=["leader", "no leader"])
@much
@given(data=st.data())
def test_whatever_a_replica_sends(
    replicas: Replicas, doorbell: OwnDoorbell, voters: int, data: Any
) -> None:
    replica = replicas.get(voters)
    link = attached(replica, doorbell, "peer")
    for _ in range(data.draw(st.integers(1, 4))):
        kind, payload = a_message(data, replica)
        link.out.send(kind, payload)
    turns(replica, link)


@much
@given(data=st.data())
def test_whatever_a_producer_sends(replicas: Replicas, doorbell: OwnDoorbell, data: Any) -> None:
    replica = replicas.get(1)
    link = attached(replica, doorbell, "producer")
    for _ in range(data.draw(st.integers(1, 4))):
        body = bytearray(bytes(16) + batch([b"v"] * data.draw(st.integers(1, 3))))
        for _ in range(data.draw(st.integers(0, 3))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        end = data.draw(st.sampled_from((len(body), len(body), 16, 17, len(body) - 1)))
        link.out.send(data.draw(st.sampled_from((BATCH, BATCH, BATCH, 99))), bytes(body[:end]))
    turns(replica, link)


def test_a_fetch_of_no_stream(replicas: Replicas, doorbell: OwnDoorbell) -> None:
    """It has no answer that a ring could carry."""
    replica = replicas.get(1)
    link = attached(replica, doorbell, "peer")
    epoch = replica.node.core.epoch
    link.out.send(FETCH, struct.pack(FETCH_MESSAGE, 0, epoch, 0, 0, 0, 0, 0, 1 << 16, 0, 0))
    link.out.publish()
    replica.until(lambda: not replica.node.links)
    turns(replica, link)


def test_what_a_push_raises_ends_its_link_alone(replicas: Replicas, doorbell: OwnDoorbell) -> None:
    replica = replicas.get(1)
    link = attached(replica, doorbell, "peer")
    replica.until(lambda: replica.node.links)
    peer, core = replica.node.links[2], replica.node.core
    response = FetchResponse(leader_id=1, leader_epoch=core.epoch, stream=1)
    response.diverging = OffsetAndEpoch(2**70, 1)  # no field of a message holds it
    peer.answer_stream(AnswerFetch(peer, response))
    assert peer.broken and [type(error) for error in replica.raised] == [OverflowError]
    replica.raised.clear()
    turns(replica, link)
