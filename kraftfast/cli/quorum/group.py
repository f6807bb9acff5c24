"""``kraftfast quorum``: voters and leader, in the words of ``kafka-metadata-quorum``."""

from __future__ import annotations

from kraftfast.cli.lazy import lazy_group

COMMANDS = {
    "describe": ("quorum.describe:describe", "Show the quorum as its leader sees it."),
    "add-controller": (
        "quorum.voters:add_controller",
        "Add a voter, once it has caught up.",
    ),
    "remove-controller": (
        "quorum.voters:remove_controller",
        "Remove a voter; it follows as an observer.",
    ),
    "reassign": ("quorum.reassign:reassign", "Let exactly these replicas vote."),
    "transfer": ("quorum.transfer:transfer", "Hand leadership over."),
    "upgrade": ("quorum.upgrade:upgrade", "Put the voters into the log, so that they can change."),
}


@lazy_group(COMMANDS)
def quorum() -> None:
    """Show who votes and leads, and change it.

    Of a quorum on this host (--dir), or of servers (--bootstrap-server, --bootstrap-controller).
    Refusals end with exit code 10, without a leader with 12, without an answer in time with 15.
    """
