"""Every frame recorded from Kafka, of what we speak, decodes and encodes to itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftfast.types import uuid_text
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire.messages import REQUESTS, ApiKey
from kraftfast.wire.notation import Field

DATA = Path(__file__).parent / "data"
LEFT_OUT = {
    (ApiKey.API_VERSIONS, 99),  # probed on purpose
    (ApiKey.OFFSET_FETCH, 9),  # of many groups: we serve one, for librdkafka
}
NAMES_IN_3_9 = {
    "replicaEpoch": "candidateEpoch",
    "replicaId": "candidateId",
    "replicaDirectoryId": "candidateDirectoryId",
}


def api_version_direction(name: str) -> tuple[int, int, str]:
    """``52-Vote/v2-request-001.bin`` (or with ``-`` for ``/``) as 52, 2, ``request``."""
    key, _, version, direction, _ = name.replace("/", "-").split("-")
    return int(key), int(version[1:]), direction


def check_frame(name: str, raw: bytes) -> None:
    """Decode and encode ``raw``, length included, by tables and, where there are, hot paths."""
    key, version, direction = api_version_direction(name)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    body = raw[4:]
    if direction == "request":
        header, message = frame.decode_request(body)
        assert (header.api_key, header.version) == (key, version)
        again = frame.encode_request(key, version, header.correlation_id, header.client_id, message)
        check_hot_request(key, header, raw, message)
    else:
        number, message = frame.decode_response(key, version, body)
        again = frame.encode_response(key, version, number, message)
        check_hot_response(key, version, number, raw, message)
    assert again == raw


def check_hot_request(key: int, header: frame.RequestHeader, raw: bytes, message: Any) -> None:
    hot = {ApiKey.FETCH: fetch, ApiKey.PRODUCE: produce}.get(key)
    if hot is None:
        return
    flat = hot.decode_request(header.version, raw[4:], header.body_start)
    if type(flat) is type(message):
        assert flat == message
        return
    again = hot.encode_request(header.version, header.correlation_id, header.client_id, flat)
    assert b"".join(again if isinstance(again, list) else [again]) == raw


def check_hot_response(key: int, version: int, number: int, raw: bytes, message: Any) -> None:
    hot = {ApiKey.FETCH: fetch, ApiKey.PRODUCE: produce}.get(key)
    if hot is None:
        return
    again_number, flat = hot.decode_response(version, raw[4:])
    assert again_number == number
    if type(flat) is type(message):
        assert flat == message
        return
    again = hot.encode_response(version, number, flat)
    assert b"".join(again if isinstance(again, list) else [again]) == raw


def test_all_recorded_frames(golden: Path) -> None:
    checked = 0
    for entry in json.loads((golden / "frames" / "manifest.json").read_text()):
        if entry["api"] in REQUESTS and (entry["api"], entry["version"]) not in LEFT_OUT:
            check_frame(entry["file"], (golden / "frames" / entry["file"]).read_bytes())
            checked += 1
    assert checked > 1100


SAMPLES = sorted(DATA.glob("*.bin"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_recorded_frame(path: Path) -> None:
    check_frame(path.name, path.read_bytes())


def test_the_samples_are_there() -> None:
    assert {api_version_direction(path.name)[0] for path in SAMPLES} >= {0, 1, 2, 3, 18, 22, 52}


def test_recorded_hot_frames_take_the_hot_path(golden: Path) -> None:
    """Most recorded Fetches have one partition: they come out flat."""
    flat = 0
    for path in sorted((golden / "frames" / "01-Fetch").glob("v1[78]-request-*.bin")):
        body = path.read_bytes()[4:]
        header = frame.decode_request_header(body)
        request = fetch.decode_request(header.version, body, header.body_start)
        flat += type(request) is fetch.PartitionFetch
    assert flat > 100


def check_reading(ours: Any, fields: tuple[Field, ...], kafka: dict[str, Any], v: int) -> int:
    """Compare a struct with Kafka's JSON of it, field by field; how many values were compared."""
    compared = 0
    for field in fields:
        name = field.name[0].lower() + field.name[1:]
        value = getattr(ours, field.attribute)
        if field.kind == "records":
            name += "SizeInBytes"
            value = len(value or b"")
        if name not in kafka:
            name = NAMES_IN_3_9.get(name, name)
        if name not in kafka:
            assert v not in field.versions or field.tag is not None or field.kind == "records"
            continue
        if field.kind == "struct" and value is not None:
            pairs = zip(value, kafka[name]) if field.array else [(value, kafka[name])]
            assert not field.array or len(value) == len(kafka[name])
            compared += sum(check_reading(a, field.fields, b, v) for a, b in pairs)
        else:
            assert (uuid_text(value) if field.kind == "uuid" else value) == kafka[name], name
            compared += 1
    return compared


def test_what_kafka_reads_is_what_we_read(golden: Path) -> None:
    """Every value of every message, against the JSON that Kafka's own classes made of it."""
    compared = 0
    for folder in sorted((golden / "frames").glob("*-*")):
        if int(folder.name.split("-")[0]) not in REQUESTS:
            continue
        for name, reading in json.loads((folder / "decoded.json").read_text()).items():
            key, version, direction = api_version_direction(f"{folder.name}/{name}")
            if (key, version) in LEFT_OUT:
                continue
            body = (folder / name).read_bytes()[4:]
            if direction == "request":
                header, message = frame.decode_request(body)
                assert header.correlation_id == reading["header"]["correlationId"]
                assert header.client_id == reading["header"]["clientId"]
            else:
                number, message = frame.decode_response(key, version, body)
                assert number == reading["header"]["correlationId"]
            compared += check_reading(message, message.FIELDS, reading["body"], version)
    assert compared > 15_000
