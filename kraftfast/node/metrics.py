"""Kafka's metrics of a replica, under Kafka's names (``KafkaRaftMetrics``).

Rates, averages and maxima are of the last 30 to 60 seconds, as those of Kafka's ``SampledStat``
are. Kafka spreads a batch's commit latency over its records; here it is that of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kraftfast.types import ZERO_UUID, OffsetAndEpoch, uuid_text

if TYPE_CHECKING:
    from kraftfast.node.node import Node

RAFT_METRICS = "kafka.server:type=raft-metrics"
WINDOW_MS = 30_000
NOTE_MS = 200
"""How often what readers of the page look at now and then is stored there."""
SLOW_FLUSH_NS = 500_000_000
"""A flush that takes longer is reported: a disk that works takes a hundredth of that."""
ELECTING = ("prospective", "candidate")
ELECTED = ("leader", "follower")


class MetricMark(NamedTuple):
    """Where the counters were."""

    at_ms: int
    appended: int  # records, as a leader
    fetched: int  # records, as a follower
    idle_ns: int
    elections: int
    elections_ms: int
    commits: bytes  # the histogram of the stage


class Metrics:
    """Counts what Kafka's metrics need beside what the node knows anyway."""

    # role: the last that was reported. appended, fetched: records that came to the log while
    # leading, or following. elections, elections_ms: how many ended with a leader, and how long
    # they took in all; longest: in the window before and in this one. began_ms, began_epoch: when
    # this replica began to campaign, and what the epoch was then; -1: it does not. led: how often
    # it became the leader. marks: where the counters were when these two windows began. note_ms:
    # when to store the words of ``NOTED``. loaded: the snapshot whose taking over was told last.

    def __init__(self, node: Node) -> None:
        self.node, self.role = node, str(node.core.role)
        self.unheard = self.role == "follower"
        self.appended = self.fetched = 0
        self.elections = self.elections_ms = self.led = 0
        self.longest = [0, 0]
        self.began_ms = self.began_epoch = -1
        self.end_offset, self.note_ms = node.log.end_offset, 0
        self.loaded: OffsetAndEpoch | None = None
        first = self._mark(node.now_ms())
        self.marks = [first, first]

    def tend(self, now_ms: int) -> None:
        """Begin another window, and note what others look at, when it is time."""
        if self.unheard and self.node.core.heard_leader_id >= 0:
            self._heard()
        if now_ms >= self.note_ms:
            self.note_ms = now_ms + NOTE_MS
            self._note()
            self._tell()
        if now_ms - self.marks[1].at_ms >= WINDOW_MS:
            self.count_records()
            self.marks = [self.marks[1], self._mark(now_ms)]
            self.longest = [self.longest[1], 0]

    def role_changed(self, role: str) -> None:
        """Time elections; records are counted under the role in which they came."""
        now_ms = self.node.now_ms()
        self.count_records()
        self.role, self.unheard = role, role == "follower"
        if role in ELECTING:
            if self.began_ms < 0:
                own = role == "candidate"  # whose epoch is one that it begins itself
                self.began_ms, self.began_epoch = now_ms, int(self.node.core.epoch) - own
            return
        # an epoch that was known before has no new leader: a pre-vote was lost
        if role in ELECTED and self.began_ms >= 0 and self.node.core.epoch > self.began_epoch:
            took_ms = now_ms - self.began_ms
            self.elections += 1
            self.elections_ms += took_ms
            self.longest[1] = max(self.longest[1], took_ms)
        self.began_ms = -1
        self.led += role == "leader"

    def _heard(self) -> None:
        """Show and report the leader, which has answered: a dead one is followed for a while."""
        node, core, self.unheard = self.node, self.node.core, False
        node.show()
        node.event_log.role_changed(core.role, core.epoch, core.leader_id)

    def count_records(self) -> None:
        """Record what came to the log since the last time; what was cut away stays counted."""
        came = max(0, self.node.log.end_offset - self.end_offset)
        self.end_offset = self.node.log.end_offset
        if self.role == "leader":
            self.appended += came
        else:
            self.fetched += came

    def _mark(self, now_ms: int) -> MetricMark:
        node = self.node
        commits = node.stats.mark("commit")
        counters = (self.appended, self.fetched, node.idle.idle_ns)
        return MetricMark(now_ms, *counters, self.elections, self.elections_ms, commits)

    def _note(self) -> None:
        """Store what changes seldom, or is not worth a store each time, in the shared page."""
        node, core = self.node, self.node.core
        known = core.snapshots
        fills = [each.link.inbox.fill_permille() for each in node.ring_producers.producers]
        troubles = (core.in_doubt, bool(core.warning), node.log.error is not None)
        node.stats.note(
            {
                "noted_ns": node.seen_ns,
                "leader_high_watermark": core.leader_high_watermark,
                "elections": self.elections,
                "leaderships": self.led,
                "voters": len(core.voters.ids),
                "is_voter": core.voters.is_voter(node.key),
                "producers": len(node.ring_producers.producers),
                "connections": 0 if node.sockets is None else len(node.sockets.sessions),
                "other_flushes": node.log.syncs + node.log.nursery.flushes,
                "truncations": node.log.truncations,
                "troubles": sum(is_so << bit for bit, is_so in enumerate(troubles)),
                "snapshot_end_offset": known[-1].offset if known else 0,
                "ring_fill_permille": max(fills, default=0),
            }
        )

    def _tell(self) -> None:
        """Report what happened in other threads: slow flushes, and a snapshot that was loaded."""
        node = self.node
        slowest_ns = node.flusher.take_slowest_ns()
        if slowest_ns >= SLOW_FLUSH_NS:
            node.tell("slow_flush", duration_ms=slowest_ns // 1_000_000)
        loaded = None if node.applier is None else node.applier.loaded
        if loaded is not None and loaded != self.loaded:
            self.loaded = loaded
            node.tell("snapshot_loaded", offset=loaded.offset, epoch=loaded.epoch)
        node.event_log.tend()

    # --- what is told -----------------------------------------------------------------------------

    def raft(self) -> dict[str, Any]:
        """Return ``kafka.server:type=raft-metrics``."""
        node, core = self.node, self.node.core
        self.count_records()
        now_ms = node.now_ms()
        mark = self.marks[0]
        seconds = max(0.001, (now_ms - mark.at_ms) / 1000)
        elections = self.elections - mark.elections
        commits, mean_us, max_us = node.stats.since("commit", mark.commits)
        description = core.describe(now_ms)
        voted = node.key if core.role in ("leader", "candidate") else core.voted
        is_voter = core.voters.is_voter(node.key)
        found = {
            "current-state": current_state(core.role, voted is not None, is_voter),
            "current-leader": core.heard_leader_id,
            "current-vote": -1 if voted is None else voted.id,
            "current-vote-directory-id": uuid_text(
                ZERO_UUID if voted is None else voted.directory_id
            ),
            "current-epoch": core.epoch,
            "high-watermark": core.high_watermark,
            "log-end-offset": core.end_offset,
            "log-end-epoch": core.last_epoch,
            "number-unknown-voter-connections": 0,
            "number-of-voters": len(description.voter_set),
            "commit-latency-avg": mean_us / 1000 if commits else None,
            "commit-latency-max": max_us / 1000 if commits else None,
            "election-latency-avg": (
                (self.elections_ms - mark.elections_ms) / elections if elections else None
            ),
            "election-latency-max": max(self.longest) if elections else None,
            "fetch-records-rate": (self.fetched - mark.fetched) / seconds,
            "append-records-rate": (self.appended - mark.appended) / seconds,
            "poll-idle-ratio-avg": min(1.0, (node.idle.idle_ns - mark.idle_ns) / 1e9 / seconds),
        }
        if core.role == "leader":
            found["number-of-observers"] = len(description.observers)
            found["uncommitted-voter-change"] = int(description.uncommitted_voter_change)
        return found

    def controller(self) -> dict[str, Any]:
        """Return ``kafka.controller:type=KafkaController``, as far as there are no brokers."""
        node, core = self.node, self.node.core
        committed = max(core.high_watermark, 0)
        applied = committed if node.applier is None else node.applier.applied
        return {
            "ActiveControllerCount": int(core.role == "leader"),
            "NewActiveControllersCount": self.led,
            "LastCommittedRecordOffset": committed - 1,
            "LastAppliedRecordOffset": applied - 1,
            "IgnoredStaticVoters": int(core.kraft_version > 0 and bool(node.config.voters)),
        }

    def snapshots(self) -> dict[str, Any]:
        """Return ``kafka.server:type=SnapshotEmitter``: of snapshots made here since the start."""
        snapshots = self.node.snapshots
        return {
            "LatestSnapshotGeneratedBytes": snapshots.made_bytes,
            "LatestSnapshotGeneratedAgeMs": self.node.now_ms() - snapshots.made_ms,
        }

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return all of them, by the group's name. Latencies are milliseconds, rates a second."""
        return {
            RAFT_METRICS: self.raft(),
            "kafka.controller:type=KafkaController": self.controller(),
            "kafka.server:type=SnapshotEmitter": self.snapshots(),
        }


def current_state(role: str, voted: bool, voter: bool) -> str:
    """Return Kafka's word for it: Resigned shows as unattached, no voter as observer."""
    if not voter and role in ("follower", "unattached"):
        return "observer"
    if role == "resigned":
        return "unattached"
    if voted and role in ("prospective", "unattached"):
        return f"{role}-voted"
    return role
