"""What else is connected to a leader while it is measured: observers, and connections that idle.

They belong to one process, ``python -m kraftfast.bench.loads.other_clients HOST PORT SETTINGS``. An
observer is a TCP connection with an id and a directory id of its own that fetches as Kafka's do,
over and over, and throws the records away. An idle one sends nothing after ApiVersions.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kraftfast.bench.children import BenchChild, wait_for_line
from kraftfast.bench.loads.sustained import Cost, cost_of
from kraftfast.errors import ErrorCode, HostUnsupported, KraftfastError, PeerGone, TimedOut
from kraftfast.node.slots import DESCRIPTORS_KEPT
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import fetch, frame
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest
from kraftfast.wire.versions import CLIENT_VERSION, SERVED

CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, END_TIMEOUT_S = 300.0, 30.0, 60.0
VERSION, MAX_WAIT_MS, MAX_BYTES = 18, 500, 1 << 20
FIRST_ID = 1000
BATCH_LENGTH_AT, BATCH_LAST_AT, BATCH_HEADER_BYTES = 8, 23, 61
CONNECTIONS_OF_OTHERS = 128
"""Of replicas, producers and operators, beside those that are asked for."""
PAUSE_S = 0.05
CLOSED = "the leader closed a connection: it may have too many"


def wanted(asked: dict[str, Any]) -> int:
    """Return how many connections the options ask for."""
    return int(asked.get("observers", 0)) + int(asked.get("connections", 0))


def check_descriptors(asked: dict[str, Any]) -> None:
    """Raise HostUnsupported where a process may not open as many files as are asked for.

    A replica takes the hard limit, and keeps some of it for its log and the other replicas.
    """
    count, (_, hard) = wanted(asked), resource.getrlimit(resource.RLIMIT_NOFILE)
    if count and hard != resource.RLIM_INFINITY:
        there_are = max(hard - DESCRIPTORS_KEPT, hard // 2) - CONNECTIONS_OF_OTHERS
        if count > there_are:
            raise HostUnsupported(
                f"{count} observers and connections are asked for, and the limit of {hard} open "
                f"files leaves a leader {max(there_are, 0)}: raise it (ulimit -Hn "
                f"{count + DESCRIPTORS_KEPT + CONNECTIONS_OF_OTHERS})"
            )


class Beside:
    """The process that holds them. ``told``: what it said at its end."""

    def __init__(self, child: BenchChild | None = None) -> None:
        self.child = child
        self.told: dict[str, Any] = {}

    def costs(self) -> list[Cost]:
        """Return what the process has used so far, if there is one."""
        return [] if self.child is None else [cost_of("beside", self.child.process.pid)]


@contextmanager
def connected(quorum: Any, asked: dict[str, Any]) -> Iterator[Beside]:
    """Have the leader serve the observers and connections that are asked for meanwhile.

    Raises KraftfastError, at the end too: where the leader has not served all of them throughout.
    """
    if not wanted(asked):
        yield Beside()
        return
    info = quorum.describe()
    host, port = quorum.addresses[info.leader_id]
    names = ("observers", "connections")
    settings = {name: asked.get(name, 0) for name in names}
    settings["cluster_id"] = quorum.description.cluster_id
    with ExitStack() as stack:
        module = "kraftfast.bench.loads.other_clients"
        child = BenchChild(stack, module, host, str(port), json.dumps(settings))
        child.wait_ready(CONNECT_TIMEOUT_S)
        seen = len(quorum.describe().observers)
        if seen != settings["observers"]:
            raise KraftfastError(f"the leader knows {seen} of {settings['observers']} observers")
        beside = Beside(child)
        yield beside
        child.say("end")
        beside.told = child.told(END_TIMEOUT_S)


# --- in the process that holds them ---------------------------------------------------------------


def idle_connection(address: tuple[str, int]) -> socket.socket:
    """Return a connection that has sent ApiVersions and got its answer.

    Raises PeerGone, TimedOut.
    """
    version = SERVED[ApiKey.API_VERSIONS].last
    hello = ApiVersionsRequest(client_software_name="idle", client_software_version=CLIENT_VERSION)
    try:
        made = socket.create_connection(address, ANSWER_TIMEOUT_S)
        made.sendall(frame.encode_request(ApiKey.API_VERSIONS, version, 0, "idle", hello))
        _read(made, struct.unpack(">i", _read(made, frame.LENGTH_BYTES))[0])
    except TimeoutError:
        raise TimedOut(f"the leader has not answered within {ANSWER_TIMEOUT_S:.0f} s") from None
    except ConnectionResetError:
        raise PeerGone(CLOSED) from None
    except OSError as error:
        raise PeerGone(f"a connection to the leader failed: {error.strerror or error}") from None
    return made


def _read(connection: socket.socket, count: int) -> bytes:
    """Return so many bytes. Raises OSError, PeerGone at the end of the stream."""
    data = b""
    while len(data) < count:
        came = connection.recv(count - len(data))
        if not came:
            raise PeerGone(CLOSED)
        data += came
    return data


def is_open(connection: socket.socket) -> bool:
    """Return whether the other side has neither hung up nor said anything."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Observer:
    """One that fetches. ``offset``: up to which it has come. ``answers``: how many it got."""

    def __init__(self, number: int, cluster_id: str) -> None:
        self.id, self.cluster_id = FIRST_ID + number, cluster_id
        self.offset = self.epoch = self.answers = 0
        self.high_watermark = -1

    async def follow(self, address: tuple[str, int]) -> None:
        """Fetch without end. Raises KraftfastError where that is refused."""
        reader, writer = await asyncio.open_connection(*address)
        while True:
            writer.write(fetch.encode_request(VERSION, 1, "observer", self._question()))
            try:
                (size,) = struct.unpack(">i", await reader.readexactly(frame.LENGTH_BYTES))
                data = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, OSError):
                raise PeerGone(f"the leader closed the connection of observer {self.id}") from None
            self.took(fetch.decode_response(VERSION, data)[1])

    def took(self, answer: Any) -> None:
        """Take an answer. Raises KraftfastError where it is a refusal, but for one that tells the
        epoch for the first time."""
        error = answer.error_code or answer.partition_error_code
        learns = error == ErrorCode.FENCED_LEADER_EPOCH and answer.leader_epoch > self.epoch
        if error and not learns:
            raise KraftfastError(f"observer {self.id} was refused: {ErrorCode(error).name}")
        self.answers += not error  # one that was refused is no observer yet
        self.high_watermark = max(self.high_watermark, answer.high_watermark)
        self.epoch = max(self.epoch, answer.leader_epoch)
        self.offset = end_of_batches(answer.records, self.offset)

    def _question(self) -> fetch.PartitionFetch:
        return fetch.PartitionFetch(
            cluster_id=self.cluster_id,
            replica_id=self.id,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=MAX_BYTES,
            topic=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            current_leader_epoch=self.epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=self.epoch if self.offset else 0,
            replica_directory_id=self.id.to_bytes(16, "big"),
            high_watermark=self.high_watermark,
        )


def end_of_batches(records: Any, offset: int) -> int:
    """Return the end offset of the last whole batch of an answer; ``offset`` without one."""
    at, data = 0, memoryview(records or b"")
    while at + BATCH_HEADER_BYTES <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        end = at + BATCH_LENGTH_AT + 4 + length
        if end > len(data):
            break
        offset = base + int(struct.unpack_from(">i", data, at + BATCH_LAST_AT)[0]) + 1
        at = end
    return offset


async def serve(address: tuple[str, int], settings: dict[str, Any]) -> dict[str, Any]:
    """Hold all of them until stdin says so; return what became of them.

    Raises KraftfastError where one is refused or lost.
    """
    idle = [idle_connection(address) for _ in range(settings["connections"])]
    observers = [Observer(at, settings["cluster_id"]) for at in range(settings["observers"])]
    tasks = [asyncio.create_task(each.follow(address)) for each in observers]
    try:
        await _all_answered(observers, tasks)
        begun = sum(each.offset for each in observers)
        await asyncio.to_thread(wait_for_line, sys.stdin)
        _raise_first(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # one error is told, not that of each
    lost = sum(not is_open(each) for each in idle)
    if lost:
        raise PeerGone(f"the leader closed {lost} of {len(idle)} idle connections")
    return {"observed_records": sum(each.offset for each in observers) - begun}


async def _all_answered(observers: list[Observer], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until each observer has had an answer. Raises what one ended with, TimedOut."""
    until = time.monotonic() + CONNECT_TIMEOUT_S
    while not all(each.answers for each in observers):
        _raise_first(tasks)
        if time.monotonic() >= until:
            raise TimedOut(f"not every observer was answered within {CONNECT_TIMEOUT_S:.0f} s")
        await asyncio.sleep(PAUSE_S)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what an observer ended with: none may end."""
    for task in tasks:
        if task.done():
            task.result()


def main(host: str, port: int, settings: dict[str, Any]) -> None:
    """Hold them; print what became of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(asyncio.run(serve((host, port), settings))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
