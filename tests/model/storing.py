"""Replicas and messages as bytes: to be taken up again, and to be told apart.

What never changes is not copied, and what is compiled only says its content.
"""

from __future__ import annotations

import copyreg
import dataclasses
import importlib
import io
import pickle
import pkgutil
from hashlib import blake2b
from typing import Any

from msgspec import Struct

import kraftfast.core
from kraftfast.core.config import QuorumConfig
from kraftfast.core.replication.majority import Acknowledged
from kraftfast.core.trail import EpochTrail
from tests.core.disk import NoJitter

CONFIGS: list[QuorumConfig] = []


class Chance(NoJitter):
    """None: whom to ask is the first, and a timer is over when the search says so."""

    chose = False  # the first of several

    def choice(self, options: Any) -> Any:
        self.chose = self.chose or len(options) > 1
        return super().choice(options)


CHANCE = Chance()


def the_chance() -> Chance:
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


_FIELDS: dict[type, tuple[str, ...]] = {}


def attributes_of(kind: type, thing: Any) -> tuple[str, ...]:
    """Return the names of an object's fields, whichever form its class has."""
    found = _FIELDS.get(kind)
    if found is not None:
        return found
    if hasattr(thing, "__dict__"):
        copied = thing.__getstate__()  # a host's has fields that are compiled, too
        return tuple(sorted(copied if isinstance(copied, dict) else vars(thing)))
    if issubclass(kind, Struct):
        names = list(kind.__struct_fields__)
    elif dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    else:  # what is compiled and can be set is a field
        names = [
            name for name in dir(kind)
            if type(getattr(kind, name)).__name__ == "getset_descriptor"
            and not name.startswith("__") and is_field(thing, name)
        ]  # fmt: skip
    found = _FIELDS[kind] = tuple(sorted(names))
    return found


def is_field(thing: Any, name: str) -> bool:
    """Return whether an attribute of a compiled object can be set."""
    try:
        setattr(thing, name, getattr(thing, name))
    except AttributeError:
        return False
    return True


def rebuilt(kind: type, values: tuple[Any, ...]) -> Any:
    """Return an object of a compiled class with these fields."""
    thing = kind.__new__(kind)
    for name, value in zip(_FIELDS[kind], values):
        setattr(thing, name, value)
    return thing


def pickle_compiled(kind: type) -> None:
    """Pickle a compiled class as a call with its fields."""

    def reduce(thing: Any) -> Any:
        return rebuilt, (kind, tuple(getattr(thing, name) for name in attributes_of(kind, thing)))

    copyreg.pickle(kind, reduce)


for place in pkgutil.walk_packages(kraftfast.core.__path__, "kraftfast.core."):
    module = importlib.import_module(place.name)
    if module.__file__ is not None and not module.__file__.endswith(".py"):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                if not kind.__dictoffset__ and not issubclass(kind, (tuple, Struct)):
                    pickle_compiled(kind)

copyreg.pickle(QuorumConfig, lambda config: (config_at, (place_of_config(config),)))
copyreg.pickle(EpochTrail, lambda trail: (EpochTrail, (trail.entries,)))
copyreg.pickle(Acknowledged, lambda each: (acknowledged, (each.voter_ids, offsets_of(each))))
copyreg.pickle(Chance, lambda _: (the_chance, ()))


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
