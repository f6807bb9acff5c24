"""Check what a run leaves behind: what was told, every log, every disk; also where it is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.sim.clients.idempotent import check_exactly_once
from kraftfast.sim.clients.remote_clients import RemoteNamed
from kraftfast.sim.oracles import history
from kraftfast.sim.oracles.producer_oracle import check_epochs, check_producers
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World


def check_kept(world: World) -> None:
    """I8, I23, I24 by the committed log, I5 by the disks: whatever the run came to.

    A quorum that is stuck as designed has lost nothing: what was acknowledged must be there.
    """
    for machine in world.machines:
        if machine.process is not None:
            check_log(world, machine.process)
    check_disks(world)
    values = history.read_values(world.oracle.content(0, world.oracle.committed_end))
    places = history.places_of(values)
    for program in world.programs:
        if isinstance(program, RemoteNamed):
            world.counts["records of real names"] += program.check(places)
    world.counts["batches sent once and for all"] += check_exactly_once(world.producers, places)
    for outcome, count in history.check_history(world.history, places).items():
        world.counts[f"appends {outcome or 'open'}"] += count
    world.counts["committed records"] = len(values)


def check_log(world: World, process: Process) -> None:
    """I8: below its high watermark it is the committed log; D22: what is derived from it, too.

    A log whose disk has changed by itself, its next start and its readers judge.
    """
    if process.rots:
        return
    start, end = process.log.log_start_offset, process.core.high_watermark
    if end > start:
        ours, theirs = world.oracle.content(start, end), history.read_bytes(process, end)
        require(theirs == ours, f"I8: the log of {process.id} differs")
    check_producers(process)
    check_epochs(process, world.oracle.shadow(process.id))


def check_disks(world: World) -> None:
    """I5: what was on a disk is there still, though its process may be down."""
    for machine in world.machines:
        shadow = world.oracle.shadow(machine.id)
        if machine.rotten or machine.process is None and shadow.lost_memory:
            continue  # what is left, recovery will tell
        if world.settings.durability == "memory":
            continue
        for entry in shadow.between(shadow.in_log_from(), shadow.durable):
            require(
                world.oracle.is_stable(machine, entry),
                f"I5: {entry} was on the disk of {machine.id}, and is not any more",
            )
            world.counts["batches found on disks"] += 1
