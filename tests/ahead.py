"""What several tests wait for, worked out on all cores from the first of them on.

For work that takes a core for seconds and whose outcome no clock decides: simulations, mutants,
Spark's virtual machines. Each test still has a name, a failure and an assertion of its own.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

SECONDS_MAX = 240
"""Of a piece of work in a process: it tells where it is and ends then, before its test does."""


@contextmanager
def in_threads(
    request: pytest.FixtureRequest, names: tuple[str, ...], work: Callable[..., Any],
    workers: int | None = None,
) -> Iterator[Callable[..., Any]]:  # fmt: skip
    """For work that waits for a subprocess (with a timeout of its own)."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        yield from _begun(request, pool, names, work)


@contextmanager
def in_processes(
    request: pytest.FixtureRequest, names: tuple[str, ...], work: Callable[..., Any]
) -> Iterator[Callable[..., Any]]:
    """For work in Python: a function of an importable module, and what can be pickled."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        yield from _begun(request, pool, names, _bounded, work)


def _begun(
    request: pytest.FixtureRequest, pool: Executor, names: tuple[str, ...], *work: Any
) -> Iterator[Callable[..., Any]]:
    """Begin the work of every test that will run; hand out ``wait(*parameters)``.

    ``names`` are the tests' parameters that work gets: of the tests of a module, or of all tests if
    ``request`` is that of a session's fixture.
    """
    path = request.path if request.scope == "module" else None
    wanted = dict.fromkeys(
        tuple(item.callspec.params[name] for name in names)
        for item in request.session.items
        if path in (None, item.path)
        and isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and item.callspec.params.keys() >= set(names)
    )
    futures: dict[tuple[Any, ...], Future[Any]] = {key: pool.submit(*work, *key) for key in wanted}
    try:
        yield lambda *key: futures[key].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _bounded(work: Callable[..., Any], *key: Any) -> Any:
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    try:
        return work(*key)
    finally:
        faulthandler.cancel_dump_traceback_later()
