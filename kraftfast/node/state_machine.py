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

Contract: KIP-595, ``RaftClient.Listener``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from kraftfast.errors import InvalidOption

if TYPE_CHECKING:
    from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
    from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
    from kraftfast.node.threads.held import Calls
    from kraftfast.record.batch import BatchView


class StateMachine:
    """Base class. All methods are called from one thread of the replica, never at the same time.

    The state is built again when a replica starts: from the newest snapshot, if this class defines
    ``snapshot`` and ``restore``, and from the log behind it. A class that defines neither needs the
    whole log, which is then never given up. A method that raises ends the replica: a state that
    missed a record is worse than none. So does one but ``query`` that returns a generator or an
    awaitable, which nothing runs; a method that is one, by ``yield`` or ``async``, is refused.

    It shares the replica's process: a call that does not let go of the interpreter (one long call
    into C) stops the replica for as long, and a leader that is stopped for longer than the fetch
    timeout, while others are not, is replaced. Write large states in pieces. A process that a
    method, the class's making or its module's import forks is no replica: it ends where it would
    return from there.
    """

    def apply(self, batch: BatchView) -> None:
        """Apply a committed batch: in offset order, each exactly once, none left out.

        ``batch`` is a :class:`kraftfast.BatchView` (``base_offset``, ``last_offset``,
        ``leader_epoch``, ``max_timestamp``, ``size``, ``records()``), valid during the call only.
        Control batches are not handed over. What is raised here ends the replica.
        """
        raise NotImplementedError

    def snapshot(self, writer: SnapshotWriter) -> None:
        """Write all of the state, as of the records applied so far, as records.

        ``writer`` is a :class:`kraftfast.SnapshotWriter`: ``append(value, key, headers)``,
        ``extend(values)``; the replica freezes it. When:
        ``metadata.log.max.record.bytes.between.snapshots`` and
        ``metadata.log.max.snapshot.interval.ms``; the replicas by turns. Commits go on meanwhile,
        applying does not. What is raised here ends the replica, but for a StorageError of the
        ``writer`` where there is no space: the log goes on without, also if it is caught here.
        A record that is refused (RecordTooLarge, RecordsRefused, InvalidOption) and caught here is
        not in the snapshot.
        """
        raise NotImplementedError("this state machine makes no snapshots")

    def restore(self, reader: SnapshotReader) -> None:
        """Replace the state by that of a snapshot, this replica's own or another's.

        ``reader`` is a :class:`kraftfast.SnapshotReader`: ``records()``, ``batches()``,
        ``snapshot_id``; what was written comes in the same order. Nothing has to be closed. What is
        raised here ends the replica.
        """
        raise NotImplementedError("this state machine takes no snapshots")

    def query(self, *args: Any, **never: Any) -> Any:
        """Answer a question from outside.

        Arguments, by position, and result are what MessagePack can carry, 16 MiB at most. What is
        raised here is reported to the caller; the replica goes on.
        """
        raise NotImplementedError("this state machine answers no questions")

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Notice ``leader_id`` in ``epoch``: at most twice an epoch, -1 (unknown), then known.

        On the new leader itself it comes only once everything before its epoch was applied. What is
        raised here ends the replica.
        """

    def begin_shutdown(self) -> None:
        """Record that the replica ends; nothing is applied any longer.

        What is raised here is printed.
        """


METHODS = ("apply", "snapshot", "restore", "query", "leader_changed", "begin_shutdown")


def makes_snapshots(machine: Any) -> bool:
    """Return whether it has ``snapshot`` and ``restore``.

    Raises InvalidOption if only one of them.
    """
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
    """Return how a worker finds a class: ``module:Class`` or ``/path/file.py:Class``.

    Raises InvalidOption.
    """
    if isinstance(state_machine, str):
        return _found(state_machine)
    if not isinstance(state_machine, type):
        kind = type(state_machine).__name__
        raise InvalidOption(
            f"state_machine must be a class, not an object of {kind}: every replica makes its own"
        )
    check_class(state_machine, state_machine.__qualname__)
    module = sys.modules[state_machine.__module__]
    name = state_machine.__qualname__
    if "<locals>" in name:
        raise InvalidOption(f"{name} is defined inside a function: workers cannot import it")
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidOption(f"{name} was typed into an interpreter: workers cannot import it")
    if not file.endswith(".py"):
        raise InvalidOption(f"{name} is defined in {file}: workers import it from a .py file only")
    return f"{os.path.abspath(file)}:{name}"


def _found(text: str) -> str:
    """Return ``module:Class`` or ``file.py:Class``, the file's path absolute; imports nothing.

    Raises InvalidOption where there is no such module or file.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise InvalidOption(f"state machine {text!r}: module:Class or file.py:Class is wanted")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise InvalidOption(f"state machine {text!r}: there is no file {place}")
        return f"{os.path.abspath(place)}:{name}"
    try:
        found = importlib.util.find_spec(place) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise InvalidOption(f"state machine {text!r}: there is no module {place!r}")
    return text


def check_class(found: Any, text: str) -> None:
    """Raise InvalidOption for what is no state machine, or cannot be made without arguments."""
    apply = getattr(found, "apply", None)
    if not callable(apply) or apply is StateMachine.apply:
        raise InvalidOption(f"state machine {text!r} has no apply(batch)")
    if not isinstance(found, type):
        raise InvalidOption(f"state machine {text!r} is no class")
    if not issubclass(found, StateMachine):
        raise InvalidOption(f"state machine {text!r} is not derived from kraftfast.StateMachine")
    import inspect  # a quorum without a state machine starts without it

    for name in METHODS:
        method = getattr(found, name)
        if (
            inspect.isgeneratorfunction(method)
            or inspect.iscoroutinefunction(method)
            or inspect.isasyncgenfunction(method)
        ):
            raise InvalidOption(
                f"state machine {text!r}: {name}() must not use yield or async: "
                "a replica calls it, and nothing in it would run"
            )
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise InvalidOption(
            f"state machine {text!r} cannot be made without arguments: {error}"
        ) from None
    except ValueError:
        pass  # compiled, without a signature: the replica tries


_loading = ""
"""The file or module that this process, a worker, imports at the moment."""


def refuse_while_loading() -> None:
    """Raise InvalidOption where a worker runs a program that was to be imported only."""
    if _loading:
        raise InvalidOption(
            f"{_loading} starts a quorum when it is imported, as every worker does to find the "
            'state machine: put that behind `if __name__ == "__main__":`'
        )


def _imported(place: str) -> ModuleType:
    """Return the module that stands in a file, or has this name. Raises what it raises."""
    if not place.endswith(".py"):
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location("kraftfast_state_machine", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"no such file: {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def load_class(text: str, calls: Calls) -> type[StateMachine]:
    """Return the class that :func:`describe_class` described. Raises InvalidOption."""
    global _loading
    place, _, name = text.rpartition(":")
    _loading = place
    try:
        found: Any = calls.make(_imported, place)
        for part in name.split("."):
            found = getattr(found, part)
    except InvalidOption:
        raise
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise InvalidOption(f"state machine {text!r} cannot be loaded: {error}") from None
    except Exception as error:  # noqa: BLE001 - it is the user's code
        raise InvalidOption(
            f"state machine {text!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from None
    except SystemExit:
        raise InvalidOption(f"state machine {text!r} cannot be loaded: {place} exits") from None
    finally:
        _loading = ""
    check_class(found, text)
    return cast(type[StateMachine], found)


def make(text: str, calls: Calls) -> StateMachine:
    """Return a state machine of the class that is described. Raises InvalidOption, the user's."""
    kind = load_class(text, calls)
    try:
        return cast(StateMachine, calls.make(kind))
    except InvalidOption:
        raise
    except (Exception, SystemExit) as error:
        where = ""
        raised = error.__traceback__
        if raised is not None and (inside := raised.tb_next) and (frame := inside.tb_next):
            where = f" ({frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno})"
        raise InvalidOption(
            f"state machine {text!r} cannot be made: {type(error).__name__}: {error}{where}"
        ) from None
