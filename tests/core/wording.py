"""Events and effects in words: one line per step, ``replica: what happened -> what it does``.

And, at the end, the words that commands of scenarios are made of.
"""

from __future__ import annotations

from typing import Any

from kraftfast import limits
from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.types import (
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
)

NEWS = (
    fx.RoleChanged,
    fx.LeaderMoved,
    fx.Warn,
    fx.AdvanceHighWatermark,
    fx.AcknowledgedByAll,
    fx.Truncate,
    fx.AnswerReadBarrier,
    fx.InstallSnapshot,
    fx.DeleteBefore,
    fx.VotersChanged,
    fx.Stopped,
)
"""What a scenario that shows only news prints."""


def is_news(effect: fx.Effect) -> bool:
    """What changes the quorum, and what an operator is told."""
    told = isinstance(effect, fx.Reply) and effect.source.peer_id == "admin"
    return told or isinstance(effect, NEWS)


def of_leader(leader_id: int) -> str:
    return f" of {leader_id}" if leader_id >= 0 else ""


def named(code: ErrorCode) -> str:
    return ErrorCode(code).name


def options(**flags: Any) -> str:
    return "".join(f" {name.replace('_', ' ')}" for name, on in flags.items() if on)


# --- events ---


def request(body: Any) -> str:
    if isinstance(body, msg.VoteRequest):
        kind = ("unanimous " if body.unanimous else "") + ("pre-vote" if body.pre_vote else "vote")
        old = "" if body.speaks_pre_vote else "old "
        place = f"{body.last_offset}@{body.last_epoch}"
        return f"{old}{kind} e{body.epoch} of {body.replica.id} {place}"
    if isinstance(body, msg.BeginQuorumEpochRequest):
        return f"begin e{body.epoch} of {body.leader_id}"
    if isinstance(body, msg.EndQuorumEpochRequest):
        return f"end e{body.epoch} of {body.leader_id}{successors(body)}"
    if isinstance(body, ADMIN):
        return administration(body)
    if isinstance(body, msg.ReadBarrierRequest):
        return f"read barrier within {body.timeout_ms}"
    if isinstance(body, msg.FetchSnapshotRequest):
        return f"slice {at(body.snapshot_id)} from {body.position} e{body.epoch} of " + str(
            body.replica.id
        )
    place = f"{body.fetch_offset}@{body.last_fetched_epoch}"
    if body.stream and not body.opens:
        return f"stream {body.stream} of {body.replica.id} ack {body.fetch_offset} read " + str(
            body.copied_end_offset
        )
    kind = f"open {body.stream}" if body.opens else "fetch"
    return f"{kind} e{body.epoch} of {body.replica.id} {place}{high_watermark(body)}"


ADMIN = (
    msg.AddRaftVoterRequest,
    msg.RemoveRaftVoterRequest,
    msg.UpdateRaftVoterRequest,
    msg.UpdateFeaturesRequest,
    msg.AlterPartitionReassignmentsRequest,
    msg.ListPartitionReassignmentsRequest,
)


def administration(body: Any) -> str:
    """A request about the voters."""
    match body:
        case msg.AddRaftVoterRequest(voter, _, _, acks):
            return f"add {replica(voter)}{'' if acks else ' no-ack'}"
        case msg.RemoveRaftVoterRequest(voter):
            return f"remove {replica(voter)}"
        case msg.UpdateRaftVoterRequest(epoch, voter):
            return f"update e{epoch} {replica(voter)}"
        case msg.UpdateFeaturesRequest(version):
            return f"upgrade {version}"
        case msg.AlterPartitionReassignmentsRequest(target):
            return f"assign {' '.join(map(str, target)) if target is not None else 'null'}"
        case msg.ListPartitionReassignmentsRequest():
            return "list"
    raise AssertionError(body)


def at(place: OffsetAndEpoch) -> str:
    return f"{place.offset}@{place.epoch}"


def replica(it: ReplicaKey) -> str:
    return f"{it.id}:{chr(it.directory_id[0])}" if it.directory_id[0] else str(it.id)


def successors(body: msg.EndQuorumEpochRequest) -> str:
    return " [" + " ".join(str(key.id) for key in body.preferred_candidates) + "]"


def high_watermark(body: Any) -> str:
    if body.high_watermark == msg.HIGH_WATERMARK_UNASKED:
        return ""
    return f" hw {body.high_watermark}"


def response(body: Any) -> str:
    """The content of an answer, on either side."""
    if isinstance(body, msg.UpdateRaftVoterResponse) and body.message:
        return f"{named(body.partition_error)}: {body.message}"
    if body.error != ErrorCode.NONE:
        message = getattr(body, "message", None)
        return f"top {named(body.error)}" if message is None else f"{named(body.error)}: {message}"
    if isinstance(body, msg.ReadBarrierResponse):
        return f"read to {body.offset}"
    if not hasattr(body, "partition_error"):
        return f"ok{assignment(body)}"
    where = f"e{body.leader_epoch}{of_leader(body.leader_id)}"
    if body.partition_error != ErrorCode.NONE:
        return f"{named(body.partition_error)} {where}"
    if isinstance(body, msg.VoteResponse):
        doubt = " in doubt" if body.in_doubt else ""
        doubt += " without a log" if body.has_no_log else ""
        return f"{'granted' if body.vote_granted else 'refused'} {where}{doubt}"
    if isinstance(body, msg.QuorumEpochResponse | msg.UpdateRaftVoterResponse):
        return f"ok {where}"
    if isinstance(body, msg.FetchSnapshotResponse):
        end = body.position + body.records_bytes
        return f"snapshot {at(body.snapshot_id)} {body.position}-{end} of {body.size}"
    if body.snapshot_id is not None:
        return f"snapshot {at(body.snapshot_id)} hw {body.high_watermark}"
    if body.diverging is not None:
        return f"diverging {body.diverging.offset}@{body.diverging.epoch} hw " + str(
            body.high_watermark
        )
    count = body.records_bytes // 100
    records = f" {count} records" if count else ""
    return f"hw {body.high_watermark}{records}"


def assignment(body: Any) -> str:
    if not isinstance(body, msg.ListPartitionReassignmentsResponse):
        return ""
    towards = "" if body.target is None else f" towards {' '.join(map(str, body.target))}"
    return f" {' '.join(map(str, body.voter_ids))}{towards}"


def event(body: ev.Event) -> str:
    match body:
        case ev.RequestReceived(_, it):
            return request(it)
        case ev.ResponseReceived(peer_id, _, it):
            stream = getattr(it, "stream", 0)
            verb = f"pushes on {stream}" if stream else "answers"
            return f"{peer_id} {verb} {response(it)}"
        case ev.RequestFailed(peer_id, _, error):
            return f"{peer_id} fails {named(error)}"
        case ev.LinkUp(peer_id, streaming, pre_vote):
            ring = ", ring" if streaming else ""
            return f"link to {peer_id} up{ring}{'' if pre_vote else ', no pre-vote'}"
        case ev.LinkDown(peer_id):
            return f"link to {peer_id} down"
        case ev.PeerEnded(peer_id):
            return f"{peer_id} ended"
        case ev.Appended(_, end_offset, _):
            return f"appended to {end_offset}"
        case ev.FetchedWritten(end_offset, _, _, rejected):
            return f"wrote to {end_offset}{' rejected' if rejected else ''}"
        case ev.Flushed(end_offset, _):
            return f"flushed to {end_offset}"
        case ev.StreamAnswered(replica_id, _, end_offset):
            return f"pushed to {replica_id} up to {end_offset}"
        case ev.SnapshotCreated(snapshot_id):
            return f"made snapshot {at(snapshot_id)}"
        case ev.RetentionDue(snapshot_id, urgent):
            return f"{'urgent ' if urgent else ''}retention to {at(snapshot_id)}"
        case ev.SliceAnswered():
            return "slice sent"
        case ev.SliceWritten(snapshot_id, end, rejected):
            return f"wrote snapshot {at(snapshot_id)} to {end}{' rejected' if rejected else ''}"
        case ev.SnapshotInstalled(snapshot_id, _, rejected):
            return f"installed {at(snapshot_id)}{' rejected' if rejected else ''}"
        case ev.TransferRequested(_, target_id, in_any_case):
            return f"transfer to {target_id}{' in any case' if in_any_case else ''}"
        case ev.ReadBarrierRequested():
            return "read barrier"
        case ev.Probed(_, error, least, most):
            return f"probed {least}-{most}" if error == ErrorCode.NONE else f"probed {named(error)}"
        case ev.ResignRequested(epoch):
            return f"resign e{epoch}"
        case ev.Tick():
            return "tick"
        case ev.AppendsQueued():
            return "appends queued"
        case ev.ShutdownRequested():
            return "shutdown"
    raise AssertionError(body)


# --- effects ---


def send(effect: fx.Send) -> str:
    peer_id, body = effect.peer_id, effect.request
    if isinstance(body, msg.VoteRequest):
        kind = ("unanimous " if body.unanimous else "") + ("pre-vote" if body.pre_vote else "vote")
        return f"asks {peer_id} {kind} e{body.epoch} {body.last_offset}@{body.last_epoch}"
    if isinstance(body, msg.BeginQuorumEpochRequest):
        return f"tells {peer_id} begin e{body.epoch}"
    if isinstance(body, msg.EndQuorumEpochRequest):
        return f"tells {peer_id} end e{body.epoch}{successors(body)}"
    if isinstance(body, ADMIN):
        return f"asks {peer_id} {administration(body)}"
    if isinstance(body, msg.ReadBarrierRequest):
        return f"asks {peer_id} read barrier"
    if isinstance(body, msg.FetchSnapshotRequest):
        return f"fetches {peer_id} e{body.epoch} snapshot {at(body.snapshot_id)} from " + str(
            body.position
        )
    if body.stream and not body.opens:
        return f"acks {body.fetch_offset} read {body.copied_end_offset} to {peer_id}"
    kind = f"opens {body.stream} to" if body.opens else "fetches"
    place = f"{body.fetch_offset}@{body.last_fetched_epoch}"
    told = " telling where it is" if body.observer_endpoints else ""
    return f"{kind} {peer_id} e{body.epoch} {place} hw {body.high_watermark}{told}"


def answer(effect: fx.AnswerFetch) -> str:
    body = effect.response
    verb = "pushes" if body.stream else "answers"
    start = f" from {effect.read_offset}" if effect.read_offset >= 0 else ""
    bounded = effect.end_offset_max >= 0 and not body.stream  # a push goes to the end known
    below = f" below {effect.end_offset_max}" if bounded else ""
    return f"{verb} {effect.source.peer_id}{start}{below} hw {body.high_watermark}"


def effect(body: fx.Effect) -> str:
    match body:
        case fx.PersistQuorumState(epoch, leader_id, voted, _, superseded):
            leader = f" leader {leader_id}" if leader_id >= 0 else ""
            vote = f" voted {voted.id}" if voted else ""
            return f"persist e{epoch}{leader}{vote}{' superseded' if superseded else ''}"
        case fx.RoleChanged(role, epoch, leader_id, _):
            leads = role in ("leader", "resigned")
            return f"is {role} e{epoch}{'' if leads else of_leader(leader_id)}"
        case fx.LeaderMoved(leader_id, told):
            places = ", ".join(f"{each.host}:{each.port}" for each in told)
            return f"leader {leader_id} moved to {places}"
        case fx.Send():
            return send(body)
        case fx.Reply(source, it, _):
            stream = getattr(it, "stream", 0)
            on = f" on {stream}" if stream else ""
            return f"answers {source.peer_id}{on} {response(it)}"
        case fx.AnswerFetch():
            return answer(body)
        case fx.DrainAppends(epoch, max_bytes):
            bound = "" if max_bytes == limits.TURN_BYTES_MAX else f" up to {max_bytes}"
            return f"drains e{epoch}{bound}"
        case fx.RefuseAppends(error, leader_id):
            return f"refuses appends {named(error)}{of_leader(leader_id)}"
        case fx.AppendControl(epoch, records):
            return f"appends {', '.join(control(each, epoch) for each in records)}"
        case fx.AnswerSlice(source, _, snapshot_id, position, _):
            return f"answers {source.peer_id} snapshot {at(snapshot_id)} from {position}"
        case fx.WriteSlice(_, snapshot_id, position, last):
            return f"writes snapshot {at(snapshot_id)} at {position}{' last' if last else ''}"
        case fx.InstallSnapshot(snapshot_id, _):
            return f"installs {at(snapshot_id)}"
        case fx.DeleteBefore(offset):
            return f"deletes below {offset}"
        case fx.AnswerReadBarrier(_, offset, error):
            return f"reads to {offset}" if error == ErrorCode.NONE else f"reads {named(error)}"
        case fx.Probe(_, voter_id, _):
            return f"probes {voter_id}"
        case fx.VotersChanged(kraft_version, voters):
            return f"counts {voter_set(voters)}{f' v{kraft_version}' if kraft_version else ''}"
        case fx.WriteFetched(_, _, offset):
            return f"writes at {offset}"
        case fx.Truncate(end_offset, _):
            return f"truncates to {end_offset}"
        case fx.Flush(end_offset, inline):
            return f"flushes to {end_offset}{' inline' if inline else ''}"
        case fx.AdvanceHighWatermark(offset):
            return f"commits to {offset}"
        case fx.AcknowledgedByAll(offset):
            return f"all have {offset}"
        case fx.Warn(text):
            return f"warns: {text}"
        case fx.Stopped():
            return "stopped"
    raise AssertionError(body)


def control(record: Any, epoch: int) -> str:
    match record:
        case LeaderChange(_, _, granting):
            return f"LeaderChange e{epoch} by {' '.join(str(key.id) for key in granting)}"
        case KRaftVersion(kraft_version):
            return f"version {kraft_version}"
        case KRaftVoters(voters, target):
            towards = "" if target is None else f" towards {' '.join(map(str, target))}"
            return f"voters {voter_set(voters)}{towards}"
    raise AssertionError(record)


def voter_set(voters: Any) -> str:
    """``1:a 2:b``: ids with the letter of their directory, where the set has one."""
    return (
        " ".join(
            f"{voter.id}:{chr(voter.directory_id[0])}" if voter.directory_id[0] else str(voter.id)
            for voter in voters
        )
        or "nobody"
    )


def step(id: int, text: str, effects: list[fx.Effect]) -> str:
    return f"{id}: {text} -> {'; '.join(map(effect, effects)) or 'nothing'}"


def key(text: str, own: dict[int, bytes]) -> ReplicaKey:
    """``3`` (its own directory), ``3:z`` (directory of that letter), ``3:-`` (none told)."""
    id, _, directory = text.partition(":")
    if directory == "-":
        return ReplicaKey(int(id))
    if directory:
        return ReplicaKey(int(id), directory.encode() * 16)
    return ReplicaKey(int(id), own.get(int(id), bytes([64 + int(id)]) * 16))


# --- the words of commands ---


def pairs(words: tuple[str, ...] | list[str]) -> dict[str, str]:
    """Each word with the one behind it."""
    return dict(zip(words, [*words[1:], ""], strict=False))


def epoch_of(text: str) -> int:
    assert text.startswith("e"), f"not an epoch: {text}"
    return int(text[1:])


def epoch_run(text: str) -> tuple[int, int]:
    epoch, end = text.split(":")
    return epoch_of(epoch), int(end)


def endpoints(said: dict[str, str]) -> tuple[Endpoint, ...]:
    count = int(said.get("endpoints", 0))
    return tuple(Endpoint(f"L{i}", "localhost", 9000 + i) for i in range(count))


def identity(said: dict[str, str]) -> msg.LeaderIdentity:
    """``as z at 10@3 settled``: the leader's directory, where its voters stand in its log, and
    that some in the log are known to be committed."""
    if "as" not in said:
        return msg.UNSAID
    place = place_of(said.get("at", "-1@-1"))
    return msg.LeaderIdentity(said["as"].encode() * 16, place, "settled" in said)


def place_of(text: str) -> OffsetAndEpoch:
    offset, epoch = map(int, text.split("@"))
    return OffsetAndEpoch(offset, epoch)
