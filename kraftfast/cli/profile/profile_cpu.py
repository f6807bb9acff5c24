"""``kraftfast profile cpu``: a benchmark under py-spy, one flame graph a process."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench.group import LATENCY_FIXED, WINDOW, check_load, scenario, scenario_options

RATE, RATE_MAX = 200, 1000
TOP, TOP_CHANGES = 5, 20
RESULT = "bench.json"


def what(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a profiled benchmark, without WHAT itself."""
    for decorator in (
        options.compression,
        options.window(WINDOW),
        options.batch_bytes,
        scenario_options,
    ):
        command = decorator(command)
    return command


def settings(mode: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what ``scenario`` takes. Raises UsageError for options that latency has not."""
    if mode != "latency":
        return asked
    context = click.get_current_context()
    for name in LATENCY_FIXED:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} belongs to throughput and sustained")
    return asked | LATENCY_FIXED


@click.command(cls=options.Checked, check=check_load)
@click.argument("mode", metavar="WHAT", type=click.Choice(["throughput", "latency", "sustained"]))
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=options.Directory(file_okay=False, path_type=Path),
    default="profile",
    show_default=True,
    help="Where the flame graphs and speedscope files go.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, RATE_MAX),
    default=RATE,
    show_default=True,
    help="Samples a second of each process.",
)
@click.option(
    "--diff",
    metavar="FOLDER",
    type=options.Directory(file_okay=False, path_type=Path),
    help="An earlier profile: print and draw what grew and shrank since.",
)
@what
@options.as_json
def cpu(mode: str, output: Path, rate: int, diff: Path | None, as_json: bool, **asked: Any) -> None:
    """Run a benchmark under py-spy: a flame graph and a speedscope file for each process.

    WHAT is throughput, latency or sustained, with the options of ``kraftfast bench WHAT``. Needs
    py-spy, and the right to look into other processes (ptrace).
    """
    from kraftfast.bench.profiling import spy, stacks

    if diff is not None and diff.resolve() == output.resolve():
        raise click.UsageError(f"--diff {diff} would be overwritten")
    asked = settings(mode, asked)
    earlier = {} if diff is None else stacks.read_folder(diff)
    _check_output(output)
    found_spy = spy.find()
    documents: dict[str, Any] = {}

    @contextmanager
    def around(quorum: Any, _producer: Any) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="kraftfast-spy-") as place:
            with spy.sampling(found_spy, _pids(quorum), Path(place), rate) as found:
                yield
        documents.update(found)

    (line,), problem = scenario(mode, asked, around)
    profiles = {name: stacks.stacks_of(document) for name, document in documents.items()}
    changed = [
        change
        for name in profiles.keys() & earlier.keys()
        for change in stacks.changes(name, earlier[name], profiles[name])
    ]
    changed.sort(key=lambda each: -abs(each.grown))
    _write(output, mode, documents, profiles, earlier, line)
    if as_json:
        click.echo(json.dumps(_summary(line, output, found_spy.native, profiles, changed)))
    else:
        _show(line, output, found_spy.native, profiles, earlier, changed)
    if problem:
        from kraftfast.errors import VerificationFailed

        raise VerificationFailed(f"the verification failed: {problem}")


def _check_output(output: Path) -> None:
    """Raise InputError if nothing can be written there, before anything runs."""
    from kraftfast.errors import InputError

    if (output / RESULT).exists() and not any(output.glob("*.speedscope.json")):
        raise InputError(f"{output / RESULT} is there, and of no profile: choose another folder")
    made = [each for each in (output, *output.parents) if not each.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {output}: {error.strerror}") from None
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


def _pids(quorum: Any) -> dict[str, int]:
    """Return the process ids, by names that a later run has, too."""
    followers, found = 0, {}
    for _, status in sorted(quorum.statuses().items()):
        name = "leader"
        if status["role"] != "leader":
            followers += 1
            name = f"follower-{followers}"
        found[name] = status["pid"]
    return found | {"client": os.getpid()}


def _write(
    output: Path,
    mode: str,
    documents: dict[str, Any],
    profiles: dict[str, Any],
    earlier: dict[str, Any],
    line: dict[str, Any],
) -> None:
    """Write everything at once, at the end: nothing half done stays. Raises StorageError."""
    from kraftfast.bench.profiling import flame, stacks
    from kraftfast.errors import StorageError

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {output}: {error.strerror}") from None
    for name, found in profiles.items():
        note = f"{found.samples:,} samples while `{mode}` ran: {line['records_per_s']:,} records/s"
        stacks.write(output / f"{name}{stacks.SUFFIX}", json.dumps(documents[name]))
        stacks.write(output / f"{name}.svg", flame.draw(found, name, note))
        if name in earlier:
            colour = flame.by_change(earlier[name], found)
            text = flame.draw(found, f"{name}: red grew, blue shrank", note, colour)
            stacks.write(output / f"{name}.diff.svg", text)
    stacks.write(output / RESULT, json.dumps(line) + "\n")


def _summary(
    line: dict[str, Any], output: Path, native: bool, profiles: dict[str, Any], changed: list[Any]
) -> dict[str, Any]:
    return {
        "folder": str(output),
        "native": native,
        "bench": line,
        "samples": {name: found.samples for name, found in profiles.items()},
        "changes": [
            {"process": each.process, "function": each.function[0], "file": each.function[1],
             "before": round(each.before, 4), "after": round(each.after, 4)}
            for each in changed
        ],
    }  # fmt: skip


def _short(file: str) -> str:
    """Return a file with its folder, as far as a table needs it."""
    return "/".join(Path(file).parts[-2:])


def _show(
    line: dict[str, Any],
    output: Path,
    native: bool,
    profiles: dict[str, Any],
    earlier: dict[str, Any],
    changed: list[Any],
) -> None:
    from kraftfast.cli.show import put, table

    click.echo(f"{line['records_per_s']:,} records/s while it was sampled -> {output}")
    if not native:
        click.echo("py-spy sees no native frames on this machine: Python's alone are shown")
    made = table("process", "function", "file", "self", left=3)
    for name, found in profiles.items():
        if not found.samples:
            click.echo(f"{name} was never seen running")
        shares = sorted(found.self_shares().items(), key=lambda each: -each[1])
        for (function, file), share in shares[:TOP]:
            made.add_row(name, function, _short(file), f"{100 * share:.1f} %")
    put(made)
    if not earlier:
        return
    for name in sorted(earlier.keys() ^ profiles.keys()):
        click.echo(f"{name} is in one of the two profiles alone")
    if not changed:
        click.echo("no function's own share changed by more than chance explains")
        return
    made = table("process", "function", "file", "before", "after", "grown", left=3)
    for each in changed[:TOP_CHANGES]:
        function, file = each.function
        before, after = f"{100 * each.before:.1f} %", f"{100 * each.after:.1f} %"
        grown = f"{100 * each.grown:+.1f}"
        made.add_row(each.process, function, _short(file), before, after, grown)
    put(made)
