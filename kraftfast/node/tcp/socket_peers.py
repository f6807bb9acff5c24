"""Which replicas are reached over sockets, and where: by the voter set, the leader, the config.

A voter that has moved is connected again, a former voter is let go, unless it leads
still. A replica that is reached by a ring on this host needs no socket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.core.effects import LeaderMoved, RoleChanged
from kraftfast.node.tcp.socket_peer import SocketPeer
from kraftfast.types import Endpoint

if TYPE_CHECKING:
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node

Place = tuple[str, int]


class SocketPeers:
    """All :class:`SocketPeer` of a replica, by id; those below -1 are bootstrap servers."""

    # node, loop: whose. by_id: the peers; each is among the node's links too.
    # told: the leader and its place, if a message named them; it goes before the voters (I25).

    def __init__(self, node: Node, loop: Loop) -> None:
        self.node, self.loop = node, loop
        self.by_id: dict[int, SocketPeer] = {}
        self.told: tuple[int, Place] | None = None

    def start(self) -> None:
        """Make the voters known, and the bootstrap servers; from now on, follow the changes."""
        for index, (host, port) in enumerate(self.node.config.bootstrap_servers):
            self._add(-2 - index, (host, port))
        self.settle()
        self.node.on_role.append(self.look_for_leader)
        self.node.on_voters.append(self.settle)

    def settle(self) -> None:
        """Let there be a peer wherever there should be one, and nowhere else."""
        node = self.node
        wanted: dict[int, Place] = {}
        for voter in node.voters:
            place = self._place(voter.endpoints)
            if place is not None:
                wanted[voter.id] = place
        if self.told is not None:
            wanted[self.told[0]] = self.told[1]
        for neighbour in node.config.neighbours:
            if neighbour.host:
                wanted[neighbour.id] = (neighbour.host, neighbour.port)
        wanted.pop(node.config.node_id, None)
        for id, peer in list(self.by_id.items()):
            place = wanted.get(id)
            gone = place is None and id >= 0 and id != node.core.leader_id
            if gone or (place is not None and place != (peer.host, peer.port)):
                self.drop(id)
        for id, place in wanted.items():
            if id not in node.links and id not in self.loop.ring_peers.directories:
                self._add(id, place)

    def _place(self, endpoints: Iterable[Endpoint]) -> Place | None:
        """Return where the controller listener is; None without one, or on rings alone (port 0)."""
        for name, host, port in endpoints:
            if name == self.node.config.controller_listener and host and port:
                return host, port
        return None

    def look_for_leader(self, effect: RoleChanged | LeaderMoved) -> None:
        """Find a leader that is not in the voter set, or has moved, where its endpoints say."""
        place = self._place(effect.leader_endpoints)
        self.told = (effect.leader_id, place) if place is not None else None
        self.settle()

    def _add(self, id: int, place: Place) -> None:
        self.by_id[id] = self.node.links[id] = SocketPeer(self.node, self.loop, id, *place)

    def drop(self, id: int) -> None:
        """Close the connection to a peer, finally, if there is such a peer."""
        peer = self.by_id.pop(id, None)
        if peer is None:
            return
        del self.node.links[id]
        if peer.ready:
            self.node.queue(ev.LinkDown(id))
        peer.close()
        self.node.run_events()

    def tend(self, now_ms: int) -> None:
        """Give up connections on which nothing moves."""
        for peer in list(self.by_id.values()):
            peer.tend(now_ms)
