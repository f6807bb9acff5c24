"""What a user embeds: a state machine that every replica applies the committed log to.

    class Dict(kraftfast.StateMachine):
        def __init__(self):
            self.data = {}

        def apply(self, batch):
            for record in batch.records():
                self.data[record.key] = record.value

        def query(self, key):
            return self.data.get(key)

    quorum = kraftfast.LocalQuorum(path, state_machine=Dict)
    quorum.query(1, b"name", at_least=offset)

Contract: kraft-reference.md section 13 (KIP-595, ``RaftClient.Listener``).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from kraftfast.errors import InvalidOption


class StateMachine:
    """Base class. All methods are called from one thread of the replica, never at the same time.

    The state is built anew from the log when a replica starts. A method that raises ends the
    replica: a state that missed a record is worse than none.
    """

    def apply(self, batch: Any) -> None:
        """A committed batch: in offset order, each exactly once, none left out.

        ``batch`` is a :class:`kraftfast.record.batch.BatchView` (``base_offset``, ``last_offset``,
        ``leader_epoch``, ``max_timestamp``, ``size``, ``records()``), valid during the call only.
        Control batches are not handed over.
        """
        raise NotImplementedError

    def query(self, *args: Any) -> Any:
        """Answer a question from outside; arguments and result are what MessagePack can carry."""
        raise NotImplementedError("this state machine answers no questions")

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """At most twice an epoch: the leader is not known (-1), then known.

        On the new leader itself it comes only once everything before its epoch was applied.
        """

    def begin_shutdown(self) -> None:
        """The replica ends; nothing is applied any more."""


def describe_class(state_machine: Any) -> str:
    """How a worker finds a class: ``module:Class`` or ``/path/file.py:Class``. Raises InvalidOption."""
    if isinstance(state_machine, str):
        return state_machine
    module = sys.modules[state_machine.__module__]
    name = state_machine.__qualname__
    if "<locals>" in name:
        raise InvalidOption(f"{name} is defined inside a function: workers cannot import it")
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidOption(f"{name} was typed into an interpreter: workers cannot import it")
    return f"{os.path.abspath(file)}:{name}"


def load_class(text: str) -> type[StateMachine]:
    """The class that :func:`describe_class` described. Raises InvalidOption."""
    place, _, name = text.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("kraftfast_state_machine", place)
            if spec is None or spec.loader is None:
                raise ImportError(f"no such file: {place}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise InvalidOption(f"state machine {text!r} cannot be loaded: {error}") from None
    if not callable(getattr(found, "apply", None)):
        raise InvalidOption(f"state machine {text!r} has no apply(batch)")
    return found
