"""Watch a replica of this host: how far it is, in shared memory, and whether it still runs."""

from __future__ import annotations

import os
import select

from kraftfast import forks
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.local_socket import CONNECT_TIMEOUT_S, passed_file
from kraftfast.errors import Closed, InconsistentClusterId, LocalError, PeerError, PeerGone
from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, encode_hello
from kraftfast.link.ring_link import SOCKET_NAME
from kraftfast.link.stats import PAGES_BYTES, ROLES, StatsView
from kraftfast.link.unix_socket import PidfdOwner


class Watch(PidfdOwner):
    """The counters of a running replica, and a bell that rings when its high watermark moves.

    ``directory``: the replica's. ``log_path``: its segments, which may be read below
    ``high_watermark`` (D11) while ``meta.properties`` there says ``directory_id``. ``cluster_id``:
    of its quorum; "" takes any. ``host``: of this process. ``timeout``: seconds that the replica
    has for each answer. Raises PeerGone, InconsistentClusterId, UnsupportedVersion.
    """

    # refusal: why it can no longer be waited on, or None.

    def __init__(
        self,
        directory: str,
        cluster_id: str = "",
        host: ClientHost = HOST,
        timeout: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self.refusal: LocalError | None = None
        local, self._close_fd = host.local, host.local.close
        self.sock = local.connect(os.path.join(directory, SOCKET_NAME), timeout)
        try:
            self.doorbell = host.doorbell()
        except OSError as error:
            self.sock.close()
            raise PeerGone(f"no descriptors to watch {directory} with: {error}") from None
        forks.own(self)
        try:
            bell = self.doorbell
            mine = encode_hello(Hello(kind="watch", cluster_id=cluster_id))
            local.send(self.sock, mine, [bell.file.fd, bell.bell.far_fd])
            data, fds = local.receive(self.sock, HELLO_BYTES_MAX)
            hello, counters = passed_file(data, fds, cluster_id, "counters", local)
            self.stats = StatsView(local.map_peer_file(counters, PAGES_BYTES))
            self.log_path, self.node_id = hello.log, hello.node_id
            self.directory_id = hello.directory_id
            self.pidfd = local.open_pidfd(local.credentials(self.sock).pid)
        except OSError as error:
            self.close()
            raise PeerGone(f"no answer from the replica in {directory}: {error}") from None
        except (PeerError, InconsistentClusterId):
            self.close()
            raise
        self.sock.setblocking(False)
        self._poll = host.poll()
        for fd in (bell.bell.fd, self.sock.fileno(), self.pidfd):
            self._poll.register(fd, select.POLLIN)

    @property
    def high_watermark(self) -> int:
        """Records below are committed; -1 while the replica does not know."""
        return self.stats.high_watermark

    @property
    def log_start_offset(self) -> int:
        """Records below must not be read, though some may still be in the first segment."""
        return self.stats["log_start_offset"]

    @property
    def end_offset(self) -> int:
        """The end of its log, committed or not."""
        return self.stats["end_offset"]

    @property
    def leads(self) -> bool:
        """Whether the replica says that it leads."""
        return ROLES[self.stats["role"]] == "leader"

    def alive(self) -> bool:
        """Return whether the replica still runs, without waiting. Raises Closed, WrongProcess."""
        self._check_open()
        return all(fd == self.doorbell.bell.fd for fd, _ in self._poll.poll(0))

    def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Wait until the high watermark is beyond ``offset``; return False after ``timeout_s``.

        Raises PeerGone, Closed, WrongProcess.
        """
        self._check_open()
        bell = self.doorbell.bell
        bell.going_to_sleep()
        try:
            if self.high_watermark > offset:  # R12: look again after announcing it
                return True
            ready = self._poll.poll(max(0.0, timeout_s) * 1000)
        finally:
            bell.woke_up()
        for fd, _ in ready:
            if fd == bell.fd:
                bell.clear()
            else:
                raise PeerGone("the replica is gone")
        return self.high_watermark > offset

    def _check_open(self) -> None:
        if self.refusal is not None:
            raise self.refusal.again()

    def close(self) -> None:
        """Close the connection; calls raise Closed from now on. Raises nothing."""
        self._let_go(Closed("the watch is closed"))

    def disown(self) -> None:
        """Leave the replica's connection to the parent, in a forked child."""
        self._let_go(forks.refusal("watch"))

    def _let_go(self, refusal: LocalError) -> None:
        self.refusal = self.refusal or refusal
        self.sock.close()
        self.doorbell.close()
        self.close_pidfd()
