"""What the leader of servers says of them, for who cannot read their pages: by their addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kraftfast.client.admin.quorum_info import QuorumInfo, ReplicaState
from kraftfast.errors import KraftfastError
from kraftfast.live.pages import Sample

ASK_S = 1.0
ANSWER_S = 3.0
SILENT_MS_MAX = 10_000
"""A replica that has not fetched for so long is shown as down."""


class RemotePages:
    """Asks a leader once a second. ``describe``: that of a quorum, with a timeout in seconds.

    Raises as the first question does.
    """

    # _samples: of the last answer, with its problem where there was none since.

    cluster_id = ""

    def __init__(self, describe: Callable[[float], QuorumInfo], timeout: float) -> None:
        self._describe = describe
        self._samples = samples_of(describe(timeout))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask_on, name="kraftfast-remote", daemon=True)
        self._thread.start()

    def _ask_on(self) -> None:
        while not self._done.wait(ASK_S):
            try:
                self._samples = samples_of(self._describe(ANSWER_S))
            except KraftfastError as error:
                now_ns = time.monotonic_ns()
                self._samples = [
                    Sample(each.id, now_ns, False, str(error)) for each in self._samples
                ]

    def samples(self) -> list[Sample]:
        """Return what the leader said last of each replica, by ascending id."""
        return self._samples

    def close(self) -> None:
        """Ask no more."""
        self._done.set()
        self._thread.join(ANSWER_S)

    def __enter__(self) -> RemotePages:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def samples_of(info: QuorumInfo) -> list[Sample]:
    """Return a sample of each replica, of an answer that came now."""
    now_ns = time.monotonic_ns()
    leader = info.find(info.leader_id)
    now_ms = -1 if leader is None else leader.last_fetch_ms
    observing = {each.id for each in info.observers}
    found = []
    for each in sorted((*info.voters, *info.observers), key=lambda each: each.id):
        error = "" if each.id == info.leader_id else silence(each, now_ms)
        role = "observer" if each.id in observing else "follower"
        words = {
            "epoch": info.epoch,
            "leader_id": info.leader_id,
            "high_watermark": info.high_watermark,
            "end_offset": each.log_end_offset,
        }
        noted = {"leader_high_watermark": info.high_watermark, "noted_ns": now_ns}
        role = "leader" if each.id == info.leader_id else role
        shown = "stopped" if error else role
        found.append(
            Sample(each.id, now_ns, not error, error, role=shown, words=words, noted=noted)
        )
    return found


def silence(each: ReplicaState, now_ms: int) -> str:
    """Return why a follower is shown as down, "" if it is not; ``now_ms``: at its leader."""
    if each.last_fetch_ms < 0:
        return "it has not fetched from this leader"
    silent_ms = now_ms - each.last_fetch_ms if now_ms >= 0 else 0
    return f"it has not fetched for {silent_ms // 1000} s" if silent_ms > SILENT_MS_MAX else ""
