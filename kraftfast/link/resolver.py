"""Host names to addresses, without making the loop wait for a name server.

Numbers need no answer. A name is asked for in a thread of its own: until there is an answer it has
no address, later that one is given, and asked for again now and then.
"""

from __future__ import annotations

import socket
from typing import Any

from kraftfast.link.host_ports import Network, Threads

FRESH_S = 30.0
THREADS_MAX = 4

Address = tuple[Any, ...]
"""family, type, protocol, canonical name and socket address, as ``socket.getaddrinfo`` has them."""


class Resolver:
    """Of one loop; the answers come from threads."""

    # _known: (host, port) -> (addresses, when). _asking: names that a thread is asking for now.

    def __init__(self, network: Network, threads: Threads) -> None:
        self._network, self._threads = network, threads
        self._known: dict[tuple[str, int], tuple[list[Address], float]] = {}
        self._asking: set[tuple[str, int]] = set()

    def addresses(self, host: str, port: int) -> list[Address]:
        """Return where this is, as far as is known; empty while the name is looked up."""
        try:
            return self._ask(host, port, socket.AI_NUMERICHOST)
        except OSError:
            pass
        found, at = self._known.get((host, port), ([], -FRESH_S))
        if self._threads.monotonic() - at >= FRESH_S:
            self._start(host, port)
        return found

    def _start(self, host: str, port: int) -> None:
        if (host, port) in self._asking or len(self._asking) >= THREADS_MAX:
            return
        self._asking.add((host, port))
        self._threads.start(lambda: self._run(host, port), "kraftfast-names")

    def _run(self, host: str, port: int) -> None:
        try:
            self._known[host, port] = self._ask(host, port, 0), self._threads.monotonic()
        except OSError:
            pass  # what was known stays
        finally:
            self._asking.discard((host, port))

    def _ask(self, host: str, port: int, flags: int) -> list[Address]:
        try:
            return self._network.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        except UnicodeError as error:  # a name that is none
            raise OSError(str(error)) from None
