"""``kraftfast quorum upgrade``: ``kraft.version`` 0 to 1, in the words of ``kafka-features``."""

from __future__ import annotations

import contextlib
import re
import time

import click

from kraftfast.cli import reach
from kraftfast.cli.quorum.quorum_options import dry_run, reaches, say

RELEASE = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.[0-9]+)?(?:-IV[0-9]+)?")
DYNAMIC_SINCE = (3, 9)
"""The first release of Kafka's whose metadata.version has kraft.version 1 (KIP-853)."""


@click.command()
@reaches
@click.option("--feature", "-f", metavar="kraft.version=LEVEL", help="The one feature there is.")
@click.option(
    "--release-version", "-r", metavar="VERSION", help="What this release of Kafka's has: 4.0, say."
)
@dry_run
def upgrade(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    feature: str | None,
    release_version: str | None,
    dry_run: bool,
) -> None:
    """Put the voters into the log, so that they can change; there is no way back.

    Every voter tells its leader what it speaks within a few seconds after an election: the upgrade
    waits for that.
    """
    from kraftfast.client.admin.quorum_info import kraft_version_of

    if (feature is None) == (release_version is None):
        raise click.UsageError("give either --feature or --release-version")
    level = level_of(feature) if feature is not None else level_in(release_version or "")
    admin = reach.admin(directory, servers, controllers)
    deadline = time.monotonic() + timeout
    info = reach.described(admin, deadline)
    is_there = kraft_version_of(info) == level and info.voters_committed
    if not is_there:
        with reach.saying("every voter to say what it speaks", deadline):
            admin.upgrade(level, validate_only=dry_run, timeout=reach.left_until(deadline))
    if directory is not None and not dry_run:
        note(directory, level)
    done = "can be upgraded to" if dry_run else "was upgraded to"
    say(
        as_json,
        f"kraft.version is at {level} already." if is_there else f"kraft.version {done} {level}.",
        feature="kraft.version",
        level=level,
        dryRun=dry_run,
    )


def note(directory: str, level: int) -> None:
    """Let no replica of a quorum on this host be given static voters again."""
    from kraftfast.errors import NotFormatted
    from kraftfast.node.storage.description import raise_kraft_version

    with contextlib.suppress(NotFormatted):  # the directory of a single replica
        raise_kraft_version(directory, level)


def level_of(feature: str) -> int:
    """Parse ``kraft.version=1``. Raises UsageError."""
    name, equals, level = feature.partition("=")
    is_level = re.fullmatch("[0-9]{1,5}", level) and int(level) < 2**15
    if name != "kraft.version" or not equals or not is_level:
        raise click.UsageError(f"--feature {feature}: kraft.version=LEVEL is expected")
    return int(level)


def level_in(release: str) -> int:
    """Return the level of a release. Raises UsageError.

    >>> level_in("3.8"), level_in("3.9-IV0"), level_in("4.1.1")
    (0, 1, 1)
    """
    match = RELEASE.fullmatch(release)
    if match is None:
        raise click.UsageError(f"--release-version {release}: a release like 4.0 is expected")
    return int((int(match[1]), int(match[2])) >= DYNAMIC_SINCE)
