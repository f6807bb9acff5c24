"""Host names to addresses, without making the loop wait for a name server.

Numbers need no answer. A name is asked for in a thread of its own: until there is an answer it has
no address, later that one is given, and asked for again now and then.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

FRESH_S = 30.0
THREADS_MAX = 4

Address = tuple[Any, ...]
"""family, type, protocol, canonical name and socket address, as ``socket.getaddrinfo`` has them."""


class Resolver:
    """Of one loop; the answers come from threads."""

    # _known: (host, port) -> (addresses, when). _asking: names that a thread is asking for now.

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[list[Address], float]] = {}
        self._asking: set[tuple[str, int]] = set()

    def addresses(self, host: str, port: int) -> list[Address]:
        """Where this is, as far as is known; empty if nobody has said so yet."""
        try:
            return _ask(host, port, socket.AI_NUMERICHOST)
        except OSError:
            pass
        found, at = self._known.get((host, port), ([], -FRESH_S))
        if time.monotonic() - at >= FRESH_S:
            self._start(host, port)
        return found

    def _start(self, host: str, port: int) -> None:
        if (host, port) in self._asking or len(self._asking) >= THREADS_MAX:
            return
        self._asking.add((host, port))
        thread = threading.Thread(
            target=self._run, args=(host, port), name="kraftfast-names", daemon=True
        )
        thread.start()

    def _run(self, host: str, port: int) -> None:
        try:
            self._known[host, port] = _ask(host, port, 0), time.monotonic()
        except OSError:
            pass  # what was known stays
        finally:
            self._asking.discard((host, port))


def _ask(host: str, port: int, flags: int) -> list[Address]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except UnicodeError as error:  # a name that is none
        raise OSError(str(error)) from None
