"""``start``, and the commands that use what it keeps running."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.bench.loads.inputs import Chunk
from kraftfast.bench.loads.load import LoadSettling, append_all
from kraftfast.cli.append import telling_committed
from kraftfast.client.producer.latency import Latencies
from kraftfast.errors import DiskFull, ErrorCode, OffsetOutOfRange, RecordTooLarge
from kraftfast.quorum import free_port
from tests.cli.kit import Program, command, environment, fails, run
from tests.client.test_outcomes import Model

pytestmark = pytest.mark.processes


def replica_pids(directory: Path) -> dict[int, int]:
    done = run("status", "--dir", directory, "--json")
    return {each["node_id"]: each["pid"] for each in json.loads(done.stdout)["replicas"]}


def test_append_and_consume(quorum_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n\xff\n")
    done = run("append", file, "--dir", quorum_dir, "--json")
    assert done.returncode == 0, done.stderr
    appended = json.loads(done.stdout)
    first = appended["first_offset"]
    assert appended == {"records": 3, "first_offset": first, "last_offset": first + 2}
    done = run("consume", "--dir", quorum_dir, "--from", first)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n\xff\n")
    done = run("consume", "--dir", quorum_dir, "--from", first + 1, "--format", "json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["offset"] for each in found] == [first + 1, first + 2]
    assert found[0]["value"] == "two" and found[1]["value_base64"] == "/w=="
    assert found[0]["key"] is None and found[0]["timestamp"] > 1_700_000_000_000
    done = run("consume", "--dir", quorum_dir, "--from", first, "--count", 2)
    assert done.stdout == b"one\ntwo\n"


def test_append_from_stdin_says_where(quorum_dir: Path) -> None:
    done = run("append", "--dir", quorum_dir, data=b"x\ny")
    assert done.returncode == 0 and done.stdout.startswith(b"2 records committed, offsets "), done


def test_keys(quorum_dir: Path) -> None:
    done = run(
        "append", "--dir", quorum_dir, "--key-separator", ": ", "--json", data=b"a: 1\nb: 2: 3\n"
    )
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["first_offset"]
    done = run("consume", "--dir", quorum_dir, "--from", first, "--format", "json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["key"], each["value"]) for each in found] == [("a", "1"), ("b", "2: 3")]
    text = fails(run("append", "--dir", quorum_dir, "--key-separator", ": ", data=b"a: 1\nb\n"), 3)
    assert "line 2 of stdin" in text and "1 lines before it were appended" in text


def test_a_line_that_is_too_large_says_what_was_appended_before_it(quorum_dir: Path) -> None:
    """Who appends the whole input again, without that line, would append the others twice."""
    data = b"one\ntwo\n" + bytes(9 * 1024 * 1024) + b"\nthree\n"
    text = fails(run("append", "--dir", quorum_dir, data=data), 4)
    assert "line 3 of stdin" in text and "; 2 lines before it were appended, offsets " in text
    first, last = map(int, text.split("offsets ")[1].split(" to "))
    done = run("consume", "--dir", quorum_dir, "--from", first)
    assert (done.returncode, done.stdout, last) == (0, b"one\ntwo\n", first + 1)


def test_a_failure_of_the_quorum_says_what_is_committed() -> None:
    model = Model()

    def append_many(_values: Any, _offsets: Any, *, timeout: float) -> None:
        model.commit(3, 100)
        model.fail(2, ErrorCode.KAFKA_STORAGE_ERROR)

    producer = SimpleNamespace(
        outcomes=model.outcomes,
        append_many_nowait=append_many,
        flush=lambda *, timeout: None,
        latencies=Latencies(),
    )
    first, settling = model.replica.offset + 100, LoadSettling(producer)
    with pytest.raises(DiskFull) as caught:
        with telling_committed(settling, timeout=5):
            chunk = Chunk(b"abcde", list(range(6)), 5, 5)
            append_all(producer, [chunk], timeout=5, settling=settling)
    said = f"; 3 lines are committed all the same, offsets {first} to {first + 2}"
    assert str(caught.value).endswith(said)


def test_a_line_that_the_leader_refused_does_not_hide_those_behind_it() -> None:
    """Those that are committed need not be the ones before it."""
    model = Model()
    producer = SimpleNamespace(outcomes=model.outcomes, flush=lambda *, timeout: None)
    settling = LoadSettling(producer)
    with pytest.raises(RecordTooLarge) as caught, telling_committed(settling, timeout=5):
        model.fail(1, ErrorCode.MESSAGE_TOO_LARGE)
        model.commit(3, 100)
        settling.finish(5)
    first = settling.first_offset
    said = f"; 3 lines are committed all the same, offsets {first} to {first + 2}"
    assert str(caught.value).endswith(said)


def test_a_failure_with_nothing_committed_says_no_more() -> None:
    producer = SimpleNamespace(outcomes=Model().outcomes)
    with pytest.raises(DiskFull) as caught, telling_committed(LoadSettling(producer), timeout=5):
        raise DiskFull("no room")
    assert str(caught.value) == "no room"


def test_follow_says_what_is_beyond_the_end(
    quorum_dir: Path, program: Callable[..., Program]
) -> None:
    following = program("consume", "--dir", quorum_dir, "--from", 10**9, "--follow")
    following.wait_for("; waiting for 1000000000")
    assert following.stop(signal.SIGINT) == 130


def test_follow_shows_what_comes(quorum_dir: Path, program: Callable[..., Program]) -> None:
    done = run("append", "--dir", quorum_dir, "--json", "--timeout", 60, data=b"before\n")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["first_offset"]
    following = program("consume", "--dir", quorum_dir, "--from", first, "--follow")
    following.wait_for("before")
    done = run("append", "--dir", quorum_dir, "--timeout", 60, data=b"after\n")
    assert done.returncode == 0, done.stderr
    following.wait_for("after")
    assert following.stop(signal.SIGINT) == 130


def test_a_closed_pipe_is_no_failure(quorum_dir: Path) -> None:
    run("append", "--dir", quorum_dir, data=b"x" * 100 + b"\n" + b"y\n" * 20_000)
    shell = (
        " ".join(command("consume", "--dir", quorum_dir)) + " | head -c 1; echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", shell], capture_output=True, env=environment(), timeout=60)
    assert done.stderr == b""
    assert done.stdout[1:].strip() == b"141"


def test_who_follows_ends_with_its_reader(quorum_dir: Path) -> None:
    """Also if no more records come: it waited for the next one to find the pipe closed."""
    done = run("append", "--dir", quorum_dir, "--json", data=b"x\n")
    first = json.loads(done.stdout)["first_offset"]
    following = command("consume", "--dir", quorum_dir, "--from", first, "--follow")
    shell = f"timeout 20 {shlex.join(following)} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, env=environment(), timeout=30)
    assert (done.stdout, done.stderr) == (b"x\n141\n", b"")


def test_status(quorum_dir: Path) -> None:
    done = run("status", "--dir", quorum_dir)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("ClusterId ") and "durable on a majority" in lines[0]
    assert lines[1].split()[:5] == ["NodeId", "Status", "Leader", "Epoch", "LogEndOffset"]
    assert sorted(line.split()[0] for line in lines[2:]) == ["1", "2", "3"]
    assert sorted(line.split()[1] for line in lines[2:]) == ["follower", "follower", "leader"]
    done = run("status", "--dir", quorum_dir / "2", "--json")
    assert [each["node_id"] for each in json.loads(done.stdout)["replicas"]] == [2]


def test_a_replica_of_a_quorum_leads_to_its_leader(quorum_dir: Path) -> None:
    """The directory of a follower is as good as that of the quorum."""
    whole = json.loads(run("quorum", "describe", "--dir", quorum_dir, "--json").stdout)
    for id in (1, 2, 3):
        done = run("quorum", "describe", "--dir", quorum_dir / str(id), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["leaderId"] == whole["leaderId"]
    upgrade = ("quorum", "upgrade", "--feature", "kraft.version=1", "--dry-run")
    assert run(*upgrade, "--dir", f"{quorum_dir}/2/").returncode == 0


def test_offsets_out_of_range(quorum_dir: Path) -> None:
    assert "10000000" in fails(run("consume", "--dir", quorum_dir, "--from", 10_000_000), 17)
    fails(run("consume", "--dir", quorum_dir, "--from", -1), 2)


def test_inputs_of_append(quorum_dir: Path, tmp_path: Path) -> None:
    fails(run("append", "--dir", quorum_dir, data=b""), 3)
    fails(run("append", tmp_path / "none", "--dir", quorum_dir), 3)
    assert "line 1" in fails(run("append", "--dir", quorum_dir, data=b"z" * (9 << 20)), 4)
    fails(run("append", "--dir", quorum_dir, "--bootstrap-server", "h:1", data=b"x"), 2)
    fails(run("append", data=b"x"), 2)
    fails(run("append", "--bootstrap-server", "nowhere", data=b"x"), 2)


def test_a_large_record(quorum_dir: Path) -> None:
    value = os.urandom(4 << 20).replace(b"\n", b"-")
    done = run("append", "--dir", quorum_dir, "--json", data=value)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["first_offset"]
    assert run("consume", "--dir", quorum_dir, "--from", first).stdout == value + b"\n"


def test_directories_in_use_or_foreign(quorum_dir: Path, tmp_path: Path) -> None:
    assert "another process holds" in fails_at_last(run("start", "--dir", quorum_dir), 34)
    assert "3" in fails(run("start", "--dir", quorum_dir, "--voters", 5), 2)
    fails(run("status", "--dir", tmp_path), 36)
    fails(run("append", "--dir", tmp_path, data=b"x"), 36)
    (tmp_path / "quorum.json").write_text("{")
    fails(run("status", "--dir", tmp_path), 35)


def fails_at_last(done: subprocess.CompletedProcess[bytes], exit_code: int) -> str:
    """Its workers have said on stderr, too, why they could not start."""
    assert done.returncode == exit_code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stderr.decode().splitlines()[-1]


def test_what_runs_no_more(tmp_path: Path) -> None:
    done = run("storage", "format", "--dir", tmp_path / "q", "--voters", 1)
    assert done.returncode == 0
    fails(run("status", "--dir", tmp_path / "q"), 12)
    for place in (tmp_path / "q", tmp_path / "q" / "1"):
        where = ("--dir", place, "--timeout", 1000)
        said = fails(run("append", *where, data=b"x"), 12)
        assert f"no process runs a replica of {place}" in said
        fails(run("consume", *where, "--follow"), 12)
        fails(run("quorum", "transfer", *where), 12)


def test_what_runs_and_does_not_answer(tmp_path: Path, program: Callable[..., Program]) -> None:
    """Nobody waits without knowing what for."""
    running = program("start", "--voters", 1, "--dir", tmp_path)
    running.wait_for("leads")
    (pid,) = replica_pids(tmp_path).values()
    os.kill(pid, signal.SIGSTOP)
    try:
        done = run("append", "--dir", tmp_path, "--timeout", 2.5, data=b"x")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 12
    first, second = done.stderr.decode().splitlines()
    assert "-> waiting for up to 0.5 s (--timeout)" in first and "no leader" in second
    assert running.stop() == 0


def test_a_life(tmp_path: Path, program: Callable[..., Program]) -> None:
    """Start, lose a worker, go on, stop by SIGTERM, start again: nothing is lost."""
    running = program("start", "--voters", 3, "--dir", tmp_path, "--durability", "all")
    first = running.wait_for("leads")
    done = run("append", "--dir", tmp_path, "--timeout", 60, data=b"before\n")
    assert done.returncode == 0, done.stderr
    leader = int(first.split(", replica ")[1].split()[0])
    pids = replica_pids(tmp_path)
    os.kill(pids[leader], signal.SIGKILL)
    assert f"replica {leader}: worker_ended" in running.wait_for("started again")
    if running.log.count("leader_elected") == 1:  # mostly another leads before it is there again
        running.wait_for("leader_elected")
    done = run("append", "--dir", tmp_path, "--timeout", 60, data=b"after\n")
    assert done.returncode == 0, done.stderr
    assert replica_pids(tmp_path)[leader] != pids[leader]
    assert running.stop() == 0
    assert running.log.endswith("stopped\n")
    again = program("start", "--dir", tmp_path)
    again.wait_for("leads")
    assert run("consume", "--dir", tmp_path).stdout == b"before\nafter\n"
    assert again.stop(signal.SIGINT) == 0


def test_a_log_that_is_kept_for_a_while_only(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    running = program(
        "start", "--voters", 1, "--dir", tmp_path, "--segment-bytes", "8MiB",
        "--retention-bytes", "8MiB", "--retention-ms", 3_600_000,
    )  # fmt: skip
    running.wait_for("leads")
    assert run("append", "--dir", tmp_path, data=(b"x" * 999 + b"\n") * 30_000).returncode == 0
    deadline = time.monotonic() + 60
    while True:
        done = run("status", "--dir", tmp_path, "--json")
        (replica,) = json.loads(done.stdout)["replicas"]
        if replica["log_start_offset"] > 8000:
            break
        assert time.monotonic() < deadline, replica
        time.sleep(0.1)
    code = OffsetOutOfRange.exit_code
    assert "starts at offset" in fails(run("consume", "--dir", tmp_path, "--from", 0), code)
    assert running.stop() == 0


def test_storage(tmp_path: Path) -> None:
    first, second = (run("storage", "random-uuid").stdout.decode().strip() for _ in range(2))
    assert first != second and len(first) == len(second) == 22
    arguments = ("storage", "format", "--dir", tmp_path / "q", "--cluster-id", first)
    done = run(*arguments, "--voters", 1, "--durability", "memory")
    assert done.returncode == 0 and first.encode() in done.stdout
    assert "already holds" in fails(run(*arguments), 35)
    done = run(*arguments, "--ignore-formatted")
    assert done.returncode == 0 and b"formatted already" in done.stdout
    assert b"durability memory" in done.stdout
    for asked in (("--durability", "all"), ("--voters", 5), ("--records", "kafka-raft")):
        done = run(*arguments, "--ignore-formatted", *asked)
        assert f"was made with {asked[0][2:]}" in fails(done, 2)
    fails(run("storage", "format", "--dir", tmp_path / "p", "--cluster-id", "short"), 2)
    fails(run("storage", "format"), 2)
    fails(run("storage", "format", "--config", "x"), 2)
    fails(run("storage", "format", "--config", "x", "--cluster-id", first), 3)


def properties(path: Path, node_id: int, ports: list[int], host: str = "127.0.0.1") -> Path:
    file = path / f"{node_id}.properties"
    voters = ",".join(f"{id}@127.0.0.1:{port}" for id, port in enumerate(ports, 1))
    file.write_text(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.voters={voters}\n"
        f"listeners=CONTROLLER://{host}:{ports[node_id - 1]}\n"
        "controller.listener.names=CONTROLLER\n"
        f"metadata.log.dir={path / str(node_id)}\n"
        "controller.quorum.election.timeout.ms=300\nkraftfast.prepare.stride.bytes=1048576\n"
    )
    return file


def free_ports(count: int) -> list[int]:
    return [free_port("127.0.0.1") for _ in range(count)]


# covers: testSendAndReceiveOutboundRequest
def test_three_servers_form_a_quorum(tmp_path: Path, program: Callable[..., Program]) -> None:
    ports = free_ports(3)
    cluster = run("storage", "random-uuid").stdout.decode().strip()
    servers = []
    for id in (1, 2, 3):
        file = properties(tmp_path, id, ports)
        fails(run("serve", "--config", file), 36)
        arguments = ("storage", "format", "--config", file, "--cluster-id", cluster)
        assert run(*arguments).returncode == 0
        fails(run(*arguments), 35)
        assert run(*arguments, "-g").returncode == 0
        servers.append(program("serve", "--config", file))
    leader = servers[0].wait_for("leads").split(", replica ")[1].split()[0]
    done = run("append", "--dir", tmp_path / leader, data=b"over sockets\n")
    assert done.returncode == 0, done.stderr
    other = tmp_path / ("1" if leader != "1" else "2")
    fails(run("append", "--dir", other, "--timeout", 0.3, data=b"x"), 12)
    assert run("consume", "--dir", other, "--count", 1, "--follow").stdout == b"over sockets\n"
    for server in servers:
        assert server.stop() == 0, server.log


def test_serve_opens_no_door_unasked(tmp_path: Path, program: Callable[..., Program]) -> None:
    ports = free_ports(1)
    file = properties(tmp_path, 1, ports, host="0.0.0.0")
    run(
        "storage",
        "format",
        "--config",
        file,
        "--cluster-id",
        run("storage", "random-uuid").stdout.decode().strip(),
    )
    assert "--expose-without-authentication" in fails(run("serve", "--config", file), 2)
    server = program("serve", "--config", file, "--expose-without-authentication")
    assert "acknowledged records may be lost" in server.wait_for("WARNING")
    server.wait_for("leader")
    server.stop()


def test_serve_says_why_it_cannot(tmp_path: Path) -> None:
    ports = free_ports(1)
    file = properties(tmp_path, 1, ports)
    run(
        "storage",
        "format",
        "--config",
        file,
        "--cluster-id",
        run("storage", "random-uuid").stdout.decode().strip(),
    )
    with socket.create_server(("127.0.0.1", ports[0])):
        assert "cannot listen" in fails(run("serve", "--config", file), 30)
    with open(file, "a") as opened:
        opened.write("controller.quorum.fetch.timout.ms=5\n")
    assert "controller.quorum.fetch.timeout.ms" in fails(run("serve", "--config", file), 2)
