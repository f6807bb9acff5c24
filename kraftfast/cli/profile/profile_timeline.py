"""``kraftfast profile timeline``: where each commit's time goes, as a trace for Perfetto."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench.group import check_load, scenario
from kraftfast.cli.profile.profile_cpu import settings, what

SECONDS = 1.0
NEEDED_BY_ATTACH = {"mode", "output", "attach", "slow", "seconds", "as_json"}


def check(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    check_load(asked)
    if (asked["mode"] is None) == (asked["attach"] is None):
        raise click.UsageError("name either WHAT to run, or with --attach the quorum that runs")


@click.command(cls=options.Checked, check=check)
@click.argument(
    "mode",
    metavar="[WHAT]",
    required=False,
    type=click.Choice(["throughput", "latency", "sustained"]),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=options.Directory(dir_okay=False, path_type=Path),
    default="trace.pftrace",
    show_default=True,
    help="Where the trace goes.",
)
@click.option(
    "--attach",
    metavar="DIR",
    type=options.DIRECTORY,
    help="Record a quorum that runs instead, for --seconds: the quorum's directory.",
)
@click.option(
    "--slow",
    type=options.Number(0, options.SECONDS_MAX * 1000),
    metavar="MS",
    help="Print the stages of each commit that takes longer, and the flushes meanwhile.",
)
@what
@options.as_json
def timeline(
    mode: str | None,
    output: Path,
    attach: str | None,
    slow: float | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Record what each process does to each batch: a trace to be opened in ui.perfetto.dev.

    WHAT is throughput, latency or sustained, with the options of ``kraftfast bench WHAT``; it runs
    for 1 second unless told otherwise. A flow follows each commit through the processes.
    """
    from kraftfast.bench.profiling import trace_file
    from kraftfast.errors import VerificationFailed

    line, problem = dict[str, Any](), ""
    if asked["seconds"] is None and asked["total"] is None:
        asked["seconds"] = SECONDS
    if attach is not None:
        _check_attach()
    trace_file.protobuf()
    trace_file.check_target(output)
    if attach is not None:
        recording, missing = _attached(attach, asked["seconds"])
    else:
        assert mode is not None
        recording, missing, line, problem = _run(mode, settings(mode, asked))
    for id, why in missing.items():
        click.echo(f"kraftfast profile timeline: replica {id} is left out: {why}", err=True)
    _tell(recording, line, output, slow, as_json)
    if problem:
        raise VerificationFailed(f"the verification failed: {problem}")


def _check_attach() -> None:
    """Raise UsageError for an option of a benchmark: none is run."""
    context = click.get_current_context()
    for name in context.params:
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and name not in NEEDED_BY_ATTACH:
            flag = next(each.opts[0] for each in context.command.params if each.name == name)
            raise click.UsageError(f"{flag} belongs to a benchmark: --attach runs none")


def _run(mode: str, asked: dict[str, Any]) -> tuple[Any, dict[int, str], dict[str, Any], str]:
    """Run a benchmark; return the recording, the replicas that it lacks, the benchmark's line, and
    what is wrong."""
    from kraftfast.bench.profiling.event_collector import Collector

    collectors: list[Collector] = []

    @contextmanager
    def around(quorum: Any, producer: Any) -> Iterator[None]:
        collector = Collector(quorum.directories, producer.latencies)
        collectors.append(collector)
        with collector.collecting():
            yield

    (line,), problem = scenario(mode, asked, around)
    return collectors[0].recording, collectors[0].missing, line, problem


def _attached(directory: str, seconds: float) -> tuple[Any, Mapping[int, str]]:
    """Record a quorum that runs, for so long or until Ctrl-C. Raises NoQuorum."""
    from kraftfast.bench.profiling.event_collector import Collector
    from kraftfast.connected import directories_of

    collector = Collector(directories_of(directory))
    with collector.collecting(), suppress(KeyboardInterrupt):
        time.sleep(seconds)
    return collector.recording, collector.missing


def _tell(
    recording: Any, line: dict[str, Any], output: Path, slow: float | None, as_json: bool
) -> None:
    """Write the trace, say what is in it; ``line``: of the benchmark, empty if none ran."""
    from kraftfast.bench.profiling import timeline as stages
    from kraftfast.bench.profiling import trace_file
    from kraftfast.bench.profiling.slow import SHOWN_MAX, slow_commits

    made = stages.timeline(recording)
    trace_file.write(made, output)
    seconds = (recording.ended_ns - recording.began_ns) / 1e9
    found = [] if slow is None else slow_commits(made, slow)
    if as_json:
        said = {
            "trace": str(output),
            "seconds": round(seconds, 3),
            "batches": len(made.bases),
            "slices": len(made.slices),
            "events": {each.name: len(each.events) for each in recording.processes},
            "bench": line or None,
            "lost": {each.name: each.lost for each in recording.processes},
        }
        click.echo(json.dumps(said if slow is None else said | {"slow": len(found)}))
        for each in found[:SHOWN_MAX]:
            click.echo(json.dumps(each.as_dict()))
        return
    click.echo(
        f"{len(made.bases):,} batches, {len(made.slices):,} slices of "
        f"{len(recording.processes)} processes in {seconds:.2f} s -> {output}: open it in "
        "https://ui.perfetto.dev"
    )
    if line:
        click.echo(f"{line['records_per_s']:,} records/s while it was recorded")
    for process in recording.processes:
        if process.lost:
            click.echo(f"{process.name}: {process.lost:,} events came too fast and are lost")
    if not made.slices:
        click.echo("nothing was appended or flushed in that time")
    if slow is not None:
        click.echo(f"{len(found):,} commits took more than {slow:g} ms")
        for each in found[:SHOWN_MAX]:
            click.echo("\n".join(each.lines()))
        if len(found) > SHOWN_MAX:
            click.echo(f"the {SHOWN_MAX} slowest are shown")
