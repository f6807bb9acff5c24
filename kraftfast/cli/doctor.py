"""``kraftfast doctor``: what kraftfast needs of this host, and what there is."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from kraftfast.cli import options
from kraftfast.errors import HostUnsupported


@click.command()
@click.option(
    "--dir",
    "directory",
    type=options.DIRECTORY,
    default=".",
    help="Where the quorum would be [the current directory].",
)
@options.as_json
def doctor(directory: str, as_json: bool) -> None:
    """Look at this host: say what kraftfast needs, and what to do where it is missing.

    Prints one line each about Python, compiled modules, the kernel, limits, processors, memory,
    the directory (its file system, how long it flushes), sockets, and optional packages: "ok";
    "note" (it works, and there is something to know); "MISSING". Leaves no files behind. Add the
    output to every report of a problem. Ends with exit code 6 if something needed is missing.
    """
    import kraftfast
    from kraftfast.doctor import examine
    from kraftfast.doctor.findings import MISSING

    findings = examine(directory)
    missing = [each for each in findings if each.state == MISSING]
    if as_json:
        told = [asdict(each) | {"state": each.state.lower()} for each in findings]
        report = {"version": kraftfast.__version__, "works": not missing, "findings": told}
        click.echo(json.dumps(report, default=str))
    else:
        for each in findings:
            click.echo(each.line())
    if missing:
        names = ", ".join(dict.fromkeys(each.topic for each in missing))
        raise HostUnsupported(f"what kraftfast needs is missing here: {names}")
    if not as_json:
        click.echo("kraftfast works here")
