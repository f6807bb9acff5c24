"""The pages of exceptions, exit codes and Kafka's error codes, from ``kraftfast/errors.py``."""

from __future__ import annotations

import inspect
import re
import signal

from kraftfast import errors
from kraftfast.cli import root
from kraftfast.errors import ErrorCode, KraftfastError

EXCEPTIONS = """# Errors and exit codes

Every error that kraftfast raises is a `kraftfast.KraftfastError`. The name of each is an attribute
of `kraftfast` (`kraftfast.NoQuorum`). A command that fails prints one line on stderr and ends with
the exit code of its error; `kraftfast --debug` prints the traceback too.

What matters first is whether a record was appended:

| error | the record |
| --- | --- |
| `NotLeader`, `NoQuorum`, `TimedOut`, any `LocalError` | was not appended |
| `UnknownOutcome`, `ProducerFenced` | may be committed or not; of many, `handed_over` were sent |

## Exceptions

| exception | is a | exit code | meaning |
| --- | --- | --- | --- |
"""
OTHER = """
## Other exit codes of the command line

| exit code | meaning |
| --- | --- |
| 0 | success |
"""
CODES = """# Kafka's error codes

The codes that replicas and servers put into responses, with Kafka's names and numbers. Clients of
`kraftfast` raise `RequestRefused` with the code in `code`, unless an exception of its own says
more.

| code | name |
| --- | --- |
"""


def one_cell(what: type) -> str:
    """Return the docstring of a class as the cell of a table."""
    text = inspect.getdoc(what) or ""
    plain = re.sub(r":(?:meth|class|func|data|attr):", "", text)
    return " ".join(plain.replace("``", "`").replace("|", "\\|").split())


def exceptions_page() -> str:
    """Return the page of exceptions and exit codes."""
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, KraftfastError)
    ]
    rows = [
        f"| `{each.__name__}` | {base_of(each)} | {each.exit_code} | {one_cell(each)} |"
        for each in found
    ]
    codes = {
        root.EXIT_INTERNAL: "a failure that nobody foresaw: please report it",
        root.EXIT_OUTPUT: "stdout cannot be written",
        root.EXIT_INTERRUPTED: "Ctrl-C (SIGINT)",
        root.EXIT_PIPE: "the reader of stdout ended (SIGPIPE)",
        root.Terminated(signal.SIGHUP).exit_code: "SIGHUP: the terminal was closed",
        root.Terminated().exit_code: "SIGTERM",
    }
    others = [f"| {code} | {meaning} |" for code, meaning in codes.items()]
    return EXCEPTIONS + "\n".join(rows) + "\n" + OTHER + "\n".join(others) + "\n"


def base_of(each: type) -> str:
    """Return the name of the kraftfast exception that this one derives from."""
    base = each.__bases__[0]
    return f"`{base.__name__}`" if issubclass(base, KraftfastError) else ""


def codes_page() -> str:
    """Return the page of Kafka's error codes."""
    return CODES + "\n".join(f"| {int(code)} | `{code.name}` |" for code in ErrorCode) + "\n"
