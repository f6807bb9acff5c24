"""Histories of a search, taken again by the other form of the core: compiled, or its sources.

After each step all that the replicas are made of, their disks and the messages between them must
be the same.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import kraftfast.core.state
from tests.command import Refused
from tests.model.alone import Violation
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
    """Histories by the words of their settings, each with what stands for its states."""

    def __init__(self) -> None:
        self.kept: list[tuple[list[str], list[Action], list[Any]]] = []

    def keep(self, words: list[str], quorum: Quorum, start: State, history: list[Action]) -> None:
        self.kept.append((words, history, prints_of(quorum, start, history)))

    def store(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self.kept))


def replay(path: Path, begin: Begin) -> int:
    """Take the histories of a file, and say where the first of them parts from it."""
    data = path.read_bytes()
    try:
        kept = [(words, history, wanted) for words, history, wanted in pickle.loads(data)]
    except Exception as error:  # noqa: BLE001 - what other bytes make of pickle may be anything
        raise Refused(f"{path} holds no histories of --histories: {error}") from error
    if not kept:
        raise Refused(f"{path} holds no history")
    known: dict[str, tuple[Quorum, State]] = {}
    steps = 0
    for words, history, wanted in kept:
        name = " ".join(words)
        if name not in known:
            known[name] = begin(words)
        quorum, start = known[name]
        found = prints_of(quorum, start, history)
        steps += len(found)
        if found != wanted:
            tell_parting(quorum, start, history, found, wanted)
            return PARTED
    print(f"{len(kept)} histories, {steps:,} states: the same in the {form()} core")
    return 0


def tell_parting(
    quorum: Quorum, start: State, history: list[Action], found: list[Any], wanted: list[Any]
) -> None:
    """Print the first state that is another, and how it came about."""
    place = next(i for i, pair in enumerate(zip([*found, None], [*wanted, 0])) if len({*pair}) > 1)
    print(f"PARTED after {place} actions, in the {form()} core:")
    state = start
    for action in history[:place]:
        print("  ", *action)
        try:
            state = quorum.apply(state, action) or state
        except Violation as error:
            print(error)
    print(quorum.describe(state))
    print(f"it is {found[place:][:1]}, not {wanted[place:][:1]}")


def form() -> str:
    return "interpreted" if kraftfast.core.state.__file__.endswith(".py") else "compiled"


def in_other_form(histories: Histories) -> str:
    """Return what the other form makes of these histories, in a process of its own."""
    other = ["--compiled"] if form() == "interpreted" else []
    if other and not list((ROOT / "kraftfast" / "core").glob("state.*.so")):
        return "(no compiled core stands beside these sources to take the history again)"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "histories"
        histories.store(path)
        done = subprocess.run(
            [sys.executable, "-m", "tests.model", "--replay", str(path), *other],
            cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip()
