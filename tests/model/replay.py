"""Histories of a search, taken again by the other form of the core: compiled, or its sources.

After each step all that the replicas are made of, their disks and the messages between them must
be the same.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kraftfast.core.state
from tests.command import VIOLATED, Refused, replaced_by
from tests.model.alone import Violation
from tests.model.fingerprints import version
from tests.model.quorum import Action, Quorum, State

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
PARTED = 4
"""The exit code where the forms part."""
Begin = Callable[[list[str]], tuple[Quorum, State]]


def prints_of(quorum: Quorum, start: State, history: list[Action]) -> list[Any]:
    """Return what stands for the state after each step, and the violation at the end."""
    found: list[Any] = [quorum.own_print_of(start)]
    state = start
    for action in history:
        try:
            state = quorum.apply(state, action) or state
        except Violation as error:
            return [*found, str(error).partition(" at ")[0]]  # a place in a file is of one form
        found.append(quorum.own_print_of(state))
    return found


class Histories:
    """Histories by the words of their settings, each with what stands for its states.

    And with the version of the sources that took them.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[list[str], list[Action], list[Any], str]] = []

    def keep(self, words: list[str], quorum: Quorum, start: State, history: list[Action]) -> None:
        self.kept.append((words, history, prints_of(quorum, start, history), version()))

    def store(self, path: Path) -> None:
        """Write all to a file; raises OSError, and leaves what stood there then."""
        with replaced_by(path) as file:
            file.write(pickle.dumps(self.kept))

    @staticmethod
    def try_to_store(path: Path) -> None:
        """Raise OSError now if nothing could be stored there at the end."""
        if path.is_dir():
            raise Refused(f"--histories {path}: is a folder")
        number, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        os.close(number)
        os.unlink(name)


def replay(path: Path, begin: Begin) -> int:
    """Take the histories of a file, and say where the first of them parts from it.

    VIOLATED if none does and one ends in a violation.
    """
    data = path.read_bytes()
    try:
        kept = [
            ([str(word) for word in words], list(history), list(wanted), made)
            for words, history, wanted, made in pickle.loads(data)
        ]
    except Exception as error:  # noqa: BLE001 - what other bytes make of pickle may be anything
        raise Refused(f"{path} holds no histories of --histories: {error}") from error
    if not kept:
        raise Refused(f"{path} holds no history")
    others = {made for *_, made in kept} != {version()}
    if others:
        print(f"{path} was written by other sources: what parts may be theirs", file=sys.stderr)
    known: dict[str, tuple[Quorum, State]] = {}
    steps, violated = 0, []
    for words, history, wanted, _ in kept:
        name = " ".join(words)
        try:
            if name not in known:
                known[name] = begin(words)
            quorum, start = known[name]
            found = prints_of(quorum, start, history)
        except (Violation, AssertionError) as error:
            raise Refused(f"{path}: {name} has no beginning: {error}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if not others:
                raise
            raise Refused(f"{path}: its actions are not of these sources: {error!r}") from error
        steps += len(found)
        if found != wanted:
            tell_parting(quorum, start, history, found, wanted)
            return PARTED
        if isinstance(found[-1], str):
            violated.append((quorum, start, history))
    print(f"{len(kept)} histories, {steps:,} states: the same in the {form()} core")
    for quorum, start, history in violated:
        print(quorum.describe(take(quorum, start, history)))
    return VIOLATED if violated else 0


def take(quorum: Quorum, start: State, history: list[Action]) -> State:
    """Print each action, and the violation where one comes about; return the last state."""
    state = start
    for action in history:
        print("  ", *action)
        try:
            state = quorum.apply(state, action) or state
        except Violation as error:
            print(f"VIOLATION: {error}")
    return state


def tell_parting(
    quorum: Quorum, start: State, history: list[Action], found: list[Any], wanted: list[Any]
) -> None:
    """Print the first state that is another, and how it came about."""
    place = next(i for i, pair in enumerate(zip([*found, None], [*wanted, 0])) if len({*pair}) > 1)
    print(f"PARTED after {place} actions, in the {form()} core:")
    print(quorum.describe(take(quorum, start, history[:place])))
    print(f"it is {found[place:][:1]}, not {wanted[place:][:1]}")


def form() -> str:
    return "interpreted" if kraftfast.core.state.__file__.endswith(".py") else "compiled"


def in_other_form(histories: Histories) -> str:
    """Return what the other form makes of these histories, in a process of its own."""
    other = ["--compiled"] if form() == "interpreted" else []
    if other and not list((ROOT / "kraftfast" / "core").glob("state.*.so")):
        return "(no compiled core stands beside these sources to take the history again)"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "histories"
        histories.store(path)
        done = subprocess.run(
            [sys.executable, "-m", "tests.model", "--replay", str(path), *other],
            cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    if done.returncode == VIOLATED:  # it is told already, by this form
        return done.stdout.partition("\n")[0]
    return done.stdout.strip() or done.stderr.strip()
