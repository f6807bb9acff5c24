"""kraftfast: KRaft, Kafka's Raft dialect, as a fast replicated log for Python.

>>> with kraftfast.connect(addresses) as quorum, quorum.producer() as producer:
...     producer.append_wait(b"hello", timeout=5) > 0
True

The names below, and the errors, are loaded on first use (PEP 562), so that ``import
kraftfast.record`` or ``import kraftfast.errors`` loads nothing of the floors above them.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_DOORS: dict[str, str] = {
    "LocalQuorum": "kraftfast.quorum",
    "Producer": "kraftfast.client.producer",
    "AsyncProducer": "kraftfast.client.aio",
    "Consumer": "kraftfast.client.consumer",
    "connect": "kraftfast.client.connect",
    "attach": "kraftfast.attached",
    "StateMachine": "kraftfast.node.state_machine",
}


def __getattr__(name: str) -> Any:
    if name in _DOORS:
        return getattr(importlib.import_module(_DOORS[name]), name)
    errors = importlib.import_module("kraftfast.errors")
    if name == "errors":
        return errors
    found = vars(errors).get(name)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    raise AttributeError(f"module 'kraftfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOORS])
