"""The nearest known name of one that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what to say behind "there is no NAME", empty if nothing known is near.

    A name that is one of the words of a known one is near, whatever is written alike.

    >>> did_you_mean("dmo", ["demo", "dump"])
    "; did you mean 'demo'?"
    >>> did_you_mean("--id", ["--dir", "--controller-id"])
    "; did you mean '--controller-id'?"
    """
    import difflib

    word, names = name.strip("-"), {each.strip("-"): each for each in known}
    near = [each for each in names if word in each.split("-")]
    near = sorted(near, key=len) or difflib.get_close_matches(word, names, 1, 0.6)
    near = [names[each] for each in near]
    return f"; did you mean {near[0]!r}?" if near else ""
