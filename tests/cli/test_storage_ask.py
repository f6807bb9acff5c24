"""No second quorum is formatted while a bootstrap server knows one of the same cluster (D23)."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraftfast
from kraftfast.cli.storage.ask import refuse_second_quorum
from kraftfast.errors import InvalidOption
from kraftfast.node.node_config import NodeConfig
from kraftfast.quorum import free_port

SMALL = {"segment_bytes": 4 << 20, "stride_bytes": 1 << 20, "transport": "socket"}


def asking(*servers: tuple[str, int]) -> NodeConfig:
    return NodeConfig(node_id=9, directory="unused", voters=[], bootstrap_servers=list(servers))


def test_a_quorum_of_the_cluster_is_found(tmp_path: Path) -> None:
    nobody = ("127.0.0.1", free_port("127.0.0.1"))
    with kraftfast.LocalQuorum(tmp_path / "q", 1, **SMALL) as quorum:
        cluster_id = quorum.description.cluster_id
        node = asking(nobody, *quorum.addresses.values())
        with pytest.raises(InvalidOption, match="led by replica 1: format with --no-initial"):
            refuse_second_quorum(node, cluster_id)
        refuse_second_quorum(node, "another" + cluster_id[7:])
    refuse_second_quorum(node, cluster_id)  # nobody answers
    refuse_second_quorum(asking(), cluster_id)
