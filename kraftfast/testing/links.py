"""Cut and heal single links between the replicas of a quorum under test.

Replicas that talk over sockets reach each other through the forwarders here: one for each ordered
pair, which is told to the asking replica as the address of the asked one. The replicas run as in
production and know nothing of it. A link that is cut drops no bytes but holds them, as TCP does
where a network drops packets: connections stay open until a replica gives them up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from kraftfast.errors import CannotListen, InvalidOption

CHUNK_BYTES = 64 * 1024
CLOSE_S = 5.0

Pair = tuple[int, int]
"""(from, to), ids of replicas."""


class Links:
    """The forwarders between replicas, in a thread of their own.

    ``places``: replica id -> where it listens. Raises CannotListen.
    """

    # _open_ways: of each pair, set while bytes get from one to the other.
    # _ports: (asker, asked) -> where the forwarder listens.

    def __init__(self, places: Mapping[int, tuple[str, int]]) -> None:
        self.places = dict(places)
        pairs = [(one, other) for one in places for other in places if one != other]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kraftfast-links", daemon=True
        )
        self._open_ways: dict[Pair, asyncio.Event] = {}
        self._ports: dict[Pair, int] = {}
        self._servers: list[asyncio.Server] = []
        self._thread.start()
        try:
            self._await(self._listen(pairs))
        except OSError as error:
            self.close()
            raise CannotListen(f"cannot make a link between replicas: {error}") from None

    def place(self, asker: int, asked: int) -> tuple[str, int] | None:
        """Return where replica ``asker`` reaches ``asked``; None for one that came later."""
        port = self._ports.get((asker, asked))
        return None if port is None else ("127.0.0.1", port)

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Let nothing get from the first to the second of each pair. Raises InvalidOption."""
        self._await(self._set(self._known(pairs), False))

    def heal(self, pairs: Iterable[Pair] | None = None) -> None:
        """Let everything through that was held and that comes; None: on all links."""
        self._await(self._set(self._known(self._open_ways if pairs is None else pairs), True))

    def close(self) -> None:
        """Close all connections."""
        if self._thread.is_alive():
            self._await(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
            self._loop.close()

    def _known(self, pairs: Iterable[Pair]) -> list[Pair]:
        found = list(pairs)
        for one, other in found:
            if (one, other) not in self._open_ways:
                raise InvalidOption(
                    f"there is no link from replica {one!r} to {other!r}: links are between two of "
                    f"{', '.join(map(str, self.places))}"
                )
        return found

    def _await(self, call: Any) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    # --- in the thread ----------------------------------------------------------------------------

    async def _listen(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._open_ways[pair] = asyncio.Event()
            self._open_ways[pair].set()
            server = await asyncio.start_server(partial(self._connected, pair), "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[pair] = server.sockets[0].getsockname()[1]

    async def _set(self, pairs: Iterable[Pair], is_open: bool) -> None:
        for pair in pairs:
            way = self._open_ways[pair]
            if is_open:
                way.set()
            else:
                way.clear()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one connection of the asking replica; it begins once both ways are open."""
        there, back = self._open_ways[pair], self._open_ways[pair[::-1]]
        writers = [writer]
        try:
            await there.wait()
            await back.wait()
            asked_reader, asked_writer = await asyncio.open_connection(*self.places[pair[1]])
            writers.append(asked_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_carry(reader, there, asked_writer))
                tasks.create_task(_carry(asked_reader, back, writer))
        except* (OSError, _Ended):
            pass  # one side is gone: so is the connection, for the other
        finally:
            for each in writers:
                each.transport.abort()


class _Ended(Exception):
    """A replica closed its end."""


async def _carry(
    reader: asyncio.StreamReader, way: asyncio.Event, writer: asyncio.StreamWriter
) -> None:
    """Pass on what comes, and its end, as long as the way is open. Raises _Ended, OSError."""
    while True:
        data = b""
        with suppress(ConnectionError):
            data = await reader.read(CHUNK_BYTES)
        await way.wait()
        if not data:
            raise _Ended
        writer.write(data)
        await writer.drain()
