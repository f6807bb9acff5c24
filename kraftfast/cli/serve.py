"""``kraftfast serve``: one replica as a server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from kraftfast.cli import options

EXPOSE = "--expose-without-authentication"
AT_RISK = (
    "WARNING: {where} can be reached from other hosts, and there is no authentication yet. "
    "Whoever reaches it can read every record, append records, and pose as a replica: a forged "
    "Fetch counts as a durable copy, so that acknowledged records may be lost. Let only the other "
    "replicas and trusted clients through your firewall."
)


@click.command()
@click.option(
    "--config", "-c", required=True, type=click.Path(dir_okay=False), help="Its server.properties."
)
@click.option(
    EXPOSE,
    "expose",
    is_flag=True,
    help="Listen on addresses that other hosts can reach, without authentication.",
)
@options.metrics_listen
def serve(config: str, expose: bool, metrics: tuple[str, int] | None) -> None:
    """Run one replica as a server, with Kafka's config names.

    The directory must have been formatted (kraftfast storage format --config FILE --cluster-id ID).
    The voters of controller.quorum.voters, each started like this one, form a quorum over TCP.
    Ctrl-C, SIGTERM or SIGHUP ends it gracefully.
    """
    from kraftfast.cli.properties import read_server
    from kraftfast.errors import InvalidOption
    from kraftfast.types import Endpoint, is_loopback

    server = read_server(config)
    for note in server.notes:
        click.echo(f"kraftfast: {note}", err=True)
    exposed = [
        Endpoint(listener.name, listener.host, listener.port).text
        for listener in server.node.listeners
        if not is_loopback(listener.host)
    ]
    if exposed and not expose:
        raise InvalidOption(
            f"{', '.join(exposed)} would be open to other hosts without authentication; "
            f"listen on 127.0.0.1, or say {EXPOSE}"
        )
    if exposed:
        click.echo(AT_RISK.format(where=", ".join(exposed)), err=True)
    run(server.node, metrics or server.metrics)


def run(config: Any, metrics: tuple[str, int] | None = None) -> None:
    """Run until SIGINT or SIGTERM; ``metrics``: where to serve ``/metrics``, None for nowhere.

    Raises StorageError and its subclasses.
    """
    with ExitStack() as undo:
        _run(config, _metrics(config, metrics, undo))


def _metrics(config: Any, listen: tuple[str, int] | None, undo: ExitStack) -> Any:
    """Return what serves ``/metrics``, not started yet, or None."""
    if listen is None:
        return None
    from kraftfast.live.beside import MetricsProcess
    from kraftfast.node.processes.line import write_line

    def say(text: str) -> None:
        write_line(f"kraftfast replica {config.node_id}: {text}")

    return undo.enter_context(MetricsProcess(config.directory, listen, say))


def _run(config: Any, metrics: Any) -> None:
    from kraftfast.link.host import check_host, check_tasks
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node

    check_host()
    check_tasks(1)
    node = Node(config)
    loop = Loop(node)
    assert loop.sockets is not None, "a server has listeners"
    try:
        loop.sockets.open()
        loop.door.open()
    except BaseException:
        node.close()
        raise
    loop.signals.handle()
    node.on_role.append(lambda effect: say_role(node, effect))
    for name, port in loop.sockets.ports().items():
        node.log_line(f"listener {name} on port {port}, log in {node.directory.log_path}")
    for line in metrics.start() if metrics is not None else ():
        node.log_line(line)
    loop.run()
    node.log_line("stopped")


def say_role(node: Any, effect: Any) -> None:
    """Print a line for people whenever the role changes."""
    leader = f", replica {effect.leader_id} leads" if effect.leader_id >= 0 else ""
    node.log_line(f"epoch {effect.epoch}: {effect.role}{leader}")
