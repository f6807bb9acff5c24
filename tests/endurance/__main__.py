"""Run a quorum for minutes or hours under load and faults, and check all that it says meanwhile.

    python -m tests.endurance --minutes 60 [--dir D] [--seed N] [--durability D] [--transport T]
        [--quiet MINUTES]

Producers of each kind append numbered records, a consumer reads them as they are committed, and
about every ten seconds something happens to a replica (``faults.py``). The log is kept in part, so
that segments are used again and replicas come back from snapshots. Once a minute a line says how
fast it was and what the largest replica and this program use. For the last ``--quiet`` minutes
there are no faults, so that usage and rates can be compared with those of the beginning.

Exits with 1 where a record was lost, doubled, moved or damaged, where an append or the consumer
waited for two minutes, where a fault did not heal, or where replicas differ in the end.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

from kraftfast.errors import KraftfastError
from kraftfast.testing import QuorumUnderTest
from tests.endurance.faults import Faults
from tests.endurance.observer import Observer
from tests.endurance.usage import Usage, usage_of
from tests.endurance.writers import KINDS, Writer

MIB = 1 << 20
RECORD_BYTES, RETENTION_BYTES, SEGMENT_BYTES = 1024, 256 * MIB, 16 * MIB
FAULT_EVERY_S = 10.0
LINE_EVERY_S = 60.0
END_S = 180.0


class Run:
    """One run. ``wrong``: what should not have been."""

    def __init__(self, quorum: QuorumUnderTest, seed: int) -> None:
        self.quorum, self.chance = quorum, random.Random(seed)
        self.faults, self.wrong = Faults(quorum, seed), list[str]()
        self.observer = Observer(quorum, RECORD_BYTES)
        self.writers: list[Writer] = [
            kind(quorum, name, RECORD_BYTES, self.observer) for name, kind in KINDS.items()
        ]

    def go(self, seconds: float, quiet_s: float) -> None:
        """Append, read and break things for so long; then stop, and compare."""
        began = line_at = fault_at = time.monotonic()
        records = 0
        for each in (self.observer, *self.writers):
            each.start()
        while (now := time.monotonic()) < began + seconds and not self._has_ended():
            if now >= fault_at and now < began + seconds - quiet_s:
                try:
                    self.faults.one()
                except (AssertionError, KraftfastError) as error:
                    self.wrong.append(f"a fault did not heal: {type(error).__name__}: {error}")
                    break
                fault_at = time.monotonic() + self.chance.uniform(0.0, 2 * FAULT_EVERY_S)
            if now >= line_at + LINE_EVERY_S:
                self._tell(now - began, (self.observer.records - records) / (now - line_at))
                line_at, records = now, self.observer.records
            time.sleep(0.2)
        self._finish()

    def _has_ended(self) -> bool:
        """Return whether something is wrong already."""
        self.observer.check_silence()
        failed = [each for each in self.writers if each.error is not None]
        return bool(failed or self.observer.wrong or not self.observer.is_alive())

    def _tell(self, at_s: float, rate: float) -> None:
        pids = [self.quorum.supervisor.pid(id) for id in self.quorum.directories]
        found = [usage_of(pid) for pid in pids if pid is not None]
        largest = Usage(*map(max, zip(*(each for each in found if each is not None), strict=True)))
        ours = usage_of(os.getpid())
        assert ours is not None
        waits = {each.name: round(each.slowest_s, 1) for each in self.writers}
        waits["observer"] = round(self.observer.silence(), 1)
        for each in self.writers:
            each.slowest_s = 0.0
        print(
            f"{at_s:6.0f} s  {rate:8.0f} records/s  slowest {waits}  "
            f"faults {sum(self.faults.counts.values())}  replica {_text(largest)}  "
            f"program {_text(ours)}",
            flush=True,
        )

    def _finish(self) -> None:
        for each in self.writers:
            each.stopping.set()
        for each in self.writers:
            each.join(END_S)
            if each.is_alive():
                self.wrong.append(f"{each.name} hangs")
            elif each.error is not None:
                self.wrong.append(f"{each.name}: {type(each.error).__name__}: {each.error}")
        try:
            self.observer.finish(self.quorum.read_barrier(timeout=END_S), END_S)
        except KraftfastError as error:
            self.wrong.append(f"no end to read to: {error}")
        self.wrong += self.observer.wrong
        try:
            print(f"the same in all replicas: {self.quorum.verify(timeout=END_S):,} bytes")
        except KraftfastError as error:
            self.wrong.append(str(error))
        print(f"records: {self.observer.records:,}; faults: {self.faults.counts}")


def _text(usage: Usage) -> str:
    return (
        f"{usage.private_mb:.0f} MB, {usage.descriptors} descriptors, {usage.threads} threads, "
        f"{usage.mappings} mappings"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--quiet", type=float, default=0.0, help="minutes without faults, at last")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", default="majority")
    parser.add_argument("--transport", default="ring")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of a listener without authentication, on this host alone
    with tempfile.TemporaryDirectory(dir=asked.dir, prefix="kraftfast-endurance-") as path:
        settings = {"retention_bytes": RETENTION_BYTES, "segment_bytes": SEGMENT_BYTES}
        with QuorumUnderTest(
            Path(path) / "q",
            3,
            durability=asked.durability,
            transport=asked.transport,
            kraft_version=1,
            **settings,
        ) as quorum:
            run = Run(quorum, asked.seed)
            run.go(asked.minutes * 60, asked.quiet * 60)
    for each in run.wrong:
        print(f"WRONG: {each}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
