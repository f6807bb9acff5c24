"""How the process of a worker is brought to its end."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftfast.node.processes.supervisor import Worker
    from kraftfast.node.processes.supervisor_host import Child

KILLED_S_MAX = 5.0
"""How long to wait for a killed process, which does not end while a system call hangs on a disk."""


def wait_or_kill(worker: Worker, deadline: float) -> None:
    """Wait until it has ended; kill it at the deadline."""
    process = worker.process
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - worker.host.monotonic()))
        kill(worker)


def kill_process(process: Child) -> bool:
    """Kill a process and wait for its end; return whether it has ended."""
    process.kill()  # nothing if it has ended
    try:
        process.wait(KILLED_S_MAX)
    except subprocess.TimeoutExpired:
        return False
    return True


def kill(worker: Worker) -> None:
    """End it now, if it runs still. One that does not end no longer runs code of ours."""
    process = worker.process
    if process is not None:
        if not kill_process(process):
            worker.host.tell("worker_hangs", worker.config.node_id, pid=process.pid)
        while worker.take_message():
            pass
        worker.let_go()
