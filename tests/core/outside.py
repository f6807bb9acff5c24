"""What scenarios send to replicas from outside: requests of peers and operators, and answers."""

from __future__ import annotations

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch, ReplicaKey, VoterSet
from tests.core import wording
from tests.core.disk import RECORD_BYTES, Message, Origin, Record, endpoint_of, voter_of
from tests.core.host import Host
from tests.core.world import World

OUTSIDE = 0  # the correlation of a request from outside


class Outside:
    """The commands of a scenario that stand for whoever is not simulated."""

    world: World

    def cmd_to(self, id: str, kind: str, *words: str) -> None:
        if kind in ("add", "remove", "update", "upgrade", "assign", "list"):
            self.administer(self.world.hosts[int(id)], kind, words)
            return
        stream = 0
        if kind in ("open", "stream"):
            stream, words = int(words[0]), words[1:]
        host = self.world.hosts[int(id)]
        said = wording.pairs(words[1:])
        epoch = wording.epoch_of(words[0])
        sender = wording.key(said["of"], self.world.directory_ids)
        common = {
            "epoch": epoch,
            "cluster_id": self.cluster_id(said),
            "partition_known": "unknown" not in words,
        }
        place = next((word for word in words if "@" in word), "0@0")
        offset, last_epoch = map(int, place.split("@"))
        voter = (
            wording.key(said["for"], self.world.directory_ids)
            if "for" in said
            else (msg.NO_REPLICA)
        )
        body: msg.Request
        if kind == "slice":
            body = msg.FetchSnapshotRequest(
                replica=sender,
                snapshot_id=OffsetAndEpoch(offset, last_epoch),
                position=int(said["from"]),
                max_bytes=int(said.get("bytes", 1 << 20)),
                ours="foreign" not in words,
                **common,
            )
        elif kind in ("vote", "pre-vote"):
            body = msg.VoteRequest(
                replica=sender,
                last_epoch=last_epoch,
                last_offset=offset,
                pre_vote=kind == "pre-vote",
                unanimous="unanimous" in words,
                speaks_pre_vote="old" not in words,
                voter=voter,
                voters_at=wording.place_of(said.get("at", "-2@-1")),
                **common,
            )
        elif kind == "begin":
            common |= {"leader_id": sender.id, "leader_identity": wording.identity(said)}
            endpoints = wording.endpoints(said)
            body = msg.BeginQuorumEpochRequest(voter=voter, leader_endpoints=endpoints, **common)
        elif kind == "end":
            common |= {"leader_id": sender.id, "leader_identity": wording.identity(said)}
            body = msg.EndQuorumEpochRequest(
                preferred_candidates=self.keys(said.get("next")), **common
            )
        else:
            body = msg.FetchRequest(
                replica=sender,
                fetch_offset=int(said.get("ack", offset)),
                last_fetched_epoch=last_epoch,
                high_watermark=int(said.get("hw", msg.HIGH_WATERMARK_UNASKED)),
                max_wait_ms=int(said.get("wait", 500)),
                max_bytes=int(said.get("bytes", 1 << 20)),
                stream=stream,
                opens=kind == "open",
                copied_end_offset=int(said.get("read", offset)) if stream else -1,
                in_memory="memory" in words,
                **common,
            )
        host.step(ev.RequestReceived(Origin(sender.id, OUTSIDE), body))

    def cluster_id(self, said: dict[str, str]) -> str | None:
        """``cluster C``, ``cluster none``, ``cluster empty``; without a word the world's own."""
        found = said.get("cluster", self.world.cluster_id)
        return {"none": None, "empty": ""}.get(found or "", found)

    def administer(self, host: Host, kind: str, words: tuple[str, ...]) -> None:
        """A request about the voters, from an operator or (``from 4``) from a replica."""
        said = wording.pairs(words)
        cluster_id = said.get("cluster", self.world.cluster_id)
        source = Origin(said.get("from", "admin"), OUTSIDE)
        body: msg.Request
        key = (
            wording.key(words[0], self.world.directory_ids)
            if kind in ("add", "remove")
            else (msg.NO_REPLICA)
        )
        if kind == "add":
            endpoints = () if "unreachable" in words else (endpoint_of(key.id),)
            acks = "no-ack" not in words
            body = msg.AddRaftVoterRequest(key, endpoints, 0, acks, cluster_id)
        elif kind == "remove":
            body = msg.RemoveRaftVoterRequest(key, cluster_id)
        elif kind == "update":
            key = wording.key(words[1], self.world.directory_ids)
            endpoints = () if "unreachable" in words else (endpoint_of(key.id + 50),)
            least, most = map(int, said.get("range", "0-1").split("-"))
            epoch = wording.epoch_of(words[0])
            body = msg.UpdateRaftVoterRequest(epoch, key, endpoints, least, most, cluster_id)
        elif kind == "upgrade":
            body = msg.UpdateFeaturesRequest(int(words[0]), validate_only="validate" in words)
        elif kind == "assign":
            ids = None if words[0] == "null" else tuple(map(int, words[0].split(",")))
            body = msg.AlterPartitionReassignmentsRequest(ids)
        else:
            body = msg.ListPartitionReassignmentsRequest()
        host.step(ev.RequestReceived(source, body))

    def cmd_probed(self, id: str, *words: str) -> None:
        host = self.world.hosts[int(id)]
        assert host.probing is not None, f"{id} probes nobody"
        probe = host.probing.probe + (1 if "late" in words else 0)
        said = wording.pairs(words)
        error = ErrorCode[said["fails"]] if "fails" in said else ErrorCode.NONE
        least, most = map(int, said.get("range", "0-1").split("-"))
        if error is not ErrorCode.NONE or "bare" in words:
            least = most = -1
        host.step(ev.Probed(probe, error, least, most))

    def keys(self, ids: str | None) -> tuple[ReplicaKey, ...]:
        if ids is None:
            return ()
        return tuple(wording.key(id, self.world.directory_ids) for id in ids.split(","))

    def cmd_reply(self, id: str, peer: str, kind: str, *words: str) -> None:
        host = self.world.hosts[int(id)]
        peer_id = int(peer)
        correlation = self.world.last_correlation.get((host.id, peer_id), 0)
        if words[-1:] == ("late",):
            correlation += 1_000_000
        if kind == "fails":
            code = ErrorCode[words[0]] if words else ErrorCode.BROKER_NOT_AVAILABLE
            host.step(ev.RequestFailed(peer_id, correlation, code))
            return
        records: list[Record] = []
        error = ErrorCode.NONE
        if kind == "top":
            words = (words[0], "e0", *words[1:])
        if kind == "error":
            error, words = ErrorCode[words[0]], words[1:]
        said = wording.pairs(words[1:])
        leader = {
            "leader_id": int(said.get("leader", -1)),
            "leader_epoch": wording.epoch_of(words[1] if kind == "top" else words[0]),
            "leader_endpoints": wording.endpoints(said),
            "leader_identity": wording.identity(said),
            "partition_error": error,
        }
        if kind == "top":
            leader["error"] = ErrorCode[words[0]]
            leader["leader_epoch"] = -1
        body: msg.Response
        if kind in ("granted", "refused"):
            body = msg.VoteResponse(
                vote_granted=kind == "granted",
                in_doubt="doubt" in words,
                has_no_log="no-log" in words,
                voters_committed="settled" in words and "as" not in words,
                **leader,
            )
        elif kind == "slice" or "slice" in words:
            body = msg.FetchSnapshotResponse(
                snapshot_id=wording.place_of(said.get("at", "-1@-1")),
                position=int(said.get("from", -1)),
                size=int(said.get("size", -1)),
                records_bytes=int(said.get("bytes", 0)),
                **leader,
            )
        elif kind == "fetch" or "fetch" in words:
            records = self.records(host, said)
            body = self.fetch_response(said, leader, len(records))
        elif "update" in words:
            body = msg.UpdateRaftVoterResponse(**leader)
        elif "vote" in words:
            body = msg.VoteResponse(**leader)
        else:
            body = msg.QuorumEpochResponse(**leader)
        end = len(host.disk.records)
        message = Message(peer_id, host.id, correlation, body, False, tuple(records), end)
        host.step(ev.ResponseReceived(peer_id, correlation, body, message))

    def records(self, host: Host, said: dict[str, str]) -> list[Record]:
        """Return the records of an answer to Fetch, which follow those of the log."""
        records: list[Record] = []
        end = len(host.disk.records)
        for run in said["records"].split(",") if "records" in said else ():
            epoch, end_offset = wording.epoch_run(run)
            while end + len(records) < end_offset:
                records.append(Record(epoch, f"{end + len(records)}@{epoch}"))
        self.put_controls(said, records, end)
        return records

    def fetch_response(self, said: dict[str, str], leader: dict, records: int) -> msg.FetchResponse:
        diverging = None
        if "diverging" in said:
            offset, epoch = map(int, said["diverging"].split("@"))
            diverging = OffsetAndEpoch(offset, epoch)
        return msg.FetchResponse(
            high_watermark=int(said.get("hw", -1)),
            diverging=diverging,
            snapshot_id=wording.place_of(said["snapshot"]) if "snapshot" in said else None,
            records_bytes=records * RECORD_BYTES,
            stream=int(said.get("on", 0)),
            **leader,
        )

    def put_controls(self, said: dict[str, str], records: list[Record], base: int) -> None:
        """``version 2=1`` and ``voters 3=1:a,2:b``: what the records at these offsets say."""
        if "version" in said:
            offset, version = map(int, said["version"].split("="))
            record = records[offset - base]
            records[offset - base] = record._replace(control=KRaftVersion(version))
        for each in said["voters"].split(";") if "voters" in said else ():
            text, _, keys = each.partition("=")
            keys, _, target = keys.partition("/")
            voters = VoterSet(voter_of(key) for key in self.keys(keys))
            control = KRaftVoters(voters, tuple(map(int, target.split(","))) if target else None)
            records[int(text) - base] = records[int(text) - base]._replace(control=control)
