"""Replicas and messages as bytes: to be taken up again, and to be told apart.

What never changes is not copied, and what is compiled only says its content.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import pickle
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from kraftfast.core.config import QuorumConfig
from kraftfast.core.control import KRaftVersion, KRaftVoters
from kraftfast.core.majority import Acknowledged
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.trail import EpochTrail
from kraftfast.types import Voter
from tests.core.disk import NoJitter

CONFIGS: list[QuorumConfig] = []
CHANCE = NoJitter()
"""None: whom to ask is the first, and a timer is over when the search says so."""


def the_chance() -> NoJitter:
    return CHANCE


def offsets_of(acknowledged: Acknowledged) -> tuple[int, ...]:
    return tuple(acknowledged.get(slot) for slot in range(len(acknowledged)))


def acknowledged(voter_ids: tuple[int, ...], offsets: tuple[int, ...]) -> Acknowledged:
    found = Acknowledged(voter_ids)
    for slot, offset in enumerate(offsets):
        found.put(slot, offset)
    return found


def config_at(place: int) -> QuorumConfig:
    return CONFIGS[place]


def place_of_config(config: QuorumConfig) -> int:
    if config not in CONFIGS:
        CONFIGS.append(config)
    return CONFIGS.index(config)


def pickle_by_fields(kind: type) -> None:
    """Pickle a frozen dataclass as a call with its fields, which is four times as quick."""
    names = [each.name for each in dataclasses.fields(kind)]
    values = attrgetter(*names) if len(names) > 1 else None

    def reduce(thing: Any) -> Any:
        return kind, values(thing) if values else (getattr(thing, names[0]),)

    copyreg.pickle(kind, reduce)


for kind in (QuorumState, KRaftVersion, KRaftVoters, Voter):
    pickle_by_fields(kind)

copyreg.pickle(QuorumConfig, lambda config: (config_at, (place_of_config(config),)))
copyreg.pickle(EpochTrail, lambda trail: (EpochTrail, (trail.entries,)))
copyreg.pickle(Acknowledged, lambda each: (acknowledged, (each.voter_ids, offsets_of(each))))
copyreg.pickle(NoJitter, lambda _: (the_chance, ()))


def bytes_of(thing: Any) -> bytes:
    """The same content, the same bytes: without references from one place to another."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.fast = True
    pickler.dump(thing)
    return file.getvalue()


def digest_of(content: bytes) -> bytes:
    """Return what stands for it in a table."""
    return blake2b(content, digest_size=16).digest()


def print_of(content: bytes) -> int:
    """Return 64 bits that stand for it, the same in every process."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
