"""What ``kraftfast bench`` shows to people."""

from __future__ import annotations

from typing import Any

import click

from kraftfast.bench.fdatasync_cost import MEANINGS as FILE_MEANINGS
from kraftfast.bench.fdatasync_cost import Cell, verdict
from kraftfast.bench.loads.load import SAMPLES_MIN
from kraftfast.cli.show import Out, bold, microseconds, put, table
from kraftfast.log.mounts import NOT_ON_A_DISK

MIB = 1 << 20


def disk(cells: list[Cell], filesystem: str) -> None:
    """Print what ``bench disk`` measured."""
    console = Out(soft_wrap=True)
    console.print(
        f"fdatasync on {filesystem or 'this file system'}, by file and by bytes stored before it\n"
    )
    made = table("file", "bytes", "p50", "p99", "max", "samples")
    for cell in cells:
        p99_us = cell.p99_us if cell.samples >= SAMPLES_MIN["p99_us"] else None
        numbers = map(microseconds, (cell.p50_us, p99_us, cell.max_us))
        made.add_row(cell.file, f"{cell.size // 1024} KiB", *numbers, str(cell.samples))
    put(made)
    console.print()
    for kind, meaning in FILE_MEANINGS.items():
        console.print(f"{kind}: {meaning}")
    if filesystem in NOT_ON_A_DISK:
        console.print(bold(f"{filesystem} is no disk: a flush costs nothing, and keeps nothing."))
    else:
        console.print(bold(verdict(cells)))


def sustained(line: dict[str, Any]) -> None:
    """Print what ``bench sustained`` measured."""
    console = Out(soft_wrap=True)
    made = table("second", "records/s", "batches", "p99.9 of a batch", "slowest", left=0)
    for each in line["timeline"]:
        slow = map(microseconds, (each["p999_us"], each["max_us"]))
        rate, at = f"{each['records_per_s']:,.0f}", f"{each['at_s']:.1f}"
        made.add_row(at, rate, str(each["batches"]), *slow)
    slow = map(microseconds, (line["p999_us"], line["max_us"]))
    made.add_row("all", f"{line['records_per_s']:,.0f}", "", *slow)
    put(made)
    console.print()
    made = table(
        "process", "user", "system", "page faults", "switches", "MB written", "fdatasyncs", "others"
    )
    for each in line["processes_cost"]:
        made.add_row(
            each["name"],
            f"{each['user_s']:.2f} s",
            f"{each['system_s']:.2f} s",
            f"{each['minor_faults'] + each['major_faults']:,}",
            f"{each['switches']:,}",
            f"{each['written_mb']:,.0f}",
            str(each["flushes"]),
            str(each["other_flushes"]),
        )
    put(made)
    console.print(
        f"\n{line['cpu_s_per_million_records']:.2f} s of CPU a million records; load average "
        f"{line['load_average'][0]:.1f} at the start, {line['stolen_s']:.1f} s stolen; "
        f"{'verified' if line['verified'] else 'NOT VERIFIED'}"
    )


def floor(lines: list[dict[str, Any]], best: dict[str, Any]) -> None:
    """Print what ``bench floor`` measured, a line for each way, and which is the floor."""
    made = table("how", "files", "records/s", "p50", "p99", "p99.9", "CPU per million", left=2)
    for each in lines:
        slow = (microseconds(each[key]) for key in ("p50_us", "p99_us", "p999_us"))
        cpu = f"{each['cpu_s_per_million_records']:.2f} s"
        rate = f"{each['records_per_s']:,.0f}"
        made.add_row(each["how"], each["files"], rate, *slow, cpu)
    put(made)
    text = f"\nthe floor: {best['records_per_s']:,.0f} records/s ({best['how']}, {best['files']})"
    console = Out(soft_wrap=True)
    console.print(bold(text))
    if best["sync"] and best["filesystem"] in NOT_ON_A_DISK:
        console.print(bold(f"{best['filesystem']} is no disk: a flush costs nothing."))


def perf_test(line: dict[str, Any]) -> str:
    """Return the last line of kafka-producer-perf-test for a run, so that its readers read ours.

    As there, a MB has 2^20 bytes and a percentile is cut to whole milliseconds.
    """
    mb = line["records_per_s"] * line["value_bytes"] / MIB
    slow = [
        f"{int((line[key] or line['max_us']) / 1000)} ms {name}"
        for key, name in (
            ("p50_us", "50th"), ("p95_us", "95th"), ("p99_us", "99th"), ("p999_us", "99.9th")
        )
    ]  # fmt: skip
    return (
        f"{line['records']} records sent, {line['records_per_s']:.1f} records/sec "
        f"({mb:.2f} MB/sec), {line['mean_us'] / 1000:.2f} ms avg latency, "
        f"{line['max_us'] / 1000:.2f} ms max latency, {', '.join(slow)}."
    )


def tell_missing(lines: list[dict[str, Any]]) -> None:
    """Tell on stderr what the lines lack for want of a library."""
    from kraftfast.bench.profiling import histograms

    if any("histograms" in line for line in lines) and not histograms.installed():
        click.echo(f"kraftfast bench: {histograms.MISSING}", err=True)


def load(lines: list[dict[str, Any]]) -> None:
    """Print what ``bench load`` measured: a row a rate, and where the machine ends."""
    made = table("wanted/s", "records/s", "p50", "p99", "p99.9", "slowest", "CPU per million")
    for line in lines:
        wanted = line["rate_wanted"]
        shown = "as fast as it goes" if wanted is None else f"{wanted:,.0f}"
        slow = [microseconds(line[key]) for key in ("p50_us", "p99_us", "p999_us", "max_us")]
        if not line["held"]:
            slow = [f"not held: {line['behind_percent']:.0f} % behind", "", "", ""]
        cpu = f"{line['cpu_s_per_million_records']:.2f} s"
        made.add_row(shown, f"{line['records_per_s']:,.0f}", *slow, cpu)
    put(made)
    console = Out(soft_wrap=True)
    console.print("\na time runs from when a record was due; of the first row, from its hand-over")


HEAD = ("peer", "version", "voters", "mode", "durability", "transport", "filesystem")


def figures(line: dict[str, Any]) -> None:
    """Print the figures of one line, a row each, but for those with which each line begins."""
    made = table("", line.get("part", ""))
    for key, value in line.items():
        if isinstance(value, (dict, list)) or value is None or key in (*HEAD, "part"):
            continue
        if key.endswith("_us"):
            made.add_row(key.removesuffix("_us"), microseconds(value))
        elif isinstance(value, float):
            made.add_row(key, f"{value:,.3f}" if value < 100 else f"{value:,.0f}")
        else:
            made.add_row(key, f"{value:,}" if type(value) is int else str(value))
    put(made)


def attached(line: dict[str, Any]) -> None:
    """Print what ``bench attach`` saw."""
    figures({key: line[key] for key in ("seconds", "records", "records_per_s", "epochs_begun")})
    made = table("replica", "role", "records", "batches", "MB", "flushes", "user", "system", left=2)
    for each, cost in zip(line["replicas"], line["processes_cost"]):
        made.add_row(
            str(each["id"]),
            each["role"],
            f"{each['records']:,}",
            f"{each['batches']:,}",
            f"{each['bytes'] / 1e6:,.1f}",
            f"{each['flushes']:,}",
            f"{cost['user_s']:.2f} s",
            f"{cost['system_s']:.2f} s",
        )
    put(made)
    made = table("stage", "p50", "p99", "p99.9", "slowest", "times")
    for each in line["stages"]:
        slow = [microseconds(each[key]) for key in ("p50_us", "p99_us", "p999_us", "max_us")]
        made.add_row(each["name"], *slow, f"{each['count']:,}")
    put(made)
