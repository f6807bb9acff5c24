"""Connections to host names within a time: a silent name server takes no more of it.

``getaddrinfo`` knows no timeout, and waits half a minute for name servers that do not answer. So it
runs in a thread. A caller waits for it as long as its own timeout; an answer that comes later is
kept for the next caller.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from kraftfast import forks

FRESH_S = 30.0
LOOKUPS_MAX = 64
"""So many names are looked up, or have an answer that was not fetched yet."""

Found = list[tuple[Any, ...]]
"""As ``socket.getaddrinfo`` returns them."""


class NameUnknownYet(TimeoutError):
    """No name server said in time where a host is."""


class Lookup:
    """One name: ``done`` is set once there are ``found`` addresses, or an ``error``."""

    # began: when, by the monotonic clock.

    def __init__(self) -> None:
        self.done, self.began = threading.Event(), time.monotonic()
        self.found: Found = []
        self.error: OSError | None = None

    def run(self, host: str, port: int) -> None:
        """Look it up, however long that takes."""
        try:
            self.found = _ask(host, port)
        except OSError as error:
            self.error = error
        finally:
            self.done.set()

    def is_stale(self) -> bool:
        """Return whether its answer was left for so long that it is to be asked for again."""
        return self.done.is_set() and time.monotonic() - self.began >= FRESH_S


class Names:
    """Looks names up in threads of their own, one a name."""

    # _lookups: by host and port, until fetched.

    def __init__(self) -> None:
        self.disown()

    def disown(self) -> None:
        """Start afresh in a forked child: no thread there ends a lookup or releases the lock."""
        self._lookups: dict[tuple[str, int], Lookup] = {}
        self._lock = threading.Lock()
        forks.own(self)  # of the next fork too

    def addresses(self, host: str, port: int, timeout: float) -> Found:
        """Return where a host is. Raises NameUnknownYet, OSError."""
        try:
            return _ask(host, port, socket.AI_NUMERICHOST)
        except OSError:
            pass  # a name, then
        key = host, port
        lookup = self._begin(key)
        if not lookup.done.wait(timeout):
            raise NameUnknownYet(f"no name server says where {host} is")
        with self._lock:
            if self._lookups.get(key) is lookup:
                del self._lookups[key]
        if lookup.error is not None:
            raise OSError(*lookup.error.args)
        return lookup.found

    def _begin(self, key: tuple[str, int]) -> Lookup:
        """Return the lookup of a name, which is under way or has just ended."""
        with self._lock:
            for old in [each for each, lookup in self._lookups.items() if lookup.is_stale()]:
                del self._lookups[old]
            lookup = self._lookups.get(key)
            if lookup is not None:
                return lookup
            if len(self._lookups) >= LOOKUPS_MAX:
                raise NameUnknownYet(f"{LOOKUPS_MAX} other names are being looked up")
            lookup = self._lookups[key] = Lookup()
        thread = threading.Thread(target=lookup.run, args=key, name="kraftfast-names", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is left: then as long as it takes
            lookup.run(*key)
        return lookup


NAMES = Names()


def connect(address: tuple[str, int], timeout: float, names: Names = NAMES) -> socket.socket:
    """Return a connection to the first address of a host that answers, within ``timeout`` seconds
    for all of them. Raises NameUnknownYet, OSError.

    They share what is left: behind one that is silent each time, the next one is tried, too (L1).
    """
    deadline = time.monotonic() + timeout
    problem = OSError(f"no address is known of {address[0]}")
    found = names.addresses(*address, timeout)
    for number, (family, kind, protocol, _, place) in enumerate(found):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left / (len(found) - number))
            sock.connect(place)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def _ask(host: str, port: int, flags: int = 0) -> Found:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # a name that is none
        raise OSError(str(error)) from None
