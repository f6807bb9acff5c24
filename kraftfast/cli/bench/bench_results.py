"""``kraftfast bench run``, ``list`` and ``compare``: plans, and the results that they leave."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options
from kraftfast.errors import InputError

if TYPE_CHECKING:
    from kraftfast.bench.results.compare import Holding
    from kraftfast.bench.results.plan import BenchPlan, Measure
    from kraftfast.bench.results.result import Result

PERCENT = options.Number(0, 1000)
WORSE = 1
"""The exit code of a comparison that shows what ``--fail-if-worse`` asks for."""

USUAL: dict[str, Any] = {
    "name": "compare",
    "repeat": 5,
    "measure": [
        {"command": "throughput", "record-size": [100, 1024], "total": 128},
        {"command": "latency", "seconds": 3},
    ],
}
"""What two checkouts are measured with."""

results_folder = click.option(
    "--results",
    "folder",
    type=options.PlacePath(file_okay=False, path_type=Path),
    help="The folder of results [KRAFTFAST_RESULTS, or kraftfast/bench below XDG_DATA_HOME].",
)


resume = click.option(
    "--resume",
    type=options.PlacePath(dir_okay=False, path_type=Path),
    metavar="RESULT",
    help="Go on with a result of the same plan that was cut short.",
)


@click.command("run")
@click.argument("plan", type=options.PlacePath(dir_okay=False, path_type=Path))
@options.below
@resume
@results_folder
def run_plan(plan: Path, directory: str | None, resume: Path | None, folder: Path | None) -> None:
    """Run a plan: several measurements, by turns, again and again.

    PLAN is a TOML file: repeat = 7, and a [[measure]] for each measurement, with name, command
    (throughput, latency, load, sustained, floor, consume, recover, start, idle or failover) and
    that command's options, such as record-size = 100. A list of values, record-size = [100, 1024],
    makes a measurement for each; of several lists for each combination. The result is one JSON
    document; each turn is saved as it ends, so that Ctrl-C keeps it.
    """
    from kraftfast.bench.results import plan as plans

    run_and_show(*plans.read(plan), directory, resume, folder)


class Over(click.ParamType[Any]):
    """An option and its values: ``record-size=100,1024``."""

    name = "KEY=V,V,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        key, separator, values = value.partition("=")
        if not separator or not key or not all(values.split(",")):
            self.fail(f"{value!r} is no KEY=VALUE,VALUE,...", param, ctx)
        return key, values.split(",")


Values = tuple[tuple[str, list[str]], ...]
"""Options of a command, and the values of each."""
over = click.option(
    "--over",
    type=Over(),
    multiple=True,
    help="An option of COMMAND and its values; several times for all combinations.",
)


@click.command("matrix")
@click.argument("command")
@over
@click.option(
    "--repeat", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Turns."
)
@options.below
@resume
@results_folder
def run_matrix(
    command: str,
    over: Values,
    repeat: int,
    directory: str | None,
    resume: Path | None,
    folder: Path | None,
) -> None:
    """Measure every combination of some options, by turns.

    As a plan with lists: matrix throughput --over record-size=100,1024 --over window=1,32. What
    was cut short goes on with --resume.
    """
    run_and_show(*plan_of_matrix(command, over, repeat), directory, resume, folder)


def plan_of_matrix(command: str, over: Values, repeat: int) -> tuple[BenchPlan, dict[str, Any]]:
    """Return the plan of every combination, and what its file would say.

    Raises UsageError, and InputError where the command has no such options.
    """
    from kraftfast.bench.results import plan as plans

    if not over:
        raise click.UsageError("give an option and its values, such as --over window=1,32")
    for key in plans.twice(key for key, _ in over):
        raise click.UsageError(f"--over {key} is given twice: give it all its values at once")
    table = {
        "name": f"matrix {command}",
        "repeat": repeat,
        "measure": [{"command": command} | dict(over)],
    }
    plan = plans.of_table(table, "matrix")
    check_options(plan)
    return plan, table


def keep(result: Result, folder: Path | None, quiet: bool) -> None:
    """Save a result in the folder of results, if it is not there, and show it.

    Raises StorageError, InputError.
    """
    from kraftfast.bench.results.result import collected, default_folder, new_path

    folder = folder or default_folder()
    path = next((path for path, found in collected(folder) if found == result), None)
    if path is None:
        path = new_path(folder, result.name)
        result.save(path)
    if not quiet:
        show_result(result)
    click.echo(str(path), err=quiet)


def run_and_show(
    asked: BenchPlan,
    table: dict[str, Any],
    directory: str | None,
    resume: Path | None,
    folder: Path | None,
    quiet: bool = False,
    show: Callable[[Result], None] | None = None,
    failures: dict[str, str] | None = None,
) -> Result:
    """Run a plan, or what is left of it; show the result, whole or not, and return it.

    ``show``: prints it. ``failures``: as :func:`kraftfast.bench.results.plan.run` has it.
    """
    from kraftfast.bench.profiling import histograms
    from kraftfast.bench.results import plan as plans
    from kraftfast.bench.results.result import default_folder, new_path
    from kraftfast.cli.scratch import scratch_directory

    check_options(asked)
    resume = None if resume is None else place_of_result(str(resume), folder)
    earlier = None if resume is None else of_same_plan(resume, table)
    path = resume or new_path(folder or default_folder(), asked.name)
    if not histograms.installed():
        click.echo(f"kraftfast bench: {histograms.MISSING}", err=True)
    saved: list[Result] = []

    def save(result: Result) -> None:
        before = saved[0].failures if saved else result.failures
        for name in result.failures.keys() - before.keys():
            click.echo(f"kraftfast bench: not measured: {result.failures[name]}", err=True)
        saved[:] = [result]
        result.save(path)

    try:
        with scratch_directory("bench", directory) as place:
            return plans.run(asked, table, place, save, show_progress, earlier, failures)
    finally:
        if saved and saved[0].runs:
            if not saved[0].complete:
                runs = f"{len(saved[0].runs)} of {asked.repeat * len(asked.measures)}"
                click.echo(f"cut short after {runs} runs", err=True)
            if not quiet:
                (show or show_result)(saved[0])
            click.echo(str(path), err=quiet)
        elif resume is None:
            path.unlink(missing_ok=True)  # a result of no run says nothing


def of_same_plan(path: Path, table: dict[str, Any]) -> Result:
    """Return the result to go on with. Raises InputError where it is of another plan, or whole."""
    from kraftfast.bench.results.result import load

    earlier = load(path)
    if earlier.plan != table:
        raise InputError(f"{path} is of another plan: nothing is added to it")
    if earlier.complete:
        raise InputError(f"{path} is complete: there is nothing to go on with")
    return earlier


def check_options(plan: BenchPlan) -> None:
    """Refuse a plan of which a command would refuse an option, before hours are spent."""
    from kraftfast.cli.bench.group import bench

    for measure in plan.measures:
        try:
            bench.commands[measure.command].make_context(measure.name, [*measure.options, "--json"])
        except click.UsageError as error:
            raise InputError(f"measure {measure.name!r}: {error.format_message()}") from None


def show_progress(done: int, all_runs: int, measure: Measure, seconds: float) -> None:
    """Tell on stderr what comes now, and about how long the rest takes."""
    left = "" if not done else f", about {seconds / done * (all_runs - done) / 60:.0f} min left"
    click.echo(f"{done + 1} of {all_runs}: {measure.name}{left}", err=True)


def show_result(result: Result) -> None:
    """Print the medians and ranges of a result."""
    from kraftfast.bench.results.result import runs_of, shown_keys
    from kraftfast.cli.show import put, table

    keys = shown_keys([result])
    made = table("measure", *keys, "runs")
    for measure in result.measures:
        cells = [_spread(result.values(measure, key)) for key in keys]
        made.add_row(measure, *cells, runs_of(len(result.lines(measure)), result.held(measure)))
    put(made)


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{_figure(median(values))} ({_figure(min(values))}-{_figure(max(values))})"


def _figure(value: float) -> str:
    """Return three digits of a small figure, the whole of a large one.

    >>> _figure(1234567.8), _figure(0.12345)
    ('1,234,568', '0.123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@click.command("list")
@results_folder
@options.as_json
def list_results(folder: Path | None, as_json: bool) -> None:
    """Show the results of a folder, the oldest first; a file that is none is named."""
    from kraftfast.bench.results.result import Result, collected, default_folder
    from kraftfast.cli.show import put, table

    where = folder or default_folder()
    if folder is None and not where.is_dir():
        click.echo(f"there is no result yet: {where} is made by the first one", err=as_json)
        return
    made = table("result", "began", "measures", "runs", "complete", left=2)
    for path, found in collected(where):
        if not isinstance(found, Result):
            click.echo(f"kraftfast bench list: {found}", err=True)
            continue
        line = {
            "path": str(path),
            "name": found.name,
            "began_at": found.began_at,
            "measures": found.measures,
            "runs": len(found.runs),
            "complete": found.complete,
        }
        if as_json:
            click.echo(json.dumps(line))
        whole = "yes" if found.complete else "no"
        row = (len(found.measures), len(found.runs))
        made.add_row(path.name, found.began_at, *map(str, row), whole)
    if not as_json:
        put(made)


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.option(
    "--fail-if-worse",
    type=PERCENT,
    metavar="PERCENT",
    help=f"Exit with {WORSE} if the second is worse by more than that, and shown to be worse; with "
    f"{InputError.exit_code} if that cannot be said.",
)
@click.option(
    "--plan",
    type=options.PlacePath(dir_okay=False, path_type=Path),
    help="What two checkouts are measured with [throughput of 100 B and 1 KiB, latency; 5 turns].",
)
@options.below
@results_folder
@options.as_json
def compare_results(
    first: str,
    second: str,
    fail_if_worse: float | None,
    plan: Path | None,
    directory: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Compare two results, two measures (RESULT::MEASURE), or two checkouts of the project.

    A result is a path, or the name of a file in the folder of results. A checkout is a folder: each
    is installed into an environment of its own, and both are measured by turns. Each line: the
    medians, their ratio (second over first) with a 95 % bootstrap interval, and a verdict where it
    allows one.
    """
    if Path(first).is_dir() and Path(second).is_dir():
        both, judged = (Path(first), Path(second)), fail_if_worse is not None
        result, measured = compare_checkouts(both, plan, directory, folder, as_json, judged)
        tell_of_checkouts(result, measured, fail_if_worse, as_json)
        return
    if plan is not None or directory is not None:
        raise click.UsageError("--plan and --dir belong to the comparison of two checkouts")
    one, name = _named(first, folder)
    other, other_name = _named(second, folder)
    if (name is None) != (other_name is None):
        raise click.UsageError("name a measure of both, as RESULT::MEASURE, or of neither")
    pairs = None if name is None or other_name is None else [(name, other_name)]
    tell_of_results((first, one), (second, other), pairs, fail_if_worse, as_json)


def tell_of_results(
    first: tuple[str, Result],
    second: tuple[str, Result],
    pairs: list[tuple[str, str]] | None,
    fail_if_worse: float | None,
    as_json: bool,
) -> None:
    """Compare two results, by (place, result). Raises InputError where they share nothing."""
    from kraftfast.bench.results.compare import compare, differences, holdings, missing

    (place, one), (other_place, other) = first, second
    lines, held = compare(one, other, pairs), holdings(one, other, pairs)
    if not lines and not held:
        raise InputError(
            f"nothing to compare: {place} measured {', '.join(one.measures) or 'nothing'}, "
            f"{other_place} {', '.join(other.measures) or 'nothing'}"
        )
    for each in differences(one, other):
        click.echo(f"kraftfast bench compare: not the same: {each}", err=True)
    tell(lines, missing(one, other, pairs), held, fail_if_worse, as_json)


def tell_of_checkouts(
    result: Result, pairs: list[tuple[str, str]], fail_if_worse: float | None, as_json: bool
) -> None:
    """Compare the two sides of one result. Raises InputError where they share nothing."""
    from kraftfast.bench.results.checkouts import unpaired
    from kraftfast.bench.results.compare import compare, holdings, missing

    lacking = unpaired(result.measures) + missing(result, result, pairs)
    lines, held = compare(result, result, pairs), holdings(result, result, pairs)
    if not lines and not held:
        told = "; ".join(lacking) or f"both measured {', '.join(result.measures) or 'nothing'}"
        raise InputError(f"nothing to compare: {told}")
    tell(lines, lacking, held, fail_if_worse, as_json)


def compare_checkouts(
    places: tuple[Path, Path],
    plan: Path | None,
    directory: str | None,
    folder: Path | None,
    quiet: bool,
    judged: bool,
) -> tuple[Result, list[tuple[str, str]]]:
    """Measure two checkouts by turns; return the result, and the pairs of measures in it.

    Raises InputError also where there is to be a verdict (``judged``) and the plan allows none.
    """
    from kraftfast.bench.results import checkouts
    from kraftfast.bench.results import plan as plans
    from kraftfast.bench.results.compare import REPETITIONS_MIN
    from kraftfast.bench.results.result import default_folder

    asked, table = plans.read(plan) if plan else (plans.of_table(USUAL, "compare"), USUAL)
    check_options(asked)
    if judged and asked.repeat < REPETITIONS_MIN:
        raise InputError(
            f"repeat is {asked.repeat}: --fail-if-worse needs {REPETITIONS_MIN} turns for a verdict"
        )
    place = (folder or default_folder()) / "environments"

    def say(text: str) -> None:
        click.echo(text, err=True)

    one, other = (checkouts.python_of(each.resolve(), place, say) for each in places)
    both = checkouts.by_turns(asked, (one, other))
    table = table | {"checkouts": [str(each) for each in places]}
    result = run_and_show(both, table, directory, None, folder, quiet)
    return result, checkouts.pairs(result.measures)


def tell(
    lines: list[Any],
    lacking: list[str],
    held: list[Holding],
    fail_if_worse: float | None,
    as_json: bool,
) -> None:
    """Print a comparison; end with the exit code that ``--fail-if-worse`` asks for.

    Raises InputError where what it asks for cannot be said.
    """
    if as_json:
        for line in lines:
            click.echo(json.dumps(asdict(line)))
    else:
        show_comparison(lines)
    for text in (*lacking, *held):
        click.echo(f"kraftfast bench compare: {text}", err=True)
    if fail_if_worse is None:
        return
    if any(line.is_worse_by(fail_if_worse) for line in lines):
        click.get_current_context().exit(WORSE)
    if lacking or any(line.is_open for line in lines):
        raise InputError("it cannot be said whether the second is worse: not all has a verdict")
    if any(each.is_worse for each in held):
        raise InputError("it cannot be said whether the second is worse: it held a rate less often")


def _named(text: str, folder: Path | None) -> tuple[Result, str | None]:
    """Return the result that RESULT or RESULT::MEASURE names, and the measure."""
    place, separator, measure = text.partition("::")
    found = named_result(place, folder)
    if separator and measure not in found.measures:
        raise InputError(f"{place} measured {', '.join(found.measures)}, not {measure!r}")
    return found, measure if separator else None


def named_result(place: str, folder: Path | None) -> Result:
    """Return the result at a path, or with that name in the folder of results."""
    from kraftfast.bench.results.result import load

    return load(place_of_result(place, folder))


def place_of_result(place: str, folder: Path | None) -> Path:
    """Return the path that a result's name stands for."""
    from kraftfast.bench.results.result import default_folder

    path = Path(place)
    if not os.path.exists(path) and path.name == place:
        return (folder or default_folder()) / place
    return path


def show_comparison(lines: list[Any]) -> None:
    """Print a line for each key of each measure."""
    from kraftfast.cli.show import put, table

    made = table("measure", "key", "first", "second", "ratio", "95 %", "verdict", left=2)
    for line in lines:
        made.add_row(
            line.measure,
            line.key,
            _figure(line.first),
            _figure(line.second),
            "-" if line.ratio is None else f"{line.ratio:.3f}",
            "-" if line.ratio is None else f"{line.low:.3f}-{line.high:.3f}",
            line.verdict,
        )
    put(made)
