"""A process maps nothing of one that has other layouts: no CRC would tell that a field moved."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraftfast
from kraftfast.client.event_reader import EventReader
from kraftfast.client.watch import Watch
from kraftfast.errors import UnsupportedVersion
from kraftfast.link import hello

TOP = Path(__file__).parents[2]
SOURCES = (
    "cext/ring.h",
    "cext/events.h",
    "cext/histogram.h",
    "kraftfast/ring/layout.pxd",
    "kraftfast/link/timed_events.pxd",
    "kraftfast/link/stats.pxd",
)
"""Where the layouts are that two processes of one host share."""
DIGESTS = {1: "425c121944b2c3d0"}
"""Layout -> digest of its declarations."""

DECLARATION = (
    r"^#define[^\n]*"
    r"|^typedef struct[^;]*\{.*?^\}"
    r"|^cdef (?:enum|struct)[^\n]*:\n(?:[ ]+[^\n]*\n|\n)*"
)


def declarations(text: str) -> Iterator[str]:
    """The constants, structures and enumerations of a source, without comments and spaces."""
    text = re.sub(r"/\*.*?\*/|#(?!define)[^\n]*", "", text, flags=re.DOTALL)
    for found in re.findall(DECLARATION, text, flags=re.DOTALL | re.MULTILINE):
        if not found.startswith("typedef struct kf_ring_"):  # one side's own
            yield " ".join(found.split())


def test_a_layout_that_changes_gets_another_number() -> None:
    digest = hashlib.sha256()
    for source in SOURCES:
        found = list(declarations((TOP / source).read_text()))
        assert found, source
        for each in found:
            digest.update(each.encode())
    assert digest.hexdigest()[:16] == DIGESTS[hello.LAYOUT], (
        "raise LAYOUT in kraftfast/link/hello.py, and put this digest here"
    )
    assert max(DIGESTS) == hello.LAYOUT


@pytest.fixture
def other_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[kraftfast.LocalQuorum]:
    """A quorum of another version than this process is from here on."""
    with kraftfast.LocalQuorum(tmp_path / "quorum", voters=1, durability="memory") as quorum:
        with monkeypatch.context() as patch:
            patch.setattr(hello, "LAYOUT", hello.LAYOUT + 1)
            yield quorum


def test_no_client_maps_another_layout(other_layout: kraftfast.LocalQuorum) -> None:
    directory = other_layout.directories[1]
    for open_one in (Watch, EventReader):
        with pytest.raises(UnsupportedVersion, match="layout 1, not 2.*same version of kraftfast"):
            open_one(directory)
    with pytest.raises(UnsupportedVersion, match="layout 1, not 2.*same version of kraftfast"):
        with other_layout.producer() as producer:
            producer.append(b"x")
    with pytest.raises(UnsupportedVersion, match="layout 1, not 2.*same version of kraftfast"):
        with other_layout.consumer() as consumer:
            consumer.read(1)
    assert other_layout.leader() == 1, "what maps nothing goes on"
