"""The log on a disk that forgets what was not synced: random histories, cut at every kind of step.

What must hold after each cut (D8, D10, D18, I14): nothing that was flushed is
missing, what is there is a prefix of what was appended, nothing that was cut comes back, the epochs
are those of the batches, and the log goes on from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kraftfast.log import nursery
from kraftfast.log.snapshots.log_start import delete_before, install_snapshot
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.record.batch import batch_at, batches
from kraftfast.types import OffsetAndEpoch
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import KIB, Home, batch_of_size, content, snapshot

HOME = "/replica"
SETTINGS = {"segment_bytes": 24 * KIB, "stride_bytes": 16 * KIB}


@dataclass
class History:
    """What one replica did: the batches it holds, and what they were before the step at hand."""

    stored: list[bytes] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    start: int = 0
    flushed: int = 0
    epoch: int = 1
    snapshot: OffsetAndEpoch = OffsetAndEpoch(0, 0)  # the newest
    installing: bool = False  # it is put in place of the log

    def end(self) -> int:
        return self.start + len(self.stored)


class Life:
    """Random operations on a log over a :class:`CrashDisk`, every batch one record."""

    def __init__(self, disk: CrashDisk, chance: random.Random) -> None:
        self.chance, self.disk = chance, disk
        self.home = Home(HOME, disk)
        self.history = History()
        self.log: Any = None
        self.now_ms = 0

    def open(self) -> None:
        self.log = self.home.open(**SETTINGS)
        assert self.log.flushed_end_offset == self.log.end_offset, "recovery puts all on disk (D3)"
        self.history.flushed = self.log.end_offset

    def made(self, offset: int, size: int) -> bytes:
        fill = bytes([97 + self.history.epoch % 26])
        return batch_of_size(size, base_offset=offset, epoch=self.history.epoch, fill=fill)

    def append(self) -> None:
        history = self.history
        for _ in range(self.chance.randint(1, 4)):
            one = self.made(history.end(), self.chance.choice((69, 100, 700, 3000)))
            history.stored.append(one)
            self.disk.step("append")
            while not self.log.append(one, history.epoch):
                self.tend()

    def copy(self) -> None:
        """As a follower: a good answer, or one that is not to be taken."""
        history = self.history
        good = [self.made(history.end() + i, 300) for i in range(3)]
        bad = bytearray(b"".join(good[1:]))
        bad[-5] ^= 1
        for data in (bytes(bad), b"".join(good)):
            history.stored += good if data is not bytes(bad) and len(data) == 900 else []
            self.disk.step("copy")
            taken = 0
            while taken < len(data):
                took = self.log.copy(data[taken:], history.epoch)
                taken += took
                if not took and self.log.damaged():
                    break
                self.tend()

    def flush(self) -> None:
        self.log.begin_flush()
        if self.chance.random() < 0.5:
            self.append()
        self.log.sync_files()
        self.history.flushed = self.log.end_flush()

    def truncate(self) -> None:
        history = self.history
        least = max(history.start, history.snapshot.offset, history.end() - 25)
        cut = self.chance.randint(least, history.end())
        history.stored = history.stored[: cut - history.start]
        history.flushed = min(history.flushed, cut)
        self.log.truncate(cut)
        history.epoch += 1

    def retain(self) -> None:
        """A snapshot is made of what is flushed, and the log starts there, or later not."""
        history = self.history
        offset = self.chance.randint(history.start, history.flushed)
        if offset > max(history.snapshot.offset, history.start):
            before = batch_at(history.stored[offset - 1 - history.start])
            history.snapshot = OffsetAndEpoch(offset, before.leader_epoch)
            snapshot(self.home, *history.snapshot)
        delete_before(self.log, history.snapshot.offset)
        assert self.log.log_start_offset >= history.snapshot.offset
        dropped = self.log.segments[0].base_offset - history.start
        assert dropped >= 0
        history.stored = history.stored[dropped:]
        history.start += dropped

    def install(self) -> None:
        """A snapshot was fetched: the log is behind it, or beside it."""
        history = self.history
        history.epoch += 1
        ahead = history.end() + self.chance.randint(1, 30)
        beside = self.chance.randint(history.snapshot.offset + 1, ahead)
        history.installing = True
        history.snapshot = OffsetAndEpoch(self.chance.choice((ahead, beside)), history.epoch)
        snapshot(self.home, *history.snapshot)
        install_snapshot(self.log, history.snapshot)
        history.stored, history.start = [], history.snapshot.offset
        history.flushed = history.start
        history.installing = False
        assert self.log.log_start_offset == self.log.flushed_end_offset == history.start
        assert (self.log.last_epoch, self.log.epochs) == (history.epoch, [])

    def tend(self) -> None:
        self.now_ms += 200
        self.log.tend(self.now_ms)

    def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.home.close()
        else:
            self.home.kill()
        self.open()
        self.history.epoch += 1

    def log_retires(self) -> None:
        self.log.retire()

    def live(self, steps: int) -> None:
        """Until the power is cut, if it is."""
        self.open()
        operations: list[Callable[[], None]] = [
            *[self.append] * 6, *[self.copy] * 2, *[self.flush] * 3, *[self.tend] * 3,
            self.truncate, self.retain, self.retain, self.install, self.restart, self.log_retires,
        ]  # fmt: skip
        for _ in range(steps):
            self.history.before = list(self.history.stored)
            before_start = self.history.start
            self.chance.choice(operations)()
            if before_start != self.history.start:
                self.history.before = list(self.history.stored)
            assert content(self.log) == b"".join(self.history.stored)


def split(data: bytes) -> list[bytes]:
    return [bytes(found.data) for found in batches(data)]


def epochs_of(stored: list[bytes]) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for one in batches(b"".join(stored)):
        if not entries or entries[-1][0] != one.leader_epoch:
            entries.append((one.leader_epoch, one.base_offset))
    return entries


def check(disk: CrashDisk, history: History) -> None:
    """Recover, compare, go on, lose the power again with everything flushed, compare again."""
    home = Home(HOME, disk)
    log = home.open(**SETTINGS)
    assert home.recovered is not None
    kept = home.recovered.snapshots
    found = split(content(log))
    start = log.segments[0].base_offset
    assert 0 <= start <= log.log_start_offset and log.end_offset == start + len(found)
    assert log.log_start_offset == (min(kept).offset if start else 0), "I15"
    assert all(open_snapshot(disk, home.log_path, each).check() for each in kept)
    if history.installing and history.snapshot in kept:
        assert (found, start) == ([], history.snapshot.offset), "begun anew, or all as it was"
        assert log.last_epoch == history.snapshot.epoch and list(kept) == [history.snapshot]
        history = History(start=start, flushed=start)
    candidates = []
    for stored, first in ((history.stored, history.start), (history.before, history.start)):
        whole = dict(enumerate(stored, first))
        candidates.append([whole.get(offset) for offset in range(start, log.end_offset)])
    # What retention was about to drop may be there still: compare where both know.
    known = [all(have in (one, None) for have, one in zip(made, found)) for made in candidates]
    assert any(known), "not a prefix of what was appended"
    assert log.end_offset >= min(history.flushed, history.end()), "flushed records are missing (I5)"
    assert log.epochs == epochs_of(found)
    more = [
        batch_of_size(200, base_offset=log.end_offset + i, epoch=900, fill=b"z") for i in (0, 1)
    ]
    for one in more:
        while not log.append(one, 900):
            log.tend(0)
    log.flush()
    assert log.epochs == epochs_of(found + more)
    again = Home(HOME, disk.after_cut(random.Random(0), 0.0))
    assert split(content(again.open(**SETTINGS))) == found + more, "a stale suffix came back (I14)"
    assert again.log.epochs == epochs_of(found + more)


def life_until(seed: int, cut_at: int, steps: int = 40) -> Life:
    life = Life(CrashDisk(cut_at), random.Random(seed))
    try:
        life.live(steps)
    except PowerCut:
        pass
    return life


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_survive_a_cut_at_any_step(seed: int) -> None:
    survive(seed, 24)


@pytest.mark.parametrize("seed", range(20, 24))
def test_so_they_do_while_the_stride_grows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pieces of a real log its strides here are whole from the start, and even."""
    monkeypatch.setattr(nursery, "PREPARE_PIECE_BYTES", 701)
    monkeypatch.setattr(nursery, "GROWTH", 1)
    survive(seed, 12)


def survive(seed: int, count: int) -> None:
    """Cut one history at so many of its steps."""
    formatted = len(Life(CrashDisk(), random.Random(seed)).disk.steps)
    total = len(life_until(seed, -1).disk.steps)
    chance = random.Random(seed)
    for cut_at in sorted(chance.sample(range(formatted, total), count)):
        life = life_until(seed, cut_at)
        for trial, disk in enumerate(cuts(life.disk, seed * 1000 + cut_at)):
            try:
                check(disk, life.history)
            except BaseException as error:
                step = (life.disk.steps or ["start"])[-1]
                error.add_note(f"seed {seed}, cut at step {cut_at} after {step!r}, trial {trial}")
                raise
