"""A whole quorum in one process, under chance that a seed decides.

Read in this order: ``disk``, ``names`` and ``paged_file`` (system calls beneath the log, and what a
power cut leaves of them), ``network`` (rings and sockets), ``process`` (one replica: the real core,
the real log, and what carries effects out), ``clients``, ``idempotent``, ``named`` and ``consumer``
(who appends and reads), ``nemesis``, ``aimed`` and ``rotting`` (what goes wrong), ``operator`` (who
changes the voters), ``invariants``, ``voter_oracle``, ``snapshot_oracle`` and ``history`` (what
must hold), ``world`` and ``settling`` (time, and the run as a whole), ``settings`` (what a seed
chooses).
``run_seed`` is the door, ``python -m kraftfast.sim`` the command.

Only system calls are simulated. ``core`` and ``log`` run as they are, compiled, with their bytes,
CRCs, segments, snapshots and recovery, and of ``node`` what carries out what concerns them.
"""

from __future__ import annotations

from kraftfast.sim.settings import Settings
from kraftfast.sim.world import run_seed

__all__ = ["Settings", "run_seed"]
