"""A whole quorum in one process, under chance that a seed decides.

Read in this order: ``disk``, ``names`` and ``paged_file`` (system calls beneath the log, and what a
power cut leaves of them), ``files`` and ``tcp`` (descriptors, and streams between hosts),
``local`` (rings, UNIX sockets, ended processes), ``network`` (cuts), ``process`` (one
replica: node, loop and sockets),
``watching`` (the same, seen by the oracles), ``host`` and ``threads`` (what it runs on),
``clients``, ``idempotent``, ``named`` and ``consumer`` (append and read by events),
``program`` and ``remote_clients`` (producers, consumers and admins as they are), ``nemesis``,
``aimed`` and ``rotting`` (what goes wrong), ``operator`` (changes the voters), ``invariants``,
``voter_oracle``, ``snapshot_oracle`` and ``history`` (what must hold), ``world`` and ``settling``
(time, and the run as a whole), ``settings`` (what a seed chooses).
``run_seed`` is the door, ``python -m kraftfast.sim`` the command.

Only the host is simulated (``kraftfast.node.ports``). Loop, sessions, node, core and log run as
they are, compiled, with their bytes, CRCs, segments, snapshots and recovery, and so do clients over
sockets. Rings are their own memory. Other clients hand over batches as a session would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.sim.settings import Settings

if TYPE_CHECKING:
    from kraftfast.sim.world import run_seed

__all__ = ["Settings", "run_seed"]


def __getattr__(name: str) -> Any:
    """Import the door when it is used: it needs a package that comes with ``kraftfast[sim]``."""
    if name != "run_seed":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kraftfast.sim.world import run_seed

    return run_seed
