"""The simulated disk by itself: what a power cut may leave, and what it may not.

Each property is looked for over many seeds: what may happen does in some of them, what must not in
none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

import pytest

from kraftfast.errors import DirectoryInUse, DiskFull, FlushFailed, StorageError
from kraftfast.limits import PAGE_BYTES
from kraftfast.log.small_files.directory import LogOptions, MetaProperties, format_directory
from kraftfast.sim.machines.file_names import DirNode
from kraftfast.sim.machines.paged_file import PagedFile, SimSegmentFile
from kraftfast.sim.machines.sim_disk import Crash, SimDisk
from tests.sim.kit import NothingIsLeft

SEEDS = 200
PAGES, LARGE = 8, 2_500
OLD, NEW = b"o" * PAGE_BYTES, b"n" * PAGE_BYTES


def disks() -> Iterator[SimDisk]:
    for seed in range(SEEDS):
        disk = SimDisk(Random(seed))
        disk.make_directory("/d")
        yield disk


def segment(disk: SimDisk, synced: bool = True) -> SimSegmentFile:
    """A file of old pages, all of it on the disk, with its name."""
    file = disk.create_segment("/d/s", PAGES * PAGE_BYTES)
    disk.zero_file(file.fd, "/d/s", 0, PAGES * PAGE_BYTES)
    for page in range(PAGES):
        store(file, page, OLD)
    if synced:
        file.sync()
        disk.sync_directory("/d")
    return file


def store(file: SimSegmentFile, page: int, content: bytes) -> None:
    """As through the mapping."""
    assert len(content) == PAGE_BYTES <= file.size - page * PAGE_BYTES
    ctypes.memmove(file.address + page * PAGE_BYTES, content, PAGE_BYTES)


def pages(disk: SimDisk) -> list[bytes]:
    file = disk.paged_file("/d/s")
    assert file is not None
    return [file.read(at, at + PAGE_BYTES) for at in range(0, PAGES * PAGE_BYTES, PAGE_BYTES)]


def outcomes(change: Callable[[SimDisk, SimSegmentFile], object]) -> list[list[bytes]]:
    """What the file holds after this and a power cut, seed by seed."""
    found = []
    for disk in disks():
        change(disk, segment(disk))
        disk.lose_power()
        found.append(pages(disk))
    return found


def rewrite(disk: SimDisk, file: SimSegmentFile) -> None:
    for page in range(PAGES):
        store(file, page, NEW)


# --- pages ------------------------------------------------------------------------------------


# covers: testUnflushedRecordsLostAfterReopen
def test_a_page_that_was_not_synced_is_lost_alone() -> None:
    found = outcomes(rewrite)
    lost = [[page == OLD for page in each] for each in found]
    assert any(sum(each) == 1 for each in lost) and any(sum(each) == PAGES - 1 for each in lost)
    assert any(all(each) for each in lost) and any(not any(each) for each in lost)
    assert any(each[0] and not each[-1] for each in lost), "in any order"
    assert any(not each[0] and each[-1] for each in lost)


def test_a_page_is_torn_at_a_sector() -> None:
    torn = [page for each in outcomes(rewrite) for page in each if page not in (OLD, NEW)]
    assert torn
    for page in torn:
        sectors = {page[at : at + 512] for at in range(0, PAGE_BYTES, 512)}
        assert sectors == {OLD[:512], NEW[:512]}


def test_what_was_synced_is_never_lost() -> None:
    def change(disk: SimDisk, file: SimSegmentFile) -> None:
        rewrite(disk, file)
        file.sync()

    assert all(each == [NEW] * PAGES for each in outcomes(change))


def test_a_sync_of_ranges_leaves_the_other_pages() -> None:
    def change(disk: SimDisk, file: SimSegmentFile) -> None:
        rewrite(disk, file)
        disk.begin_sync(file.fd, (0, PAGE_BYTES + 1), (7 * PAGE_BYTES, PAGES * PAGE_BYTES))
        assert disk.end_sync(file.fd) == 0

    found = outcomes(change)
    assert all(each[0] == each[1] == each[7] == NEW for each in found)
    assert all(any(each[page] != NEW for each in found) for page in range(2, 7))


def test_what_is_stored_during_a_sync_may_miss_it() -> None:
    """So a target is sampled before the call (D1)."""

    def change(disk: SimDisk, file: SimSegmentFile) -> None:
        store(file, 0, NEW)
        disk.begin_sync(file.fd)
        store(file, 0, OLD[:-1] + b"x")
        assert disk.end_sync(file.fd) == 0

    found = {each[0] for each in outcomes(change)}
    assert found >= {NEW, OLD[:-1] + b"x"}
    assert OLD not in found, "what stood there when it began is on the disk"


def test_the_kernel_writes_back_what_it_likes() -> None:
    def change(disk: SimDisk, file: SimSegmentFile) -> None:
        rewrite(disk, file)
        disk.write_back(1.0)

    assert all(each == [NEW] * PAGES for each in outcomes(change))


def test_a_process_that_dies_loses_nothing() -> None:
    for disk in disks():
        rewrite(disk, segment(disk))
        disk.kill()
        assert pages(disk) == [NEW] * PAGES


# --- failures ---------------------------------------------------------------------------------


def test_after_a_failed_sync_the_next_one_lies() -> None:
    """fsyncgate (D9): reads are right until the cache goes, and then pages are old."""
    lost = 0
    for disk in disks():
        file = segment(disk)
        rewrite(disk, file)
        disk.failing_syncs = 1
        with pytest.raises(FlushFailed):
            file.sync()
        file.sync()
        assert pages(disk) == [NEW] * PAGES
        disk.lose_power()
        lost += OLD in pages(disk)
    assert lost > SEEDS // 2


def test_each_descriptor_hears_of_a_failure_once() -> None:
    disk = next(disks())
    file = segment(disk)
    other = disk.reopen(file.fd)
    rewrite(disk, file)
    disk.failing_syncs = 1
    with pytest.raises(FlushFailed):
        file.sync()
    disk.begin_sync(other)
    assert disk.end_sync(other) != 0, "another descriptor that was open then"
    disk.begin_sync(other)
    assert disk.end_sync(other) == 0
    later = disk.reopen(file.fd)
    disk.begin_sync(later)
    assert disk.end_sync(later) == 0, "one opened afterwards hears nothing"


def test_what_is_stored_again_after_a_failure_is_written() -> None:
    for disk in disks():
        file = segment(disk)
        rewrite(disk, file)
        disk.failing_syncs = 1
        with pytest.raises(FlushFailed):
            file.sync()
        file.store_again(0, PAGES * PAGE_BYTES)
        file.sync()
        disk.lose_power()
        assert pages(disk) == [NEW] * PAGES


def test_a_full_disk_refuses_blocks_and_nothing_else() -> None:
    disk = next(disks())
    file = segment(disk)
    disk.fill_up(0)
    with pytest.raises(DiskFull):
        disk.replace_file("/d/small", b"x")
    store(file, 0, NEW)
    file.sync()
    disk.give_space()
    disk.replace_file("/d/small", b"x")


def test_a_store_into_a_hole_is_noticed() -> None:
    """On a full disk it would be a SIGBUS (R10)."""
    disk = next(disks())
    file = disk.create_segment("/d/s", PAGES * PAGE_BYTES)
    paged = disk.paged_file("/d/s")
    assert paged is not None
    disk.zero_file(file.fd, "/d/s", 0, PAGE_BYTES)
    store(file, 0, NEW)
    assert paged.unallocated_stores() == 0
    store(file, 1, NEW)
    assert paged.unallocated_stores() == 1


def large_file() -> tuple[PagedFile, SimSegmentFile]:
    """A file of more pages than are asked for at once, all of them reserved, none stored into."""
    disk = next(disks())
    file = disk.create_segment("/d/s", LARGE * PAGE_BYTES)
    disk.reserve_file(file.fd, "/d/s", 0, LARGE * PAGE_BYTES)
    paged = disk.paged_file("/d/s")
    assert paged is not None and not paged.dirty_pages()
    return paged, file


def test_each_store_is_seen_wherever_it_goes() -> None:
    """Only pages that the kernel has are looked at: no store may escape that."""
    paged, file = large_file()
    random = Random(1)
    for content in range(1, 51):
        wanted = sorted(random.sample(range(LARGE), random.randint(1, 20)))
        for page in wanted:
            store(file, page, bytes([content]) * PAGE_BYTES)
        assert paged.dirty_pages() == wanted
        file.sync()
        assert not paged.dirty_pages()


def test_a_store_is_seen_in_the_process_that_made_it() -> None:
    """Workers of a sweep are forks: what the kernel says of their parent's pages is another's."""
    paged, file = large_file()
    pid = os.fork()
    if pid == 0:
        store(file, LARGE - 1, NEW)
        os._exit(0 if paged.dirty_pages() == [LARGE - 1] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not paged.dirty_pages()


def test_what_is_cut_off_or_zeroed_reads_as_zeros() -> None:
    paged, file = large_file()
    disk, zeros = file.disk, bytes(PAGE_BYTES)
    for page in (0, 1, LARGE - 1):
        store(file, page, NEW)
    file.sync()
    disk.zero_file(file.fd, "/d/s", PAGE_BYTES // 2, PAGE_BYTES * 2)
    assert (
        paged.read(0, PAGE_BYTES * 2) == NEW[: PAGE_BYTES // 2] + zeros[PAGE_BYTES // 2 :] + zeros
    )
    file.resize(PAGE_BYTES)
    file.resize(LARGE * PAGE_BYTES)
    assert paged.read((LARGE - 1) * PAGE_BYTES, LARGE * PAGE_BYTES) == zeros


# --- names ------------------------------------------------------------------------------------


def test_a_new_name_is_lost_without_a_sync_of_its_directory() -> None:
    kept = 0
    for disk in disks():
        segment(disk, synced=False).sync()
        disk.lose_power()
        kept += disk.paged_file("/d/s") is not None
    assert 0 < kept < SEEDS


def test_a_rename_is_lost_without_a_sync_of_its_directory() -> None:
    names = set()
    for disk in disks():
        segment(disk)
        disk.rename("/d/s", "/d/t")
        disk.lose_power()
        names.add(tuple(disk.list_directory("/d")))
    assert names == {("s",), ("t",)}, "one name or the other, never both and never none"


def test_a_rename_between_directories_may_end_in_both_or_none() -> None:
    names = set()
    for disk in disks():
        disk.make_directory("/e")
        segment(disk)
        disk.rename("/d/s", "/e/s")
        disk.lose_power()
        names.add((*disk.list_directory("/d"), "|", *disk.list_directory("/e")))
    assert names == {("s", "|"), ("|", "s"), ("s", "|", "s"), ("|",)}


def test_a_synced_rename_stays() -> None:
    for disk in disks():
        segment(disk)
        disk.rename("/d/s", "/d/t")
        disk.sync_directory("/d")
        disk.lose_power()
        assert disk.list_directory("/d") == ["t"]


def test_a_removed_file_may_come_back() -> None:
    back = 0
    for disk in disks():
        segment(disk)
        disk.unlink("/d/s")
        disk.lose_power()
        back += disk.paged_file("/d/s") is not None
    assert 0 < back < SEEDS


def test_a_new_length_is_durable_with_the_next_sync() -> None:
    sizes = set()
    for disk in disks():
        file = segment(disk)
        file.resize(PAGE_BYTES)
        file.resize(2 * PAGE_BYTES)
        disk.lose_power()
        sizes.add(disk.file_bytes("/d/s"))
    assert sizes == {PAGES * PAGE_BYTES, PAGE_BYTES, 2 * PAGE_BYTES}
    for disk in disks():
        file = segment(disk)
        file.resize(PAGE_BYTES)
        file.sync()
        disk.lose_power()
        assert disk.file_bytes("/d/s") == PAGE_BYTES


def test_what_a_cut_took_off_is_zeros_when_the_file_grows_again() -> None:
    paged = PagedFile(1, 4 * PAGE_BYTES)
    paged.resize(2 * PAGE_BYTES)
    paged.allocate(0, 2 * PAGE_BYTES)
    assert paged.blocks() == 2
    paged.resize(PAGE_BYTES)
    paged.resize(2 * PAGE_BYTES)
    assert paged.blocks() == 1 and paged.blocks_missing(0, 2 * PAGE_BYTES) == 1


# --- files that are replaced ------------------------------------------------------------------


def test_a_replaced_file_is_old_or_new_wherever_the_machine_stops() -> None:
    """At every system call of it: never empty, never a mixture."""
    stopped = set()
    for disk in disks():
        disk.replace_file("/d/f", b"old" * 2_000)
        disk.crash_at(disk.random.randrange(7))
        try:
            disk.replace_file("/d/f", b"new" * 3_000)
        except Crash as crash:
            stopped.add(str(crash).split(": ")[1])
        disk.lose_power()
        assert disk.read_file("/d/f") in (b"old" * 2_000, b"new" * 3_000)
    assert len(stopped) == 5, stopped


def test_without_the_sync_before_the_rename_it_may_be_empty() -> None:
    """KAFKA-15312: what ``replace_file`` would do without its first fsync."""
    found = set()
    for disk in disks():
        disk.replace_file("/d/f", b"old")
        disk.failing_syncs = 1
        with pytest.raises(FlushFailed):
            disk.replace_file("/d/f", b"new")
        disk.rename("/d/f.tmp", "/d/f")
        disk.sync_directory("/d")
        disk.lose_power()
        found.add(disk.read_file("/d/f"))
    assert b"" in found


# --- locks and crashes ------------------------------------------------------------------------


def test_a_lock_holds_until_its_process_is_gone() -> None:
    disk = next(disks())
    disk.lock("/d/.lock")
    with pytest.raises(DirectoryInUse):
        disk.lock("/d/.lock")
    disk.kill()
    disk.unlock(disk.lock("/d/.lock"))
    disk.lock("/d/.lock")


def test_the_shared_lock_of_a_reader_keeps_its_owner_out() -> None:
    disk = next(disks())
    owner = segment(disk)
    reader = disk.open_segment("/d/s", False)
    assert reader.share() and not owner.exclude()
    reader.close()
    assert owner.exclude()
    late = disk.open_segment("/d/s", False)
    assert not late.share()
    owner.readmit()
    assert late.share()


def test_a_crash_comes_at_the_call_that_was_named() -> None:
    disk = next(disks())
    disk.crash_at(1)
    disk.sync_directory("/d")
    with pytest.raises(Crash):
        disk.sync_directory("/d")


def test_missing_things_are_typed_errors() -> None:
    disk = next(disks())
    with pytest.raises(StorageError):
        disk.open_segment("/d/none", True)
    with pytest.raises(FileNotFoundError):
        disk.read_file("/d/none")
    with pytest.raises(StorageError):
        disk.sync_directory("/none")


@pytest.mark.parametrize("exists", [True, False])
def test_the_name_of_a_formatted_directory_stays(exists: bool) -> None:
    """D18: an operator had made it, or an attempt that was killed before it synced the name."""
    disk = SimDisk(NothingIsLeft())
    if exists:
        disk.root.change(None, "replica", DirNode())
    format_directory(cast("Any", disk), "/replica", MetaProperties("c", 1, b"d" * 16), LogOptions())
    disk.lose_power()
    assert disk.exists("/replica/meta.properties")
