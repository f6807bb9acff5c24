"""``kraftfast log``: the files of a log, from outside: shown, verified, trimmed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options
from kraftfast.cli.lazy import Group

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.log.reading.verify import Verified
    from kraftfast.log.small_files.directory import ReplicaDirectory

FILE_OR_DIR = options.Existing(readable=True, path_type=str)


@click.group(cls=Group)
def log() -> None:
    """Look at the files of a log: dump, verify, trim."""


@log.command()
@click.argument("path", metavar="FILE_OR_DIR", type=FILE_OR_DIR)
@click.option("--records", is_flag=True, help="Print the records of each batch too.")
@options.as_json
def dump(path: str, records: bool, as_json: bool) -> None:
    """Print what a file holds, as kafka-dump-log does: batches, index entries, snapshots.

    For a directory (of a replica, or of a topic in it), prints all segments in order. Damage is
    exit code 33, behind all that is sound; so are segments that are missing (35: the first ones).
    In JSON, one object a line.
    """
    from kraftfast.cli.log.dump import Dump

    lines, stdout = Dump(records, as_json), sys.stdout
    try:
        whole = os.path.isdir(path)
        for line in lines.segments(segments_of(path)) if whole else lines.file(path):
            stdout.write(f"{line}\n")
        if whole:
            check_ends(path)
    finally:
        stdout.flush()  # what is sound comes before the words on what is not


def check_ends(path: str) -> None:
    """Check that the log had neither older nor newer records than its files. Raises CorruptLog."""
    from kraftfast.errors import CorruptLog
    from kraftfast.log.disk import Disk
    from kraftfast.log.reading.at_rest import find_log, looked_at

    disk = Disk()
    try:
        with looked_at(disk, find_log(disk, path)):
            return
    except CorruptLog:  # a live replica may have cut what was being read: damage stays damage
        with looked_at(disk, find_log(disk, path)):
            return


def segments_of(path: str) -> Iterator[str]:
    """Yield the segments of a directory, oldest first. Raises NotFormatted."""
    from kraftfast.log.disk import Disk
    from kraftfast.log.reading.at_rest import find_log
    from kraftfast.log.reading.reader import LogReader

    for _, file in LogReader(find_log(Disk(), path).log_path).segments():
        yield file


@log.command()
@click.argument("path", metavar="FILE_OR_DIR", type=FILE_OR_DIR)
@click.option("--records", is_flag=True, help="Decode every record too.")
@options.as_json
def verify(path: str, records: bool, as_json: bool) -> None:
    """Check every batch: CRC, offsets, epochs; and the names and indexes of the segments.

    For a directory, checks all segments and what a start would make of them, its snapshots and
    its quorum-state; for a file, one segment or snapshot. Reports the bytes after the last whole
    batch. Changes nothing. Damage is exit code 33, with the exact place.
    """
    from kraftfast.log.reading.verify import verify as verify_path

    found = verify_path(path, records)
    if as_json:
        click.echo(json.dumps(summary(found)))
    else:
        show(found)


def summary(found: Verified) -> dict[str, Any]:
    """Return all that was found out, for JSON."""
    tail = found.tail
    return {
        "path": found.path,
        "segments": len(found.segments),
        "batches": found.batches,
        "records": found.records,
        "bytes": found.bytes,
        "start_offset": found.start_offset,
        "end_offset": found.end_offset,
        "last_epoch": max((each.last_epoch for each in found.segments), default=-1),
        "epochs": found.epochs,
        "tail": tail.kind,
        "tail_path": tail.path,
        "tail_position": tail.position,
        "tail_bytes": tail.bytes,
        "tail_reason": tail.reason,
        "possibly_acknowledged": tail.possible,
    }


def show(found: Verified) -> None:
    """Show the same for people: a line a segment, then the whole."""
    from kraftfast.cli.log.dump import tail_text
    from kraftfast.cli.show import put, table

    made = table("segment", "batches", "records", "bytes", "epochs", "index", "time index")
    for each in found.segments:
        numbers = (f"{n:,}" for n in (each.batches, each.records, each.bytes))
        epochs = f"{each.first_epoch}-{each.last_epoch}" if each.batches else ""
        indexes = (each.index_entries, each.time_index_entries)
        entries = ("none" if n is None else f"{n:,}" for n in indexes)
        made.add_row(os.path.basename(each.path), *numbers, epochs, *entries)
    put(made)
    click.echo(
        f"{found.path} is sound: {found.batches:,} batches, {found.records:,} records, "
        f"{found.bytes:,} bytes, offsets {found.start_offset:,} to end offset {found.end_offset:,}"
    )
    if found.epochs is not None:
        click.echo(f"leader-epoch-checkpoint agrees: {len(found.epochs)} epochs")
    if found.state is not None:
        click.echo(f"quorum-state agrees: epoch {found.state.epoch}")
    click.echo(f"behind the last batch: {tail_text(found.tail)}")


@log.command()
@click.argument("path", metavar="DIR", type=options.Existing(path_type=str))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@options.as_json
def trim(path: str, dry_run: bool, as_json: bool) -> None:
    """Leave plain Kafka files in a replica's directory, as an orderly stop does.

    Cuts prepared zeros and a torn tail, and writes the indexes; after a kill -9 Kafka's own tools
    need it. No replica may run there (exit code 34); damage is refused (33), and nothing changed.
    """
    from kraftfast.log.disk import Disk
    from kraftfast.log.reading.at_rest import trim_log
    from kraftfast.log.small_files.directory import ReplicaDirectory

    disk = Disk()
    directory = ReplicaDirectory(disk, own_directory(disk, path))
    try:
        planned = plan(disk, directory)
        if not dry_run:
            trim_log(disk, directory)
            planned["kept"] = [
                each["path"]
                for each in planned["segments"]
                if disk.file_bytes(each["path"]) != each["bytes"]
            ]
    finally:
        directory.close()
    click.echo(json.dumps(planned) if as_json else "\n".join(plan_lines(planned, dry_run)))
    if planned["kept"]:
        from kraftfast.errors import DirectoryInUse

        raise DirectoryInUse(f"another process maps {', '.join(planned['kept'])}: try again later")


def own_directory(disk: Disk, path: str) -> str:
    """Return the replica's directory that holds a path. Raises InputError, ForeignDirectory."""
    from kraftfast.errors import ForeignDirectory, InputError
    from kraftfast.log.reading.at_rest import find_log

    if not os.path.isdir(path):
        raise InputError(f"{path} is a file: the segments of a log are trimmed together, by DIR")
    found = find_log(disk, path)
    if found.adopted:
        raise ForeignDirectory(f"{found.log_path} is Kafka's own: nothing of ours is in it to trim")
    return found.path


def plan(disk: Disk, directory: ReplicaDirectory) -> dict[str, Any]:
    """Return what a trim does to each file. Raises CorruptLog."""
    from kraftfast.log.reading.at_rest import looked_at

    with looked_at(disk, directory) as recovery:
        kept, gone = recovery.segments[: recovery.keep], recovery.segments[recovery.keep :]
        return {
            "end_offset": kept[-1].end_offset if kept else 0,
            "segments": [
                {"path": each.file.path, "bytes_before": each.file.size, "bytes": each.position}
                for each in kept
                if each.file.size != each.position
            ],
            "removed": [each.file.path for each in gone],
            "possibly_acknowledged": recovery.phantom_tail,
            "kept": [],
        }


def plan_lines(planned: dict[str, Any], dry_run: bool) -> Iterator[str]:
    """Yield the same for people."""
    would = "would be " if dry_run else ""
    for each in planned["segments"]:
        if each["path"] not in planned["kept"]:
            change = f"from {each['bytes_before']:,} to {each['bytes']:,} bytes"
            yield f"{each['path']}: {would}cut {change}"
    for path in planned["removed"]:
        yield f"{path}: {would}removed, it lies behind a torn tail"
    if planned["possibly_acknowledged"] is not None:
        offset, epoch = planned["possibly_acknowledged"]
        yield (
            f"records up to offset {offset}, epoch {epoch} may have been acknowledged and are not "
            "here: the replica votes for no shorter log until it has them again"
        )
    if not planned["segments"] and not planned["removed"]:
        yield "nothing to cut: the files are as Kafka leaves them"
    yield f"end offset {planned['end_offset']:,}"
