"""The loads of the benchmarks, each with what the machine and the quorum did meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from kraftfast.bench.loads import callers, load
from kraftfast.bench.loads.inputs import Checker
from kraftfast.bench.loads.load import LoadRun
from kraftfast.bench.loads.open_loop import Commits, Step, at_rate, of_counts
from kraftfast.bench.loads.other_clients import Beside
from kraftfast.bench.loads.producer_process import (
    NUMBER_BITS,
    Together,
    TogetherChecker,
    append_together,
)
from kraftfast.bench.loads.sustained import (
    Cost,
    SustainedTimeline,
    costs,
    costs_since,
    cpu_s_per_million,
    machine_stolen_s,
)
from kraftfast.bench.profiling import histograms
from kraftfast.bench.profiling.samples import Sampler
from kraftfast.bench.results import report
from kraftfast.link.percentiles import quantile_us

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Of the measured maximum: the rates of ``load`` where none are named."""

Measured = tuple[LoadRun, dict[str, Any]]
"""A run, and the keys of its line that only its kind of load has, or that replace others."""


@contextmanager
def watched(quorum: Any) -> Iterator[dict[int, Any]]:
    """Give a reader of the counters of each replica, by id."""
    with ExitStack() as stack:
        views = {}
        for id in quorum.directories:
            watch = quorum.watch(id)
            stack.callback(watch.close)
            views[id] = watch.stats
        yield views


def where(quorum: Any, asked: dict[str, Any]) -> str:
    """Return what other processes give to ``kraftfast.connect``, by the transport asked for."""
    if asked["transport"] == "ring":
        return str(quorum.path)
    places = [quorum.identity(id)[1][0] for id in quorum.directories]
    return ",".join(f"{each.host}:{each.port}" for each in places)


class Drive:
    """A load on a quorum through one producer; ``asked`` are the options of the command."""

    # views: a reader of the counters of each replica, by id. others: what producers in processes of
    # their own used. handed_over: by each of several. total: handed over by all, so far. beside:
    # what else is connected.

    def __init__(
        self,
        quorum: Any,
        producer: Any,
        rows: Any,
        views: dict[int, Any],
        asked: dict[str, Any],
        beside: Beside | None = None,
    ) -> None:
        self.quorum, self.producer, self.rows = quorum, producer, rows
        self.views, self.asked, self.beside = views, asked, beside or Beside()
        self.bounds = asked["count"], asked["seconds"]
        self.others: list[Cost] = []
        self.handed_over: dict[int, int] = {}
        self.total = 0

    def checker(self) -> Checker:
        """Return what checks everything that was appended, once it has come back."""
        if self.handed_over:
            is_json = self.asked["values"] == "json"
            return TogetherChecker(self.rows.size, is_json, self.handed_over)
        made: Checker = self.rows.checker(self.total)
        return made

    def run(self, mode: str) -> Iterator[Measured]:
        """Run the load of a command; yield what was measured, several times for ``load``."""
        closed = {
            "throughput": self._throughput,
            "latency": self._latency,
            "sustained": self._sustained,
        }
        if mode in closed:
            yield self._observed(closed[mode])
        else:
            yield from self._rates()

    def _throughput(self) -> Measured:
        if self.asked.get("producers", 1) > 1:
            return self._together()
        warm_up = int((self.asked.get("warm_up") or 0) * (1 << 20) / self.rows.size)
        append = partial(load.throughput, self.producer, self.rows, *self.bounds, warm_up=warm_up)
        if not self.asked.get("samples"):
            return append(), {}
        sampler = Sampler(self.views)
        done = append(sampler.looking())
        sampler.write(self.asked["samples"])
        return done, {}

    def _each(self) -> int | None:
        """Return how many records each of several producers or callers appends; None: no bound."""
        count = self.bounds[0]
        return None if count is None else max(1, count // int(self.asked["producers"]))

    def _together(self, waits: bool = False) -> Measured:
        producers = self.asked["producers"]
        names = ("batch_bytes", "window", "compression", "compression_level", "record_size")
        settings = {name: self.asked[name] for name in names} | {
            "json": self.asked["values"] == "json",
            "count": self._each(),
            "seconds": self.bounds[1],
            "producers": producers,
            "waits": waits,
        }
        done, self.producer, self.others, self.handed_over = append_together(
            where(self.quorum, self.asked), producers, settings
        )
        return done, {"processes": len(self.views) + 1 + producers}

    def _called(self) -> Measured:
        """Have several callers wait for each record: processes, threads or tasks."""
        kind, producers = self.asked["callers"] or callers.KINDS[0], self.asked["producers"]
        more: dict[str, Any] = {}
        if kind == "processes":
            done, more = self._together(waits=True)
        else:
            found = callers.callers(self.rows, [at << NUMBER_BITS for at in range(producers)])
            bounds = self._each(), self.bounds[1]
            if kind == "threads":
                done = callers.with_threads(self.producer, found, *bounds)
            else:
                settings = {name: self.asked[name] for name in ("batch_bytes", "window")}
                done, told = callers.with_tasks(self.quorum, settings, found, *bounds)
                self.producer = Together([told])
            self.handed_over = {at: each.done for at, each in enumerate(found)}
        call_us = 1e6 * done.seconds * producers / max(done.records, 1)
        return done, more | {"callers": kind, "call_mean_us": round(call_us, 1)}

    def _latency(self) -> Measured:
        if self.asked.get("callers") or self.asked.get("producers", 1) > 1:
            return self._called()
        if not self.asked.get("samples"):
            return load.one_outstanding(self.producer, self.rows, *self.bounds), {}
        sampler = Sampler(self.views)
        done = load.one_outstanding(self.producer, self.rows, *self.bounds, sampler.look)
        sampler.write(self.asked["samples"])
        return done, {}

    def _sustained(self) -> Measured:
        timeline = SustainedTimeline(self.producer, list(self.views.values()))
        done = load.throughput(self.producer, self.rows, *self.bounds, timeline.looking())
        return done, {"timeline": [asdict(each) for each in timeline.seconds]}

    def _rates(self) -> Iterator[Measured]:
        """Run as fast as it goes, then each rate: those that are named, or shares of that one."""
        fastest, line = self._observed(self._throughput)
        yield fastest, line | {"part": "as fast as it goes", "rate_wanted": None, "held": True}
        wanted = {f"{rate:g}/s": rate for rate in self.asked["rates"] or ()} or {
            f"{100 * share:.0f} %": share * fastest.records_per_s for share in SHARES
        }
        commits, sent = Commits(), fastest.handed_over
        self.producer.on_commit(commits.note)
        for part, rate in wanted.items():
            steps: list[Step] = []

            def at_this_rate(rate: float = rate, steps: list[Step] = steps) -> Measured:
                step = at_rate(self.producer, commits, self.rows, sent, rate, self.bounds[1])
                steps.append(step)
                return step.run, step.line()

            done, line = self._observed(at_this_rate)
            sent += done.handed_over
            yield done, {"part": part} | _with_response(line, steps[0])

    def _observed(self, run: Callable[[], Measured]) -> Measured:
        """Run a load; add what it cost, the machine's state, and the histograms of all stages."""
        before, spent = self.quorum.statuses(), costs(self.quorum)
        spent_beside = self.beside.costs()
        loads, stolen_s = os.getloadavg(), machine_stolen_s()
        counted = histograms.Counted(self.views, self.producer)
        done, more = run()
        self.total += done.handed_over
        used, after = costs_since(spent, costs(self.quorum)), self.quorum.statuses()
        used += self.others
        counted.producer = self.producer
        restarts = sum(  # one that does not answer yet is being started
            id not in after or after[id]["pid"] != status["pid"] for id, status in before.items()
        )
        cpu_s = cpu_s_per_million(used, done.handed_over)
        used += costs_since(spent_beside, self.beside.costs())
        flushes = sum(replica.flushes for replica in report.replicas(before, after))
        line: dict[str, Any] = {
            "fsyncs_per_1000_records": round(1000 * flushes / done.handed_over, 4),
            # the processor time of a process that has ended is not known
            "cpu_s_per_million_records": None if restarts else cpu_s,
            **_of_batches(self.producer),
            **more,
            "load_average": [round(each, 2) for each in loads],
            "stolen_s": round(machine_stolen_s() - stolen_s, 2),
            "processes_cost": [asdict(each) for each in used],
            "restarts": restarts,
            "epochs_begun": _epoch(after) - _epoch(before),
            "histograms": _texts(counted) if histograms.installed() else None,
        }
        if self.asked.get("stages"):
            line["stages"] = [asdict(each) for each in _stages(counted, self.producer)]
        return done, line


def _epoch(statuses: dict[int, dict[str, Any]]) -> int:
    return max(int(status["epoch"]) for status in statuses.values())


def _texts(counted: histograms.Counted) -> dict[str, str]:
    return {name: histograms.encode(each) for name, each in counted.stages().items()}


def _stages(counted: histograms.Counted, producer: Any) -> list[report.StageRow]:
    """Return the stages of this load alone: the counters of the replicas run on."""
    found = [
        report.StageRow(name, id, int(counts.sum()), **of_counts(counts))  # type: ignore[arg-type]
        for (id, name), counts in counted.counts().items()
        if counts.any()
    ]
    found += [each for each in report.stages({}, producer) if each.count]
    return sorted(found, key=lambda each: (report.ORDER.index(each.name), each.replica))


def _of_batches(producer: Any) -> dict[str, Any]:
    """Return the mean time of a batch, and the 95th percentile, microseconds."""
    counts = np.frombuffer(producer.latencies.commit_buckets(), np.uint64)
    measured = producer.latencies.commit_latency()
    p95_us = min(quantile_us(counts, 0.95) or 0.0, measured["max_us"])  # a bucket's top is above
    return {"mean_us": round(measured["mean_us"], 1), "p95_us": round(p95_us, 1)}


def _with_response(line: dict[str, Any], step: Step) -> dict[str, Any]:
    """Return the line of a rate with its histograms named: ``response`` from when a record was due,
    ``service`` from when it was handed over. A rate that was not held has neither."""
    if line["histograms"] is None:
        return line
    kept = {name: text for name, text in line["histograms"].items() if name != "commit"}
    if step.held:
        kept["service"] = line["histograms"]["commit"]
        kept["response"] = histograms.encode(histograms.of_buckets(step.response))
    return line | {"histograms": kept}
