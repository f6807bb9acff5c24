"""What a user can call says what it takes and what it raises, or that it raises nothing."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import kraftfast
from kraftfast.client.admin.admin import Admin, AsyncAdmin
from kraftfast.client.consumer.consumer import RecordStream
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.remote_quorum import RemoteQuorum
from kraftfast.client.watch import Watch
from kraftfast.connected import HostQuorum
from kraftfast.node.processes.tuning import Tuning
from kraftfast.testing import QuorumUnderTest, batch, simulated
from kraftfast.testing.simulation import SimulatedAppend, SimulatedQuorum

HANDED_OUT = (Admin, AsyncAdmin, RemoteQuorum, HostQuorum, RecordStream, RemoteConsumer, Watch)
"""Classes whose objects a user gets from those that ``kraftfast`` names."""
FOR_EACH_OTHER = {
    "append_waiting",
    "check_fenced",
    "check_silence",
    "close_pidfd",
    "disown",
    "enlarge",
    "has_nothing_to_do",
    "let_go",
    "lose_quorum",
    "pump",
    "reconnect",
    "wait_resolved",
    "wake_threads",
}
"""Methods that parts of the package call of each other."""
NEVER_MADE = {"BatchView"}
"""Classes whose objects nobody makes but the package."""
KNOWN = {"self", "timeout"}
"""Parameters that mean the same everywhere: a timeout is in seconds."""
AS_ANOTHER = re.compile(r"\b(?:[Aa]s|See) :meth:")
SAYS = re.compile(r"\b[Rr]aise[sd]?\b|\b(?:[Aa]s|See) :meth:")


def public() -> dict[str, Any]:
    """Every class and function that a user reaches, by name."""
    found = {name: getattr(kraftfast, name) for name in kraftfast._DOORS}
    of_testing = (QuorumUnderTest, batch, simulated, SimulatedQuorum, SimulatedAppend)
    return found | {each.__name__: each for each in (*HANDED_OUT, *of_testing)}


def callables() -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Name, what it is, and whether it must say what it raises."""
    for name, what in public().items():
        yield name, what, not inspect.isclass(what)
        for method in dir(what) if inspect.isclass(what) else ():
            found = inspect.getattr_static(what, method)
            if not method.startswith("_") and (callable(found) or isinstance(found, property)):
                said = callable(found) and method not in FOR_EACH_OTHER
                yield f"{name}.{method}", found, said


CALLABLES = {name: (what, said) for name, what, said in callables()}


def test_they_are_found() -> None:
    assert {"LocalQuorum.kill", "Producer.wait", "connect", "Admin.describe"} <= set(CALLABLES)
    names = {name.partition(".")[2] for name in CALLABLES}
    assert FOR_EACH_OTHER <= names, "no method has the name any more"


@pytest.mark.parametrize("name", list(CALLABLES))
def test_its_docstring_says_what_it_raises(name: str) -> None:
    what, said = CALLABLES[name]
    text = inspect.getdoc(what)
    assert text, "it has no docstring"
    assert not said or SAYS.search(text), f"nothing is said of errors: {text}"


@pytest.mark.parametrize("name", list(CALLABLES))
def test_its_docstring_says_what_it_takes(name: str) -> None:
    what, _ = CALLABLES[name]
    text = inspect.getdoc(what) or ""
    if (
        not callable(what)
        or name in NEVER_MADE
        or name.partition(".")[2] in FOR_EACH_OTHER
        or AS_ANOTHER.search(text)
    ):
        return
    taken = inspect.signature(what).parameters.values()
    named = [
        each.name for each in taken if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    missing = [each for each in named if each not in KNOWN and not re.search(rf"``{each}\b", text)]
    assert not missing, f"nothing is said of {missing}: {text}"


def test_every_setting_is_described() -> None:
    described = ast.parse(inspect.getsource(Tuning)).body[0]
    assert isinstance(described, ast.ClassDef)
    for field, below in pairwise(described.body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(below, ast.Expr), f"nothing is said of {ast.unparse(field.target)}"
