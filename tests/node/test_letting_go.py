"""Segments of a former leader are not kept mapped: what it removes would keep its blocks."""

from __future__ import annotations

from typing import Any

from kraftfast.testing import simulated

RECORD = bytes(200_000)


def test_segments_of_a_former_leader_are_let_go_of() -> None:
    """Nothing more comes from it, so no answer of its makes room for another."""
    quorum: Any = simulated(1)
    for _ in range(8):
        quorum.append_wait(RECORD)
    former = quorum.wait_leader()

    def holding() -> list[int]:
        processes = [quorum._process(id) for id in quorum.ids if id != former]
        peers = [peer for process in processes for peer in process.loop.ring_peers.peers]
        return [peer.id for peer in peers if peer.maps]

    assert holding() == [former] * 2
    quorum._process(former).resign()
    quorum.wait(lambda: quorum.leader() not in (None, former))
    quorum.advance(1000)
    assert former not in holding()
