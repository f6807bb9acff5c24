"""kraftfast: KRaft, Kafka's Raft dialect, as a fast replicated log for Python.

>>> with kraftfast.connect(where) as quorum, quorum.producer() as producer:
...     producer.append_wait(b"hello", timeout=5) > 0
True

The names below are loaded on first use (PEP 562), so that ``import kraftfast.record`` loads nothing
of the layers above it. The errors are loaded at once: there may be no descriptor left later on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kraftfast import errors as errors

if TYPE_CHECKING:
    from kraftfast.client.consumer.consumer import Consumer as Consumer
    from kraftfast.client.producer.aio import AsyncProducer as AsyncProducer
    from kraftfast.client.producer.producer import Producer as Producer
    from kraftfast.client.quorum_base import Quorum as Quorum
    from kraftfast.connected import connect as connect
    from kraftfast.errors import *  # noqa: F403  # all of them are public
    from kraftfast.log.snapshots.snapshot_reader import SnapshotReader as SnapshotReader
    from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter as SnapshotWriter
    from kraftfast.node.state_machine import StateMachine as StateMachine
    from kraftfast.quorum import LocalQuorum as LocalQuorum
    from kraftfast.record.batch import BatchView as BatchView

__version__ = "0.1.0"

__all__ = [
    "AsyncProducer",
    "BatchView",
    "Consumer",
    "LocalQuorum",
    "Producer",
    "Quorum",
    "SnapshotReader",
    "SnapshotWriter",
    "StateMachine",
    "connect",
    "errors",
]
"""What ``import *`` brings. The errors are names of the package too, each by itself."""

_DOORS: dict[str, str] = {
    "LocalQuorum": "kraftfast.quorum",
    "Producer": "kraftfast.client.producer.producer",
    "AsyncProducer": "kraftfast.client.producer.aio",
    "Consumer": "kraftfast.client.consumer.consumer",
    "Quorum": "kraftfast.client.quorum_base",
    "connect": "kraftfast.connected",
    "StateMachine": "kraftfast.node.state_machine",
    "BatchView": "kraftfast.record.batch",
    "SnapshotReader": "kraftfast.log.snapshots.snapshot_reader",
    "SnapshotWriter": "kraftfast.log.snapshots.snapshot_writer",
}


if not TYPE_CHECKING:  # where types are checked, a name that is misspelt has none

    def __getattr__(name: str) -> Any:
        if name in _DOORS:
            with errors.loading():
                return getattr(importlib.import_module(_DOORS[name]), name)
        found = vars(errors).get(name)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        raise AttributeError(f"module 'kraftfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    private = {"Any", "TYPE_CHECKING", "annotations", "errors", "importlib"}
    return sorted({*globals(), *_DOORS} - private)
