"""A replica as a child process: ``python -m kraftfast.node.processes.worker FD...``.

FD is a SOCK_SEQPACKET socket to the supervisor; for each further one the process forks a sibling
once it has imported everything, and tells their process ids over its own. The supervisor's first
message is the configuration as JSON; the worker answers ``{"ready": ...}`` or ``{"error": ...,
"exit_code": ...}``. The end of that connection, or of the process that made it (a child of it may
have inherited its end), ends the worker: no orphan holds a directory.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until what a start makes is there: collections are a tenth of it

import contextlib
import select
import socket
import sys
from functools import partial
from typing import NoReturn

import msgspec

from kraftfast import errors
from kraftfast.errors import HostUnsupported, KraftfastError, OutOfResources, lack_of_memory
from kraftfast.node.event_log import NO_REPLICA, entry_now
from kraftfast.node.local_host import KernelProcess
from kraftfast.node.loop import Loop
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.ports import OwnProcess
from kraftfast.node.processes.line import ToSupervisor

CONFIG_BYTES_MAX = 1 << 20
ORPHAN_TIMEOUT_MS = 300
ERROR_BYTES_MAX = 8_000
"""Of why a worker ends: a message that is cut is none, and the supervisor would start it again."""
CONFIG = msgspec.json.Decoder(NodeConfig)
"""Made before a sibling is forked, which needs it at once: its types are looked up when it is."""


def main(fds: list[int], process: OwnProcess) -> int:
    """Run the replica that the supervisor describes; returns the exit code.

    For each descriptor but the first there is a sibling, which does the same by that one.
    """
    if len(fds) > 1:
        fork_siblings(fds, process)
    return serve(process.open_socket(fds[0]), process)


def serve(sock: socket.socket, process: OwnProcess) -> int:
    """Do as :func:`main`, by the socket to the supervisor alone."""
    process.ignore_terminal()
    opened, node_id = False, NO_REPLICA
    told = b""
    with contextlib.suppress(OSError):
        told = sock.recv(CONFIG_BYTES_MAX)
    if not told:
        return 0  # the supervisor gave up before it said what this replica is
    try:
        config = CONFIG.decode(told)
        node_id = config.node_id
        node = process.node(config, ToSupervisor(sock, process))
        loop = process.loop(node)
        if loop.sockets is not None:
            loop.sockets.open()
        loop.door.open()
        loop.signals.handle()
        loop.watch(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP, lambda _: _told(sock, loop))
        parent = process.parent_of(sock)  # raises if it has ended meanwhile
        loop.watch(parent, select.EPOLLIN, lambda _: _orphaned(parent, loop))
        with contextlib.suppress(OSError):  # the supervisor has ended: the loop finds that out
            sock.send(msgspec.json.encode({"ready": True, "cut_bytes": node.recovered.cut_bytes}))
        opened = True
        process.settle()
        loop.run()
        return 0
    except KraftfastError as error:
        return _failed(sock, process, error)
    except OSError as error:
        if opened:
            return _defect(sock, process, node_id, error)
        return _failed(sock, process, refused_by_host(node_id, error))
    except Exception as error:
        lack = lack_of_memory(error)
        if lack:
            _failed(sock, process, OutOfResources(f"replica {node_id}: {lack}"))
            process.exit_at_once(OutOfResources.exit_code)  # as after a defect
        return _defect(sock, process, node_id, error)


def fork_siblings(fds: list[int], process: OwnProcess) -> None:
    """Fork a sibling for each descriptor but the first, and tell their process ids over that one.

    A process that has another thread (of a ``sitecustomize``, say) must not fork: it tells none.
    """
    own, *others = fds
    pids: list[int] = []
    with contextlib.suppress(OSError):
        while len(pids) < len(others) and process.is_one_thread():
            run = partial(_serve_alone, others[len(pids)], fds)
            pids.append(process.fork_sibling(run))
    with contextlib.suppress(OSError):  # the supervisor has ended: so does this process soon
        process.write(own, msgspec.json.encode(pids))
    _keep(own, fds, process)


def _serve_alone(fd: int, fds: list[int], process: OwnProcess) -> int:
    _keep(fd, fds, process)
    return serve(process.open_socket(fd), process)


def _keep(own: int, fds: list[int], process: OwnProcess) -> None:
    """Close the descriptors of other workers."""
    for fd in fds:
        if fd != own:
            process.close(fd)


def refused_by_host(id: int, error: OSError) -> HostUnsupported:
    """Return the error of a replica that cannot start since the system refused a call of it."""
    where = f" ({error.filename})" if error.filename else ""
    return HostUnsupported(
        f"replica {id} cannot start: {error.strerror or error}{where}; "
        "kraftfast doctor shows what this host lacks"
    )


def _defect(sock: socket.socket, process: OwnProcess, node_id: int, error: Exception) -> NoReturn:
    """Tell what no one foresaw, with its traceback, and end at once."""
    import traceback

    why = f"{type(error).__name__}: {error}"
    text = traceback.format_exc()
    ToSupervisor(sock, process)(entry_now("defect", node_id, why=why, traceback=text))
    _failed(sock, process, KraftfastError(f"a defect: {why}"))
    # nothing may touch the log after a broken invariant, not even a destructor
    process.exit_at_once(1)


def _told(sock: socket.socket, loop: Loop) -> None:
    try:
        data = sock.recv(CONFIG_BYTES_MAX)
    except OSError:  # a reset: it ended before it read what it was told
        data = b""
    if data:
        loop.stop(int(msgspec.json.decode(data).get("stop", 5000)))
    else:
        _orphaned(sock.fileno(), loop)


def _orphaned(fd: int, loop: Loop) -> None:
    """Record that the supervisor or embedding program is gone."""
    loop.unwatch(fd)
    loop.stop(ORPHAN_TIMEOUT_MS)


def _failed(sock: socket.socket, process: OwnProcess, error: KraftfastError) -> int:
    """Tell the supervisor why this replica ends, which it reports; return the exit code.

    Of a class that only a part knows, its nearest base is named: by that the supervisor judges
    (D9).
    """
    text = str(error).encode(errors="replace")[:ERROR_BYTES_MAX].decode(errors="ignore")
    named = (each for each in type(error).__mro__ if vars(errors).get(each.__name__) is each)
    try:
        answer = {"error": text, "type": next(named).__name__, "exit_code": error.exit_code}
        sock.send(msgspec.json.encode(answer))
    except OSError:  # the supervisor is gone: only this process knows
        process.write_line(f"kraftfast: {error}")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main([int(each) for each in sys.argv[1:]], KernelProcess()))
