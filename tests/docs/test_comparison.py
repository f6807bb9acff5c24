"""What the comparison says of another system has a source: that system's own documentation."""

from __future__ import annotations

import re

from tests.cli.kit import ROOT

OWN = {
    "Kafka": "kafka.apache.org",
    "etcd": "etcd.io",
    "Aeron Cluster": "github.com/aeron-io",
    "SQLite": "www.sqlite.org",
    "Redis streams": "redis.io",
}


def test_every_system_has_its_source() -> None:
    page = (ROOT / "docs/explanation/comparison.md").read_text()
    sections = dict(re.findall(r"^## Take (.+)\n((?:(?!## ).*\n)*)", page, re.M))
    assert sections.keys() == OWN.keys() | {"kraftfast"}
    for system, place in OWN.items():
        source = sections[system].partition("\nSource: ")[2]
        assert f"](https://{place}/" in source, system
