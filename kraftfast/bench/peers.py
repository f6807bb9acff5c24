"""Other replicated logs, measured by turns with kraftfast: their drivers and what those print.

A driver is a program that runs three voters of another log and one client, on this machine:
``NAME --dir D --value-bytes N --mode latency|throughput --seconds S [--no-sync]``. The last line
that it prints on stdout is JSON, with the keys of :data:`LINE`. They are kept in a clone, in
``bench/peers``.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import kraftfast
from kraftfast.bench.loads.load import SAMPLES_MIN
from kraftfast.bench.results.result import Result
from kraftfast.errors import InputError, KraftfastError, TimedOut, VerificationFailed

OURS = ("floor", "kraftfast", "kraftfast-socket")
NAMES = (
    "aeron", "etcd", "etcd-raft", "hashicorp-raft", "jraft", "kafka", "nats",
    "openraft", "pysyncobj", "ratis", "zookeeper",
)  # fmt: skip
"""The drivers that a clone has."""
RECORD_BYTES: Final = {"latency": 100, "throughput": 1024}
"""Of a value, in each mode: one record outstanding, and many."""
FAILOVER = "kraftfast, failover"
FIGURES: Final = ("records_per_s", "p50_us", "p99_us", "p999_us")
TIMEOUT_S, BUILD_TIMEOUT_S, GRACE_S = 300.0, 1800.0, 8.0
TAIL_BYTES = 1 << 16
"""Kept of what a driver prints: the end."""
TEXT_CHARACTERS_MAX = 200
NUMBER: Final = (int, float)
LINE: Final[dict[str, tuple[type, ...]]] = {
    "peer": (str,), "version": (str,), "voters": (int,), "client": (str,), "sync": (bool,),
    "fsync": (str,), "survives": (str,), "value_bytes": (int,), "mode": (str,), "window": (int,),
    "seconds": NUMBER, "records": (int,), "records_per_s": NUMBER, "p50_us": NUMBER,
    "p99_us": NUMBER, "p999_us": NUMBER, "max_us": NUMBER, "verified": (bool,),
}  # fmt: skip
"""What a driver prints. ``fsync``: what is flushed before an acknowledgement; ``survives``: what
an acknowledged record has survived; ``verified``: every voter had all of them at the end."""
PR_SET_PDEATHSIG = 1


class PeerFailed(KraftfastError):
    """A driver ended with an error, or printed no line as :data:`LINE` has it."""


@dataclass(frozen=True, slots=True)
class PeerWork:
    """What a driver is to do, below an empty directory. ``durable``: with flushes."""

    directory: str
    mode: str
    value_bytes: int
    seconds: float
    durable: bool


def run(program: Path, work: PeerWork, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run a driver once; return its line. Nothing that it started is left behind.

    Raises InputError where it cannot be started, PeerFailed, TimedOut, VerificationFailed.
    """
    command = [os.path.abspath(program), "--dir", work.directory, "--mode", work.mode]
    command += ["--value-bytes", str(work.value_bytes), "--seconds", f"{work.seconds:g}"]
    command += [] if work.durable else ["--no-sync"]
    name = program.name
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot start {program}: {told}") from None
    try:
        with process:
            try:
                out, err = _outputs(process, timeout_s)
            finally:
                _stop(process)
    except TimedOut:
        raise TimedOut(f"{name} did not end within {timeout_s:g} s") from None
    if process.returncode < 0:
        raise PeerFailed(f"{name}: killed by signal {-process.returncode}")
    if process.returncode:
        said = f": {_last(err)}" if err.strip() else ", and it said nothing"
        raise PeerFailed(f"{name}: exit code {process.returncode}{said}")
    return checked(name, out, work)


def _end_with_parent() -> None:
    """In the driver, before it begins: end it where this process ends, however that is."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _outputs(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bytes]:
    """Read stdout and stderr to their ends; return the last of each. Raises TimedOut."""
    until = time.monotonic() + timeout_s
    assert process.stdout is not None and process.stderr is not None
    kept = {each.fileno(): b"" for each in (process.stdout, process.stderr)}
    with selectors.DefaultSelector() as selector:
        for each in kept:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise TimedOut
            for key, _ in ready:
                came = os.read(key.fd, TAIL_BYTES)
                kept[key.fd] = (kept[key.fd] + came)[-TAIL_BYTES:]
                if not came:
                    selector.unregister(key.fd)
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimedOut from None
    out, err = kept.values()
    return out, err


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a driver and all that it started: asked first, so that it can remove what it made."""
    try:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
    finally:  # also where a signal ends the wait
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:TEXT_CHARACTERS_MAX] if lines else ""


def checked(name: str, out: bytes, work: PeerWork) -> dict[str, Any]:
    """Return the line that a driver printed last, a percentile of too few samples left out.

    Raises PeerFailed where it is none, VerificationFailed where a voter lacks records.
    """
    if not out.strip():
        raise PeerFailed(f"{name} printed nothing")
    try:
        line = json.loads(out.strip().splitlines()[-1])
    except (ValueError, RecursionError):
        raise PeerFailed(
            f"{name} printed no line of JSON, or a part of one: {_last(out)}"
        ) from None
    if not isinstance(line, dict):
        raise PeerFailed(f"{name} printed no JSON object: {_last(out)}")
    for key, kinds in LINE.items():
        if not _fits(line.get(key), kinds):
            raise PeerFailed(f"{name}: {key!r} of its line is {str(line.get(key))[:40]!r}")
    if (line["mode"], line["value_bytes"]) != (work.mode, work.value_bytes):
        told = f"{line['mode']} of {line['value_bytes']} B"
        raise PeerFailed(f"{name} measured {told}, not {work.mode} of {work.value_bytes} B")
    if not line["verified"]:
        raise VerificationFailed(f"{name}: a voter lacks records that were acknowledged")
    if not line["records"]:
        raise PeerFailed(f"{name}: no record was acknowledged")
    few = [key for key, least in SAMPLES_MIN.items() if line["records"] < least]
    return {key: line[key] for key in LINE} | dict.fromkeys(few)


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of these types, and one that can be shown."""
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, str):
        return str in kinds and 0 < len(value) <= TEXT_CHARACTERS_MAX and value.isprintable()
    if not isinstance(value, (int, float)):
        return False
    return isinstance(value, kinds) and 0 <= value <= sys.float_info.max  # NaN is not


def drivers() -> Path:
    """Return the folder of the drivers' sources. Raises InputError where there is no clone."""
    places = (Path(kraftfast.__file__).parents[1], Path.cwd())
    for place in places:
        if (place / "bench" / "peers" / "build.sh").is_file():
            return place / "bench" / "peers"
    raise InputError("drivers are built from a clone of kraftfast: run this in one")


def build(folder: Path, name: str) -> str:
    """Build a driver into a folder; return "", or why it cannot be built.

    What was printed is in ``build-NAME.log`` there. Raises InputError where there is no clone.
    """
    script, log = drivers() / "build.sh", folder / f"build-{name}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            log.open("wb") as out,
            subprocess.Popen(
                ["sh", script, folder, name],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            ) as done,
        ):
            try:
                done.wait(BUILD_TIMEOUT_S)
            finally:
                _stop(done)
        lines = log.read_text(errors="replace").splitlines()[-2:]
    except subprocess.TimeoutExpired:
        return f"it was not built within {BUILD_TIMEOUT_S / 60:.0f} min, see {log}"
    except OSError as error:
        raise InputError(f"cannot build into {folder}: {error.strerror}") from None
    if not done.returncode:
        return ""
    why = lines[0].strip() if lines else f"it ended with {done.returncode}, and said nothing"
    return f"not built: {why[:TEXT_CHARACTERS_MAX]}"


def table(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the plan that runs all that ``only`` names by turns: each mode of each is a measure.

    ``asked``: only, peers (the folder with ``bin``), rounds, seconds, total (MiB of our values),
    durability, kills, timeout.
    """
    measures = []
    for mode in RECORD_BYTES:
        for name in asked["only"]:
            made = _ours(name, mode, asked) if name in OURS else _driven(name, mode, asked)
            measures.append({"name": f"{name}, {mode}"} | made)
    if asked["kills"]:
        failover = {"command": "failover", "kills": asked["kills"]}
        failover["durability"] = asked["durability"]
        measures.append({"name": FAILOVER} | failover)
    return {"name": "peers", "repeat": asked["rounds"], "measure": measures}


def _ours(name: str, mode: str, asked: dict[str, Any]) -> dict[str, Any]:
    same = {"record-size": RECORD_BYTES[mode], "durability": asked["durability"]}
    if mode == "throughput":
        same |= {"total": asked["total"], "window": 32, "batch-bytes": 65536}
    if name == "floor":
        least = {"total": 1, "window": 1, "batch-bytes": 1} if mode == "latency" else {}
        return {"command": "floor"} | same | least
    more = {"seconds": asked["seconds"]} if mode == "latency" else {}
    transport = "socket" if name == "kraftfast-socket" else "ring"
    return {"command": mode, "transport": transport} | same | more


def _driven(name: str, mode: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "command": "peer",
        "program": str(asked["peers"] / "bin" / name),
        "mode": mode,
        "record-size": RECORD_BYTES[mode],
        "seconds": asked["seconds"],
        "durability": asked["durability"],
        "timeout": asked["timeout"],
    }


def rows(result: Result) -> Iterator[dict[str, Any]]:
    """Yield a row for each measure of a result of ``bench peers``: the medians with their ranges.

    The key of the least is ``KEY_min``, that of the largest ``KEY_max``. None: too few samples.
    """
    for measure in result.measures:
        lines = result.lines(measure)
        name, _, mode = measure.partition(", ")
        if mode not in RECORD_BYTES:
            continue
        same = ("version", "client", "sync", "fsync", "survives", "value_bytes", "window")
        row = {"name": name, "mode": mode} | {key: lines[0][0].get(key) for key in same}
        for key in FIGURES:
            found = result.values(measure, key)
            for suffix, of in _OF_ALL.items():
                row[key + suffix] = of(found) if found else None
        yield row | {"runs": len(lines)}


_OF_ALL: dict[str, Callable[[list[float]], float]] = {"": median, "_min": min, "_max": max}
