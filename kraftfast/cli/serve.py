"""``kraftfast serve``: one replica as a server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from kraftfast.cli import options

EXPOSE = "--expose-without-authentication"
AT_RISK = (
    "{where} can be reached from other hosts, and there is no authentication yet. "
    "Any program that reaches it can read every record, append records, and pose as a replica: a "
    "forged Fetch counts as a durable copy, so that acknowledged records may be lost. Let only the "
    "other replicas and trusted clients through your firewall."
)


@click.command()
@click.option(
    "--config",
    "-c",
    required=True,
    type=options.PlacePath(dir_okay=False),
    help="Its server.properties.",
)
@click.option(
    EXPOSE,
    "expose",
    is_flag=True,
    help="Listen on addresses that other hosts can reach, without authentication.",
)
@options.metrics_listen
@options.log_format
def serve(
    config: str, expose: bool, metrics: tuple[str, int] | None, log_format: str | None
) -> None:
    """Run one replica as a server, with Kafka's config names.

    The directory must have been formatted (kraftfast storage format --config FILE --cluster-id ID).
    The voters of controller.quorum.voters, each started like this one, form a quorum over TCP.
    Ctrl-C, SIGTERM or SIGHUP ends it gracefully.
    """
    from kraftfast.cli.server_properties import read_server
    from kraftfast.errors import InvalidOption
    from kraftfast.node.event_log import EventLog
    from kraftfast.node.processes.line import show_as
    from kraftfast.types import Endpoint, is_loopback

    notes: list[str] = []
    server = read_server(config, notes.append)
    log = EventLog(server.node.node_id, show_as(log_format or server.log_format))
    for note in (*notes, *server.notes):
        log.tell("configuration_noted", text=note)
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
        log.tell("exposed", text=AT_RISK.format(where=", ".join(exposed)))
    run(server.node, log, log_format or server.log_format, metrics or server.metrics)


def run(config: Any, log: Any, form: str, metrics: tuple[str, int] | None = None) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP; ``metrics``: where to serve ``/metrics``, if anywhere.

    ``log`` takes events beside those of the replica, all in ``form``. Raises StorageError and its
    subclasses.
    """
    with ExitStack() as undo:
        beside = None
        if metrics is not None:
            from kraftfast.live.metrics_process import MetricsProcess

            made = MetricsProcess(config.directory, metrics, log.tell, form)
            beside = undo.enter_context(made)
        else:
            options.tell_not_pushed(log.tell)
        _run(config, form, beside)


def _run(config: Any, form: str, metrics: Any) -> None:
    from kraftfast.errors import KraftfastError
    from kraftfast.link.kernel_check import check_host, check_tasks
    from kraftfast.node.processes.worker import refused_by_host

    check_host()
    check_tasks(1)
    try:
        node, loop = _opened(config, form)
    except KraftfastError:
        raise
    except OSError as error:
        raise refused_by_host(config.node_id, error) from error
    for name, port in loop.sockets.ports().items():
        node.tell("listening", listener=name, port=port)
    if metrics is not None:
        metrics.start()
    loop.run()


def _opened(config: Any, form: str) -> tuple[Any, Any]:
    """Return the replica and its loop, which listens. Raises StorageError, OSError."""
    from kraftfast.node.local_host import LocalHost
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node
    from kraftfast.node.processes.line import show_as

    node = Node(config, LocalHost(show_as(form)))
    loop = Loop(node)
    assert loop.sockets is not None, "a server has listeners"
    try:
        loop.sockets.open()
        loop.door.open()
        loop.signals.handle()
    except BaseException:
        node.close()
        raise
    return node, loop
