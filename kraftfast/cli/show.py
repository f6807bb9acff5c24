"""What commands show to people, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kraftfast.log.mounts import NOT_ON_A_DISK
from kraftfast.node.metrics import RAFT_METRICS

if TYPE_CHECKING:
    from kraftfast.bench.results.report import LoadReport  # which loads numpy: status needs none

WIDE = 120
"""Columns of a terminal from which on there is room for explanations."""
NARROW = 20
TABLE_MAX = 1000

DURABILITIES = {
    "majority": "durable on a majority of disks",
    "all": "durable on the disks of all voters",
    "memory": "IN MEMORY ONLY: a power cut may lose acknowledged records",
}


def microseconds(us: float | None) -> str:
    """Return a duration in the unit that suits it; a dash for a percentile of too few samples.

    >>> microseconds(250.4), microseconds(12_345), microseconds(2_500_000), microseconds(None)
    ('250 us', '12.3 ms', '2.50 s', '-')
    """
    if us is None:
        return "-"
    if us < 1000:
        return f"{us:.0f} us"
    return f"{us / 1000:.1f} ms" if us < 1_000_000 else f"{us / 1_000_000:.2f} s"


class Out(Console):
    """Prints on stdout. Brackets in a text are no markup: a path may hold them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, **settings)
        self.width = max(self.width, NARROW)  # rich leaves lines out where COLUMNS is 0

    def on_broken_pipe(self) -> None:
        """Leave it to the program: rich would end the process here."""
        raise BrokenPipeError


def table(*headings: str, left: int = 1) -> Table:
    """Return an empty table; the first ``left`` columns are text, the others numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    return made


def put(made: Table) -> None:
    """Print a table on stdout, as wide as it is: nothing is cut off in a narrow terminal."""
    console = Out()
    needed = console.measure(made, options=console.options.update(width=TABLE_MAX)).maximum
    Out(width=max(needed, console.width)).print(made)


def show_report(report: LoadReport) -> None:
    """Print the report of a demo on stdout."""
    console, run = Out(soft_wrap=True), report.run
    console.print(
        bold(f"{run.records:,} records, {run.value_bytes:,} bytes"),
        f"committed in {run.seconds:.3f} s:",
        bold(f"{run.records_per_s:,.0f} records/s, {run.megabytes_per_s:,.1f} MB/s"),
    )
    console.print(
        f"{report.voters} voters, {DURABILITIES[report.durability]}; transport {report.transport}, "
        f"flush {report.flush}, batches of {report.batch_bytes // 1024} KiB, "
        f"{report.window} under way"
    )
    if report.filesystem in NOT_ON_A_DISK:
        console.print(
            bold(f"The directory is on {report.filesystem}: nothing is on a disk. Use --dir.")
        )
    console.print()
    put(_latencies(report, console.width >= WIDE))
    console.print(
        "\nfsyncs of the logs per 1000 records, all replicas together: "
        f"{report.fsyncs_per_1000_records:.3f}\n"
    )
    put(_replicas(report))
    console.print()
    console.print(*_verdict(report))


def bold(text: str, style: str = "bold") -> Text:
    return Text(text, style)


def _latencies(report: LoadReport, wide: bool) -> Table:
    from kraftfast.bench.results.report import MEANINGS

    made = table(
        "latency", "p50", "p99", "p99.9", "max", "samples", *(["from -> to"] if wide else [])
    )
    latency = report.run.latency
    quantiles = (latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us)
    meaning = ["first record of a batch handed over -> acknowledged"] if wide else []
    samples = f"{latency.samples:,}"
    made.add_row("commit of a batch", *map(microseconds, quantiles), samples, *meaning)
    for stage in report.stages:
        name = (
            "  "
            + stage.name.replace("_", " ")
            + (f", replica {stage.replica}" if stage.replica else "")
        )
        quantiles = (stage.p50_us, stage.p99_us, stage.p999_us, stage.max_us)
        meaning = [MEANINGS[stage.name]] if wide else []
        made.add_row(name, *map(microseconds, quantiles), f"{stage.count:,}", *meaning)
    return made


def _replicas(report: LoadReport) -> Table:
    made = table("replica", "role", "end offset", "high watermark", "fsyncs", left=2)
    for replica in report.replicas:
        numbers = (replica.end_offset, replica.high_watermark, replica.flushes)
        made.add_row(str(replica.id), replica.role, *(f"{number:,}" for number in numbers))
    return made


def _verdict(report: LoadReport) -> tuple[Text, str]:
    if report.problem:
        return bold("NOT verified:", "bold red"), report.problem
    return bold("verified:", "bold green"), (
        f"{len(report.replicas)} logs with the same {report.compared_bytes:,} bytes of "
        f"committed batches; every input record came back once, in order "
        f"(offsets {report.first_offset:,} to {report.end_offset - 1:,})"
    )


def show_status(statuses: dict[int, dict[str, Any]], missing: dict[int, str]) -> None:
    """Print one line a replica, in Kafka's words, and what else there is to say."""
    console = Out(soft_wrap=True)
    any_status = next(iter(statuses.values()))
    console.print(
        f"ClusterId {any_status['cluster_id']}, topic {any_status['topic']}, "
        f"{DURABILITIES[any_status['durability']]}"
    )
    head = max(status["end_offset"] for status in statuses.values())
    made = table(
        "NodeId", "Status", "Leader", "Epoch", "LogEndOffset", "Lag", "HighWatermark",
        "LogStartOffset", "Unflushed", "Pid", left=2,
    )  # fmt: skip
    for id, status in sorted(statuses.items()):
        end, start = status["end_offset"], status["log_start_offset"]
        unflushed = end - status["flushed_end_offset"]
        numbers = (status["leader_id"], status["epoch"], end, head - end, status["high_watermark"])
        state = status["metrics"][RAFT_METRICS]["current-state"]
        made.add_row(str(id), state, *map(str, (*numbers, start, unflushed, status["pid"])))
    put(made)
    for id, why in missing.items():
        console.print(f"replica {id} does not answer: {why}")
    for id, status in statuses.items():
        if status["in_doubt"]:
            console.print(
                f"replica {id} is in doubt about the end of its log "
                "and does not vote for a shorter one"
            )
        if status["nursery_error"]:
            console.print(f"replica {id} takes no appends: {status['nursery_error']}")
