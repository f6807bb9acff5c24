"""How ``append``, ``consume`` and ``status`` find a quorum: by its directory, or by an address."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftfast.cli import options

if TYPE_CHECKING:
    from kraftfast.client.admin.admin import Admin
    from kraftfast.client.admin.quorum_info import QuorumInfo
    from kraftfast.client.consumer.consumer import RecordStream
    from kraftfast.client.producer.producer import Producer
    from kraftfast.client.quorum_base import Quorum

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


def admin(directory: str | None, servers: str | None, controllers: str | None) -> Admin:
    """Return an operator's calls. Raises UsageError unless exactly one is given, NotFormatted."""
    if sum(each is not None for each in (directory, servers, controllers)) != 1:
        raise click.UsageError("give one of --dir, --bootstrap-server and --bootstrap-controller")
    if directory is not None:
        return here(directory).admin()
    from kraftfast.client.cluster import Cluster, parse_addresses
    from kraftfast.client.remote_quorum import RemoteQuorum
    from kraftfast.types import METADATA_TOPIC

    # no search for a leader: each call says within its own time that there is none
    addresses = parse_addresses(servers or controllers or "")
    return RemoteQuorum(Cluster(addresses, METADATA_TOPIC)).admin()


def here(directory: str) -> Quorum:
    """Return the quorum that runs in a directory. Raises NoQuorum, NotFormatted."""
    from kraftfast.connected import connect

    return connect(Path(directory), timeout=START_S)


def there(servers: str, timeout: float) -> Quorum:
    """Return the quorum of these servers. Raises NoQuorum, InvalidOption."""
    from kraftfast.connected import connect

    addresses = servers.split(",")  # a list is never taken for a directory
    return patiently(lambda left: connect(addresses, timeout=left), timeout)


def one_of(directory: str | None, servers: str | None) -> None:
    """Raise UsageError unless exactly one is given."""
    if (directory is None) == (servers is None):
        raise click.UsageError("give either --dir or --bootstrap-server")


def patiently(attempt: Callable[[float], T], timeout: float) -> T:
    """Return ``attempt(seconds)``; say on stderr what is waited for once it takes long."""
    from kraftfast.client.search import ends_search
    from kraftfast.errors import NoQuorum

    first = min(timeout, QUIET_S)
    try:
        return attempt(first)
    except NoQuorum as error:
        if first == timeout or ends_search(error):
            raise
        left = timeout - first
        click.echo(f"kraftfast: {error} -> waiting for up to {left:.3g} s (--timeout)", err=True)
    try:
        return attempt(left)
    except NoQuorum as error:
        error.args = (str(error).replace(f"within {left:g} s", f"within {timeout:g} s"),)
        raise


@contextmanager
def saying(what: str, deadline: float) -> Iterator[None]:
    """Say on stderr what is waited for, and until when, once what is done here takes long.

    ``deadline``: by ``time.monotonic()``; nothing is said of a wait that ends before.
    """

    def say() -> None:
        left = deadline - time.monotonic()
        click.echo(f"kraftfast: waiting for {what}, for up to {left:.3g} s (--timeout)", err=True)

    timer = threading.Timer(QUIET_S, say)
    timer.daemon = True
    if deadline - time.monotonic() > QUIET_S:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def left_until(deadline: float) -> float:
    """Return the seconds until ``deadline``, by ``time.monotonic()``: what one may wait still."""
    return max(0.001, deadline - time.monotonic())


def described(admin: Admin, deadline: float) -> QuorumInfo:
    """Return the quorum as its leader sees it. Raises NoQuorum, TimedOut."""
    with saying("an answer of the leader", deadline):
        return admin.describe(timeout=left_until(deadline))


def producer(
    directory: str | None, servers: str | None, timeout: float, **settings: Any
) -> Producer:
    """Return a blocking producer. Raises NoQuorum, NotFormatted, InvalidOption."""
    from kraftfast.bench.loads.inputs import RECORD_BYTES_MAX

    one_of(directory, servers)
    if servers is not None:
        quorum, largest = there(servers, timeout), 0
    else:
        assert directory is not None
        quorum, largest = here(directory), RECORD_BYTES_MAX
    settings["record_bytes_max"] = largest
    return patiently(lambda left: quorum.producer(timeout=left, **settings), timeout)


def consumer(
    directory: str | None, servers: str | None, from_offset: int, follow: bool, timeout: float
) -> RecordStream:
    """Return the committed records from an offset on. Raises NoQuorum, NotFormatted."""
    one_of(directory, servers)
    if servers is not None:
        return there(servers, timeout).consumer(from_offset, follow=follow, timeout=timeout)
    assert directory is not None
    quorum = here(directory)
    return patiently(
        lambda left: quorum.consumer(from_offset, follow=follow, timeout=left), timeout
    )
