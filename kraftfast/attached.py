"""Use a quorum that another process of this host runs, by its directory.

>>> with kraftfast.attach(path) as quorum, quorum.producer() as producer:
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=offset):
...         print(record.value)
b'hello'

Its clients are as fast as those of the process that runs the quorum. A process that was forked from
that one must make its clients with ``attach``.
"""

from __future__ import annotations

import os

from kraftfast.client.admin_ways import LocalWay, Way
from kraftfast.client.connect import Quorum
from kraftfast.client.connector import Connector
from kraftfast.client.consumer import Consumer
from kraftfast.client.local import LocalConnector
from kraftfast.forks import Birthplace
from kraftfast.node.description import read_description
from kraftfast.node.local_layout import LiveDirectories, quorum_path
from kraftfast.node.state_machine import refuse_while_loading


class AttachedQuorum(Quorum):
    """A quorum of this host in the directory ``path``; see :func:`attach`.

    Thread-safe. Its clients must be closed by themselves.
    """

    # directories: of the replicas that exist at the moment.

    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse_while_loading()
        self.path = quorum_path(path)
        self.directories = LiveDirectories(self.path)
        self.birthplace = Birthplace("quorum")
        self._admin = None

    @property
    def topic(self) -> str:
        return read_description(self.path).topic

    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> Consumer:
        self.birthplace.check()
        return Consumer(self.directories, from_offset, follow=follow, timeout=timeout)

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        return LocalConnector(self.directories, batch_bytes, window)

    def _way(self) -> Way:
        return LocalWay(self.directories, self.topic)


def attach(path: str | os.PathLike[str]) -> AttachedQuorum:
    """Return the quorum in the directory ``path``, run by ``LocalQuorum`` or ``kraftfast start``.

    It may be started later: its clients wait for it. Raises NotFormatted, ForeignDirectory.
    """
    return AttachedQuorum(path)
