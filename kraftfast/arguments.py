"""Check what callers pass: each refusal names the argument, what it takes, and what it was given.

Every function returns the value in the type that the callee uses. Raises InvalidOption.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from kraftfast.errors import InvalidOption

ID_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
UUID_BYTES = 16
SHOWN_CHARACTERS_MAX = 60


def shown(value: object) -> str:
    """Return a value as an error text shows it: on one line, and not long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of a caller's own class
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 3]}..."


def listed(ids: Iterable[int]) -> str:
    """Return ids as a sentence has them."""
    return ", ".join(map(str, ids)) or "none"


def refuse(name: str, wanted: str, value: object) -> NoReturn:
    """Raise InvalidOption for an argument."""
    raise InvalidOption(f"{name} must be {wanted}, not {shown(value)}")


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return an integer between two bounds, both included."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        refuse(name, "a whole number", value)
    if not least <= number <= most:
        refuse(name, f"from {least} to {most}", value)
    return number


def whole_numbers(name: str, value: Any, least: int, most: int) -> list[int]:
    """Return integers between two bounds, in the order that they are given in."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        refuse(name, "a list of numbers", value)
    return [whole_number(f"a number of {name}", number, least, most) for number in value]


def offset(name: str, value: Any) -> int:
    """Return an offset of the log, or a count of records."""
    return whole_number(name, value, 0, OFFSET_MAX)


def flag(name: str, value: Any) -> bool:
    """Return True or False; numpy's are taken, other truths and untruths are not."""
    if value is not True and value is not False and type(value).__name__ not in ("bool", "bool_"):
        refuse(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any, bytes_max: int = 2**15 - 1) -> str:
    """Return a text that is not empty and takes at most ``bytes_max`` bytes as UTF-8."""
    if not isinstance(value, str):
        refuse(name, "a str", value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse(name, "a str that UTF-8 can express", value)
    if not 0 < size <= bytes_max:
        refuse(name, f"a str of 1 to {bytes_max} bytes", value)
    return str(value)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """Return one of these texts."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        refuse(name, f"one of {', '.join(known)}", value)
    return value


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return what can be called."""
    if not callable(value):
        refuse(name, "a function", value)
    found: Callable[..., Any] = value
    return found


def replica_id(name: str, value: Any) -> int:
    """Return the id of a replica."""
    return whole_number(name, value, 0, ID_MAX)


def replica_ids(name: str, value: Any) -> list[int]:
    """Return ids of replicas, ascending; one that is given twice stays there twice."""
    return sorted(whole_numbers(name, value, 0, ID_MAX))


def uuid(name: str, value: Any) -> bytes:
    """Return a directory id."""
    if not isinstance(value, bytes) or len(value) != UUID_BYTES:
        refuse(name, f"{UUID_BYTES} bytes", value)
    return value


def endpoints(name: str, value: Any) -> list[tuple[str, str, int]]:
    """Return endpoints: (listener, host, port) each."""
    wanted = "a list of (listener, host, port)"
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        refuse(name, wanted, value)
    found = []
    for each in value:
        if not isinstance(each, tuple | list) or len(each) != 3:
            refuse(name, wanted, value)
        listener, host, port = each
        found.append(
            (
                text(f"the listener of {name}", listener),
                text(f"the host of {name}", host),
                whole_number(f"the port of {name}", port, 0, 2**16 - 1),
            )
        )
    return found


def header_pairs(value: Any) -> tuple[Any, ...]:
    """Return the headers of a record as a tuple; an iterator is used up here, once."""
    if type(value) is tuple:
        return value
    if value is None:
        return ()
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        refuse("headers", "pairs of a str and bytes or None", value)
    return tuple(value)
