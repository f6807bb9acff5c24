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

    The state is built anew when a replica starts: from the newest snapshot, if this class defines
    ``snapshot`` and ``restore``, and from the log behind it. A class that defines neither needs the
    whole log, which is then never given up. A method that raises ends the replica: a state that
    missed a record is worse than none.
    """

    def apply(self, batch: Any) -> None:
        """A committed batch: in offset order, each exactly once, none left out.

        ``batch`` is a :class:`kraftfast.record.batch.BatchView` (``base_offset``, ``last_offset``,
        ``leader_epoch``, ``max_timestamp``, ``size``, ``records()``), valid during the call only.
        Control batches are not handed over.
        """
        raise NotImplementedError

    def snapshot(self, writer: Any) -> None:
        """Write all of the state, as of the records applied so far, as records.

        ``writer`` is a :class:`kraftfast.log.snapshot_writer.SnapshotWriter`: ``append(value, key,
        headers)``, ``extend(values)``. When: ``metadata.log.max.record.bytes.between.snapshots``
        and ``metadata.log.max.snapshot.interval.ms``. Commits go on meanwhile, applying does not.
        """
        raise NotImplementedError("this state machine makes no snapshots")

    def restore(self, reader: Any) -> None:
        """Replace the state by that of a snapshot, this replica's own or another's.

        ``reader`` is a :class:`kraftfast.log.snapshot_reader.SnapshotReader`: ``records()``,
        ``batches()``, ``snapshot_id``; what was written comes in the same order.
        """
        raise NotImplementedError("this state machine takes no snapshots")

    def query(self, *args: Any) -> Any:
        """Answer a question from outside; arguments and result are what MessagePack can carry."""
        raise NotImplementedError("this state machine answers no questions")

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """At most twice an epoch: the leader is not known (-1), then known.

        On the new leader itself it comes only once everything before its epoch was applied.
        """

    def begin_shutdown(self) -> None:
        """The replica ends; nothing is applied any more."""


def makes_snapshots(machine: Any) -> bool:
    """Whether it has ``snapshot`` and ``restore``. Raises InvalidOption if only one of them."""
    has = []
    for name in ("snapshot", "restore"):
        method = getattr(type(machine), name, None)
        has.append(callable(method) and method is not getattr(StateMachine, name))
    if has[0] != has[1]:
        raise InvalidOption(
            f"{type(machine).__name__} has only one of snapshot(writer) and restore(reader)"
        )
    return has[0]


def describe_class(state_machine: Any) -> str:
    """How a worker finds a class: ``module:Class`` or ``/path/file.py:Class``.

    Raises InvalidOption.
    """
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
