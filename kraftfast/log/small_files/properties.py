"""Java properties, as ``java.util.Properties`` reads and stores them.

``meta.properties`` and ``server.properties`` are such files: UTF-8, ``key=value`` lines, comments
from ``#`` or ``!``, backslash escapes and continued lines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

BLANK = " \t\f"
ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u]|$)", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
STORED = {char: "\\" + name for name, char in ESCAPED.items()} | {
    char: "\\" + char for char in "\\=:#!"
}


def encode(fields: dict[str, str], stamp: str | None = None) -> bytes:
    """Return the file with Kafka's two comment lines; ``stamp`` is the time in the second one.

    >>> encode({"cluster.id": "a:b"}, "today").decode()
    '#\\n#today\\ncluster.id=a\\\\:b\\n'
    """
    if stamp is None:
        stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    entries = (f"{_stored(key, True)}={_stored(value, False)}" for key, value in fields.items())
    return "".join(f"{line}\n" for line in ("#", f"#{stamp}", *entries)).encode()


def _stored(text: str, is_key: bool) -> str:
    stored = "".join(STORED.get(char, char) for char in text)
    if is_key:
        return stored.replace(" ", "\\ ")
    return "\\" + stored if stored.startswith(" ") else stored


def decode(data: bytes) -> dict[str, str]:
    """Return keys and values, later ones winning. Raises ``ValueError`` for what Java refuses."""
    return {key: value for _, key, value in _entries(data)}


def doubled(data: bytes) -> dict[str, list[int]]:
    """Return the keys that stand there several times, each with the numbers of their lines.

    >>> doubled(b"a=1\\nb=2\\n# a\\na=3\\n")
    {'a': [1, 4]}
    """
    lines: dict[str, list[int]] = {}
    for number, key, _ in _entries(data):
        lines.setdefault(key, []).append(number)
    return {key: numbers for key, numbers in lines.items() if len(numbers) > 1}


def _entries(data: bytes) -> Iterator[tuple[int, str, str]]:
    """Yield the number of the line, key and value of each entry."""
    for number, line in _logical_lines(data.decode("utf-8")):
        entry = ENTRY.fullmatch(line)
        assert entry is not None, "the pattern takes any line"
        key, value = (_plain(part) for part in entry.groups())
        yield number, key, value


def _plain(text: str) -> str:
    if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text):
        raise ValueError(f"malformed \\u escape in {text!r}")
    return ESCAPE.sub(lambda found: _unescaped(found[1]), text)


def _unescaped(escape: str) -> str:
    if escape.startswith("u"):
        return chr(int(escape[1:], 16))
    return ESCAPED.get(escape, escape)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines without comments, each joined with those that continue it, and its number."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        ends = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if ends else line
        if continued:
            lines[-1] = lines[-1][0], lines[-1][1] + part
        else:
            lines.append((number, part))
        continued = ends
    return lines
