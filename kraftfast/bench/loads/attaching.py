"""What a quorum that runs does, by its counters: it is asked nothing, and not slowed."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from kraftfast.bench.loads.open_loop import of_counts
from kraftfast.bench.loads.sustained import (
    cost_of,
    costs_since,
    cpu_s_per_million,
    machine_stolen_s,
)
from kraftfast.bench.profiling import histograms
from kraftfast.bench.results.report import ORDER
from kraftfast.client.watch import Watch
from kraftfast.errors import NoQuorum, PeerGone
from kraftfast.link.stats import STAGES
from kraftfast.link.unix_socket import credentials

WORDS = ("records", "batches", "bytes", "flushes")
"""Counters that only grow while a replica runs."""


def measure(quorum: Any, seconds: float) -> dict[str, Any]:
    """Look at the replicas of a quorum that run on this host before and after; return a line.

    ``quorum``: what ``kraftfast.connect(path)`` returned. Raises NoQuorum where none of them runs,
    PeerGone where one ends meanwhile.
    """
    with ExitStack() as stack:
        watches: dict[int, Watch] = {}
        for id in sorted(quorum.directories):
            with suppress(PeerGone):
                watches[id] = Watch(quorum.directories[id])
                stack.callback(watches[id].close)
        if not watches:
            raise NoQuorum(f"no replica of {quorum.path} runs on this host")
        return _between(watches, seconds)


def _between(watches: dict[int, Watch], seconds: float) -> dict[str, Any]:
    first = _look(watches)
    stolen_s, began = machine_stolen_s(), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))
        gone = [id for id, watch in watches.items() if not watch.alive()]
        if gone:
            raise PeerGone(f"replica {gone[0]} ended after {time.monotonic() - began:.1f} s")
    took_s = time.monotonic() - began
    last = _look(watches)
    committed = last["committed"] - first["committed"]
    used = costs_since(first["costs"], last["costs"])
    stages = {name: last["stages"][name] - first["stages"][name] for name in STAGES}
    whole = histograms.installed()
    return {
        "seconds": round(took_s, 3),
        "records": committed,
        "records_per_s": round(committed / took_s, 1),
        "epochs_begun": last["epoch"] - first["epoch"],
        "cpu_s_per_million_records": cpu_s_per_million(used, committed) if committed else None,
        "stolen_s": round(machine_stolen_s() - stolen_s, 2),
        "replicas": [
            {"id": id, "role": last["roles"][id]}
            | {word: last["words"][id][word] - first["words"][id][word] for word in WORDS}
            for id in watches
        ],
        "processes_cost": [asdict(each) for each in used],
        "stages": [
            {"name": name, "replica": None, "count": int(counts.sum())} | of_counts(counts)
            for name, counts in sorted(stages.items(), key=lambda each: _place(each[0]))
            if counts.any()
        ],
        "histograms": {
            f"stage {name}": histograms.encode(histograms.of_buckets(counts))
            for name, counts in stages.items()
            if counts.any()
        }
        if whole
        else None,
    }


def _place(stage: str) -> int:
    return ORDER.index(stage) if stage in ORDER else len(ORDER)


def _look(watches: dict[int, Watch]) -> dict[str, Any]:
    """Return what the counters say now."""
    told = {id: watch.stats.as_dict() for id, watch in watches.items()}
    return {
        "committed": max(int(words["high_watermark"]) for words in told.values()),
        "epoch": max(int(words["epoch"]) for words in told.values()),
        "roles": {id: words["role"] for id, words in told.items()},
        "words": told,
        "costs": [
            cost_of(f"replica {id}", credentials(watch.sock).pid, int(told[id]["flushes"]))
            for id, watch in watches.items()
        ],
        "stages": {
            name: sum(
                np.frombuffer(watch.stats.buckets(name), np.uint64).astype(np.int64)
                for watch in watches.values()
            )
            for name in STAGES
        },
    }
