"""Decide what a failure ends: the session that raised it, or the replica.

A session stands for another process: a connection over TCP or at the local door, the rings of a
replica or a producer, a probe. An error that it raises ends it alone, because that process chose
its bytes. Three kinds end the replica: a storage error (D9), a broken invariant of the core or the
log, and an error that kept a decision of the core from being carried out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.errors import KraftfastError, StorageError

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, TypeVar

    from kraftfast.node.node import Node
    from kraftfast.node.tcp.session import SessionRequest

    Self = TypeVar("Self")
    Request = TypeVar("Request", bound=SessionRequest)
    P = ParamSpec("P")
    Method = Callable[Concatenate[Self, Request, P], None]

FINAL_ROOMS = ("core", "log")
"""Packages whose assertions are invariants of the replica, not of one session."""


def is_final(error: BaseException) -> bool:
    """Return whether ``error`` must end the replica, whichever session raised it."""
    if isinstance(error, StorageError):
        return True
    return isinstance(error, AssertionError) and _place(error)[0] in FINAL_ROOMS


def is_of_the_log(error: BaseException) -> bool:
    """Return whether ``error`` is final, or was raised by code of the core or the log itself."""
    return is_final(error) or _place(error)[0] in FINAL_ROOMS


def _place(error: BaseException) -> tuple[str, str]:
    """Return (package, ``file:line``) of the innermost frame of ``error``."""
    trace = error.__traceback__
    if trace is None:
        return "", ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    *folders, name = trace.tb_frame.f_code.co_filename.split("/")
    while "kraftfast" in folders:  # the innermost is the package, wherever it lies
        folders = folders[folders.index("kraftfast") + 1 :]
    return folders[0] if folders else "", f"{name}:{trace.tb_lineno}"


def describe(error: BaseException) -> str:
    """Return one line: the message of an error of ours; of any other its type and place too.

    A ConnectionError needs neither: any process may end, or hang up, at any time.
    """
    if isinstance(error, ConnectionError):
        return "the other side hung up"
    text = str(error)
    if not isinstance(error, KraftfastError):
        text = f"{type(error).__name__} at {_place(error)[1]}: {text}"
    return text


def contained(method: Method[Self, Request, P]) -> Method[Self, Request, P]:
    """Wrap ``method(self, request, ...)`` so that what it raises ends only that session."""

    @functools.wraps(method)
    def run(self: Self, request: Request, /, *args: P.args, **more: P.kwargs) -> None:
        try:
            method(self, request, *args, **more)
        except Exception as error:
            request.failed(error)

    return run


class Unanswered:
    """The source of a request of the node itself, which needs no answer."""

    def reply(self, _response: object) -> None:
        """Drop the answer: the role of the replica shows the outcome."""

    failed = reply


class Failures:
    """Decides what a failure of a session ends, and reports it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def end(self, error: Exception, who: str, end: Callable[[], object]) -> None:
        """Call ``end()`` to end the session of ``who``. Raise ``error`` if it is final."""
        if self.node.lost or is_final(error):
            raise error
        self.node.tell("connection_closed", who=who, why=describe(error))
        end()
