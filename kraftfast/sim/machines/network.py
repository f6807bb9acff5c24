"""Which machines are cut off, which talk over rings, and links that break while both ends live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftfast.sim.world import World


class HostPaths:
    """The paths between hosts. Rings are in ``local``, streams in ``tcp``."""

    world: World
    cut: set[tuple[int, int]]  # (from, to) that does not get through

    def __init__(self, world: World) -> None:
        self.world = world
        self.cut = set()
        self._rings: dict[tuple[int, int], bool] = {}

    def is_ring(self, one: int, other: int) -> bool:
        """Return whether these two talk over rings."""
        pair = (min(one, other), max(one, other))
        if pair not in self._rings:
            kinds = {"ring": (True,), "socket": (False,), "mixed": (True, False)}
            self._rings[pair] = self.world.random.choice(kinds[self.world.settings.transport])
        return self._rings[pair]

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether nothing gets from one to the other."""
        return (source, target) in self.cut

    def pairs(self) -> list[tuple[int, int]]:
        """Return pairs of replicas with a link: (asker, asked) of those over sockets."""
        streams = {
            (each.files.host, each.peer.files.host) for each in self.world.tcp.streams if each.peer
        }
        running = [each.process for each in self.world.machines if each.process is not None]
        rings = {
            (min(process.id, peer.id), max(process.id, peer.id))
            for process in running
            for peer in process.loop.ring_peers.peers
        }
        return sorted(rings | streams)

    def reset(self, pair: tuple[int, int]) -> None:
        """Break links; the processes live on."""
        process = (
            self.world.machine(pair[0]).process if pair[0] <= len(self.world.machines) else None
        )
        for peer in process.loop.ring_peers.peers if process is not None else ():
            if peer.id == pair[1]:
                self.world.later(1, peer.link.sock.break_off)
        for stream in list(self.world.tcp.streams):
            assert stream.peer is not None
            if (stream.files.host, stream.peer.files.host) == pair:
                self.world.tcp.break_off(stream)

    def heal(self) -> None:
        """Let all machines reach each other."""
        self.cut.clear()

    def state(self) -> dict[str, Any]:
        """For reports."""
        return {"cut": sorted(self.cut), "links": self.pairs()}
