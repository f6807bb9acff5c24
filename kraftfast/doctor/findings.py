"""What was found, as plain lines, and the order in which it is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

OK, NOTE, MISSING = "ok", "note", "MISSING"
STATES = (OK, NOTE, MISSING)
"""It works; it works, and there is something to know; something needed does not work."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line: what was looked at, how it is, and what to do about it.

    ``value``: the figure or text of the line for programs. ``hint``: '' if there is nothing to do.
    """

    topic: str
    state: str
    text: str
    hint: str = ""
    value: Any = None

    def line(self) -> str:
        """Return it as one line of text."""
        text = f"{self.state:8}{self.topic}: {self.text}"
        return " ".join(f"{text}; {self.hint}".splitlines()) if self.hint else text


Look = Callable[[], Iterator[Fact]]


def examine(directory: str = ".") -> list[Fact]:
    """Look at everything; ``directory`` is where a quorum would be. Raises nothing.

    A look with an unforeseen failure is a line too, and keeps no other from its turn.
    """
    from kraftfast.doctor import extras, host_facts, interpreter, storage

    looks: tuple[tuple[str, Look], ...] = (
        ("Python", interpreter.python),
        ("compiled modules", interpreter.modules),
        ("packages", interpreter.packages),
        ("C library", host_facts.libc),
        ("kernel", host_facts.kernel),
        ("limits", host_facts.limits),
        ("processors", host_facts.processors),
        ("memory", host_facts.memory),
        ("directory", lambda: storage.directory(directory)),
        ("sockets", lambda: host_facts.sockets(directory)),
        ("extras", extras.extras),
    )
    found: list[Fact] = []
    for topic, look in looks:
        try:
            found += look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other lines matter too
            text = f"could not be looked at: {type(error).__name__}: {error}"
            found.append(Fact(topic, MISSING, text, "please report it"))
    return found
