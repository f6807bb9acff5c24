"""A leader's answer may cut the log between batches only (S6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.core import messages as msg
from kraftfast.errors import MalformedFrame
from kraftfast.node.translation.diverging import check_cut
from kraftfast.types import OffsetAndEpoch
from tests.core.replicas import started
from tests.log.kit import Home, append, batch


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    """A log with batches at 0, 3 and 4 that ends at 7."""
    home = Home(str(tmp_path / "1"))
    log = home.open()
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f", b"g"]):
        append(log, batch(values), 1)
    yield log
    home.kill()


def check(log: Any, offset: int) -> None:
    core = started(epoch=2, leader=2, log=((1, 7),))
    check_cut(core, log, msg.FetchResponse(diverging=OffsetAndEpoch(offset, 1)))


@pytest.mark.parametrize("offset", [0, 3, 4, 7, 9])
def test_a_cut_between_batches_is_done(log: Any, offset: int) -> None:
    """An offset beyond the log's end cuts nothing."""
    check(log, offset)


@pytest.mark.parametrize("offset", [1, 2, 5, 6])
def test_a_cut_inside_a_batch_ends_the_connection(log: Any, offset: int) -> None:
    with pytest.raises(MalformedFrame, match=f"cut the log at {offset}, inside a batch"):
        check(log, offset)
