"""How many rows each task of a named job had that wrote directly, for when it is run again.

A task knows its own name alone. Where a plan is cut into other tasks than before, each would find
rows missing under its name that another has stored under its own.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from kraftfast.errors import InputError
from kraftfast.spark.writing.appending import CAUSES, Appended
from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.staging import DIRECT, Job, check_cluster, on_disk

Rows = list[int | None]
"""Of each task; None of one that did not end."""


def noted_rows(job: Job, options: SinkOptions) -> Rows | None:
    """Return the rows that the tasks of the last run had; None if no run of the job ended.

    Raises InputError where that went to another quorum, StorageError.
    """
    with on_disk(job.directory):
        try:
            with open(os.path.join(job.directory, DIRECT), "rb") as file:
                found = json.load(file)
            rows = [None if each is None else int(each) for each in found["rows"]]
            cluster = found["cluster"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
    check_cluster(job, cluster, options.cluster_id())
    return rows


def note_rows(job: Job, options: SinkOptions, messages: list[Any]) -> None:
    """Record the rows of each task of a run that ended. Raises StorageError."""
    rows = [each.rows if isinstance(each, Appended) else None for each in messages]
    partial = os.path.join(job.directory, f"{DIRECT}.{uuid.uuid4().hex}")
    with on_disk(job.directory):
        with open(partial, "x") as file:
            json.dump({"rows": rows, "cluster": options.cluster_id()}, file)
        os.replace(partial, os.path.join(job.directory, DIRECT))


def rows_of(noted: Rows | None, partition: int) -> int | None:
    """Return how many rows a task must have; None: any number."""
    if noted is None:
        return None
    return noted[partition] if partition < len(noted) else 0


def check_tasks(job: Job, noted: Rows | None, messages: list[Any]) -> None:
    """Check that a job which did not end before has as many tasks as then. Raises InputError."""
    if noted is not None and None in noted and len(noted) != len(messages):
        raise InputError(
            f"{job.label} had {len(noted)} tasks when it did not end, and has {len(messages)} now: "
            f"rows may be stored twice. {CAUSES}"
        )
