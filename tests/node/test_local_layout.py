"""quorum.json and the directories beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftfast.errors import ForeignDirectory, InvalidOption, NotFormatted
from kraftfast.log.directory import read_meta, read_options
from kraftfast.log.disk import Disk
from kraftfast.log.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshot_reader import open_snapshot
from kraftfast.node.local_layout import (
    LiveDirectories,
    add_to_description,
    format_quorum,
    read_description,
)
from kraftfast.record.control import KRaftVersion, KRaftVoters


def test_a_quorum_with_its_voters_in_a_checkpoint(tmp_path: Path) -> None:
    """Every voter has the same one, with everybody's directory id."""
    path = str(tmp_path / "q")
    description = format_quorum(path, 3, kraft_version=1)
    ids = {id: read_meta(Disk(), os.path.join(path, str(id))).directory_id for id in (1, 2, 3)}
    for id in description.voters:
        log_path = os.path.join(path, str(id), "__cluster_metadata-0")
        assert snapshot_ids(Disk(), log_path) == [BOOTSTRAP]
        with open_snapshot(Disk(), log_path, BOOTSTRAP) as snapshot:
            version, voters = snapshot.controls
        assert version == KRaftVersion(1) and isinstance(voters, KRaftVoters)
        assert {voter.id: voter.directory_id for voter in voters.voters} == ids
        assert {voter.endpoints for voter in voters.voters} == {(("CONTROLLER", "localhost", 0),)}
    format_quorum(str(tmp_path / "static"), 1)
    assert snapshot_ids(Disk(), str(tmp_path / "static/1/__cluster_metadata-0")) == []
    with pytest.raises(InvalidOption, match="kraft.version"):
        format_quorum(str(tmp_path / "other"), 3, kraft_version=2)


def test_replicas_are_added_once(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 2, "all", "kafka-raft", "t")
    places = LiveDirectories(path)
    assert dict(places) == {1: f"{path}/1", 2: f"{path}/2"}
    directory_id = add_to_description(path, 7)
    assert add_to_description(path, 7) == directory_id
    assert read_description(path).added == [7]
    assert sorted(places) == [1, 2, 7] and places[7] == f"{path}/7"
    assert read_options(Disk(), places[7]) == read_options(Disk(), places[1])
    os.rename(os.path.join(path, "7"), os.path.join(path, "8"))
    with pytest.raises(ForeignDirectory, match="another quorum"):
        add_to_description(path, 8)
    os.unlink(os.path.join(path, "quorum.json"))
    with pytest.raises(NotFormatted):
        list(places)
