"""Runs a text scenario: commands, ``----``, and what the replicas then do.

A file begins with comments that name the Kafka test, KIP or condition it is about. Blocks are
separated by empty lines: one or more commands, a line ``----``, the expected lines. With
``KRAFTFAST_REWRITE=1`` the expectations are rewritten from what happens; only commit such a change
if you understand what caused it, and say why.

Commands (``N``, ``P``: replica ids; ``e6``: epoch 6; ``10@5``: end offset 10, last epoch 5)::

    voters 1 2 3 | voters 1:a 2:b         static voters, or voters with directory ids
    bootstrap 1:a 2:b                     voters in the bootstrap snapshot, kraft.version 1
    config name=value ...                 QuorumConfig of all replicas
    cluster C | observer N | jitter 300   cluster id; one more replica; the next random draw
    show all | show news                  every step, or only roles, commits, cuts
    disk N log e1:5,e3:10 flushed 8 epoch 5 leader 2 voted 3 | dir z
    disk N elsewhere                      it listens somewhere else from now on
    disk N witness | disk N leads         it never asks to lead; it does again
    disk N wiped z [bootstrap 1:z,2] [static 1]   nothing on it, another directory id; who it
                                          believes to vote
    answer-probes                         whoever runs answers probes at once
    endpoints                             every replica knows where it can be reached
    ... version 2=1 voters 3=1:a,2:b;9=1:a/1,4    the records at 2, 3, 9 say so (disk, reply)
    start N|all [phantom 20@5] [memory-lost] [floor 10]
    candidate N                           start it, its timer over and its pre-votes won
    crash N [keep K|all] [damaged K]      unflushed ones that survive, flushed ones that do not
    link N P ring|socket|old|down [as z]  N's link to P (old: its Vote is below v2)
    links ring|socket [N ...]             everybody's links to everybody
    ended N P                             the kernel tells N that P is gone
    tick N | time [N] +MS | wait MS       one Tick; move the clock (N's alone); let time and
                                          messages go on
    append N K | flushed N | hold N | release N | reject N | stall N | room-for N
    turn K | full N P | room N P          records per answer; the ring from N to P is full
    snapshot N 10 | may-snapshot N 10@2   make one; may one be made?
    retain N 10@2 [urgent]                delete below; the disk is full
    hold-slices N | slice-sent N          slices of snapshots leave N only when told
    deliver [N P [K]] | drop N P | cut N P | heal
    resign N e6 | shutdown N | transfer N [P] [in any case]
    barrier N [MS]                        a reader at N asks up to where it must have read
    to N vote|pre-vote|begin|end|fetch|open S|stream S ...   a request from outside, see below
    reply N P granted|refused|ok|error|fetch|fails ...       an answer from outside
    state [N ...] | due N | describe N

    to N vote e6 of 3 10@5 [old] [unanimous] [for 1:a] [cluster C|none|empty]
    to N begin e6 of 2 [for 1] [endpoints 2] [as z at 10@3]
    to N vote ... at 10@3                 which directory a leader is, where its voters stand
        to N end e6 of 2 next 3,1
    to N fetch e6 of 2 10@5 [hw 7] [wait 500] [bytes 200] [memory] [cluster C] [unknown]
    to N slice e6 of 2 10@5 from 0 [bytes 50] [unknown] [foreign]
    reply N P slice e6 at 10@5 from 0 bytes 50 size 200
    to N open 7 e6 of 2 10@5                      to N stream 7 e6 of 2 ack 10 read 12
    to N add 4:d [no-ack] [unreachable] | remove 4:d | update e1 2:b [range 0-1] [from 2]
    to N upgrade 1 [validate]                     kraft.version
    probed N [range 0-1] [fails CODE] [bare] [late]      what its latest probe found
    reply N P granted e6 [leader 3]     reply N P refused e6 [doubt] [no-log] [settled]
    reply N P error FENCED_LEADER_EPOCH e7 [leader 3] [as c at 9@2 [settled]]
    reply N P fetch e6 leader 2 hw 7 [records e6:12] [diverging 8@4] [on S]
    reply N P error CODE e6 fetch|vote ...        reply ... late: to a request given up since
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import KraftfastError
from kraftfast.types import (
    ElectionState,
    KRaftVersion,
    KRaftVoters,
    OffsetAndEpoch,
    Voter,
    VoterSet,
)
from tests.core import wording
from tests.core.disk import Disk, Message, NoJitter, Origin, endpoint_of, log_of, voter_of
from tests.core.host import Host
from tests.core.outside import OUTSIDE, Outside
from tests.core.world import World

SCENARIOS = Path(__file__).parent / "scenarios"


class ScenarioWorld(World):
    """The world as the script commands it. Replicas that are not started hear nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.news_only = False
        self.last_correlation: dict[tuple[int, int], int] = {}
        self.whole = False

    def describe_event(self, event: ev.Event) -> str:
        return wording.event(event)

    def log_step(self, id: int, text: str, effects: list[fx.Effect]) -> None:
        if self.news_only:
            effects = [each for each in effects if wording.is_news(each)]
            if not effects:
                return
        self.lines.append(wording.step(id, text, effects))

    def send(self, message: Message) -> None:
        if message.is_request:
            self.last_correlation[message.source, message.target] = message.correlation
        super().send(message)


class Scenario(Outside):
    """One file's run."""

    def __init__(self) -> None:
        self.world = ScenarioWorld()

    # --- the file ---

    def run_block(self, commands: list[str]) -> list[str]:
        self.world.lines = lines = []
        for command in commands:
            words = command.split()
            method: Callable[..., None] = getattr(self, f"cmd_{words[0].replace('-', '_')}")
            try:
                method(*words[1:])
            except KraftfastError as error:
                lines.append(f"{type(error).__name__}: {error}")
        return lines or ["ok"]

    # --- set-up ---

    def cmd_voters(self, *voters: str) -> None:
        world = self.world
        members = []
        for text in voters:
            id, _, directory = text.partition(":")
            if directory:
                world.directory_ids[int(id)] = directory.encode() * 16
                members.append(Voter(int(id), directory.encode() * 16))
            else:
                members.append(Voter(int(id)))
            world.add(int(id))
        world.voters = VoterSet(members)

    def cmd_bootstrap(self, *voters: str) -> None:
        world = self.world
        world.with_endpoints = True
        world.voters = VoterSet()
        for text in voters:
            id, _, directory = text.partition(":")
            if directory:
                world.directory_ids[int(id)] = directory.encode() * 16
            world.add(int(id))
        entries = VoterSet(voter_of(world.key(id)) for id in world.hosts)
        for host in world.hosts.values():
            host.disk.bootstrap = (KRaftVersion(1), KRaftVoters(entries))

    def cmd_endpoints(self) -> None:
        self.world.with_endpoints = True

    def cmd_observer(self, id: str) -> None:
        self.world.add(int(id))

    def cmd_config(self, *settings: str) -> None:
        values = dict(setting.split("=") for setting in settings)
        typed = {name: int(v) if v.lstrip("-").isdigit() else v for name, v in values.items()}
        if "bootstrap_ids" in typed:
            typed["bootstrap_ids"] = tuple(int(id) for id in str(typed["bootstrap_ids"]).split(","))
        self.world.config = replace(self.world.config, **typed)
        self.world.durable = self.world.config.durability != "memory"

    def cmd_answer_probes(self) -> None:
        self.world.answers_probes = True

    def cmd_cluster(self, cluster_id: str) -> None:
        self.world.cluster_id = cluster_id

    def cmd_jitter(self, *draws: str) -> None:
        random = self.world.random
        assert isinstance(random, NoJitter)
        random.draws.extend(map(int, draws))

    def cmd_show(self, what: str) -> None:
        self.world.news_only = what == "news"

    def cmd_turn(self, records: str) -> None:
        self.world.turn_records = int(records)

    def cmd_disk(self, id: str, *words: str) -> None:
        host = self.world.hosts[int(id)]
        said = wording.pairs(words)
        if "wiped" in said:
            host.disk = Disk()
            said["dir"] = said["wiped"]
        if "bootstrap" in said:
            keys = [wording.key(v, self.world.directory_ids) for v in said["bootstrap"].split(",")]
            host.disk.bootstrap = (KRaftVersion(1), KRaftVoters(VoterSet(map(voter_of, keys))))
        if "static" in said:
            voters = VoterSet.of(*map(int, said["static"].split(",")))
            self.world.configured[host.id] = voters
        if "dir" in said:
            self.world.directory_ids[int(id)] = said["dir"].encode() * 16
        if "elsewhere" in words:
            at = endpoint_of(int(id) + 50)
            self.world.configs[int(id)] = replace(self.world.config, endpoints=(at,))
        if "witness" in words or "leads" in words:
            leads = "leads" in words
            self.world.configs[int(id)] = replace(self.world.config, campaign=leads)
        if "log" in said:
            host.disk.records = log_of(*(wording.epoch_run(run) for run in said["log"].split(",")))
            self.put_controls(said, host.disk.records, 0)
            host.disk.flushed = len(host.disk.records)
        if "flushed" in said:
            host.disk.flushed = int(said["flushed"])
        if "epoch" in said:
            voted = (
                wording.key(said["voted"], self.world.directory_ids) if ("voted" in said) else None
            )
            leader_id = int(said.get("leader", -1))
            host.disk.quorum_state = ElectionState(int(said["epoch"]), leader_id, voted)
        committed = max((h.disk.records for h in self.world.hosts.values()), key=len)
        self.world.log_of_all = []
        self.world._values = max(self.world._values, len(committed))

    # --- life ---

    def cmd_start(self, id: str, *words: str) -> None:
        said = {}
        if "memory-lost" in words:
            said["memory_lost"] = True
        if "phantom" in words:
            offset, epoch = words[words.index("phantom") + 1].split("@")
            said["phantom_tail"] = OffsetAndEpoch(int(offset), int(epoch))
        if "floor" in words:
            said["floor_offset"] = int(words[words.index("floor") + 1])
        self.world.whole = self.world.whole or id == "all"
        for host in self.named(id):
            if id != "all" or not host.running:
                host.start(**said)

    def cmd_candidate(self, id: str) -> None:
        """Start a voter as a candidate of the epoch after the stored one.

        It started one election timeout ago, and has just won its pre-votes; only the step in
        which it becomes a candidate is printed, and only its messages are under way.
        """
        world, host = self.world, self.world.hosts[int(id)]
        printed, messages, now_ms = len(world.lines), list(world.messages), world.now_ms
        world.now_ms -= world.config.election_timeout_ms
        host.start()
        world.now_ms = now_ms
        host.step(ev.Tick())
        replica = host.replica
        assert replica is not None and replica.role == "prospective", "its draws delay its timer"
        granted = msg.VoteResponse(leader_epoch=replica.epoch, vote_granted=True)
        for voter_id in replica.voters.others(world.key(host.id)):
            del world.lines[printed:]
            world.messages = deque(messages)
            correlation = world.last_correlation[host.id, voter_id]
            host.step(ev.ResponseReceived(voter_id, correlation, granted), "campaigns")
            if replica.role == "candidate":
                return
        raise AssertionError(f"granted by all, it is {replica.role}")

    def cmd_crash(self, id: str, *words: str) -> None:
        said = wording.pairs(words)
        keep = said.get("keep", "0")
        host = self.world.hosts[int(id)]
        host.crash(None if keep == "all" else int(keep))
        host.disk.lose_flushed(int(said.get("damaged", "0")))

    def named(self, id: str) -> list[Host]:
        hosts = self.world.hosts
        return list(hosts.values()) if id == "all" else [hosts[int(id)]]

    def cmd_link(self, id: str, peer: str, kind: str, *words: str) -> None:
        told = wording.pairs(words).get("as", "\0").encode() * 16
        event: ev.Event = ev.LinkUp(int(peer), kind == "ring", kind != "old", told)
        if kind == "down":
            event = ev.LinkDown(int(peer))
        self.world.hosts[int(id)].step(event)

    def cmd_links(self, kind: str, *ids: str) -> None:
        self.world.links_up(kind == "ring", [int(id) for id in ids] or None)

    def cmd_ended(self, id: str, peer: str) -> None:
        self.world.hosts[int(id)].step(ev.PeerEnded(int(peer)))

    def cmd_resign(self, id: str, epoch: str) -> None:
        self.world.hosts[int(id)].step(ev.ResignRequested(wording.epoch_of(epoch)))

    def cmd_transfer(self, id: str, target: str = "-1", *words: str) -> None:
        assert words in ((), ("in", "any", "case"))
        source = Origin("admin", OUTSIDE)
        self.world.hosts[int(id)].step(ev.TransferRequested(source, int(target), bool(words)))

    def cmd_barrier(self, id: str, timeout_ms: str = "2000") -> None:
        self.world.hosts[int(id)].read_barrier(int(timeout_ms))

    def cmd_shutdown(self, id: str) -> None:
        self.world.hosts[int(id)].step(ev.ShutdownRequested())

    # --- time ---

    def cmd_time(self, *words: str) -> None:
        by = int(words[-1])
        if len(words) > 1:
            self.world.ahead_ms[int(words[0])] = self.world.ahead_ms.get(int(words[0]), 0) + by
        else:
            self.world.now_ms += by

    def cmd_tick(self, id: str) -> None:
        self.world.hosts[int(id)].step(ev.Tick())

    def cmd_wait(self, ms: str) -> None:
        world = self.world
        end_ms = world.now_ms + int(ms)
        self.cmd_deliver()
        for _ in range(10_000):
            running = [host for host in world.hosts.values() if host.running]
            due_ms = min((host.replica.deadline_ms for host in running), default=end_ms)
            if due_ms > end_ms:
                world.now_ms = end_ms
                return
            world.now_ms = max(world.now_ms, due_ms)
            for host in running:
                if host.running and host.replica.deadline_ms <= world.now_ms:
                    host.step(ev.Tick())
            self.cmd_deliver()
        raise AssertionError("L7: somebody is busy for ever")

    # --- log and disk ---

    def cmd_append(self, id: str, count: str) -> None:
        host = self.world.hosts[int(id)]
        host.queued += int(count)
        host.step(ev.AppendsQueued())

    def cmd_flushed(self, id: str) -> None:
        host = self.world.hosts[int(id)]
        assert host.flushing is not None, f"no flush is under way at {id}"
        host.finish_flush()

    def cmd_hold(self, id: str) -> None:
        self.world.held_disks.add(int(id))

    def cmd_release(self, id: str) -> None:
        self.world.held_disks.discard(int(id))

    def cmd_snapshot(self, id: str, offset: str) -> None:
        self.world.hosts[int(id)].make_snapshot(int(offset))

    def cmd_may_snapshot(self, id: str, place: str) -> None:
        replica = self.world.hosts[int(id)].replica
        assert replica is not None
        wanted = replica.may_create_snapshot(wording.place_of(place))
        self.world.lines.append("wanted" if wanted else "not wanted")

    def cmd_retain(self, id: str, place: str, urgent: str = "") -> None:
        due = ev.RetentionDue(wording.place_of(place), urgent == "urgent")
        self.world.hosts[int(id)].step(due)

    def cmd_hold_slices(self, id: str) -> None:
        self.world.held_slices.add(int(id))

    def cmd_slice_sent(self, id: str) -> None:
        host = self.world.hosts[int(id)]
        assert host.slices_held > 0
        host.slices_held -= 1
        host.step(ev.SliceAnswered())

    def cmd_reject(self, id: str) -> None:
        self.world.hosts[int(id)].reject_next = True

    def cmd_stall(self, id: str) -> None:
        self.world.hosts[int(id)].no_room = True

    def cmd_room_for(self, id: str) -> None:
        self.world.hosts[int(id)].room_again()

    def cmd_full(self, source: str, target: str) -> None:
        self.world.full_rings.add((int(source), int(target)))

    def cmd_room(self, source: str, target: str) -> None:
        self.world.full_rings.discard((int(source), int(target)))

    # --- messages between replicas ---

    def cmd_deliver(self, source: str = "", target: str = "", count: str = "1") -> None:
        world = self.world
        if source:
            for _ in range(int(count)):
                message = next(
                    m for m in world.messages if (m.source, m.target) == (int(source), int(target))
                )
                world.messages.remove(message)
                world.deliver(message)
            return
        for _ in range(10_000):
            flushed = [
                host
                for host in world.hosts.values()
                if host.flushing is not None and host.id not in world.held_disks
            ]
            if world.messages:
                world.deliver(world.messages.popleft())
            elif flushed:
                flushed[0].finish_flush()
            else:
                return
        raise AssertionError("messages for ever")

    def cmd_drop(self, source: str, target: str) -> None:
        messages = self.world.messages
        for message in list(messages):
            if (message.source, message.target) == (int(source), int(target)):
                messages.remove(message)

    def cmd_cut(self, source: str, target: str) -> None:
        self.world.cut |= {(int(source), int(target)), (int(target), int(source))}

    def cmd_heal(self) -> None:
        self.world.cut.clear()

    # --- what is seen ---

    def cmd_state(self, *ids: str) -> None:
        for host in self.world.hosts.values():
            if ids and str(host.id) not in ids:
                continue
            replica = host.replica
            if replica is None:
                self.world.lines.append(f"{host.id} is down, {len(host.disk.records)} records")
                continue
            leader = wording.of_leader(replica.leader_id) if replica.role != "leader" else ""
            self.world.lines.append(
                f"{host.id} {replica.role} e{replica.epoch}{leader} end {replica.end_offset} "
                f"flushed {replica.flushed_end_offset} hw {replica.high_watermark}"
            )

    def cmd_due(self, id: str) -> None:
        replica = self.world.hosts[int(id)].replica
        assert replica is not None
        ms = replica.deadline_ms - self.world.now_ms
        self.world.lines.append(f"{id} is due in {ms} ms" if ms < 1 << 60 else f"{id} is not due")

    def cmd_describe(self, id: str) -> None:
        replica = self.world.hosts[int(id)].replica
        assert replica is not None
        seen = replica.describe(self.world.now_ms)
        loss = " possible loss" if seen.possible_loss else ""
        doubt = " in doubt" if seen.in_doubt else ""
        self.world.lines.append(
            f"leader {seen.leader_id} e{seen.epoch} hw {seen.high_watermark}{doubt}{loss}"
        )
        for name in ("target", "ended_target"):
            ids = getattr(seen, name)
            if ids is not None:
                words = name.replace("_", " ")
                self.world.lines.append(f"{words} {' '.join(map(str, ids))}")
        for kind, replicas in (("voter", seen.voters), ("observer", seen.observers)):
            for each in replicas:
                self.world.lines.append(
                    f"{kind} {each.key.id} end {each.log_end_offset} "
                    f"fetched {each.last_fetch_ms} caught up {each.last_caught_up_ms}"
                )


def run_file(path: Path, check: bool = True) -> list[str]:
    """Run one file; returns every line that was printed. Rewrites the file if asked to."""
    scenario = Scenario()
    rewritten: list[str] = []
    printed: list[str] = []
    for block in path.read_text().rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        lines = [line for line in lines if not line.startswith("#")]
        if not lines:
            rewritten.append(block)
            continue
        commands, expected = lines[: lines.index("----")], lines[lines.index("----") + 1 :]
        seen = scenario.run_block(commands)
        printed += seen
        rewritten.append("\n".join([*comments, *commands, "----", *seen]))
        if check and not os.environ.get("KRAFTFAST_REWRITE"):
            where = f"{path.name}: {'; '.join(commands)}"
            assert seen == expected, f"{where}\n" + difference(expected, seen)
    if os.environ.get("KRAFTFAST_REWRITE"):
        path.write_text("\n\n".join(rewritten) + "\n")
    return printed


def difference(expected: list[str], seen: list[str]) -> str:
    return "\n".join(["expected:", *expected, "seen:", *seen])
