"""Directories of quorums that cannot be made, found or changed as they are: each refusal says why.

What is beside the quorum that :class:`QuorumMaking` makes: paths that are none, halves of other
quorums, replicas of several, a lock that another process holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from kraftfast.errors import (
    DirectoryInUse,
    ForeignDirectory,
    InvalidOption,
    KraftfastError,
    NotFormatted,
)
from kraftfast.log.small_files.directory import (
    LogOptions,
    MetaProperties,
    format_directory,
)
from kraftfast.node.storage.description import (
    LOCK,
    Description,
    HeldLock,
    forget_replacements,
    raise_kraft_version,
    read_description,
)
from kraftfast.node.storage.local_layout import (
    PLAN,
    LiveDirectories,
    add_to_description,
    format_replica,
    open_or_format,
    quorum_path,
    set_others_aside,
    shared_device_text,
)
from kraftfast.node.storage.lost_description import lost_description
from kraftfast.sim.operators.making import PLACE, QuorumMaking
from kraftfast.sim.require import expect

ELSEWHERE = "/half-made"
OTHERS_ID = 30
"""Of a replica of another quorum."""
NO_PATHS: tuple[Any, ...] = (7, "", b"/quorum", "a\0b", "/\udcff")


class MakingMore(QuorumMaking):
    """See the module."""

    def _refuse(self, voters: int) -> None:
        super()._refuse(voters)
        for each in (
            self._no_options, self._half_made, self._of_another, self._held, self._live,
            self._noted, self._set_aside_again,
        ):  # fmt: skip
            if self._random.random() < 0.6:
                each()
        known = read_description(PLACE, self.host)
        expect(known.voters == list(range(1, voters + 1)), f"D19: {known.voters} vote in the end")

    def _raises(self, kind: type[KraftfastError], call: Callable[[], object], what: str) -> None:
        try:
            call()
        except kind:
            return
        expect(False, f"{kind.__name__} was to be raised: {what}")

    def _no_options(self) -> None:
        """Ask for what no quorum has: nothing is made."""
        host = self.host
        for path in NO_PATHS:
            self._raises(InvalidOption, partial(quorum_path, path, host), "no path")
        wrong: tuple[dict[str, Any], ...] = (
            {"records": "some"}, {"kraft_version": 7}, {"voters": 0}, {"voters": 1_000},
            {"durability": "hope"},
        )  # fmt: skip
        for each in wrong:
            asked = {"voters": 3, "durability": None, "records": None, "kraft_version": 1} | each
            call = partial(open_or_format, ELSEWHERE, **asked, host=host)
            self._raises(InvalidOption, call, f"{each}")
            expect(not self.disk.exists(f"{ELSEWHERE}/quorum.json"), f"{each} makes a quorum")
        for id in (-1, 2**31):
            self._raises(InvalidOption, partial(add_to_description, PLACE, id, host), "an id")
        self._raises(NotFormatted, lambda: read_description(ELSEWHERE, host), "no quorum")

    def _half_made(self) -> None:
        """Find what another start left, with a plan that is not of what is there."""
        host, disk = self.host, self.disk
        open_or_format(ELSEWHERE, 2, None, None, 1, host=host)
        file, plan = f"{ELSEWHERE}/quorum.json", os.path.join(ELSEWHERE, PLAN)
        data = disk.read_file(file)
        disk.unlink(file)

        def start() -> tuple[Description, bool]:
            return open_or_format(ELSEWHERE, 2, None, None, 1, host=host)

        disk.replace_file(plan, b"{")
        self._raises(ForeignDirectory, start, "a plan that does not parse")
        topic = read_description(PLACE, host).topic
        planned = {"log_name": f"{topic}-0", "directory_ids": {1: "A" * 22}}
        disk.replace_file(plan, msgspec.json.encode(planned))
        self._raises(ForeignDirectory, start, "a plan of another quorum")
        disk.unlink(plan)
        self._raises(ForeignDirectory, start, "replicas without a plan")
        disk.replace_file(file, data)
        known, is_new = start()
        expect(known.voters == [1, 2] and not is_new, "D19: it is there again")

    def _of_another(self) -> None:
        """A replica of another quorum in this directory is neither taken nor spoken for."""
        host, disk, directory = self.host, self.disk, f"{PLACE}/{OTHERS_ID}"
        meta = MetaProperties("another", OTHERS_ID, bytes(range(16)))
        if not disk.exists(directory):
            format_directory(disk, directory, meta, LogOptions())  # type: ignore[arg-type]
        self._raises(
            ForeignDirectory, lambda: add_to_description(PLACE, OTHERS_ID, host), "another's"
        )
        self._raises(ForeignDirectory, lambda: lost_description(PLACE, host), "two clusters")
        disk.rename(directory, f"{PLACE}/aside")
        disk.sync_directory(PLACE)
        known = read_description(PLACE, host)
        alone = msgspec.structs.replace(known, voters=[1], added=[])
        self._raises(
            NotFormatted, lambda: format_replica(PLACE, alone, 1, host=host), "no other is there"
        )
        disk.rename(f"{PLACE}/aside", f"/aside-{OTHERS_ID}")

    def _held(self) -> None:
        """Wait for the lock of another process that changes the quorum, and give up."""
        held = HeldLock(PLACE, LOCK, self.host)
        try:
            self._raises(
                DirectoryInUse, lambda: add_to_description(PLACE, None, self.host), "it is held"
            )
        finally:
            held.release()
        held.release()  # a second one does nothing

    def _live(self) -> None:
        """Look at the replicas as a client does that goes by the quorum's directory."""
        live = LiveDirectories(PLACE, self.host)
        known = read_description(PLACE, self.host).replicas
        expect(list(live) == known and len(live) == len(known), f"{list(live)} of {known} live")
        expect(known[0] in live and live.get(known[0]) == live[known[0]], "the first one is there")
        expect(54_321 not in live and live.get(-1) is None, "nobody else is")
        self._raises(InvalidOption, lambda: live[12345], "an id that is not there")
        expect("one device" in shared_device_text(known), "it says so")

    def _noted(self) -> None:
        """Note what is known of a quorum, once and again: only what grows changes anything."""
        for version in (0, 1, 0):
            raise_kraft_version(PLACE, version, self.host)
        expect(read_description(PLACE, self.host).kraft_version == 1, "kraft.version goes back")
        forget_replacements(PLACE, None, self.host)

    def _set_aside_again(self) -> None:
        """Leave one replica of another quorum twice: what was set aside before stays."""
        if not self.disk.exists(f"{ELSEWHERE}/quorum.json"):
            open_or_format(ELSEWHERE, 2, None, None, 1, host=self.host)
        first = set_others_aside(ELSEWHERE, 1, self.host)
        add_to_description(ELSEWHERE, 2, self.host)
        second = set_others_aside(ELSEWHERE, 1, self.host)
        expect(not {*first} & {*second}, f"{second} is where {first} was set aside")
