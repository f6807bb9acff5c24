"""The process beside the replicas that serves ``/metrics``: ``beside.MetricsProcess`` starts it."""

from __future__ import annotations

import signal
import socket
import sys
import threading

from kraftfast.errors import KraftfastError
from kraftfast.live.http import Server
from kraftfast.live.pages import Pages


def main(directory: str, fd: int) -> int:
    """Serve on the socket ``fd`` until stdin ends: with the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's, for the one that started this
    sock = socket.socket(fileno=fd)
    try:
        pages = Pages(directory)
    except KraftfastError as error:
        print(f"kraftfast metrics: {error}", file=sys.stderr)
        return error.exit_code
    with pages:
        server = Server(sock, pages.samples, pages.cluster_id)
        threading.Thread(target=server.run, name="kraftfast-metrics", daemon=True).start()
        sys.stdin.buffer.read()
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
