"""A replica's Fetch, from its frame to the leader's books, in every version with topic ids."""

from __future__ import annotations

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.node.translation import translate
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, ReplicaKey
from kraftfast.wire import fetch, frame
from kraftfast.wire.messages import FetchRequest
from kraftfast.wire.versions import SERVED
from tests.core.replicas import key, leader

PARTITION = translate.Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
VERSIONS = range(13, SERVED[FetchRequest.API_KEY].last + 1)


def arrived(version: int, request: core.FetchRequest) -> core.FetchRequest:
    """What a leader makes of the frame that a follower of this version sends."""
    sent = fetch.encode_request(version, 7, "raft", translate.fetch_to_wire(request, PARTITION))
    header = frame.decode_request_header(sent[4:])
    message = fetch.decode_request(version, sent[4:], header.body_start)
    return translate.fetch_from_wire(message, PARTITION)


# covers: testFetchRequestDowngrade
# covers: testLeaderStateUpdateWithDifferentFetchRequestVersions
@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_counts_a_fetch_of_every_version(version: int) -> None:
    """From 15 on another field names the sender; from 17 its directory, from 18 what it knows."""
    it = leader()
    request = core.FetchRequest(4, key(2), 1, 4, high_watermark=-1, max_wait_ms=0)
    found = arrived(version, request)
    assert found.partition_known and (found.epoch, found.fetch_offset) == (4, 1)
    assert found.replica == (key(2) if version >= 17 else ReplicaKey(2))
    known = -1 if version >= 18 else core.HIGH_WATERMARK_UNASKED
    assert found.high_watermark == known
    effects = it.step(ev.RequestReceived("from 2", found), 5)
    assert fx.AdvanceHighWatermark(1) in effects
