"""What was found, as plain lines, and the order in which it is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

OK, NOTE, MISSING = "ok", "note", "MISSING"
STATES = (OK, NOTE, MISSING)
"""It works; it works, and there is something to know; something needed does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
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


Look = Callable[[], Iterator[Finding]]


def examine(directory: str = ".") -> list[Finding]:
    """Look at everything; ``directory`` is where a quorum would be. Raises nothing.

    A look with an unforeseen failure is a line too, and keeps no other from its turn.
    """
    from kraftfast.doctor import extras, interpreter, machine, storage

    looks: tuple[tuple[str, Look], ...] = (
        ("Python", interpreter.python),
        ("compiled modules", interpreter.modules),
        ("packages", interpreter.packages),
        ("C library", machine.libc),
        ("kernel", machine.kernel),
        ("limits", machine.limits),
        ("processors", machine.processors),
        ("memory", machine.memory),
        ("directory", lambda: storage.directory(directory)),
        ("sockets", lambda: machine.sockets(directory)),
        ("extras", extras.extras),
    )
    found: list[Finding] = []
    for topic, look in looks:
        try:
            found += look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other lines matter too
            text = f"could not be looked at: {type(error).__name__}: {error}"
            found.append(Finding(topic, MISSING, text, "please report it"))
    return found
