"""Start the process that serves ``/metrics`` beside the replicas of this one, and end it.

It is a process of its own, so that no scrape takes the interpreter's lock from a replica's loop.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from kraftfast.errors import CannotListen, InvalidOption
from kraftfast.node.processes.supervisor_host import python_path
from kraftfast.types import Address, address_text, is_loopback

BACKLOG = 16
EXPOSED = "other hosts can reach /metrics at {address}: it shows figures, and changes nothing"
AGAIN_S, AGAIN_S_MAX = 1.0, 60.0
END_S = 5.0
Tell = Callable[..., None]
"""``tell(event, **fields)``, an event of ``node.event_log``."""
MISSING = "metrics need prometheus_client: pip install 'kraftfast[metrics]'"


class MetricsProcess:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` of the replicas in ``directory``.

    ``listen``: host and port, 0 for any that is free. ``tell`` takes events, which the process
    itself writes in ``form``. Listens at once; :meth:`start` starts the process, which is started
    again if it ends. Raises CannotListen, InvalidOption without ``prometheus_client``.
    """

    # address: where it listens. _sock: which each process takes over. _process: None before
    # start(). _closing: set once it is to end.

    def __init__(self, directory: str, listen: Address, tell: Tell, form: str = "text") -> None:
        if importlib.util.find_spec("prometheus_client") is None:
            raise InvalidOption(MISSING)
        self.directory, self.tell, self.form = directory, tell, form
        self._sock = _listen(listen)
        self.address = address_text(*self._sock.getsockname()[:2])
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="kraftfast-metrics", daemon=True)

    def start(self) -> None:
        """Start the process, and tell where it listens. Raises OSError if that is refused."""
        self._process = self._launch()
        self._thread.start()
        self.tell("metrics_listening", address=self.address)
        if not is_loopback(self._sock.getsockname()[0]):
            self.tell("exposed", text=EXPOSED.format(address=self.address))

    def _launch(self) -> subprocess.Popen[bytes]:
        fd = self._sock.fileno()
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kraftfast.live", self.directory, str(fd), self.form],
            pass_fds=[fd],
            stdin=subprocess.PIPE,  # its end is how that process learns of the end of this one
            stdout=subprocess.DEVNULL,
            process_group=0,
            env=os.environ | {"PYTHONPATH": python_path()},
        )

    def _keep(self) -> None:
        """Start it again whenever it ends, after a pause that grows."""
        pause_s = AGAIN_S
        while True:
            assert self._process is not None, "it was started"
            code = self._process.wait()
            if self._closing.is_set():
                return
            self.tell("metrics_ended", code=code)
            while not self._closing.wait(pause_s):
                pause_s = min(2 * pause_s, AGAIN_S_MAX)
                try:
                    self._process = self._launch()
                    if self._closing.is_set():  # the one before was ended, and none other known
                        _let_end(self._process)
                    break
                except OSError as error:
                    self.tell("metrics_failed", why=error.strerror)
            else:
                return

    def close(self) -> None:
        """End it. Raises nothing."""
        self._closing.set()
        process = self._process
        if process is not None:
            _let_end(process)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._thread.join(END_S)
        self._sock.close()

    def __enter__(self) -> MetricsProcess:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _let_end(process: subprocess.Popen[bytes]) -> None:
    """Tell it that this process needs it no longer."""
    assert process.stdin is not None
    process.stdin.close()


def _listen(listen: Address) -> socket.socket:
    """Return a socket that listens. Raises CannotListen."""
    host, port = listen
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
            why = os.strerror(error.errno)  # Python adds words of its own; a name has none of these
        raise CannotListen(
            f"/metrics cannot listen on {address_text(host, port)}: {why}; choose another "
            "--metrics-listen"
        ) from None
