"""Operator requests that every leader must refuse, and that must change nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.errors import ErrorCode, RequestRefused
from kraftfast.node.storage.replacing import plan_replacement
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from kraftfast.sim.world import World

STRANGER = 99
"""No replica has this id."""
ITS_DIRECTORY = bytes(range(16))
REFUSALS = frozenset(
    {
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    }
)


def requests(world: World) -> dict[str, Callable[[Any], Any]]:
    """Return what to ask an admin, blocking or to be awaited, by name."""
    found: dict[str, Callable[[Any], Any]] = {
        "remove": lambda admin: admin.remove_voter(STRANGER, timeout=CALL_S),
        "remove by directory": lambda admin: admin.remove_voter(
            STRANGER, ITS_DIRECTORY, timeout=CALL_S
        ),
        "of another cluster": lambda admin: admin.remove_voter(
            STRANGER, ITS_DIRECTORY, cluster_id="another", timeout=CALL_S
        ),
        "transfer": lambda admin: admin.transfer(STRANGER, timeout=CALL_S),
        "upgrade": lambda admin: admin.upgrade(9, timeout=CALL_S),
        "reassign": lambda admin: admin.reassign([1, STRANGER], wait=False, timeout=CALL_S),
    }
    if not world.settings.changes:  # else they may be right
        voter = world.machine(1)
        found |= {
            "add": lambda admin: admin.add_voter(
                1, voter.key.directory_id, voter.endpoints, timeout=CALL_S
            ),
            "cancel": lambda admin: admin.reassign(None, timeout=CALL_S),
        }
    return found


def check_refusal(error: RequestRefused) -> None:
    """Raise where it is another refusal than one of these."""
    expect(error.code in REFUSALS, f"a request is refused with {error.code!r}: {error}")


def ask_what_is_refused(world: World, admin: Any, random: Random) -> None:
    """Ask one of them. Raises KraftfastError where no replica could say so."""
    asked = requests(world)
    what = random.choice(sorted(asked))
    before = world.oracle.voters.latest().voters
    try:
        asked[what](admin)
    except RequestRefused as error:
        check_refusal(error)
        world.count(f"refused: {what}")
    if not world.settings.changes:
        expect(before == world.oracle.voters.latest().voters, f"{what} changes the voters")


def plan_one(world: World, path: str, id: int, quorum: Any, host: Any) -> None:
    """Look how a replica would be replaced, without doing it. Raises KraftfastError."""
    plan = plan_replacement(path, id, quorum.admin(), CALL_S, host=host)
    expect(not plan.refusal, f"D19: replica {id} cannot be replaced: {plan.refusal}")
    expect(id not in plan.voters_left, f"D19: {plan.voters_left} are left without {id}")
    world.count("replacements planned")
