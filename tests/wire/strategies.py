"""Random messages, by the field tables."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kraftfast.types import ZERO_UUID
from kraftfast.wire.messages import REQUESTS, RESPONSES
from kraftfast.wire.notation import Field
from kraftfast.wire.schema import Message

ALL_MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]


def _integers(bits: int) -> st.SearchStrategy[int]:
    edges = [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1]
    return st.sampled_from(edges) | st.integers(edges[0], edges[-1])


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i8": _integers(8),
    "i16": _integers(16),
    "i32": _integers(32),
    "i64": _integers(64),
    "u16": st.integers(0, 2**16 - 1),
    "bool": st.booleans(),
    "uuid": st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
    "str": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=40) | st.just(b"r" * 200),
}

# kio makes enums, timedeltas and datetimes of some integers, and knows no tags of ours.
_KIO_ERROR_CODES = st.sampled_from([-1, 0, 3, 6, 35, 42, 74])
_KIO_MILLISECONDS = st.integers(0, 2**31 - 1)


def _field(message: type[Message], field: Field, version: int, kio: bool) -> Any:
    if field.kind == "struct":
        strategy = _struct(message, getattr(message, field.struct_name), field.fields, version, kio)
    elif kio and field.attribute == "error_code":
        strategy = _KIO_ERROR_CODES
    elif kio and field.attribute.endswith(("_ms", "timestamp")):
        strategy = _KIO_MILLISECONDS
    else:
        strategy = _VALUES[field.kind]
    if field.array:
        strategy = st.lists(strategy, max_size=3)
    if version in field.nullable:
        strategy = st.none() | strategy
    return strategy


def _struct(
    message: type[Message], cls: type, fields: tuple[Field, ...], version: int, kio: bool
) -> st.SearchStrategy[Any]:
    return st.builds(
        cls,
        **{
            field.attribute: _field(message, field, version, kio)
            for field in fields
            if version in field.versions and not (kio and (field.tag or 0) >= 10000)
        },
    )


def messages(cls: type[Message], version: int, kio: bool = False) -> st.SearchStrategy[Any]:
    """Messages of ``cls`` that ``version`` can say; ``kio``: and that kio can represent."""
    return _struct(cls, cls, cls.FIELDS, version, kio)


def versions(cls: type[Message]) -> range:
    """The versions of ``cls`` that we speak."""
    return range(cls.VERSIONS.first, cls.VERSIONS.last + 1)


def any_message() -> st.SearchStrategy[tuple[Any, int]]:
    """A message of any class, and its version."""
    return st.sampled_from([(cls, v) for cls in ALL_MESSAGES for v in versions(cls)]).flatmap(
        lambda choice: st.tuples(messages(*choice), st.just(choice[1]))
    )
