"""The nearest known name of one that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what to say behind "there is no NAME", empty if nothing known is near.

    >>> did_you_mean("dmo", ["demo", "dump"])
    "; did you mean 'demo'?"
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
