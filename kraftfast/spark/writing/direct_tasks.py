"""How many rows each task of a named job had that wrote directly, for when it is run again.

A task knows its own name alone. Where a plan is cut into other tasks than before, each would find
rows missing under its name that another has stored under its own. Of a job that failed nothing is
known here: no task tells how many there are.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from kraftfast.errors import InputError
from kraftfast.spark.writing.appending import CAUSES
from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.staging import DIRECT, Job, check_cluster, on_disk


def noted_rows(job: Job, options: SinkOptions) -> list[int] | None:
    """Return the rows that each task had when the job was done; None if it was not yet.

    Raises InputError where that went to another quorum or the note is damaged, StorageError.
    """
    path = os.path.join(job.directory, DIRECT)
    with on_disk(job.directory):
        try:
            with open(path, "rb") as file:
                found = json.load(file)
            rows, cluster = [int(each) for each in found["rows"]], found["cluster"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path} does not parse: whether {job.label} was done is not known; give the job "
                "another producerName if it was not"
            ) from None
    check_cluster(job, cluster, options.cluster_id())
    return rows


def note_rows(job: Job, options: SinkOptions, noted: list[int] | None, messages: list[Any]) -> None:
    """Record the rows of the tasks of a job that is done, if it had any.

    Raises InputError where it was done before with more tasks, StorageError.
    """
    rows = [each.rows for each in messages]
    if noted is not None:
        if sum(rows) != sum(noted):
            raise InputError(
                f"{job.label} had {sum(noted)} rows in {len(noted)} tasks when it was done, and "
                f"has {sum(rows)} in {len(rows)} now: {CAUSES}"
            )
        return
    if not any(rows):
        return  # the name stays free
    partial = os.path.join(job.directory, f"{DIRECT}.{uuid.uuid4().hex}")
    with on_disk(job.directory):
        with open(partial, "x") as file:
            json.dump({"rows": rows, "cluster": options.cluster_id()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, os.path.join(job.directory, DIRECT))


def rows_of(noted: list[int] | None, partition: int) -> int | None:
    """Return how many rows a task must have; None: any number."""
    if noted is None:
        return None
    return noted[partition] if partition < len(noted) else 0
