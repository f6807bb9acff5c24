"""How long a call may take."""

from __future__ import annotations

import time
from typing import Any

from kraftfast.errors import InvalidOption

FOREVER_S = 365 * 24 * 3600.0
"""The longest wait of any call."""


def deadline_after(timeout: Any, least: float = -FOREVER_S) -> float:
    """Return the ``time.monotonic()`` seconds at which ``timeout`` seconds from now are over.

    Raises InvalidOption for what is no number of seconds; infinity is a year.

    >>> deadline_after(None)
    Traceback (most recent call last):
    kraftfast.errors.InvalidOption: timeout must be a number of seconds, not None
    """
    try:
        left = float(timeout) if not isinstance(timeout, str) else float("nan")
    except (TypeError, ValueError, OverflowError):
        left = float("nan")
    if not left >= least:
        more = f" from {least} on" if left == left else ""
        raise InvalidOption(f"timeout must be a number of seconds{more}, not {timeout!r}")
    return time.monotonic() + min(left, FOREVER_S)
