"""Reads the events of a replica on this host, which notes them as long as this is open."""

from __future__ import annotations

import os

from kraftfast import forks
from kraftfast.client.local_socket import CONNECT_TIMEOUT_S, passed_file
from kraftfast.errors import PeerGone
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, encode_hello
from kraftfast.link.memory_file import map_peer_file, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import SOCKET_NAME
from kraftfast.link.timed_events import FILE_BYTES, EventsView
from kraftfast.link.unix_socket import connect, credentials


class EventReader:
    """The events of the replica in ``directory``, from now on.

    ``cluster_id``: of its quorum; "" takes any. Raises PeerGone, InconsistentClusterId,
    UnsupportedVersion.
    """

    # sock: the replica notes events until it ends. view: the ring. node_id, pid: the replica's.

    def __init__(self, directory: str, cluster_id: str = "") -> None:
        self.sock = connect(os.path.join(directory, SOCKET_NAME), CONNECT_TIMEOUT_S)
        forks.own(self)
        try:
            mine = encode_hello(Hello(kind="events", cluster_id=cluster_id))
            send_with_fds(self.sock, mine, [])
            data, fds = receive_with_fds(self.sock, HELLO_BYTES_MAX)
            hello, events = passed_file(data, fds, cluster_id, "events")
            self.view = EventsView(map_peer_file(events, FILE_BYTES))
            self.node_id = hello.node_id
            self.pid = credentials(self.sock).pid
        except OSError as error:
            self.close()
            raise PeerGone(f"no answer from the replica in {directory}: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the replica stop noting events, unless others read them. The view stays readable."""
        self.sock.close()

    disown = close
