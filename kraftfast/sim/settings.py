"""What a seed chooses: the quorum, its machines and network, and what goes wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import log
from random import Random
from typing import Any

from kraftfast import limits
from kraftfast.core.config import Durability, FlushPolicy, QuorumConfig
from kraftfast.sim.faults.plans import plan_of
from kraftfast.sim.swarm import swarmed, thinned
from kraftfast.types import Endpoint

FAULTS = (
    "kill",  # a process dies, its page cache stays
    "power",  # a machine loses power
    "blackout",  # several or all machines lose power at once
    "crash_in_call",  # a process or machine stops inside a system call of the log
    "pause",  # a process is stopped for a while, and goes on
    "cut",  # some pairs of replicas cannot talk, one way or both
    "isolate",  # one replica is cut off, both ways or only inwards or outwards
    "reset",  # links break and are made again
    "slow_disk",  # flushes take long, perhaps longer than every time-out
    "full_disk",  # no space for a while
    "failing_sync",  # an fsync fails, the next ones succeed (fsyncgate)
    "rot",  # a byte changes on the disk of a machine that is down; a minority only
    "corrupt_network",  # bytes of answers change on their way
    "clock",  # a clock drifts, or stands still for a while
    "shutdown",  # a replica ends gracefully and comes back
    "resign",  # a leader is asked to step down
    "poison",  # producers send batches that do not check (D20)
)

AIMED = (
    "nominee",  # a replica with an unflushed tail campaigns, and loses power on the way (D21)
)
"""Faults that chance hardly ever puts together; drawn apart, so that other seeds stay the same."""

REACHING = (
    "aimed_call",  # a machine stops at a system call of one kind, its next start's perhaps
    "deposed",  # a leader cuts what it appended while it was cut off, and ends just then
    "full_at_install",  # a disk is full when a snapshot is to take the place of its log
    "stop_and_power",  # power goes right after an orderly stop
    "unflushed",  # power goes between an append and its flush
    "rot_file",  # a bit of quorum-state, a checkpoint, a mark or a snapshot changes at rest
    "rot_running",  # a bit of a segment or a snapshot changes under its process
    "lost_file",  # a file is gone: a vote, a checkpoint, a snapshot, the newest segment
    "producer_restart",  # named producers forget everything but their names
)
"""Faults of what chance reached least, drawn apart too; the disks of a minority rot."""
HANGING = (
    "stop_far_ahead",  # a leader ends in order with more unflushed segments than one flush covers
)
"""Faults of a disk whose flushes hang while everything else goes on, drawn apart from those."""
OF_CLIENTS = (
    "client_kill",  # a program that appends, reads or asks dies at any moment, and begins again
)
"""Faults of runs in which clients run as they are, drawn apart."""
TRIMMING = (
    "trim",  # an operator trims the log of a replica that is down; power may go in the middle
)
"""Faults of runs in which an operator uses the command line on stopped replicas, drawn apart."""
SCARCE = (
    "descriptors",  # a process may open no more of them for a while
)
"""What a process runs out of, drawn apart."""
NOT_IN_MEMORY = ("rot_file", "rot_running", "lost_file")
"""What durability=memory gives up, and when, is a test of its own."""

CHANGES = (
    "add_voter",  # an observer is to be a voter
    "remove_voter",  # a voter, the leader too, is to be one no more
    "move",  # a machine comes back under another address
    "upgrade",  # kraft.version goes from 0 to 1
    "transfer",  # the leader hands over to a voter
    "reassign",  # these are to be the voters, all at once; or no longer
    "wipe",  # a machine comes back with an empty disk, under another directory id
)
"""What an operator does, or what happens to machines (KIP-853, KIP-642)."""
MISTAKES = (
    "add_gone",  # an observer is to be a voter, by the directory id that it had before its last
)
"""Requests that must be refused; drawn apart."""
CONFIGURED = (
    "replace_configured",  # a machine comes back with an empty disk, its voters by configuration
)
"""What befalls a quorum that was begun without voters in its log, and has them now; drawn apart."""

LOCAL_CLIENTS_FROM = 10_000
"""The first seed that may have clients on the host of the replicas."""
OPERATED_FROM = 45_000
"""The first seed in which an operator trims logs, and clients use what few of them do."""
MIXED_FROM = 45_400
"""The first seed in which voters change though appends are acknowledged from memory, and some disks
are always slow."""
SLOW: dict[str, Any] = {
    "election_timeout_ms": 300,
    "fetch_timeout_ms": 900,
    "request_timeout_ms": 600,
    "fetch_max_wait_ms": 90,
}
"""Times that suit a slow disk: no flush takes as long."""
SHORT_CHAOS_MS, SHORT_IDLE_MS, SHORT_SETTLE_MS, SHORT_APPEND_EVERY_MS = 800, 500, 20_000, 8.0
"""Bounds of a short run."""
SUPERVISED_CHAOS_MS = 2_000
"""Of a short run in which workers are started: that takes some of it."""


@dataclass(frozen=True, slots=True)
class Delays:
    """How long something takes, microseconds: mostly short, now and then a spike."""

    short_us: int = 300
    spike_us: int = 20_000
    spike_share: float = 0.02

    def draw(self, random: Random) -> int:
        """Return one duration, at least 1."""
        if random.random() < self.spike_share:
            return random.randint(1, self.spike_us)
        return 1 + int(-log(1.0 - random.random()) * self.short_us)  # random.expovariate(1.0)


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """One run. Times are virtual milliseconds unless a name says otherwise."""

    voters: int = 3
    observers: int = 0
    durability: str = "majority"
    flush: str = "adaptive"
    transport: str = "ring"
    """How replicas reach each other; ``mixed``: by pair."""
    references: bool = True
    """Over rings large answers name a place in the leader's segment."""
    election_timeout_ms: int = 150
    fetch_timeout_ms: int = 300
    request_timeout_ms: int = 300
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 100
    fetch_max_bytes: int = limits.FETCH_MAX_BYTES
    stream_pushes_max: int = limits.STREAM_PUSHES_MAX
    inline_flush_bytes_max: int = limits.INLINE_FLUSH_BYTES_MAX
    follower_inline_flush_bytes_max: int = limits.FOLLOWER_INLINE_FLUSH_BYTES_MAX
    unflushed_bytes_max: int = limits.UNFLUSHED_BYTES_MAX
    unflushed_age_ms_max: int = limits.UNFLUSHED_AGE_MS_MAX
    segment_bytes: int = 64 * 1024
    segment_ms: int = limits.SEGMENT_MS
    stride_bytes: int = 32 * 1024
    prepare_bytes: int = 32 * 1024
    ring_bytes: int = 1 << 20
    """How many messages a ring holds."""
    network: Delays = Delays()
    disk: Delays = Delays(150, 3_000, 0.02)
    drop: float = 0.0
    """How likely a segment of a stream is lost, and comes later."""
    resets: float = 0.0
    """How likely its connection breaks."""
    producers: int = 3
    idempotent: int = 0
    """How many of them try again, and rely on the log to take nothing twice."""
    append_every_ms: float = 8.0
    value_bytes_max: int = 600
    values_max: int = 3
    named: int = 0
    """How many others have names, and ask how far they came whenever they begin."""
    answer_ms: int = 3_000
    """How long one with a name waits to be told how far it came, and then asks again."""
    silence_ms: int = 2_000
    producer_backoff_ms: int = 40
    """How long one that tries again waits for an answer, and then at most before it does."""
    filling: int = 0
    """How many others have records that look like a page of the log."""
    consumers: int = 0
    """How many list offsets, ask for ends of epochs and fetch, as Kafka's clients do."""
    readers: int = 1
    real_producers: int = 0
    """How many producers run as they are, each in a program of its own; the next three likewise."""
    real_named: int = 0
    real_readers: int = 0
    real_admins: int = 0
    local_producers: int = 0
    """How many producers run as they are and append over rings; the next three likewise."""
    local_named: int = 0
    local_admins: int = 0
    local_askers: int = 0
    """How many ask the state machines, where there are some."""
    real_consumers: int = 0
    """How many consumers run as they are over TCP; the next ones on the host of the replicas."""
    local_consumers: int = 0
    local_watchers: int = 0
    """How many wait by watches until more is committed."""
    strangers: int = 0
    """How many clients ask in any version, for what few ask and for what is not."""
    local_strangers: int = 0
    """How many programs of the replicas' host say at their doors what is not for them."""
    async_producers: str = ""
    """Whether one producer of asyncio runs as it is: ``remote`` or ``local``; else none."""
    user: str = ""
    """Whether a program runs that uses all that a quorum offers: ``remote`` or ``local``."""
    supervised: bool = False
    """Whether a supervisor starts the processes, as it is; else the world does."""
    barrier_every_ms: float = 0.0
    """How often a client asks for a read barrier; 0: never."""
    faults: tuple[str, ...] = FAULTS
    fault_every_ms: float = 250.0
    chaos_ms: int = 4_000
    settle_ms: int = 60_000
    stuck_ms: int = 0
    """How long a quorum is stuck by design before its run ends; 0: as long as it may settle."""
    idle_ms: int = 2_000
    leave_broken: bool = True
    """Whether a minority may stay broken when the rest is healed."""
    kraft_version: int = 0
    """1: the voters are in a bootstrap snapshot; 0: they are configured."""
    changes: tuple[str, ...] = ()
    change_every_ms: float = 200.0
    snapshots: str = ""
    """``machine``: a state machine makes them; ``own``: one that the world is given (``applier``)
    may; ``trim``: none, and the log forgets; else none."""
    snapshot_bytes: int = 10_000
    state_bytes: int = 2_000
    """So much of the log makes another snapshot due, and about how large one is."""
    fetch_snapshot_max_bytes: int = limits.FETCH_MAX_BYTES
    retention_bytes: int = -1
    retention_ms: int = -1
    latecomer: bool = False
    """Whether the last observer is started only when the log is long."""
    auto_join: bool = False
    """Whether observers that never were voters make themselves voters."""
    load_ms: int = 0
    """How long appends go on when all is healed: within that every replica has to catch up."""

    @classmethod
    def of_seed(
        cls, seed: int, reach: bool = True, short: bool = False, **overrides: Any
    ) -> WorldSettings:
        """Return the settings that a seed stands for (swarm testing: each run has its own mixture).

        ``reach``: with what is drawn apart, too; without, a seed is the run it was before.
        ``short``: cut it down to about half a second of one core, without a plan (those need time).
        """
        random = Random(seed * 2 + 1)
        share = random.choice((0.3, 0.5, 0.8))
        faults = tuple(fault for fault in FAULTS if random.random() < share)
        durability = random.choice(("majority",) * 5 + ("all",) + ("memory",) * 2)
        if durability == "memory":  # what it gives up, and when, is a test of its own
            faults = tuple(each for each in faults if each not in ("blackout", "rot"))
        timeout = random.choice((100, 150, 300))
        transport = random.choice(("ring", "ring", "socket", "mixed"))
        fetch_timeout = timeout * random.choice((1, 2, 3))
        lossy = transport != "ring" and random.random() < 0.5
        chosen = cls(
            voters=random.choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5)),
            observers=random.choice((0, 0, 0, 0, 1)),
            durability=durability,
            flush=random.choice([policy.value for policy in FlushPolicy]),
            transport=transport,
            references=random.random() < 0.7,
            election_timeout_ms=timeout,
            fetch_timeout_ms=fetch_timeout,
            request_timeout_ms=timeout * random.choice((1, 2)),
            retry_backoff_ms=random.choice((5, 20)),
            fetch_max_wait_ms=fetch_timeout // random.choice((3, 10)),
            fetch_max_bytes=random.choice((1, 2_000, 20_000, limits.FETCH_MAX_BYTES)),
            stream_pushes_max=random.choice((1, 2, limits.STREAM_PUSHES_MAX)),
            inline_flush_bytes_max=(
                inline := random.choice((0, 0, 2_000, limits.INLINE_FLUSH_BYTES_MAX))
            ),
            follower_inline_flush_bytes_max=inline,
            unflushed_age_ms_max=random.choice((5, 50, 300)),
            segment_bytes=random.choice((8, 16, 64, 64, 256)) * 1024,
            segment_ms=random.choice((300, limits.SEGMENT_MS, limits.SEGMENT_MS)),
            stride_bytes=random.choice((4, 8, 32, 64)) * 1024,
            prepare_bytes=random.choice((0, 8, 64)) * 1024,
            ring_bytes=random.choice((1 << 18, 1 << 20)),
            network=random.choice(
                (Delays(), Delays(100, 200_000, 0.01), Delays(5_000, 60_000, 0.05))
            ),
            disk=random.choice((Delays(150, 3_000, 0.02), Delays(2_000, 40_000, 0.05))),
            drop=random.choice((0.01, 0.05)) if lossy else 0.0,
            resets=random.choice((0.0, 0.002)) if lossy else 0.0,
            append_every_ms=random.choice((2.0, 8.0, 30.0)),
            value_bytes_max=random.choice((20, 600, 3_000)),
            values_max=random.choice((1, 3, 10)),
            readers=random.choice((0, 1, 2)),
            faults=faults,
            fault_every_ms=random.choice((60.0, 250.0, 800.0)),
            chaos_ms=random.choice((800, 1_500, 3_000)),
        )
        of_seed = chosen._drawn_apart(seed, reach)
        plan = plan_of(seed) if reach and not short else {}
        if reach and not plan:  # plans start processes themselves, at their moments
            of_seed["supervised"] = _is_supervised(seed)
        if short:
            of_seed |= thinned(seed, of_seed)
            drawn, cut = replace(chosen, **of_seed), {}
            if seed >= OPERATED_FROM and drawn.supervised:
                cut["chaos_ms"] = SUPERVISED_CHAOS_MS
            if reach:
                cut |= swarmed(seed, drawn.as_dict())
            return drawn._shortened(**(cut | overrides))
        return replace(chosen, **(of_seed | plan | overrides))

    def _drawn_apart(self, seed: int, reach: bool) -> dict[str, Any]:
        """Return what each has a generator of its own for: a new one changes no other."""
        found = self._membership_of_seed(seed) | self._snapshots_of_seed(seed)
        if reach:
            found |= self._reach_of_seed(seed)
        found["faults"] = self.faults + tuple(found.get("faults", ())) * 2
        mistakes = found.pop("mistakes", ())
        if found.get("changes"):
            found["changes"] += mistakes
        if "upgrade" in found.get("changes", ()) and found["kraft_version"] == 0:
            if Random(seed * 2 + 1 + (1 << 46)).random() < 0.7:
                found["changes"] += CONFIGURED
        if self.durability != "memory" and Random(seed * 2 + 1 + (1 << 44)).random() < 0.4:
            found["faults"] += AIMED * 3
        if seed >= OPERATED_FROM and reach:
            chance = Random(seed * 2 + 1 + (1 << 55))
            found["faults"] += TRIMMING * 3 if chance.random() < 0.4 else ()
            found["faults"] += SCARCE * 3 if chance.random() < 0.3 else ()
            if found.get("snapshots"):
                found["retention_ms"] = chance.choice((-1, -1, 200, 1_000))
        if seed >= MIXED_FROM and Random(seed * 2 + 1 + (1 << 63)).random() < 0.1:
            found |= SLOW | {"disk": Delays(20_000, 400_000, 0.1)}
        found["idempotent"] = Random(seed * 2 + 1 + (1 << 43)).choice((0, 1, 2))
        found["barrier_every_ms"] = Random(seed * 2 + 1 + (1 << 42)).choice((0.0, 5.0, 30.0))
        if reach:
            found |= _clients_of_seed(seed) | _local_clients_of_seed(seed)
            found |= _consumers_of_seed(seed) | _async_of_seed(seed)
            found["faults"] += found.pop("of_clients", ())
            found["faults"] += found.pop("of_local_clients", ())
        return found

    def _shortened(self, **overrides: Any) -> WorldSettings:
        """Return the same with fewer events: faults and idle time end early, appends are rarer."""
        found: dict[str, Any] = {
            "chaos_ms": min(self.chaos_ms, SHORT_CHAOS_MS),
            "append_every_ms": max(self.append_every_ms, SHORT_APPEND_EVERY_MS),
            "idle_ms": SHORT_IDLE_MS,
            "settle_ms": SHORT_SETTLE_MS,
            "load_ms": 0,
        }
        return replace(self, **(found | overrides))

    def _reach_of_seed(self, seed: int) -> dict[str, Any]:
        """Return what else is in this run: names, consumers, power cuts, rot, a large state."""
        random = Random(seed * 2 + 1 + (1 << 45))
        found: dict[str, Any] = {
            "named": random.choice((0, 1, 2)),
            "consumers": random.choice((0, 1, 1)),
        }
        if random.random() < 0.15:
            found |= {
                "snapshots": "machine",
                "snapshot_bytes": 3_000,
                "state_bytes": random.choice((20_000, 60_000)),
                "fetch_snapshot_max_bytes": random.choice((200, 1_000)),
                "append_every_ms": min(self.append_every_ms, 8.0),  # faster than one is fetched
                "value_bytes_max": max(self.value_bytes_max, 600),
                "retention_bytes": random.choice((0, 4_000)),
                "segment_bytes": 8 * 1024,
                "observers": random.choice((1, 2)),
                "latecomer": True,
                "load_ms": 10_000,
            }
        share = random.choice((0.0, 0.3, 0.7, 1.0))
        excluded = NOT_IN_MEMORY if self.durability == "memory" else ()
        faults = [each for each in REACHING if random.random() < share and each not in excluded]
        mistakes = MISTAKES if random.random() < 0.3 else ()
        faults += [each for each in HANGING if random.random() < share]
        return found | {"faults": faults, "mistakes": mistakes}

    def _snapshots_of_seed(self, seed: int) -> dict[str, Any]:
        """Return whether snapshots are made in this run, how often and how large."""
        random = Random(seed * 2 + 1 + (1 << 41))
        kind = random.choice(("", "", "", "machine", "machine", "trim"))
        if not kind:
            return {}
        return {
            "snapshots": kind,
            "snapshot_bytes": random.choice((3_000, 10_000, 30_000)),
            "state_bytes": random.choice((0, 2_000, 20_000)),
            "fetch_snapshot_max_bytes": random.choice((100, 1_000, 8_000, limits.FETCH_MAX_BYTES)),
            "retention_bytes": random.choice((0, 8_000, 30_000)),
            "segment_bytes": random.choice((8, 8, 16)) * 1024,
            "latecomer": random.random() < 0.4,
        }

    def _membership_of_seed(self, seed: int) -> dict[str, Any]:
        """Return whether voters change in this run, and how."""
        random = Random(seed * 2 + 1 + (1 << 40))
        static = self.durability == "memory" and seed < MIXED_FROM
        if random.random() < 0.5 or static:
            return {}
        share = random.choice((0.4, 0.7, 1.0))
        return {
            "kraft_version": random.choice((0, 1, 1, 1)),
            "observers": random.choice((1, 1, 2, 3)),
            "changes": tuple(each for each in CHANGES if random.random() < share),
            "change_every_ms": random.choice((60.0, 150.0, 400.0)),
            "auto_join": random.random() < 0.2,
        }

    def quorum_config(
        self, endpoints: tuple[Endpoint, ...], bootstrap_ids: tuple[int, ...]
    ) -> QuorumConfig:
        """Return the core's part, of a machine that can be reached there, and asks those first."""
        return QuorumConfig(
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_ms_max=self.election_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            fetch_snapshot_max_bytes=self.fetch_snapshot_max_bytes,
            stream_pushes_max=self.stream_pushes_max,
            inline_flush_bytes_max=self.inline_flush_bytes_max,
            follower_inline_flush_bytes_max=self.follower_inline_flush_bytes_max,
            unflushed_bytes_max=self.unflushed_bytes_max,
            unflushed_age_ms_max=self.unflushed_age_ms_max,
            held_age_ms_max=max(limits.HELD_AGE_MS_MAX, self.unflushed_age_ms_max),
            durability=Durability(self.durability),
            flush=FlushPolicy(self.flush),
            bootstrap_ids=bootstrap_ids,
            endpoints=endpoints,
            auto_join=self.auto_join,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for reports."""
        return asdict(self)


def _async_of_seed(seed: int) -> dict[str, Any]:
    """Return whether a producer of asyncio runs in this run, and a stranger."""
    if seed < LOCAL_CLIENTS_FROM:
        return {}
    random = Random(seed * 2 + 1 + (1 << 53))
    often = seed >= OPERATED_FROM
    kinds = ("",) * (4 if often else 14) + ("remote", "local")
    found: dict[str, Any] = {
        "async_producers": random.choice(kinds),
        "strangers": int(random.random() < (0.3 if often else 0.08)),
    }
    if often:
        chance = Random(seed * 2 + 1 + (1 << 59))
        found["user"] = chance.choice(("", "remote", "local"))
        found["local_strangers"] = chance.choice((0, 0, 1))
    return found


def _is_supervised(seed: int) -> bool:
    """Return whether a supervisor as it is starts the processes of this run."""
    share = 0.25 if seed >= OPERATED_FROM else 0.08 if seed >= LOCAL_CLIENTS_FROM else 0.0
    return Random(seed * 2 + 1 + (1 << 50)).random() < share


def _clients_of_seed(seed: int) -> dict[str, Any]:
    """Return how many clients run as they are in this run."""
    random = Random(seed * 2 + 1 + (1 << 47))
    if random.random() < 0.5:
        return {}
    return {
        "real_producers": random.choice((0, 1, 1, 2)),
        "real_named": random.choice((0, 1)),
        "real_readers": random.choice((0, 1)),
        "real_admins": random.choice((0, 1)),
        "of_clients": OF_CLIENTS * random.choice((0, 2)),
    }


def _local_clients_of_seed(seed: int) -> dict[str, Any]:
    """Return how many of them are on the host of the replicas; a seed of before is the same run."""
    random = Random(seed * 2 + 1 + (1 << 48))
    if seed < LOCAL_CLIENTS_FROM or random.random() < 0.3:
        return {}
    return {
        "local_producers": random.choice((0, 1, 1, 2)),
        "local_named": random.choice((0, 1)),
        "local_admins": random.choice((0, 1)),
        "local_askers": random.choice((0, 1)),
        "of_local_clients": OF_CLIENTS * random.choice((0, 2)),
    }


def _consumers_of_seed(seed: int) -> dict[str, Any]:
    """Return how many consumers run as they are, likewise."""
    random = Random(seed * 2 + 1 + (1 << 49))
    if seed < LOCAL_CLIENTS_FROM or random.random() < 0.4:
        return {}
    return {
        "real_consumers": random.choice((0, 1)),
        "local_consumers": random.choice((0, 1, 1)),
        "local_watchers": random.choice((0, 0, 1)),
    }
