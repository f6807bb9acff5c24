"""``kraftfast start``: a supervised quorum in the foreground."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Any

import click

from kraftfast.cli import options, streams
from kraftfast.cli.root import Terminated
from kraftfast.errors import KraftfastError

LOOK_EVERY_S = 0.1


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
@options.timeout
def start(**asked: Any) -> None:
    """Run a quorum on this host until it is told to stop.

    Formats the directory the first time. Workers that die are started again. One line is printed
    for every event. Ctrl-C, SIGTERM or SIGHUP ends it gracefully: everything committed is on disk.
    """
    from kraftfast import LocalQuorum
    from kraftfast.node.processes.tuning import open_to
    from kraftfast.node.storage.local_layout import on_one_device, shared_device_text
    from kraftfast.types import address_text, is_loopback

    directory, voters = asked.pop("directory"), asked.pop("voters")
    listen = asked.pop("metrics")
    settings = {name: value for name, value in asked.items() if value is not None}
    settings["records"] = settings.pop("records_mode", None)
    settings["expose_without_authentication"] = True  # to users of this host: said below
    settings["kraft_version"] = int(settings.get("kraft_version", 1))
    try:
        with ExitStack() as undo:
            metrics = metrics_of(directory, listen, undo)
            quorum = undo.enter_context(LocalQuorum(directory, voters, **settings))
            say(
                f"quorum {quorum.description.cluster_id} in {quorum.path}: "
                f"{len(quorum.directories)} voters, "
                f"durability {quorum.description.durability}, transport {quorum.tuning.transport}"
            )
            for id, (host, port) in quorum.addresses.items():
                say(f"replica {id} listens on {address_text(host, port)}")
            if quorum.addresses:
                say(open_to(quorum.addresses.values(), is_loopback(quorum.tuning.host)))
            for ids in on_one_device(quorum.directories):
                say(shared_device_text(ids))
            for line in metrics.start() if metrics is not None else ():
                say(line)
            try:
                Events(quorum).run()
            finally:
                say("stopping")
    except (KeyboardInterrupt, Terminated):
        pass  # that is how it is told to stop
    say("stopped")


def metrics_of(directory: str, listen: tuple[str, int] | None, undo: ExitStack) -> Any:
    """Return what is to serve ``/metrics`` of the quorum, None if nothing is to."""
    if listen is None:
        return None
    from kraftfast.live.beside import MetricsProcess

    return undo.enter_context(MetricsProcess(directory, listen, say))


def say(text: str) -> None:
    """Print one line at once, with the time of day; nothing where stdout is closed on purpose."""
    if not streams.stdout_is_closed():
        click.echo(f"{time.strftime('%H:%M:%S')} {text}")


class Events:
    """Notices what happens to a quorum and says it."""

    # leader: (epoch, replica id) that was last said; restarts: by replica id, likewise. errors: by
    # id, why a replica did not run when last looked at, until it has opened its log again.
    # watches: the counters of each replica that runs. described_ns: when quorum.json was written.

    def __init__(self, quorum: Any) -> None:
        self.quorum = quorum
        self.leader = (-1, -1)
        self.restarts = dict.fromkeys(quorum.directories, 0)
        self.errors: dict[int, str] = {}
        self.described_ns = self._described_ns()
        self.watches: dict[int, Any] = {}

    def run(self) -> None:
        """Run until interrupted. Raises the error of the last replica once none can run."""
        while True:
            self.look()
            time.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Say what has changed since the last time."""
        self._look_for_replicas()
        workers = dict(self.quorum.supervisor.workers)
        faults = self.quorum.faults
        for id, worker in workers.items():
            if id in faults:
                self._say_fault(id, faults[id])
            else:
                self._look_at(id, worker)
        if len(faults) == len(workers):
            raise next(iter(faults.values()))
        leader = max((self._leads(id) for id in workers), default=self.leader)
        if leader > self.leader:
            self.leader = leader
            say(f"epoch {leader[0]}: replica {leader[1]} leads")

    def _say_fault(self, id: int, error: KraftfastError) -> None:
        if self.errors.get(id) != str(error):
            self.errors[id] = str(error)
            place = self.quorum.directories[id]
            others_run = 2 * len(self.quorum.faults) < len(self.quorum.directories)
            way_on = f"; kraftfast storage replace {place} rebuilds it from the others"
            say(f"replica {id} cannot run -> it stays down: {error}{way_on if others_run else ''}")

    def _look_at(self, id: int, worker: Any) -> None:
        """Say that a worker was started again, or why it does not run for now.

        The supervisor's thread may change or clear ``worker.error`` between any two lines here:
        it is read once.
        """
        runs, error = worker.ready.is_set(), worker.error
        if error is not None:
            if self.errors.get(id) != str(error):
                self.errors[id] = str(error)
                say(f"replica {id} does not run -> it is tried again: {error}")
        elif worker.restarts > self.restarts[id] and (runs or id not in self.errors):
            self.restarts[id] = worker.restarts
            self._forget(id)
            process = worker.process
            say(
                f"replica {id} ended -> started again"
                + (f" as process {process.pid}" if process is not None else "")
            )
        if runs and error is None:
            self.errors.pop(id, None)

    def _described_ns(self) -> int:
        try:
            return os.stat(os.path.join(self.quorum.path, "quorum.json")).st_mtime_ns
        except OSError:
            return -1  # it is gone, or cannot be read now: no reason to stop the replicas

    def _look_for_replicas(self) -> None:
        """Start those that ``kraftfast quorum add-controller`` has made."""
        described_ns = self._described_ns()
        if described_ns in (-1, self.described_ns):
            return
        self.described_ns = described_ns
        known = set(self.quorum.directories)
        try:
            self.quorum.adopt()
        except KraftfastError as error:  # no reason to stop all others
            say(f"a replica that was added cannot run: {error}")
        for id in sorted(set(self.quorum.directories) - known):
            self.restarts[id] = 0
            say(f"replica {id} was added -> started as process {self.quorum.supervisor.pid(id)}")

    def _leads(self, id: int) -> tuple[int, int]:
        """Return (epoch, leader) as this replica knows it; (-1, -1) if it knows none."""
        from kraftfast.errors import PeerGone

        try:
            if id not in self.watches:
                self.watches[id] = self.quorum.watch(id)
            stats = self.watches[id].stats
        except PeerGone:
            return -1, -1
        leader_id = stats["leader_id"]
        return (stats["epoch"], leader_id) if leader_id >= 0 else (-1, -1)

    def _forget(self, id: int) -> None:
        watch = self.watches.pop(id, None)
        if watch is not None:
            watch.close()
