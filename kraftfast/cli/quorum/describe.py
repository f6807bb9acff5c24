"""``kraftfast quorum describe``: the columns of ``kafka-metadata-quorum describe``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import reach
from kraftfast.cli.quorum.quorum_options import reaches

if TYPE_CHECKING:
    from kraftfast.client.admin.quorum_info import QuorumInfo, ReplicaState

LABEL = 24
COLUMNS = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp",
    "LastCaughtUpTimestamp", "Status",
)  # fmt: skip


@click.command()
@reaches
@click.option("--status", "wants_status", is_flag=True, help="Who leads, who votes.")
@click.option("--replication", is_flag=True, help="How far each replica is.")
@click.option("--human-readable", is_flag=True, help="With --replication: how long ago, not when.")
def describe(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    wants_status: bool,
    replication: bool,
    human_readable: bool,
) -> None:
    """Show the quorum as its leader sees it; --json shows everything at once."""
    if not as_json and wants_status == replication:
        raise click.UsageError("give one of --status and --replication")
    if human_readable and not replication:
        raise click.UsageError("--human-readable goes with --replication")
    admin = reach.admin(directory, servers, controllers)
    info = reach.described(admin, time.monotonic() + timeout)
    if as_json:
        click.echo(json.dumps(facts(admin.cluster_id(timeout=timeout), info)))
    elif replication:
        now_ms = time.time_ns() // 1_000_000 if human_readable else None
        click.echo(replication_text(info, now_ms), nl=False)
    else:
        click.echo(status_text(admin.cluster_id(timeout=timeout), info), nl=False)


def lag_of(info: QuorumInfo) -> tuple[int, int]:
    """MaxFollowerLag, and MaxFollowerLagTimeMs: by how much the voter with the shortest log is
    behind the leader, in offsets and in milliseconds; -1 if unknown."""
    leader = info.find(info.leader_id)
    if leader is None or not info.voters:
        return -1, -1
    last = min(info.voters, key=lambda each: each.log_end_offset)
    lag = leader.log_end_offset - last.log_end_offset
    if last.id == leader.id:
        return lag, 0
    known = leader.last_caught_up_ms >= 0 and last.last_caught_up_ms >= 0
    return lag, leader.last_caught_up_ms - last.last_caught_up_ms if known else -1


def status_text(cluster_id: str, info: QuorumInfo) -> str:
    """Return what ``describe --status`` prints; a reassignment adds lines of its own."""
    lag, lag_ms = lag_of(info)
    rows: list[tuple[str, object]] = [
        ("ClusterId", cluster_id),
        ("LeaderId", info.leader_id),
        ("LeaderEpoch", info.epoch),
        ("HighWatermark", info.high_watermark),
        ("MaxFollowerLag", lag),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", replicas_text(info.voters)),
        ("CurrentObservers", replicas_text(info.observers)),
    ]
    if info.target is not None:
        rows.append(("TargetVoters", list(info.target)))
    if info.ended_target is not None:
        rows.append(("EndedTarget", list(info.ended_target)))
    return "".join(f"{label + ':':<{LABEL}}{value}\n" for label, value in rows)


def replicas_text(replicas: tuple[ReplicaState, ...]) -> str:
    """Return Kafka's list of replicas: what is not known is left out."""
    return f"[{', '.join(json.dumps(replica_facts(each)) for each in replicas)}]"


def replica_facts(replica: ReplicaState) -> dict[str, Any]:
    """Return one replica, as ``--status`` has it."""
    from kraftfast.types import ZERO_UUID, uuid_text

    found: dict[str, Any] = {"id": replica.id}
    if replica.directory_id != ZERO_UUID:
        found["directoryId"] = uuid_text(replica.directory_id)
    if replica.endpoints:
        found["endpoints"] = [each.text for each in replica.endpoints]
    return found


def ordered(info: QuorumInfo) -> list[tuple[ReplicaState, str]]:
    """Return leader, followers, observers, each with its status."""
    found = []
    for each in (*info.voters, *info.observers):
        votes = each in info.voters
        status = "Follower" if votes else "Observer"
        found.append((each, "Leader" if each.id == info.leader_id else status))
    order = {"Leader": 0, "Follower": 1, "Observer": 2}
    return sorted(found, key=lambda pair: order[pair[1]])


def replication_text(info: QuorumInfo, now_ms: int | None) -> str:
    """Return what ``describe --replication`` prints; ``now_ms``: times are how long ago."""
    from kraftfast.types import uuid_text

    def moment(at_ms: int) -> str:
        if now_ms is None or at_ms < 0:
            return str(at_ms)
        return f"{now_ms - at_ms} ms ago"

    leader = info.find(info.leader_id)
    end_offset = -1 if leader is None else leader.log_end_offset
    rows = [COLUMNS]
    for replica, status in ordered(info):
        rows.append(
            (
                str(replica.id),
                uuid_text(replica.directory_id),
                str(replica.log_end_offset),
                str(end_offset - replica.log_end_offset),
                moment(replica.last_fetch_ms),
                moment(replica.last_caught_up_ms),
                status,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
             for row in rows)  # fmt: skip
    return "".join(line + "\n" for line in lines)


def facts(cluster_id: str, info: QuorumInfo) -> dict[str, Any]:
    """Return everything, for programs."""
    lag, lag_ms = lag_of(info)

    def replica(each: ReplicaState) -> dict[str, Any]:
        return replica_facts(each) | {
            "logEndOffset": each.log_end_offset,
            "lastFetchTimestamp": each.last_fetch_ms,
            "lastCaughtUpTimestamp": each.last_caught_up_ms,
        }

    return {
        "clusterId": cluster_id,
        "leaderId": info.leader_id,
        "leaderEpoch": info.epoch,
        "highWatermark": info.high_watermark,
        "maxFollowerLag": lag,
        "maxFollowerLagTimeMs": lag_ms,
        "currentVoters": [replica(each) for each in info.voters],
        "currentObservers": [replica(each) for each in info.observers],
        "targetVoters": None if info.target is None else list(info.target),
        "endedTarget": None if info.ended_target is None else list(info.ended_target),
    }
