"""How bugs are planted, and which rule must see each.

The core is the interpreted one; a bug is a function in place of one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.model.beginning import goes_on

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

NOT_HERE = {
    "I19": "what is applied is what is committed, in order: I6 and I8 hold that for each replica",
    "I22": "a message is one number in a channel: slots, cursors and checksums of a ring are "
    "searched by tests/formal/ring.pml, and its C by tests/ring",
    "I23": "no producer writes here, the host appends: tests/sim and tests/processes judge clients",
    "I24": "nobody is told that a write failed: as I23",
}
"""Invariants that a search of the core cannot see broken, and why."""

BUGS: dict[str, Callable[[], Any]] = {}


def bug(rule: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Say which rule has to see it."""

    def noted(function: Callable[[], Any]) -> Callable[[], Any]:
        BUGS[f"{rule}: {function.__name__}"] = function
        return function

    return noted


@contextmanager
def in_place_of(module: Any, name: str, function: Any) -> Iterator[None]:
    """Put a function in the place of another one."""
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


def history(*actions: Action, **words: Any) -> None:
    """Let these happen to a quorum that has had the bug from its beginning."""
    goes_on(*begun(**words), *actions)


def begun(**words: Any) -> tuple[Quorum, State]:
    """Return a quorum, and its state in which the first voter leads."""
    from tests.model.alone import Setting
    from tests.model.quorum import KINDS, Budget, Quorum

    chosen: dict[str, Any] = {"ids": (1, 2, 3), "voters": (1, 2, 3)}
    quorum = Quorum(Setting(**(chosen | words)))
    return quorum, quorum.settled(Budget(*(99,) * len(KINDS)))


def nothing(*words: Any) -> None:
    """What is left out."""


def waits_for_no_fetch(*words: Any, **named: Any) -> Any:
    """In the place of ``VoterChange``: add who was probed at once, as if it had asked itself."""
    from kraftfast.core.membership.voter_change import VoterChange

    return VoterChange(*words, **(named | {"at_append": True, "answered": True}))
