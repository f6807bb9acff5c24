"""``quorum-state``: epoch, leader and vote, which must survive every crash (D5).

One line of JSON as Kafka's ``FileQuorumStateStore`` writes it: version 0 at kraft.version 0,
version 1 (with the voted directory id) at kraft.version 1. ``votersSuperseded``, ``wasVoter`` and
``directoryId`` are ours: Kafka passes over names that it does not know. A second line holds its
CRC-32, and a space before the first says that it must be there. Sources: KIP-853; Kafka's
``QuorumStateData``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from kraftfast.errors import CorruptLog, ForeignDirectory
from kraftfast.types import ZERO_UUID, ElectionState, ReplicaKey, Uuid, uuid_from_text, uuid_text

NAME = "quorum-state"
SEALED = b" "
MARKS = ("votersSuperseded", "wasVoter")
OWNER = "directoryId"
WAY_ON = (
    "rebuild it from the others (kraftfast storage replace), or go on with its log alone "
    "(kraftfast storage recover)"
)


def encode(
    state: ElectionState,
    kraft_version: int,
    voter_ids: Sequence[int],
    directory_id: Uuid = ZERO_UUID,
) -> bytes:
    """Return the file's first line. ``voter_ids`` are written at version 0.

    ``directory_id``: of the replica's directory, so that in another one the file is refused.
    """
    voted_id = state.voted.id if state.voted else -1
    fields: dict[str, object]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_text(state.voted.directory_id if state.voted else ZERO_UUID),
            "data_version": 1,
        }
    if state.superseded:
        fields["votersSuperseded"] = True
    if state.was_voter:
        fields["wasVoter"] = True
    if directory_id != ZERO_UUID:
        fields[OWNER] = uuid_text(directory_id)
    import msgspec

    return msgspec.json.encode(fields)


def seal(data: bytes) -> bytes:
    """Put a space before the line, and a second line with its CRC-32 behind it (D5).

    Kafka reads only the first line, and its parser passes over the space.
    """
    line = SEALED + data
    return line + b"\ncrc32 %08x\n" % zlib.crc32(line)


def decode(data: bytes, path: str = NAME) -> ElectionState:
    """Return the stored state; ``voted`` has a zero directory id where version 0 recorded none.

    A line without the space and a newline is Kafka's own.

    What begins with the space, or goes on after a newline, must have the checksum: Kafka writes
    neither. Earlier versions wrote the checksum without the space.

    Raises ForeignDirectory: what does not parse is never reset; CorruptLog if the checksum differs.
    """
    line, newline, rest = data.partition(b"\n")
    sealed = line and (newline or line.startswith(SEALED))
    if sealed and newline + rest != b"\ncrc32 %08x\n" % zlib.crc32(line):
        raise CorruptLog(
            f"{path} does not match its checksum: epoch or vote may be wrong; {WAY_ON}",
            path,
        )
    try:
        fields = _parse(line)
        version = _integer(fields["data_version"])
        if version not in (0, 1):
            raise ForeignDirectory(f"{path} has version {version}; versions 0 and 1 are known")
        epoch, leader_id, voted_id = (
            _integer(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId")
        )
        directory_id = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
        marks = [fields.get(name, False) is not False for name in MARKS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ForeignDirectory(f"{path} does not parse as a quorum state") from None
    if epoch < 0 or leader_id < -1 or voted_id < -1 or max(epoch, leader_id, voted_id) >= 2**31:
        raise ForeignDirectory(f"{path} holds an epoch or id out of range")
    voted = None if voted_id == -1 else ReplicaKey(voted_id, directory_id)
    return ElectionState(epoch, leader_id, voted, *marks)


def _parse(line: bytes) -> Any:
    """Return what a line of JSON holds. Raises ValueError."""
    try:
        import msgspec
    except ImportError:  # a plain reader has Python's own library alone
        import json

        return json.loads(line)
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def check_owner(data: bytes, path: str, directory_id: Uuid) -> None:
    """Check that the file was written in this directory (D5); ``data`` must be checked.

    With that of another replica this one could give a vote twice, or lack what it acknowledged.
    A file of Kafka's, or of an earlier version, does not say whose it is.

    Raises ForeignDirectory.
    """
    owner = _parse(data.split(b"\n", 1)[0]).get(OWNER)
    own = uuid_text(directory_id)
    if owner not in (None, own) and directory_id != ZERO_UUID:
        raise ForeignDirectory(
            f"{path} was written in the directory with the id {owner}, this one has {own}: the log "
            "of another replica lies here; put each back to the meta.properties that it had"
        )


def static_voter_ids(data: bytes) -> tuple[int, ...] | None:
    """Return the voters that version 0 names, None if it names none; ``data`` must be checked."""
    voters = _parse(data.split(b"\n", 1)[0]).get("currentVoters") or []
    ids = [voter.get("voterId") for voter in voters if isinstance(voter, dict)]
    return tuple(sorted(id for id in ids if type(id) is int)) or None
