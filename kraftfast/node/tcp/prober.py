"""Ask a new voter's endpoints for its versions, before the leader adds it (KIP-853).

Over a ring the voter said so when the link was made. Over a socket a connection of its own asks
ApiVersions, and names the replica: another replica at that address refuses (KIP-1242, v5; Kafka's
controllers do not look, and what is older cannot).
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode, MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.socket_link import FramedSocket
from kraftfast.node.translation.peer_frames import client_id_of
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import (
    CLIENT_NAME,
    CLIENT_VERSION,
    KRAFT_VERSION,
    SERVED,
    negotiate,
    offered_versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftfast.link.resolver import Address
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node
    from kraftfast.types import Endpoint

    SupportedFeature = wire.ApiVersionsResponse.SupportedFeature

PROBES_MAX = 16
NO_ANSWER = ErrorCode.REQUEST_TIMED_OUT
BROKEN = (PeerGone, MalformedFrame, UnsupportedVersion)


class Probing:
    """One probe over a socket, from the first address of its listener on."""

    # prober, effect: whose, and what was asked. places: addresses that are still to be tried.
    # until_ms: when it is given up. framed: the connection, None between two.
    # version: of ApiVersions that was asked last.

    def __init__(self, prober: Prober, effect: fx.Probe, until_ms: int) -> None:
        self.prober, self.effect, self.until_ms = prober, effect, until_ms
        self.places: list[Address] | None = None
        self.framed: FramedSocket | None = None
        self.version = SERVED[ApiKey.API_VERSIONS].last

    def go_on(self) -> None:
        """Connect to the next address; while its name is being asked for, wait."""
        if self.framed is not None:
            return
        if self.places is None:
            endpoint = self.prober.endpoint(self.effect)
            if endpoint is None:
                self.prober.found(self, NO_ANSWER)
                return
            resolver = self.prober.loop.resolver
            self.places = list(resolver.addresses(endpoint.host, endpoint.port)) or None
            if self.places is None:
                return
        network = self.prober.node.host.network
        while self.places:
            try:
                self.framed = FramedSocket.connect(network, self.places.pop(0))
            except PeerGone:
                continue
            fd = self.framed.fileno()
            self.prober.loop.watch(fd, select.EPOLLOUT, self._connected, self._failed)
            return
        self.prober.found(self, NO_ANSWER)

    def _connected(self, _events: int) -> None:
        assert self.framed is not None
        fd = self.framed.fileno()
        self.prober.loop.unwatch(fd)
        self.prober.loop.watch(fd, select.EPOLLIN, self._ready, self._failed)
        self._try(self._ask)

    def _ask(self) -> None:
        assert self.framed is not None
        if self.framed.connect_error():
            raise PeerGone("refused")
        node = self.prober.node
        body = wire.ApiVersionsRequest(
            client_software_name=CLIENT_NAME,
            client_software_version=CLIENT_VERSION,
            cluster_id=node.cluster_id or None,
            node_id=self.effect.voter_id if node.cluster_id else -1,
        )
        api_key, client_id = ApiKey.API_VERSIONS, client_id_of(node)
        self.framed.send([frame.encode_request(api_key, self.version, 0, client_id, body)])

    def _ready(self, _events: int) -> None:
        self._try(self._read)

    def _try(self, step: Callable[[], None]) -> None:
        """Try the next address, whatever breaks there."""
        try:
            step()
        except BROKEN:
            self._next()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """End this connection alone for what it raised. Raise ``error`` if it is final."""
        who = f"the probe of voter {self.effect.voter_id}"
        self.prober.node.failures.end(error, who, self._next)

    def _next(self) -> None:
        self.hang_up()
        self.go_on()

    def _read(self) -> None:
        assert self.framed is not None
        for data in self.framed.receive():
            _, answer = frame.decode_response(ApiKey.API_VERSIONS, self.version, data)
            offered = offered_versions(answer)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                self.version = negotiate(ApiKey.API_VERSIONS, offered)
                self._ask()
            elif answer.error_code:
                raise PeerGone(f"refused with error {answer.error_code}")
            else:
                levels = {each.name: each for each in answer.supported_features}
                self.prober.found(self, ErrorCode.NONE, levels.get(KRAFT_VERSION))
            return

    def hang_up(self) -> None:
        """Close the connection, if there is one."""
        if self.framed is not None:
            self.prober.loop.unwatch(self.framed.fileno())
            self.framed.close()
            self.framed = None


class Prober:
    """All probes of a replica."""

    # node, loop: whose. probing: those under way.

    def __init__(self, node: Node, loop: Loop) -> None:
        self.node, self.loop = node, loop
        self.probing: list[Probing] = []

    def probe(self, effect: fx.Probe) -> None:
        """Ask; ``Probed`` follows, at the latest after the time-out of a request."""
        link = self.node.links.get(effect.voter_id)
        versions = getattr(link, "kraft_versions", None)  # a ring's other end said so
        if versions:
            self.node.queue(ev.Probed(effect.probe, ErrorCode.NONE, *versions))
        elif len(self.probing) >= PROBES_MAX:
            self.node.queue(ev.Probed(effect.probe, NO_ANSWER))
        else:
            until_ms = self.node.now_ms() + self.node.config.request_timeout_ms
            probing = Probing(self, effect, until_ms)
            self.probing.append(probing)
            probing.go_on()

    def endpoint(self, effect: fx.Probe) -> Endpoint | None:
        """Return the controller listener of the voter, to be asked; None if it is on no network."""
        name = self.node.config.controller_listener
        places = [each for each in effect.endpoints if each.name == name and each.port]
        return places[0] if places else None

    def found(
        self, probing: Probing, error: ErrorCode, levels: SupportedFeature | None = None
    ) -> None:
        """Tell the core that a probe has ended."""
        self.probing.remove(probing)
        probing.hang_up()
        probed = ev.Probed(probing.effect.probe, error)
        if levels is not None:
            probed = ev.Probed(probing.effect.probe, error, levels.min_version, levels.max_version)
        self.node.step(probed)

    def tend(self, now_ms: int) -> None:
        """Take names that were resolved meanwhile; end probes that take too long."""
        for probing in list(self.probing):
            if now_ms >= probing.until_ms:
                self.found(probing, NO_ANSWER)
            else:
                probing.go_on()
