"""The process beside the replicas that serves ``/metrics``; ``MetricsProcess`` starts it."""

from __future__ import annotations

import signal
import socket
import sys
import threading

from kraftfast.errors import KraftfastError
from kraftfast.live.http import Server
from kraftfast.live.otlp import Pusher
from kraftfast.live.pages import Pages
from kraftfast.node.event_log import NO_REPLICA, EventLog
from kraftfast.node.processes.line import show_as


def main(directory: str, fd: int, form: str) -> int:
    """Serve on the socket ``fd`` until stdin ends: with the process that started this one.

    Events are written in ``form``.
    """
    log = EventLog(NO_REPLICA, show_as(form))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's, for the one that started this
    sock = socket.socket(fileno=fd)
    try:
        pages = Pages(directory)
    except KraftfastError as error:
        log.tell("metrics_failed", why=error)
        return error.exit_code
    with pages:
        server = Server(sock, pages.samples, pages.cluster_id, log.tell)
        pusher = Pusher(pages.samples, pages.cluster_id, log.tell)
        pusher.start()
        threading.Thread(target=server.run, name="kraftfast-metrics", daemon=True).start()
        sys.stdin.buffer.read()
        pusher.close()
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
