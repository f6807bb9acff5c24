"""``kraftfast start``: a supervised quorum in the foreground."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.cli.root import Terminated
from kraftfast.errors import KraftfastError

LOOK_EVERY_S = 0.1
AGAIN_S = 5.0
"""Between two attempts to start replicas that were added and could not run."""


@click.command()
@options.voters("How many voters, where the quorum is new [3].")
@click.option(
    "--dir", "directory", required=True, type=options.DIRECTORY, help="Where the quorum lives."
)
@options.durability
@options.records
@options.flush
@options.transport
@options.idle
@options.processors
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=0,
    help="Replica N also listens on 127.0.0.1, port PORT + N, for Kafka's clients, and so for "
    "every user of this host: there is no authentication yet.",
)
@click.option(
    "--segment-bytes", type=options.SEGMENT_BYTES, help="A segment of the log holds so much."
)
@click.option(
    "--retention-bytes",
    type=options.Size(),
    help="Keep at least so much of the log; older records are deleted [all].",
)
@click.option(
    "--retention-ms",
    type=options.INT64,
    help="Keep records so long; see metadata.max.retention.ms.",
)
@click.option(
    "--election-timeout-ms",
    type=options.MILLISECONDS,
    help="See controller.quorum.election.timeout.ms.",
)
@click.option(
    "--fetch-timeout-ms",
    type=options.MILLISECONDS,
    help="See controller.quorum.fetch.timeout.ms.",
)
@click.option(
    "--kraft-version",
    type=click.Choice(["0", "1"]),
    help="1: the voters stand in the log and can change; 0 can be upgraded later: until then a "
    "replaced disk votes under its old id. Decided when the quorum is made [1].",
)
@options.metrics_listen
@options.log_format
@options.timeout
def start(**asked: Any) -> None:
    """Run a quorum on this host until it is told to stop.

    Formats the directory the first time. Workers that die are started again. One line is written
    to stderr for every event. Ctrl-C, SIGTERM or SIGHUP ends it gracefully: everything committed
    is on disk.
    """
    from kraftfast.node.event_log import FORMATS
    from kraftfast.node.processes.line import show_as
    from kraftfast.node.processes.telling import tell

    form = asked.pop("log_format") or FORMATS[0]
    before, tell.show = tell.show, show_as(form)
    try:
        run(asked, tell, form)
    except (KeyboardInterrupt, Terminated):  # that is how it is told to stop
        tell("quorum_stopped")
    finally:
        tell.show = before


def run(asked: dict[str, Any], tell: Any, form: str) -> None:
    """Run it; ``tell`` takes events, in ``form``. Raises KeyboardInterrupt, Terminated."""
    from kraftfast import LocalQuorum

    directory, voters = asked.pop("directory"), asked.pop("voters")
    listen = asked.pop("metrics")
    settings = {name: value for name, value in asked.items() if value is not None}
    settings["records"] = settings.pop("records_mode", None)
    settings["expose_without_authentication"] = True  # to users of this host: told below
    settings["kraft_version"] = int(settings.get("kraft_version", 1))
    with ExitStack() as undo:
        metrics = None
        if listen is not None:
            from kraftfast.live.metrics_process import MetricsProcess

            metrics = undo.enter_context(MetricsProcess(directory, listen, tell, form))
        else:
            options.tell_not_pushed(tell)
        quorum = undo.enter_context(LocalQuorum(directory, voters, **settings))
        say_what_runs(quorum, tell)
        if metrics is not None:
            metrics.start()
        Added(quorum, tell).run()


def say_what_runs(quorum: Any, tell: Any) -> None:
    """Tell what was started, and what an operator should know of it."""
    from kraftfast.node.processes.tuning import open_to
    from kraftfast.node.storage.local_layout import on_one_device, shared_device_text
    from kraftfast.types import is_loopback

    tell(
        "quorum_started",
        cluster_id=quorum.description.cluster_id,
        path=quorum.path,
        voters=len(quorum.directories),
        durability=quorum.description.durability,
        transport=quorum.tuning.transport,
    )
    for id, (_, port) in quorum.addresses.items():
        tell("listening", id, listener="CONTROLLER", port=port)
    if quorum.addresses:
        loopback = is_loopback(quorum.tuning.host)
        tell("exposed", text=open_to(quorum.addresses.values(), loopback))
    for ids in on_one_device(quorum.directories):
        tell("device_shared", text=shared_device_text(ids))


class Added:
    """Notices replicas that were added to a quorum, and whether any can run at all."""

    # described_ns: when quorum.json was written. again_at: when to start those that could not be
    # started, which what kept them may allow by then. told: what was said of them last.

    def __init__(self, quorum: Any, tell: Any) -> None:
        self.quorum, self.tell = quorum, tell
        self.described_ns = self._described_ns()
        self.again_at, self.told = math.inf, ""

    def run(self) -> None:
        """Run until interrupted. Raises the error of the last replica once none can run."""
        while True:
            self.look()
            time.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Start replicas that ``kraftfast quorum add-controller`` has made."""
        faults = self.quorum.faults
        if len(faults) == len(self.quorum.supervisor.workers):
            raise next(iter(faults.values()))
        described_ns = self._described_ns()
        if described_ns not in (-1, self.described_ns):
            self.described_ns, self.told = described_ns, ""
        elif time.monotonic() < self.again_at:
            return
        known = set(self.quorum.directories)
        self.again_at = math.inf
        try:
            self.quorum.adopt()
        except KraftfastError as error:  # no reason to stop all others
            self.again_at = time.monotonic() + AGAIN_S
            self._tell_once(error)
        for id in sorted(set(self.quorum.directories) - known):
            self.tell("replica_added", id, pid=self.quorum.supervisor.pid(id) or 0)

    def _tell_once(self, error: KraftfastError) -> None:
        if str(error) != self.told:
            self.told = str(error)
            self.tell("replica_not_added", why=error)

    def _described_ns(self) -> int:
        try:
            return os.stat(os.path.join(self.quorum.path, "quorum.json")).st_mtime_ns
        except OSError:
            return -1  # it is gone, or cannot be read now: no reason to stop the replicas
