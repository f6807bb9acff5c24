"""Many runs of one function: simulation seeds, benchmark settings; with Spark or without.

A run that fails is a row like the others, with the command that shows it again. What has been done
is on disk as soon as its part is, so that a sweep that was interrupted goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any

from kraftfast.errors import InvalidOption, StorageError
from kraftfast.log.disk import storage_error
from kraftfast.spark.jobs.tasks import fan_out

BACKENDS = ("process", "spark", "inline")
PART_S = 1.0
"""A part of a sweep carries about so much work: a task of Spark costs 12 to 48 ms by itself."""
PARTS_MAX = 400
TEXT_MAX = 4000
POLL_S = 0.2

Run = Callable[[Any], dict[str, Any]]
"""From an item (anything that JSON holds) to what came of it; ``ok`` false is a failure too."""
Progress = Callable[[int, int], None]
"""Called with how many items are done, of how many."""


def run_one(run: Run, again: Callable[[Any], str], item: Any) -> dict[str, Any]:
    """Run one row; raise only what ends the process."""
    began = time.perf_counter()
    row: dict[str, Any] = {"item": item, "ok": False, "result": None, "error": "", "traceback": ""}
    try:
        row["result"] = run(item)
        row["ok"] = bool(row["result"].get("ok", True))
        row["error"] = "" if row["ok"] else str(row["result"].get("violation", "not ok"))[:TEXT_MAX]
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:TEXT_MAX]
        row["traceback"] = traceback.format_exc()[-TEXT_MAX:]
    row["seconds"] = time.perf_counter() - began
    row["again"] = "" if row["ok"] else again(item)
    return row


def nothing(_item: Any) -> str:
    """No command shows it again."""
    return ""


def sweep(
    run: Run,
    items: Sequence[Any],
    *,
    backend: str = "process",
    spark: Any = None,
    out: str = "",
    workers: int = 2,
    parts: int = 0,
    again: Callable[[Any], str] = nothing,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return one row an item, in their order: item, ok, result, error, traceback, seconds, again.

    ``run`` and ``again`` are functions that the runner can import. ``out``: a folder that
    keeps rows, a JSON object a line; items that went well in it are not run again. ``parts``: of
    how many the work is made (0: by the time that the first item takes). Raises InvalidOption,
    StorageError.
    """
    if backend not in BACKENDS:
        raise InvalidOption(f"backend={backend!r}: it is one of {', '.join(BACKENDS)}")
    if backend == "spark" and spark is None:
        raise InvalidOption("backend='spark' wants a session: spark=get_spark()")
    done = {_key(row["item"]): row for row in read_rows(out) if row["ok"]} if out else {}
    _make_folder(out)
    left = [item for item in items if _key(item) not in done]
    found = [done[_key(item)] for item in items if _key(item) in done]
    tell = _Telling(progress, len(items), len(found))
    if left and backend != "inline" and not parts:
        first = run_one(run, again, left[0])  # it tells how long one takes
        _keep(out, [first])
        found.append(first)
        left = left[1:]
        tell.add(1)
        work = first["seconds"] * len(left) / PART_S
        parts = max(4 * workers, min(PARTS_MAX, int(work)))
    if backend == "inline":
        parts = parts or min(len(left), PARTS_MAX)  # each row of a few is kept at once
    parts = max(1, min(parts, len(left)))
    shares = [left[number::parts] for number in range(parts)]  # strided: parts are alike
    if left:
        found += _RUNNERS[backend](run, again, shares, out, workers, spark, tell)
    order = {_key(item): number for number, item in enumerate(items)}
    return sorted(found, key=lambda row: order[_key(row["item"])])


def _key(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


class _Telling:
    """Counts what is done, and says so."""

    def __init__(self, progress: Progress | None, total: int, done: int) -> None:
        self.progress, self.total, self.done = progress, total, done
        self.add(0)

    def add(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)


# --- where rows are kept --------------------------------------------------------------------------


def read_rows(out: str) -> Iterator[dict[str, Any]]:
    """Yield what a folder holds of a sweep. Raises StorageError."""
    try:
        names = sorted(os.listdir(out)) if os.path.isdir(out) else []
        for name in names:
            if name.startswith("part-") and name.endswith(".jsonl"):
                path = os.path.join(out, name)
                with open(path, encoding="utf-8") as file:
                    yield from map(json.loads, file)
    except OSError as error:
        raise storage_error("cannot read", out, error) from None
    except ValueError as error:
        raise StorageError(f"cannot read {path}: it is no row of a sweep: {error}") from None


def _make_folder(out: str) -> None:
    """Have the folder of rows, or raise StorageError before anything is run."""
    if out:
        try:
            os.makedirs(out, exist_ok=True)
            os.rmdir(tempfile.mkdtemp(prefix=".", dir=out))
        except OSError as error:
            raise storage_error("cannot write to", out, error) from None


def _keep(out: str, rows: list[dict[str, Any]]) -> None:
    """Keep a part, whole or not at all."""
    if not out or not rows:
        return
    name = f"part-{uuid.uuid4().hex}"
    try:
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(out, f".{name}"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=str) + "\n" for row in rows)
        os.rename(os.path.join(out, f".{name}"), os.path.join(out, f"{name}.jsonl"))
    except OSError as error:
        raise storage_error("cannot write to", out, error) from None


def run_part(
    run: Run, again: Callable[[Any], str], share: list[Any], out: str
) -> list[dict[str, Any]]:
    """Run all items of a part, kept when it is done."""
    rows = [run_one(run, again, item) for item in share]
    _keep(out, rows)
    return rows


# --- runners ----------------------------------------------------------------------------------


def _inline(
    run: Run, again: Any, shares: list[Any], out: str, _workers: int, _spark: Any, tell: _Telling
) -> list[dict[str, Any]]:
    found = []
    for share in shares:
        found += run_part(run, again, share, out)
        tell.add(len(share))
    return found


def _processes(
    run: Run, again: Any, shares: list[Any], out: str, workers: int, _spark: Any, tell: _Telling
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        pending = {pool.submit(run_part, run, again, share, out) for share in shares}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    found += rows
                    tell.add(len(rows))
        except BaseException:  # Ctrl-C: what has not begun never does, what runs is given up
            running = list((pool._processes or {}).values())  # 3.14 has terminate_workers
            pool.shutdown(wait=False, cancel_futures=True)
            for each in running:
                each.terminate()
            raise
    return found


def _on_spark(
    run: Run, again: Any, shares: list[Any], out: str, _workers: int, spark: Any, tell: _Telling
) -> list[dict[str, Any]]:
    """Run a task a part."""
    with _watched(spark, len(shares), sum(map(len, shares)), tell):
        done = fan_out(spark, lambda share: run_part(run, again, share, out), shares)
    return [row for rows in done for row in rows]


class _watched:
    """Tells how many of a job's tasks are done, while the ``with`` block waits for it.

    Spark Connect has no such counters: there nothing is told before the end.
    """

    def __init__(self, spark: Any, tasks: int, items: int, tell: _Telling) -> None:
        self.tasks, self.items, self.tell, self.told = tasks, items, tell, 0
        self.context: Any = getattr(spark, "_sc", None)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._poll, daemon=True)

    def _poll(self) -> None:
        tracker = self.context.statusTracker()
        while not self.over.wait(POLL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            finished = sum(each.numCompletedTasks for each in stages if each is not None)
            self._say(self.items * min(finished, self.tasks) // self.tasks)

    def _say(self, items: int) -> None:
        if items > self.told:
            self.tell.add(items - self.told)
            self.told = items

    def __enter__(self) -> None:
        if self.context is not None and self.tell.progress is not None:
            self.thread.start()

    def __exit__(self, kind: Any, *_exc: object) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
        if kind is None:
            self._say(self.items)


_RUNNERS: dict[str, Any] = {"inline": _inline, "process": _processes, "spark": _on_spark}
