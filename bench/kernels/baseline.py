"""The kernels beside the baseline that is kept in bench/baseline/kernels.json.

    python bench/kernels/baseline.py [--write]

Times every kernel of bench/kernels for a moment with pytest-benchmark, and compares its least time
with that of the baseline. Machines differ, so each ratio is divided by the median of all ratios:
what is printed has become slower, or faster, by more than twice beside the other kernels. It never
fails for that: a line is a reason to measure, not a verdict. ``--write`` keeps the times as the
baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from kraftfast.bench.results.machine_facts import facts

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "bench" / "kernels"
BASELINE = ROOT / "bench" / "baseline" / "kernels.json"
NOTABLE = 2.0
TIMEOUT_S = 900.0


def measure(kernels: Path = KERNELS) -> dict[str, float]:
    """Return the least time of each of the kernels, seconds, by its name. Raises SystemExit."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "kernels.json"
        command = [sys.executable, "-m", "pytest", str(kernels), "-q"]
        command += ["--benchmark-max-time=0.05", "--benchmark-min-rounds=5", "--benchmark-quiet"]
        # where tests are divided among processes, as by .ci/run, pytest-benchmark times nothing
        environment = {name: os.environ[name] for name in os.environ if "PYTEST_" not in name}
        done = subprocess.run(
            [*command, f"--benchmark-json={path}", "-p", "no:cacheprovider"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"the kernels did not run:\n{done.stdout[-3000:]}")
        found = json.loads(path.read_text())["benchmarks"]
    return {each["fullname"].removeprefix("bench/kernels/"): each["stats"]["min"] for each in found}


def compare(times: dict[str, float], baseline: dict[str, Any]) -> list[str]:
    """Return lines: how fast this machine is, and what changed beside the others."""
    before = baseline["least_s"]
    ratios = {name: times[name] / before[name] for name in times if name in before}
    lines = [f"not in the baseline: {name}" for name in sorted(times.keys() - before.keys())]
    lines += [f"gone: {name}" for name in sorted(before.keys() - times.keys())]
    if not ratios:
        return [*lines, "nothing to compare"]
    machine = median(ratios.values())
    lines.insert(0, f"{len(ratios)} kernels; of the baseline's times, in the median: {machine:.2f}")
    for name, ratio in sorted(ratios.items(), key=lambda each: -each[1]):
        beside = ratio / machine
        if not 1 / NOTABLE <= beside <= NOTABLE:
            word = "slower" if beside > 1 else "faster"
            lines.append(f"{word} beside the others, {beside:.2f} x: {name}")
    return lines


def main() -> None:
    """Print the comparison, or keep the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="keep the times as the baseline")
    asked = parser.parse_args()
    times = measure()
    if asked.write:
        document = {"machine": facts(str(ROOT)), "least_s": times}
        BASELINE.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        print(f"{len(times)} kernels in {BASELINE}")
    else:
        print("\n".join(compare(times, json.loads(BASELINE.read_text()))))


if __name__ == "__main__":
    main()
