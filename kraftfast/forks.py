"""What a child of ``fork`` inherits from its parent and must not use (R11).

A producer, a consumer or a quorum consists of connections, shared memory and child processes of the
process that made it. After a fork two processes would hold all of that: both would number records,
write into one ring, take each other's answers, and end each other's replicas. So everything that
holds any of it registers here, and is disowned in a child before any other code runs there. Calls
cost no more than before.

Python's own hook is used: it runs for ``os.fork``, ``pty.fork``, ``multiprocessing`` and a
``preexec_fn``, and not for a child that only calls ``exec``. Signals wait until it has ended: one
whose handler raises, a Ctrl-C say, would leave the child what is its parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from kraftfast.errors import NotCompiled, WrongProcess
from kraftfast.undisturbed import Undisturbed, hold_signals, release_signals


class Owner(Protocol):
    """An object that must not be used by two processes."""

    def disown(self) -> None:
        """Close inherited descriptors and refuse all further use; called in a forked child.

        It must wait for no lock (the thread that holds it does not exist here), and must change
        nothing that the parent sees: no shutdown of a socket, no change of a shared epoll.
        """


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_pid = os.getpid()
generation = 0
"""How many forks lead to this process. An object made at another value is inherited."""


def own(owner: Owner) -> None:
    """Disown this object in every child that is forked while it lives."""
    _owners.add(owner)


def pending() -> bool:
    """Return whether this is a forked child whose owners are not disowned yet.

    What the collector finds in that moment must be left as it is: it is the parent's.
    """
    return os.getpid() != _pid


def refusal(what: str, pid: int | None = None) -> WrongProcess:
    """Return the error for the use of ``what`` in a process that did not make it."""
    return WrongProcess(
        f"this {what} belongs to process {_pid if pid is None else pid}, from which process "
        f"{os.getpid()} was forked: make a {what} in this process"
    )


class Unique:
    """An object that cannot be copied: what it holds would be closed when the copy is collected."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: make another one where it is "
            "used (kraftfast.connect reaches a quorum that runs)"
        )


class Birthplace:
    """The process in which an object was made, for one that holds nothing that has to be closed."""

    # what: the object's name in the error. pid, generation: of its process.

    def __init__(self, what: str) -> None:
        self.what, self.pid, self.generation = what, _pid, generation

    def check(self) -> None:
        """Raise WrongProcess in a forked child."""
        if self.generation != generation:
            raise refusal(self.what, self.pid)


def at_exit(run: Callable[..., Any], *args: Any, **settings: Any) -> None:
    """Have ``run`` called as this process ends, and not as a child that was forked from it does."""
    made = generation
    atexit.register(lambda: run(*args, **settings) if generation == made else None)


def _disown_all() -> None:
    global _pid, generation
    generation += 1
    owners = list(_owners)
    _owners.clear()
    for owner in owners:
        try:
            owner.disown()
        except Exception as error:  # noqa: BLE001 - the others must be disowned all the same
            _say(f"kraftfast: after a fork: {error!r}\n")
    _pid = os.getpid()


def _say(text: str) -> None:
    """Write to stderr, but not to its buffer: a thread of the parent may have locked that."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


try:
    os.register_at_fork(
        before=hold_signals,
        after_in_parent=release_signals,
        after_in_child=Undisturbed(_disown_all),
    )
except NotCompiled:  # only .py files are here: nothing appends to a quorum
    os.register_at_fork(after_in_child=_disown_all)
