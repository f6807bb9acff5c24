"""Random messages against kio, an independent implementation of Kafka's message definitions."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast.wire.notation import Field
from kraftfast.wire.schema import Message
from tests.wire.strategies import ALL_MESSAGES, messages, versions

kio_serial = pytest.importorskip("kio.serial")

UNKNOWN_TO_KIO = {("ApiVersionsRequest", 5), ("ApiVersionsResponse", 5)}


def kio_class(cls: type[Message], version: int) -> type:
    """kio's class for one version of a message."""
    name, kind = re.fullmatch(r"(\w+)(Request|Response)", cls.__name__).groups()
    package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind.lower()}")
    return getattr(module, cls.__name__)


def as_kio_sees_it(value: Any, field: Field) -> Any:
    """One of our values in kio's types."""
    return None if field.kind == "uuid" and value == bytes(16) else value


def as_we_see_it(value: Any) -> Any:
    """One of kio's values in our types."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value.bytes if isinstance(value, uuid.UUID) else value


def check_same(ours: Any, fields: tuple[Field, ...], theirs: Any, version: int) -> None:
    """The values of two structs, pairwise in the order of Kafka's definition."""
    present = [f for f in fields if version in f.versions and (f.tag or 0) < 10000]
    for field, their_field in zip(present, dataclasses.fields(theirs), strict=True):
        assert their_field.name.replace("_", "") in (
            field.attribute.replace("_", ""),
            field.attribute.removesuffix("_ms").replace("_", ""),
        )
        value, their_value = getattr(ours, field.attribute), getattr(theirs, their_field.name)
        if field.kind == "struct" and value is not None:
            pairs = zip(value, their_value, strict=True) if field.array else [(value, their_value)]
            for pair in pairs:
                check_same(pair[0], field.fields, pair[1], version)
        elif field.array and value is not None:
            assert value == list(their_value)
        elif "timestamp" in field.attribute or field.attribute == "log_append_time_ms":
            assert value == (-1 if their_value is None else as_we_see_it(their_value))
        else:
            assert as_kio_sees_it(value, field) == as_we_see_it(their_value)


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_kio_reads_and_writes_the_same(cls: type[Message], data: st.DataObject) -> None:
    known = [v for v in versions(cls) if (cls.__name__, v) not in UNKNOWN_TO_KIO]
    version = data.draw(st.sampled_from(known))
    message = data.draw(messages(cls, version, kio=True))
    raw = message.encode(version)
    theirs_class = kio_class(cls, version)
    theirs, size = kio_serial.entity_reader(theirs_class)(raw, 0)
    assert size == len(raw)
    check_same(message, cls.FIELDS, theirs, version)
    out = io.BytesIO()
    kio_serial.entity_writer(theirs_class)(out, theirs)
    assert out.getvalue() == raw
    assert cls.decode(raw, version) == message
