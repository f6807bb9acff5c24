"""Where a worker's time goes: a flame graph of one replica under load, with native frames.

    python bench/profile.py profiles/NAME.svg [--mode throughput|latency]
        [--replica leader|follower]
        [--record-size 100] [--seconds 10] [--durability majority|memory] [--transport ring|socket]

Starts three voters, appends, and has py-spy sample one of the workers meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kraftfast import LocalQuorum  # noqa: E402
from kraftfast.bench import load  # noqa: E402
from kraftfast.bench.inputs import Rows  # noqa: E402

RATE_HZ = 500


def sampler(pid: int, output: Path, seconds: float) -> subprocess.Popen[bytes]:
    """py-spy, attached to a worker."""
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [program(), "record", "--pid", str(pid), "--native"]
    command += ["--duration", str(int(seconds)), "--rate", str(RATE_HZ)]
    command += [
        "--format",
        "raw" if output.suffix == ".txt" else "flamegraph",
        "--output",
        str(output),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def program() -> str:
    """Return the py-spy of this interpreter's environment, which need not be activated."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if found is None:
        raise SystemExit(f"there is no py-spy: {sys.executable} -m pip install py-spy")
    return found


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="NAME.svg, or NAME.txt for folded stacks")
    parser.add_argument("--mode", choices=("throughput", "latency"), default="throughput")
    parser.add_argument("--replica", choices=("leader", "follower"), default="leader")
    parser.add_argument("--record-size", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--durability", default="majority")
    parser.add_argument("--transport", default="ring")
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    return parser.parse_args()


def main() -> int:
    """Exit code of py-spy."""
    asked = options()
    program()  # before a quorum is made
    rows = Rows(None, asked.record_size)
    with tempfile.TemporaryDirectory(prefix="kraftfast-profile-", dir=asked.dir) as place:
        quorum = LocalQuorum(
            Path(place) / "quorum",
            voters=3,
            durability=asked.durability,
            transport=asked.transport,
            prepare_bytes=256 * 1024 * 1024,
            timeout=120.0,
        )
        window = 32 if asked.mode == "throughput" else 1
        with quorum, quorum.producer(window=window) as producer:
            wanted = [
                status["pid"]
                for status in quorum.statuses().values()
                if (status["role"] == "leader") == (asked.replica == "leader")
            ]
            drive = load.throughput if asked.mode == "throughput" else load.one_outstanding
            spy = sampler(wanted[0], asked.output, asked.seconds)
            run = drive(producer, rows, None, asked.seconds)
            code = spy.wait(timeout=120)
    p50 = f"p50 {run.latency.p50_us or 0:,.0f} us"
    print(f"{run.records_per_s:,.0f} records/s, {p50} -> {asked.output}")
    return code


if __name__ == "__main__":
    sys.exit(main())
