"""The roles of a replica and the one table of legal transitions between them.

Everything that may change a role goes through ``check_transition``; the picture in
ARCHITECTURE.md is drawn from ``TRANSITIONS``. Sources: KIP-595, KIP-853, KIP-996, and Kafka's
``QuorumState``, whose comment begins with the same table in prose.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What a replica is.

    An observer is only ever unattached or a follower, except a leader that removed itself, and a
    replica whose removal may not be committed.
    """

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class EpochStep(StrEnum):
    """How the epoch of the new role stands to that of the old one."""

    SAME = "same"
    NEXT = "next"
    HIGHER = "higher"


class Transition(NamedTuple):
    """One legal change."""

    source: Role
    target: Role
    epochs: EpochStep
    voters_only: bool  # an observer may not
    when: str


_U, _P, _C = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
_L, _F, _R = Role.LEADER, Role.FOLLOWER, Role.RESIGNED
_HIGHER_EPOCH = "higher epoch, leader unknown"
_LEADER_OF_HIGHER = "leader of a higher epoch"
_LEADER_LEARNT = "leader of this epoch learnt"

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_U, _U, EpochStep.HIGHER, False, _HIGHER_EPOCH),
    Transition(_U, _F, EpochStep.SAME, False, _LEADER_LEARNT),
    Transition(_U, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_U, _P, EpochStep.SAME, True, "election timer expired"),
    Transition(_F, _U, EpochStep.SAME, False, "the leader is not the directory that leads (D23)"),
    Transition(_F, _U, EpochStep.HIGHER, False, _HIGHER_EPOCH),
    Transition(_F, _F, EpochStep.SAME, False, "more endpoints of the leader learnt"),
    Transition(_F, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_F, _P, EpochStep.SAME, True, "fetch timer expired, leader dead, or only voter now"),
    Transition(_P, _U, EpochStep.SAME, False, "election lost, no leader in reach, or no voter now"),
    Transition(_P, _U, EpochStep.HIGHER, False, _HIGHER_EPOCH),
    Transition(_P, _F, EpochStep.SAME, True, "leader learnt, or lost and the leader still known"),
    Transition(_P, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_P, _C, EpochStep.NEXT, True, "enough pre-votes, or a peer knows none"),
    Transition(_C, _U, EpochStep.HIGHER, False, _HIGHER_EPOCH),
    Transition(_C, _U, EpochStep.SAME, False, "no longer a voter"),
    Transition(_C, _P, EpochStep.SAME, True, "election timer expired"),
    Transition(_C, _F, EpochStep.SAME, True, _LEADER_LEARNT),
    Transition(_C, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_C, _L, EpochStep.SAME, True, "enough votes"),
    Transition(_L, _U, EpochStep.HIGHER, False, _HIGHER_EPOCH),
    Transition(_L, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_L, _R, EpochStep.SAME, False, "asked to, leaving, removed, or without its quorum"),
    Transition(_R, _U, EpochStep.HIGHER, False, "election timer expired, or a higher epoch"),
    Transition(_R, _F, EpochStep.HIGHER, False, _LEADER_OF_HIGHER),
    Transition(_R, _P, EpochStep.SAME, True, "the only voter"),
)

START: frozenset[Role] = frozenset((_U, _F, _R))
"""What a replica can be when it starts.

Kafka's ``QuorumState.initialize`` also resumes a candidacy; here none outlives its process (D21).
"""

_LEGAL: dict[tuple[Role, Role], tuple[Transition, ...]] = {}
for _transition in TRANSITIONS:
    _pair = (_transition.source, _transition.target)
    _LEGAL[_pair] = (*_LEGAL.get(_pair, ()), _transition)


def is_legal(source: Role, target: Role, epoch: int, target_epoch: int, voter: bool) -> bool:
    """Return whether the table has a line for this change."""
    for transition in _LEGAL.get((source, target), ()):
        if transition.voters_only and not voter:
            continue
        if transition.epochs is EpochStep.SAME and target_epoch == epoch:
            return True
        if transition.epochs is EpochStep.NEXT and target_epoch == epoch + 1:
            return True
        if transition.epochs is EpochStep.HIGHER and target_epoch > epoch:
            return True
    return False


def check_transition(
    source: Role, target: Role, epoch: int, target_epoch: int, voter: bool
) -> None:
    """Assert that the change is legal (I18)."""
    assert is_legal(source, target, epoch, target_epoch, voter), (
        f"illegal transition: {source} in epoch {epoch} -> {target} in epoch {target_epoch}"
        f"{'' if voter else ', as an observer'}"
    )


def transition_picture() -> str:
    """Return the table as a Mermaid state diagram; ``+`` marks the next epoch, ``++`` a higher one.

    >>> print(transition_picture().splitlines()[0])
    stateDiagram-v2
    """
    marks = {EpochStep.SAME: "", EpochStep.NEXT: " +", EpochStep.HIGHER: " ++"}
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {role.value}" for role in Role if role in START]
    for (source, target), transitions in _LEGAL.items():
        reasons = "<br/>".join(f"{each.when}{marks[each.epochs]}" for each in transitions)
        lines.append(f"    {source.value} --> {target.value}: {reasons}")
    return "\n".join(lines) + "\n"
