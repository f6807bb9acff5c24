"""``/metrics``, ``/healthz`` and ``/readyz`` over HTTP, for programs that look every few seconds.

A connection carries one request. There are few of them at once, each has a few seconds in all, and
one that is slow or one too many is closed: no client keeps this process, or a replica,
from its work.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kraftfast import __version__
from kraftfast.live.families import registry
from kraftfast.live.pages import Sample
from kraftfast.live.readiness import BEHIND_RECORDS_MAX, readiness

CONNECTIONS_MAX = 16
CONNECTION_S_MAX = 10.0
LOOK_S = 0.5
PLAIN = "text/plain; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
PATHS = "/metrics, /healthz and /readyz are served here\n"
DIGITS_MAX = 18
Answer = tuple[int, str, bytes]
"""Status, content type, body."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = f"kraftfast/{__version__}", ""
    timeout = CONNECTION_S_MAX
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = PLAIN

    def do_GET(self) -> None:
        status, content_type, body = self.server.answer(self.path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests come every few seconds."""


class Server(ThreadingHTTPServer):
    """Serves what ``look`` returns on ``sock``, which listens already and becomes its own."""

    # look: the samples. tell: of events. registry: of prometheus_client. _until: connection -> when
    # it is closed (time.monotonic()); _lock guards it.

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        sock: socket.socket,
        look: Callable[[], list[Sample]],
        cluster_id: str,
        tell: Callable[..., None],
    ) -> None:
        self.tell = tell
        self.look, self.registry = look, registry(look, cluster_id)
        self._until: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(sock.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock

    def run(self) -> None:
        """Serve until :meth:`shutdown`."""
        self.serve_forever(poll_interval=LOOK_S)

    # --- connections ------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._until) >= CONNECTIONS_MAX
            if not full:
                self._until[request] = time.monotonic() + CONNECTION_S_MAX
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections whose time is over: a read or write of theirs fails at once."""
        now = time.monotonic()
        with self._lock:
            for request, until in self._until.items():
                if now >= until:
                    try:
                        request.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass  # the other side was quicker

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong; nothing of a client that hung up, or was too slow."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.tell("request_failed", why=f"{type(error).__name__}: {error}")

    # --- answers ----------------------------------------------------------------------------------

    def answer(self, target: str, accept: str) -> Answer:
        """Return what a request for ``target`` is answered; ``accept``: its header."""
        try:
            path, query = urlsplit(target).path, urlsplit(target).query
        except ValueError:
            return 400, PLAIN, b"this is no path of a request\n"
        if path == "/metrics":
            from prometheus_client.exposition import choose_encoder

            encode, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
            return 200, content_type, encode(self.registry)
        if path == "/healthz":
            return self._health()
        if path == "/readyz":
            return self._ready(parse_qs(query, keep_blank_values=True))
        return 404, PLAIN, PATHS.encode()

    def _health(self) -> Answer:
        running = [str(sample.id) for sample in self.look() if sample.up]
        if not running:
            return 503, PLAIN, b"no replica runs\n"
        return 200, PLAIN, f"running: {', '.join(running)}\n".encode()

    def _ready(self, asked: dict[str, list[str]]) -> Answer:
        """Answer for all replicas, or for the ``replica`` that is asked about."""
        numbers: dict[str, int] = {}
        for name, values in asked.items():
            text = values[-1] if len(values) == 1 else ""
            if name not in ("replica", "behind"):
                return 400, PLAIN, b"/readyz takes replica=ID and behind=RECORDS\n"
            if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
                return 400, PLAIN, f"{name}= takes one whole number\n".encode()
            numbers[name] = int(text)
        samples = self.look()
        if "replica" in numbers:
            samples = [each for each in samples if each.id == numbers["replica"]]
            if not samples:
                return 404, PLAIN, f"there is no replica {numbers['replica']} here\n".encode()
        ready, text = readiness(samples, numbers.get("behind", BEHIND_RECORDS_MAX))
        return 200 if ready else 503, PLAIN, text.encode()
