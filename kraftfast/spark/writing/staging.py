"""Rows that tasks stage in files, and the driver's commit appends, once, whatever the plan.

A job has a directory. Its tasks write Arrow files there; those of attempts that Spark gave up are
never looked at. The commit of a job, or of a micro-batch, first writes down which files it appends
and what the number of their first record is under the job's name (``plan.json``), and when all are
committed, that it is done (``done.json``). A later attempt finds either: it appends what is missing
of the same files, whatever rows its own tasks had, or nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kraftfast.client.producer.sender import RECORD_BYTES_MAX
from kraftfast.client.producer.values import check_values
from kraftfast.errors import InputError, KraftfastError, UnknownOutcome
from kraftfast.log.disk import storage_error
from kraftfast.record.digest import NO_RECORDS, add_digest
from kraftfast.spark.writing.appending import (
    RowsAppended,
    Stored,
    check_never_used,
    committed_rows,
    hand_over,
    label_of,
    settle_all,
    stored_records,
)
from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.outgoing import outgoing, values_of

if TYPE_CHECKING:
    from kraftfast.client.producer.producer import Producer

PLAN, DONE, ONCE = "plan.json", "done.json", "once-"
MODE = "mode"
DIRECT = "direct.json"
KEPT = (PLAN, DONE, MODE, DIRECT)
LEFT_S = 3 * 24 * 3600.0
"""A directory of a job without a name that is older was left by a driver that was killed."""


@dataclass(frozen=True)
class Job:
    """The writer. ``name``: its producer's. ``batch``: number of the micro-batch, 0 if it has none.

    ``kind``: ``query``, by its batches; ``named``, which may be run again; ``once``, by itself.
    """

    root: str
    kind: str
    name: str
    batch: int = 0

    @property
    def label(self) -> str:
        """Return what the user calls it."""
        return label_of(self.name)

    @property
    def other(self) -> str:
        """Return what makes another job of it."""
        return "checkpointLocation" if self.kind == "query" else "producerName"

    @property
    def directory(self) -> str:
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:32]
        return os.path.join(self.root, f"{ONCE if self.kind == 'once' else ''}{digest}")


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task staged. ``file``: its name in the job's directory; "" for no rows."""

    job: Job
    file: str = ""
    rows: int = 0
    digest: tuple[int, int] = NO_RECORDS


@dataclass(frozen=True)
class StagingPlan:
    """What a commit appends: records of files, in order, as number ``first`` and on of a name."""

    cluster: str
    batch: int
    first: int
    rows: int
    digest: tuple[int, int]
    files: tuple[str, ...]
    since: int = -1
    """The committed end before the name was taken for this; -1: not known."""


@contextmanager
def on_disk(path: str) -> Iterator[None]:
    """Raise StorageError, DiskFull for what the file system refuses in a job's directory."""
    try:
        yield
    except KraftfastError:
        raise
    except OSError as error:
        raise storage_error("cannot stage rows in", path, error) from None


def stage(job: Job, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Write a task's rows to a file of its own, durably.

    Raises InvalidOption, RecordTooLarge, StorageError.
    """
    first = next((batch for batch in batches if len(batch)), None)
    if first is None:
        return Staged(job)
    name = f"{job.batch}-{uuid.uuid4().hex}.arrow"
    path = os.path.join(job.directory, name)
    rows, digest = 0, NO_RECORDS
    with on_disk(job.directory):
        os.makedirs(job.directory, mode=0o700, exist_ok=True)
        file = open(path, "xb")  # noqa: SIM115
    try:
        with file:
            for batch in _chain(first, batches):
                records = outgoing(batch)
                values = values_of(records)
                check_values(values, False, RECORD_BYTES_MAX)
                digest = add_digest(digest, values)
                rows += len(records)
                with on_disk(path):
                    _put(file, records)
            with on_disk(path):
                file.flush()
                os.fsync(file.fileno())
                _sync_directory(job.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return Staged(job, name, rows, digest)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in others:
        if len(batch):
            yield batch


def _put(file: Any, records: pa.RecordBatch) -> None:
    """Put a stream for each batch: its columns are those of which it has any."""
    with pa.ipc.new_stream(file, records.schema) as writer:
        writer.write_batch(records)


def read_staged(path: str) -> Iterator[pa.RecordBatch]:
    """Raises InputError where the file is not there, or not as it was written."""
    try:
        with pa.memory_map(path) as file:
            size = file.size()
            while file.tell() < size:
                with pa.ipc.open_stream(file) as reader:
                    yield from reader
    except FileNotFoundError:
        raise InputError(
            f"{path}, which a task has staged, is not on the host of the driver: name a directory "
            "that all hosts mount by stagingDir"
        ) from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}, which a task has staged, cannot be read: {error}") from None


# --- the driver's commit --------------------------------------------------------------------------


def publish(options: SinkOptions, staged: list[Staged]) -> RowsAppended:
    """Append what the tasks of a job staged, in the order of the tasks, unless that is done.

    Raises InputError, UnknownOutcome, NoQuorum, RecordsRefused, ProducerFenced.
    """
    with on_disk(staged[0].job.directory):
        return _publish(options, staged)


def _publish(options: SinkOptions, staged: list[Staged]) -> RowsAppended:
    job = staged[0].job
    os.makedirs(job.directory, mode=0o700, exist_ok=True)
    cluster = options.cluster_id()
    plan = StagingPlan(
        cluster, job.batch, -1, sum(each.rows for each in staged), _sum(staged),
        tuple(each.file for each in staged if each.rows),
    )  # fmt: skip
    done = _read(job, DONE)
    if done is not None:
        check_cluster(job, done.cluster, cluster)
        if done.batch >= job.batch:
            return _again(job, done, plan)
    begun = _read(job, PLAN)
    if begun is not None:
        check_cluster(job, begun.cluster, cluster)
        if done is not None and begun.batch <= done.batch:
            os.unlink(os.path.join(job.directory, PLAN))  # the driver died before it did
            begun = None
    if begun is not None and begun.batch != job.batch:
        raise InputError(f"{job.directory} holds micro-batch {begun.batch}, which is not finished")
    if begun is None and not plan.rows and job.kind == "named":
        return RowsAppended(0, 0, -1, -1)  # nothing was done under this name, so it stays free
    if begun is None and not plan.rows:
        end = 0 if done is None else done.first + done.rows
        _finish(job, StagingPlan(cluster, job.batch, end, 0, NO_RECORDS, ()))
        return RowsAppended(0, 0, -1, -1)
    resumed = begun is not None
    if begun is None and job.kind != "once":
        plan = replace(plan, since=options.committed_end())
    with options.producer(None if job.kind == "once" else job.name) as producer:
        known = 0 if job.kind == "once" else producer.standing.records
        if begun is None:
            for name in plan.files:
                next(read_staged(os.path.join(job.directory, name)))  # all is there, or none goes
            begun = _begin(job, plan, done, producer, known, options.never_run)
        elif not known and not begun.first and job.kind != "once":
            # The first records of this name may be there, and the name be forgotten since.
            check_never_used(producer.standing, job.name, begun.since)
        skipped = known - begun.first
        if not 0 <= skipped <= begun.rows:
            raise UnknownOutcome(
                f"{known} records of {job.label} are committed, and {begun.first} to "
                f"{begun.first + begun.rows} were expected: the quorum forgot that name "
                f"(kraftfast.producers.max), or another program uses it; begin with another "
                f"{job.other}"
            )
        if resumed and skipped < begun.rows:
            begun = _sound_plan(options, job, begun, plan, producer, skipped)
        try:
            _append_files(job, begun, producer, skipped, options.timeout)
            first, end = settle_all(producer, options.timeout)
        except KraftfastError as error:
            if job.kind != "once" or not producer.outcomes.next_ticket:  # nothing was handed over
                raise
            raise UnknownOutcome(
                f"{committed_rows(producer)} or more of {begun.rows} rows are committed, and run "
                f"again this job would append them again, as it has no producerName: {error}"
            ) from error
    _finish(job, begun)
    if job.kind == "named":
        _again(job, begun, plan)  # another driver's plan may have been taken over
    return RowsAppended(begun.rows, skipped, first, end)


def _begin(
    job: Job,
    plan: StagingPlan,
    done: StagingPlan | None,
    producer: Producer,
    known: int,
    never_run: bool,
) -> StagingPlan:
    """Write down what is about to be appended; or what another driver of this job has meanwhile."""
    expected = 0 if done is None else done.first + done.rows
    if done is None and not known and (job.batch or job.kind == "named"):
        # Notes of an earlier run, or of earlier batches, may be lost.
        check_never_used(producer.standing, job.name, plan.since if never_run else -1)
    elif known and known != expected:
        raise UnknownOutcome(
            f"{known} records of {job.label} are committed, and {job.directory} knows of "
            f"{expected}: what it held is lost, or another program uses that name; begin with "
            f"another {job.other}"
        )
    _write(job, PLAN, replace(plan, first=known), False)
    begun = _read(job, PLAN)
    assert begun is not None, "it was written, by this driver or by another one"
    return begun


def _sound_plan(
    options: SinkOptions,
    job: Job,
    begun: StagingPlan,
    plan: StagingPlan,
    producer: Producer,
    skipped: int,
) -> StagingPlan:
    """Return the plan to go on with, of which ``skipped`` records are committed.

    Where its files are damaged, this attempt's take their place: any rows if none is committed
    yet, else the same rows in the same order. Raises InputError, UnknownOutcome.
    """
    try:
        if _digest_of(job, begun) == (begun.rows, begun.digest):
            return begun
        problem = f"what was staged in {job.directory} is damaged"
    except InputError as error:
        problem = str(error)
    same = (plan.rows, plan.digest) == (begun.rows, begun.digest)
    if skipped and same:
        stored = stored_records(options, producer.standing, begun.since)
        held, number = Stored(_without(stored, begun.first), job.label), 0
        try:
            for batch in _staged_batches(job, plan):
                part = batch.slice(0, max(0, skipped - number))
                held.compare(part, number)
                number += len(part)
        except InputError:
            same = False
    if not plan.rows or (skipped and not same):
        raise InputError(
            f"{problem}; {skipped} of the {begun.rows} rows of {job.label} are committed: run it "
            "again with the same rows in the same order (coalesce(1), sort), or put what was staged"
            f" back; with another {job.other} all rows are appended once more"
        )
    found = replace(plan, first=begun.first, since=begun.since)
    _write(job, PLAN, found, True)
    return found


def _staged_batches(job: Job, plan: StagingPlan) -> Iterator[pa.RecordBatch]:
    for name in plan.files:
        yield from read_staged(os.path.join(job.directory, name))


def _digest_of(job: Job, plan: StagingPlan) -> tuple[int, tuple[int, int]]:
    """Return (how many, their digest) of the records in a plan's files. Raises InputError."""
    rows, digest = 0, NO_RECORDS
    for batch in _staged_batches(job, plan):
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"a file in {job.directory} is damaged: {error}") from None
        digest, rows = add_digest(digest, values_of(batch)), rows + len(batch)
    return rows, digest


def _without(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Leave out the first ``count`` rows."""
    for batch in batches:
        over = min(count, len(batch))
        count -= over
        yield batch.slice(over)


def _append_files(
    job: Job, plan: StagingPlan, producer: Producer, skip: int, timeout: float
) -> None:
    for name in plan.files if skip < plan.rows else ():
        for batch in read_staged(os.path.join(job.directory, name)):
            over = min(skip, len(batch))
            skip -= over
            if over < len(batch):
                hand_over(producer, batch.slice(over), timeout)


def _again(job: Job, done: StagingPlan, plan: StagingPlan) -> RowsAppended:
    """Answer what was done before; a job that is run again must have the same rows."""
    if job.kind == "named" and (done.rows, done.digest) != (plan.rows, plan.digest):
        raise InputError(
            f"a job of producerName {job.label} has committed {done.rows} rows, and of the "
            f"{plan.rows} of this one not all are the same: nothing of this one is appended; "
            "another job wants another name"
        )
    _clean(job)
    return RowsAppended(done.rows, done.rows, -1, -1)


def check_cluster(job: Job, found: str, cluster: str) -> None:
    if found != cluster:
        raise InputError(
            f"{job.directory} is of the quorum {found}, and this one is {cluster}: "
            "begin with another checkpointLocation, stagingDir or producerName"
        )


def _sum(staged: list[Staged]) -> tuple[int, int]:
    first, second = (sum(each.digest[lane] for each in staged) % 2**64 for lane in (0, 1))
    return first, second


# --- notes ----------------------------------------------------------------------------------------


def _read(job: Job, name: str) -> StagingPlan | None:
    """Raises InputError for what cannot be read."""
    path = os.path.join(job.directory, name)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
        return StagingPlan(**found | {name: tuple(found[name]) for name in ("digest", "files")})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise InputError(
            f"{path} cannot be read: {error}; remove it: how much is committed is known to the "
            "quorum, and compared"
        ) from None


def _write(job: Job, name: str, plan: StagingPlan, replace: bool) -> None:
    """Durably, whole or not at all. Without ``replace``, what another wrote there stays."""
    path = os.path.join(job.directory, name)
    partial = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(partial, "x") as file:
            json.dump(asdict(plan), file)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(partial, path)
        else:
            with suppress(FileExistsError):
                os.link(partial, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
    _sync_directory(job.directory)


def claim(job: Job, mode: str) -> None:
    """Claim a job for one mode; what it has written in the other is unknown here.

    Raises InputError, StorageError.
    """
    with on_disk(job.directory):
        os.makedirs(job.directory, mode=0o700, exist_ok=True)
        path = os.path.join(job.directory, MODE)
        try:
            with open(path, "x") as file:
                file.write(mode)
        except FileExistsError:
            with open(path) as file:
                found = file.read()
            if found not in ("", mode):
                raise InputError(
                    f"{job.label} has been written with writeMode={found}: go on with that, or "
                    "begin with another checkpointLocation or producerName"
                ) from None


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _finish(job: Job, plan: StagingPlan) -> None:
    _write(job, DONE, plan, True)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(job.directory, PLAN))
    _clean(job)


def _clean(job: Job) -> None:
    """Remove what was staged, and all that a job leaves which can never run again."""
    if job.kind == "once":
        shutil.rmtree(job.directory, ignore_errors=True)
    else:
        for name in os.listdir(job.directory):
            if name not in KEPT:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(job.directory, name))
    with suppress(OSError):  # others remove theirs meanwhile
        for entry in os.scandir(job.root):
            old = entry.stat().st_mtime < time.time() - LEFT_S
            if entry.name.startswith(ONCE) and old:
                shutil.rmtree(entry.path, ignore_errors=True)
        os.rmdir(job.root)  # where nothing else is in it


def forget(job: Job, staged: list[Staged]) -> None:
    """Remove what the tasks of a job staged that Spark gave up, unless a commit has begun.

    Of a named job only the files that these tasks report are removed: another driver may run it
    now. The next commit removes the others.
    """
    if job.kind == "once":
        if job.root:
            shutil.rmtree(job.directory, ignore_errors=True)
    elif not os.path.exists(os.path.join(job.directory, PLAN)):
        for each in staged:
            if each.file:
                with suppress(OSError):
                    os.unlink(os.path.join(job.directory, each.file))
    for directory in (job.directory, job.root):
        with suppress(OSError):
            os.rmdir(directory)
