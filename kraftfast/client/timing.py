"""How long a call may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from kraftfast.arguments import refuse

FOREVER_S = 365 * 24 * 3600.0
"""The longest wait of any call."""
NAN = float("nan")
NO_NUMBERS = (str, bytes, bytearray, bool)


def deadline_after(
    timeout: Any, least: float = -math.inf, now: Callable[[], float] = time.monotonic
) -> float:
    """Return what ``now()`` will be when ``timeout`` seconds are over.

    Raises InvalidOption for what is no number of seconds; infinity is a year, and a negative number
    means that the time is over already.

    >>> deadline_after(None)
    Traceback (most recent call last):
    kraftfast.errors.InvalidOption: timeout must be a number of seconds, not None
    """
    try:
        left = NAN if isinstance(timeout, NO_NUMBERS) else float(timeout)
    except OverflowError:  # an integer beyond any float
        left = math.inf if timeout > 0 else -math.inf
    except (TypeError, ValueError):
        left = NAN
    if not left >= least:
        more = f" from {least} on" if left == left else ""
        refuse("timeout", f"a number of seconds{more}", timeout)
    return now() + max(-FOREVER_S, min(left, FOREVER_S))
