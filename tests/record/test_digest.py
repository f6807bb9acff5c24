"""The digest of records: the same in any order and any pieces, another for any other records."""

from __future__ import annotations

import random

import pytest

from kraftfast.record.builder import Values
from kraftfast.record.digest import NO_RECORDS, add_digest


def digest(records: list[tuple[bytes | None, bytes | None]], piece: int) -> tuple[int, int]:
    found = NO_RECORDS
    for at in range(0, len(records), piece):
        keys, values = zip(*records[at : at + piece])
        found = add_digest(found, Values(values, keys=keys))
    return found


def test_order_and_pieces_do_not_matter_and_all_else_does() -> None:
    records: list[tuple[bytes | None, bytes | None]] = [
        (b"%d" % (n % 3), b"value %d" % n) for n in range(100)
    ]
    records += [(None, b""), (b"", None), (b"ab", b"c"), (b"a", b"bc")]
    expected = digest(records, 1000)
    shuffled = records[:]
    random.Random(1).shuffle(shuffled)
    assert digest(shuffled, 7) == expected
    for number in range(len(records)):
        less = records[:number] + records[number + 1 :]
        assert digest(less, 1000) != expected
        for other in ((b"", b""), (records[number][1], records[number][0]), less[0]):
            if other != records[number]:
                assert digest([*less, other], 1000) != expected
    assert digest([*records, records[0]], 1000) != expected


def test_headers_count() -> None:
    pa = pytest.importorskip("pyarrow")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = [
        add_digest(NO_RECORDS, Values([b"v"], headers=pa.array([each], kind)))
        for each in (None, [{"key": "a", "value": b"b"}], [{"key": "ab", "value": b""}])
    ]
    assert len(set(found)) == 3
    assert found[0] == add_digest(NO_RECORDS, Values([b"v"])), "none is none"
