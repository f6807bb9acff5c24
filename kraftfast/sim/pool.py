"""Runs seeds in this process or on several, which end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any


class WorkerDied(Exception):
    """A worker process died: which seed it ran is not known, only those that were under way."""

    def __init__(self, seeds: list[int], short: bool) -> None:
        super().__init__(
            "a worker process died (killed, out of memory, or crashed) in one of the seeds "
            f"{', '.join(map(str, seeds))}: run each with --seed N{' --short' if short else ''}"
        )


def results(
    seeds: Iterator[int], until: float, workers: int, trace: bool, short: bool = False
) -> Generator[dict[str, Any], None, None]:
    """Yield the result of each seed that was begun before ``until``, in the order they end.

    Raises WorkerDied. Closing the generator ends the seeds that are still running.
    """
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import run_seed

    if workers == 1:
        for seed in seeds:
            if time.monotonic() >= until:
                return
            settings = WorldSettings.of_seed(seed, short=short)
            yield run_seed(seed, settings, print if trace else None)
        return
    spawn = multiprocessing.get_context("spawn")
    known = set(multiprocessing.active_children())
    pending: dict[Future[dict[str, Any]], int] = {}
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=end_with_parent) as pool:
        more = True
        try:
            while more or pending:
                while more and len(pending) < 2 * workers:
                    following = next(seeds, None)
                    more = following is not None and time.monotonic() < until
                    if following is not None and more:
                        settings = WorldSettings.of_seed(following, short=short)
                        pending[pool.submit(run_seed, following, settings)] = following
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield future.result()
                    del pending[future]
        except BrokenProcessPool:
            raise WorkerDied(sorted(pending.values()), short) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if pending:
                for worker in set(multiprocessing.active_children()) - known:
                    worker.terminate()


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent, in a worker, and end when the parent ends.

    A worker that waits for the next seed would not notice otherwise, and would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
