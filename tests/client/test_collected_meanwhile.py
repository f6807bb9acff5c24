"""Garbage is collected wherever an object is made, and its finalizers let other threads run.

(Python 3.11; later versions collect between bytecodes alone.) What compiled code does from its
first store to the last must not be interrupted so.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from kraftfast.client.producer.news import News
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import NotLeader, UnknownOutcome
from tests.client.kit import ScriptedReplica

COLLECTIONS = range(1, 6)
LONG_S = 20.0


@contextlib.contextmanager
def once_collected(number: int, call: Callable[[], object]) -> Iterator[None]:
    """Collect garbage wherever that is possible, and call ``call()`` the ``number``-th time."""
    count = 0

    def collected(phase: str, _info: dict[str, int]) -> None:
        nonlocal count
        count += phase == "start"
        if phase == "start" and count == number:
            call()

    threshold = gc.get_threshold()
    gc.collect()
    gc.disable()
    lists = [[number] for number in range(300)]  # none is left to be used again
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    gc.enable()
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*threshold)
        lists.clear()


@pytest.mark.parametrize("number", COLLECTIONS)
def test_a_thread_is_woken_once(number: int) -> None:
    news, began = News(), threading.Event()
    waiter = threading.Thread(
        target=lambda: news.wait(began.set, LONG_S),
        daemon=True,  # set() returns None: it sleeps
    )
    waiter.start()
    assert began.wait(LONG_S)
    tell = news.tell
    with once_collected(number, tell):
        tell()
    waiter.join(LONG_S)
    assert not waiter.is_alive()


@pytest.mark.parametrize("number", COLLECTIONS)
def test_what_is_resolved_stays_so(number: int) -> None:
    """The oldest of many reasons is forgotten while another thread fails the rest."""
    outcomes = Outcomes()
    replica = ScriptedReplica(outcomes, window=2000)
    for _ in range(1030):
        replica.sender.append(b"v")
        replica.sender.seal()
    for ticket in range(1024):
        outcomes.fail_until(ticket + 1, UnknownOutcome())
    fail_until, fail_rest, reason = outcomes.fail_until, outcomes.fail_rest, NotLeader("")
    reached: list[None] = []
    with once_collected(number, lambda: reached.append(fail_rest(reason))):
        try:
            fail_until(1026, reason)
        except AssertionError:
            pass  # all of it had failed before
    assert outcomes.resolved == (1030 if reached else 1026)
    replica.close()
