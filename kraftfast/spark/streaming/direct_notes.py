"""What a stream that writes directly has finished: where the log ended then, and of which quorum.

A name that was used by no attempt below that end needs no search in the log before it.
"""

from __future__ import annotations

import json
import os
import uuid

from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.staging import DIRECT, Job, check_cluster, on_disk


def finished_end(job: Job, options: SinkOptions) -> int:
    """Return an offset below which no attempt at a micro-batch can have appended; -1: not known.

    Raises InputError where earlier micro-batches went to another quorum.
    """
    try:
        with open(os.path.join(job.directory, DIRECT), "rb") as file:
            found = json.load(file)
        batch, end_offset, cluster = found["batch"], int(found["end_offset"]), found["cluster"]
        known = batch < job.batch
    except (OSError, ValueError, KeyError, TypeError):
        return -1
    check_cluster(job, cluster, options.cluster_id())
    return end_offset if known else -1


def note_finished(job: Job, options: SinkOptions) -> None:
    """Record that all micro-batches up to this one are committed, below the log's end now."""
    found = {
        "batch": job.batch, "end_offset": options.committed_end(), "cluster": options.cluster_id(),
    }  # fmt: skip
    partial = os.path.join(job.directory, f"{DIRECT}.{uuid.uuid4().hex}")
    with on_disk(job.directory):
        with open(partial, "x") as file:
            json.dump(found, file)
        os.replace(partial, os.path.join(job.directory, DIRECT))
