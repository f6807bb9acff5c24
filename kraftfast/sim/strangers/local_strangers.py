"""A program of the replicas' host that knocks at their doors with what is not for them.

It belongs to another quorum, says what nobody understands, passes nothing where files are wanted,
or hangs up. Whatever it says, only its own connection may end.
"""

from __future__ import annotations

import base64
import json
import os
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin import Admin
from kraftfast.client.admin.admin_ways import LocalWay
from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.local_socket import ask, wait_started
from kraftfast.client.producer.producer import Producer
from kraftfast.client.watch import Watch
from kraftfast.errors import InconsistentClusterId, KraftfastError
from kraftfast.sim.clients.local_clients import LocalClient
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.clients.watched_consumers import ReadingHost
from kraftfast.sim.require import expect
from kraftfast.types import METADATA_TOPIC, SOCKET_NAME
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from kraftfast.sim.world import World

ANOTHER = "another-cluster"
SHORT_S, ANSWER_BYTES_MAX = 0.3, 1 << 17
KNOCKS_MAX = 20
BEYOND = 10**9


class LocalStranger(LocalClient):
    """See the module. Its chance is its own."""

    def __init__(self, world: World, id: int) -> None:
        self.chance = Random(world.seed * 2 + 1 + (1 << 60))
        super().__init__(world, id)

    def begin_anew(self) -> None:
        super().begin_anew()
        self.host: Any = ReadingHost(self)

    def end(self) -> None:
        super().end()
        self.host.disk.end()

    def act(self) -> None:
        for _ in range(self.chance.randint(1, KNOCKS_MAX)):
            if not self.running:
                return
            what = self.chance.choice(KNOCKS)
            self.world.count(f"local strangers: {what}")
            getattr(self, f"_{what}")(self.chance.choice(self.world.machines).path)
            self.host.sleep(self.chance.random() * 0.03)

    def _foreign(self, place: str) -> None:
        """D19: nothing is appended, watched or asked where another quorum is meant."""
        what = self.chance.choice(("producer", "watch", "admin", "consumer"))
        directories = self.directories()
        try:
            if what == "producer":
                connector = LocalConnector(directories, 1_000, 4, ANOTHER, self.host)
                Producer(connector, timeout=SHORT_S)
            elif what == "consumer":
                Consumer(directories, 0, timeout=SHORT_S, cluster_id=ANOTHER, host=self.host)
            elif what == "watch":
                Watch(place, ANOTHER, self.host)
            else:
                way = LocalWay(directories, METADATA_TOPIC, ANOTHER, self.host)
                try:
                    Admin(way).describe(timeout=SHORT_S)
                finally:
                    way.close()
        except InconsistentClusterId:
            self.world.count("clients of another quorum refused")
            return
        except KraftfastError:
            return  # no replica runs, say
        expect(False, f"D19: a {what} of another quorum is let in")

    def _status(self, place: str) -> None:
        """Ask how far a replica is, once it runs, and a question that does not exist."""
        until = self.host.monotonic() + self.chance.choice((CALL_S, SHORT_S))
        told = wait_started(place, until, self.host)["high_watermark"]
        expect(told <= self.world.oracle.committed_end, f"I6: {place} tells of {told}")
        answer = ask(place, {"kind": "weather"}, CALL_S, self.host)
        expect("error" in answer, f"it is answered {answer}")

    def _knock(self, place: str) -> None:
        """Say something, with files or without, and see that it ends, or hang up at once."""
        local, chance = self.host.local, self.chance
        sock = local.connect(os.path.join(place, SOCKET_NAME), SHORT_S)
        files = [local.memory_file("stranger", 4096) for _ in range(chance.choice((0, 0, 1, 3)))]
        try:
            local.send(sock, self._words(), [each.fd for each in files])
            if chance.random() < 0.7:
                sock.settimeout(SHORT_S)
                local.receive(sock, ANSWER_BYTES_MAX)
        except OSError:
            self.world.count("local strangers sent away")
        finally:
            for each in files:
                each.close()
            sock.close()

    def _words(self) -> bytes:
        """Return a question that does not exist, or that no client may ask."""
        chance, own = self.chance, self.world.cluster_id
        peer: dict[str, Any] = {
            "kind": chance.choice(("peer", "poke")), "node_id": chance.choice((1, 2, 77)),
            "cluster_id": chance.choice((own, ANOTHER)), "durability": "none",
            "directory": "no/place",
        }  # fmt: skip
        rings: dict[str, Any] = {
            "kind": "producer", "generation": chance.choice((0, 5)),
            "out": chance.choice((0, 3, 1 << 14, 1 << 40)), "into": chance.choice((0, 1 << 14)),
        }  # fmt: skip
        words: tuple[Any, ...] = (
            b"", b"{", b"\xff\xfe", b"[1]", b'{"kind": 7}', b"{" * 5_000,
            {"kind": "", "cluster_id": ANOTHER}, {"kind": "nothing"}, {"kind": "watch"},
            {"kind": "query", "args": "!"}, {"kind": "query", "out": -1},
            {"kind": "query", "out": 9},
            {"kind": "query", "args": base64.b64encode(b"\x81\x01").decode(), "at_least": BEYOND},
            {"kind": "request", "args": "no base64"}, {"kind": "request", "args": "AAAA"},
            {"kind": "request", "args": self._frame(), "again": True}, peer, peer, rings, rings,
        )  # fmt: skip
        said = chance.choice(words)
        return said if isinstance(said, bytes) else json.dumps(said).encode()

    def _frame(self) -> str:
        """Return a request that is for another door, or is whole and for this one."""
        body: Any = self.chance.choice((wire.FindCoordinatorRequest(), wire.MetadataRequest()))
        api = body.API_KEY if self.chance.random() < 0.7 else ApiKey.FIND_COORDINATOR
        if api != body.API_KEY:
            body = wire.FindCoordinatorRequest()
        version = wire.SERVED[api].first
        data = frame.encode_request(api, version, 3, "stranger", body)
        return base64.b64encode(data[frame.LENGTH_BYTES :]).decode()


KNOCKS = "foreign", "status", "knock", "knock", "knock", "knock"
