"""A whole quorum in one process, under chance that a seed decides.

Read in this order: ``machines`` (system calls beneath the log, what a power cut leaves of them,
streams, rings and threads; ``machines.process`` is one replica), ``clients`` (append, read and
operate, by events or as they are), ``faults`` (what goes wrong), ``oracles`` (what must hold),
``world`` (time, and the run as a whole), ``settings`` (what a seed chooses).
``run_seed`` is the door, ``python -m kraftfast.sim`` the command.

Only the host is simulated (``kraftfast.node.ports``). Loop, sessions, node, core and log run as
they are, compiled, with their bytes, CRCs, segments, snapshots and recovery, and so do clients over
rings and sockets, and supervisors. What ``clients.clients`` has, and what is made of it, hands over
batches as a session would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.sim.settings import WorldSettings

if TYPE_CHECKING:
    from kraftfast.sim.world import run_seed

__all__ = ["WorldSettings", "run_seed"]


def __getattr__(name: str) -> Any:
    """Import the door when it is used: it needs a package that comes with ``kraftfast[sim]``."""
    if name != "run_seed":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kraftfast.sim.world import run_seed

    return run_seed
