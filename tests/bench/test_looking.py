"""Looks beside what is measured: again and again, and once more at the end."""

from __future__ import annotations

import threading

import pytest

from kraftfast.bench.loads.looking import looking

WAIT_S = 20.0


def test_it_looks_while_the_block_runs_and_once_after() -> None:
    looks: list[str] = []
    thrice = threading.Event()

    def look() -> None:
        looks.append(threading.current_thread().name)
        if len(looks) == 3:
            thrice.set()

    with looking(look, 0.001, "looks-on"):
        assert thrice.wait(WAIT_S)
    assert set(looks[:-1]) == {"looks-on"}
    assert looks[-1] == threading.current_thread().name
    assert "looks-on" not in [each.name for each in threading.enumerate()]


def test_an_error_of_the_block_ends_it() -> None:
    looks: list[int] = []
    with pytest.raises(ZeroDivisionError), looking(lambda: looks.append(1), 60, "looks-on"):
        1 / 0  # noqa: B018
    assert not looks
    assert "looks-on" not in [each.name for each in threading.enumerate()]
