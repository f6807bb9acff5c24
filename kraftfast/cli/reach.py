"""How ``append``, ``consume`` and ``status`` find a quorum: by its directory, or by an address."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from kraftfast.cli import options

directory = click.option(
    "--dir",
    "directory",
    type=options.DIRECTORY,
    help="The directory of a quorum, or of one replica, on this host.",
)
bootstrap_server = click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT[,...]",
    help="Any replicas of a quorum, over TCP.",
)


START_S = 1.0
"""For so long a process may have been started and hold no lock yet."""
QUIET_S = 2.0
"""For so long a command waits for a quorum without a word."""

T = TypeVar("T")

bootstrap_controller = click.option(
    "--bootstrap-controller",
    "controllers",
    metavar="HOST:PORT[,...]",
    help="The same: every replica is a controller.",
)


def admin(directory: str | None, servers: str | None, controllers: str | None) -> Any:
    """An operator's calls. Raises UsageError unless exactly one is given, NotFormatted."""
    from kraftfast.client.admin import Admin
    from kraftfast.client.admin_ways import LocalWay, RemoteWay
    from kraftfast.client.remote import Cluster, parse_addresses
    from kraftfast.types import METADATA_TOPIC

    if sum(each is not None for each in (directory, servers, controllers)) != 1:
        raise click.UsageError("give one of --dir, --bootstrap-server and --bootstrap-controller")
    if directory is not None:
        places = replica_directories(directory)
        check_runs(places, directory)
        return Admin(LocalWay(places, topic_of(directory)))
    return Admin(RemoteWay(Cluster(parse_addresses(servers or controllers or ""), METADATA_TOPIC)))


def topic_of(path: str) -> str:
    """The name of the log of a quorum, or of a single replica. Raises NotFormatted."""
    from kraftfast.log.directory import read_options
    from kraftfast.log.disk import Disk
    from kraftfast.types import METADATA_TOPIC

    options = read_options(Disk(), next(iter(replica_directories(path).values())))
    return METADATA_TOPIC if options is None else options.topic


def one_of(directory: str | None, servers: str | None) -> None:
    """Raises UsageError unless exactly one is given."""
    if (directory is None) == (servers is None):
        raise click.UsageError("give either --dir or --bootstrap-server")


def replica_directories(path: str) -> Mapping[int, str]:
    """Replica id -> directory, of a quorum or of a single replica. Raises NotFormatted."""
    from kraftfast.log.directory import META, read_meta
    from kraftfast.log.disk import Disk
    from kraftfast.node.local_layout import LiveDirectories

    path = os.path.abspath(path)
    if os.path.exists(os.path.join(path, META)):
        return {read_meta(Disk(), path).node_id: path}
    return LiveDirectories(path)


def check_runs(places: Mapping[int, str], path: str) -> None:
    """Raise NoQuorum if no process runs any of these replicas, nor the quorum in ``path``.

    Their clients would wait for one. A process that was just started gets a moment.
    """
    from kraftfast.errors import NoQuorum
    from kraftfast.log.disk import Disk

    locks = [os.path.join(place, ".lock") for place in [path, *places.values()]]
    until = time.monotonic() + START_S
    while not any(map(Disk().is_locked, locks)):
        if time.monotonic() >= until:
            raise NoQuorum(f"no process runs a replica of {path} (start and serve do)")
        time.sleep(0.05)


def patiently(attempt: Callable[[float], T], timeout: float) -> T:
    """Return ``attempt(seconds)``; say on stderr what is waited for once it takes long."""
    from kraftfast.client.refusals import ends_search
    from kraftfast.errors import NoQuorum

    first = min(timeout, QUIET_S)
    try:
        return attempt(first)
    except NoQuorum as error:
        if first == timeout or ends_search(error):
            raise
        left = timeout - first
        click.echo(f"kraftfast: {error} -> waiting for up to {left:.3g} s (--timeout)", err=True)
    return attempt(left)


def producer(directory: str | None, servers: str | None, timeout: float) -> Any:
    """A blocking producer. Raises NoQuorum, NotFormatted."""
    from kraftfast.bench.inputs import RECORD_BYTES_MAX

    one_of(directory, servers)
    if servers is not None:
        import kraftfast

        found = patiently(lambda left: kraftfast.connect(servers, timeout=left), timeout)
        return patiently(lambda left: found.producer(timeout=left), timeout)
    from kraftfast.client.local import LocalConnector
    from kraftfast.client.producer import BATCH_BYTES, WINDOW_BATCHES, Producer

    assert directory is not None
    places = replica_directories(directory)
    check_runs(places, directory)
    connector = LocalConnector(places, BATCH_BYTES, WINDOW_BATCHES)
    return patiently(lambda left: Producer(connector, left, RECORD_BYTES_MAX), timeout)


def consumer(
    directory: str | None, servers: str | None, from_offset: int, follow: bool, timeout: float
) -> Any:
    """Committed records from an offset on. Raises NoQuorum, NotFormatted."""
    one_of(directory, servers)
    if servers is not None:
        import kraftfast

        found = patiently(lambda left: kraftfast.connect(servers, timeout=left), timeout)
        return found.consumer(from_offset, follow=follow, timeout=timeout)
    from kraftfast.client.consumer import Consumer

    assert directory is not None
    places = replica_directories(directory)
    check_runs(places, directory)
    return patiently(
        lambda left: Consumer(places, from_offset, follow=follow, timeout=left), timeout
    )
