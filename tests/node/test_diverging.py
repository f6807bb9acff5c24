"""A leader's answer may cut the log between batches only (S6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.core import messages as msg
from kraftfast.errors import MalformedFrame
from kraftfast.node.diverging import check_cut
from kraftfast.types import OffsetAndEpoch
from tests.core.replicas import started
from tests.log.kit import Home, append, batch


@pytest.mark.parametrize("offset", [0, 3, 4, 7, 9])
def test_a_cut_between_batches_is_done(tmp_path: Path, offset: int) -> None:
    """The log has batches at 0, 3 and 4, and ends at 7; what lies beyond cuts nothing."""
    home = Home(str(tmp_path / "1"))
    log = home.open()
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f", b"g"]):
        append(log, batch(values), 1)
    core = started(epoch=2, leader=2, log=((1, 7),))
    check_cut(core, log, msg.FetchResponse(diverging=OffsetAndEpoch(offset, 1)))
    home.kill()


@pytest.mark.parametrize("offset", [1, 2, 5, 6])
def test_a_cut_inside_a_batch_ends_the_connection(tmp_path: Path, offset: int) -> None:
    home = Home(str(tmp_path / "1"))
    log = home.open()
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f", b"g"]):
        append(log, batch(values), 1)
    core = started(epoch=2, leader=2, log=((1, 7),))
    with pytest.raises(MalformedFrame, match=f"cut the log at {offset}, inside a batch"):
        check_cut(core, log, msg.FetchResponse(diverging=OffsetAndEpoch(offset, 1)))
    home.kill()
