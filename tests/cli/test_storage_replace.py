"""``kraftfast storage replace``; what ``start`` and ``status`` say of a replica that is down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import kraftfast
from tests.cli.kit import Program, fails, run

SMALL = {"segment_bytes": 8 << 20, "stride_bytes": 2 << 20}


def test_a_replica_is_made_anew(tmp_path: Path, program: Callable[..., Program]) -> None:
    path = tmp_path / "a quorum"
    with kraftfast.LocalQuorum(path, voters=3, **SMALL) as quorum, quorum.producer() as producer:
        producer.append_many([b"x"] * 100)
    replace = ("storage", "replace")
    fails(run(*replace, path / "2", "--yes", "--timeout", 1), 12)  # nobody leads
    shutil.rmtree(path / "2")
    running = program("start", "--dir", path, "--segment-bytes", "8MiB")
    line = running.wait_for("replica 2: replica_down: it cannot run -> it stays down")
    assert f"kraftfast storage replace '{path / '2'}' rebuilds it from the others" in line
    running.wait_for("quorum_started")

    found = json.loads(run("status", "--dir", path, "--json").stdout)
    assert found["missing"] == {"2": f"{path / '2'} is not formatted, or gone"}
    assert len(found["replicas"]) == 2

    fails(run(*replace, path, "--yes"), 2)
    fails(run(*replace, path / "2", "--timeout", 10), 2)  # nobody is there to ask
    assert "its replicas are 1, 2, 3" in fails(run(*replace, path / "7", "--yes"), 2)
    assert "a process runs" in fails(run(*replace, path / "1", "--yes"), 34)
    fails(run(*replace, tmp_path / "nothing" / "2", "--yes"), 36)
    done = run(*replace, path / "2", "--dry-run")
    assert done.returncode == 0 and done.stdout.endswith(b"nothing was changed\n")
    assert b"leaves the voter set: until the end 1, 3 vote" in done.stdout
    assert not (path / "2").exists()
    (path / "2").write_text("no directory")  # start says that replace helps here too
    done = run(*replace, path / "2", "--dry-run")
    assert done.returncode == 0 and b"renamed, not removed" in done.stdout
    (path / "2").unlink()
    (path / "2").symlink_to(tmp_path / "disk" / "2")
    done = run(*replace, path / "2", "--dry-run")
    assert b"takes the place of the link" in done.stdout and b"is made" not in done.stdout
    for how in ("--dry-run", "--yes"):
        refused = fails(run(*replace, path / "2", how), 2)
        assert "is on the device of replica 1, 3: mount the disk of replica 2" in refused
    shown = run(*replace, path / "2", "--dry-run", "--json")
    assert shown.returncode == 2 and "mount the disk" in json.loads(shown.stdout)["refusal"]
    (tmp_path / "disk").mkdir()
    done = run(*replace, path / "2", "--dry-run", "--share-device")
    assert b"it is made on a device that holds other replicas" in done.stdout
    assert f"a link leads to {tmp_path / 'disk' / '2'}".encode() in done.stdout
    (path / "2").unlink()
    (path / "2").symlink_to(path / "3")
    assert "which is not replaced" in fails(run(*replace, path / "2", "--yes"), 2)
    (path / "2").unlink()

    done = run(*replace, path / "2", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["done"] and plan["votes"] and plan["voters_left"] == [1, 3]
    assert plan["set_aside"] is None and "not formatted" in plan["fault"]
    running.wait_for("replica 2: worker_restarted: started again")
    described = run("quorum", "describe", "--dir", path, "--json").stdout
    voters = json.loads(described)["currentVoters"]
    ids = {voter["id"]: voter["directoryId"] for voter in voters}
    assert sorted(ids) == [1, 2, 3] and ids[2] == plan["directory_id"]
    assert json.loads(run("status", "--dir", path, "--json").stdout)["missing"] == {}
    assert running.stop() == 0


def test_two_programs_do_not_run_one_quorum(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    running = program("start", "--dir", tmp_path / "q", "--voters", 1, "--segment-bytes", "8MiB")
    running.wait_for("leads")
    assert "another process holds" in fails(run("start", "--dir", tmp_path / "q"), 34)
    fails(run("storage", "format", "--dir", tmp_path / "q"), 35)
    fails(run("storage", "recover", tmp_path / "q" / "1", "--yes"), 34)
    assert run("status", "--dir", tmp_path / "q").returncode == 0
    assert running.stop() == 0
