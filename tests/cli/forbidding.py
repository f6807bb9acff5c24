"""Run a program whose system calls a seccomp profile refuses, as one of a container does."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {
        "memfd_create": 319, "pidfd_open": 434, "eventfd2": 290, "epoll_create1": 291,
        "socketpair": 53, "fallocate": 285, "renameat2": 316, "madvise": 28,
        "sched_setaffinity": 203, "bind": 49, "fdatasync": 75,
    },
    "aarch64": {
        "memfd_create": 279, "pidfd_open": 434, "eventfd2": 19, "epoll_create1": 20,
        "socketpair": 199, "fallocate": 47, "renameat2": 276, "madvise": 233,
        "sched_setaffinity": 122, "bind": 200, "fdatasync": 83,
    },
}.get(platform.machine(), {})  # fmt: skip
"""Name of a system call -> its number here; empty where they are not known."""
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = [("count", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def forbid(code: int, names: list[str]) -> None:
    """Have these calls fail with ``code``, in this process and in those that it starts."""
    steps = [(LOAD_NUMBER, 0, 0, 0)]
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        steps.append((JUMP_IF_EQUAL, left, 0, NUMBERS[name]))
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE | code)]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = Program(len(steps), ctypes.cast(packed, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no seccomp here")


if __name__ == "__main__":
    forbid(getattr(errno, sys.argv[1]), sys.argv[2].split(","))
    os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
