"""Looking for the leader again: when to pause, and when to give up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from kraftfast.errors import KraftfastError, NoQuorum, NotLeader, OutOfResources, PeerGone, TimedOut

FULL_S = 0.3
FULL_PAUSE_S = 0.1
"""Between two questions to a server that has no room; before that was said for a while, less."""

ELSEWHERE_S = 3.0
"""A leader that is named and not in reach is believed for longer than a dead one is followed."""

FEWER = "close some of them, or append from fewer producers (one serves any number of threads)"


class Full(NoQuorum):
    """The leader runs and has no slot for one more producer: waiting longer seldom helps."""


class Elsewhere(NotLeader):
    """A replica leads that cannot be reached in this way: waiting longer seldom helps."""


SETTLES_S: dict[type[KraftfastError], float] = {Full: FULL_S, Elsewhere: ELSEWHERE_S}
"""What is believed once it was said for so long."""


class Search:
    """When to give up a search for a leader; one that is ``patient`` only at its deadline."""

    # deadline, settled_by: seconds by the clock ``now``; settled_by: of answers of ``SETTLES_S``.

    def __init__(
        self,
        deadline: float,
        patient: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline, self.patient, self.now = deadline, patient, now
        self.settled_by = math.inf
        self._full_pause_s = 0.0

    def pause_s(self, error: KraftfastError, least_s: float) -> float:
        """Return how long to wait before the next attempt, after one that failed with ``error``.

        A leader that ended hangs up as one without room does, and the next one leads in a moment:
        the pauses begin with ``least_s``, and are three times as long each time.
        """
        if not isinstance(error, Full):
            self._full_pause_s = 0.0
            return least_s
        self._full_pause_s = min(max(3 * self._full_pause_s, least_s), FULL_PAUSE_S)
        return self._full_pause_s

    def tells(self, error: KraftfastError) -> bool:
        """Return whether to raise ``error`` itself once the search is over, not that none leads."""
        return isinstance(error, Full) or (isinstance(error, OutOfResources) and not self.patient)

    def is_over(self, error: KraftfastError) -> bool:
        """Return whether to look no longer, after an attempt that failed with ``error``.

        A slot that was just given up may count for a moment still, and a server that ends hangs up
        as one without room does: that is believed once it was said for a while, and so is that
        another one leads which cannot be reached.
        """
        if isinstance(error, OutOfResources) and not self.patient:
            return True  # of this process, which nothing waits for yet
        now = self.now()
        settles_s = math.inf if self.patient else SETTLES_S.get(type(error), math.inf)
        if settles_s == math.inf:
            self.settled_by = math.inf
        elif self.settled_by == math.inf:
            self.settled_by = now + settles_s
        return now >= min(self.deadline, self.settled_by)


SEARCH_GOES_ON = (NotLeader, NoQuorum, PeerGone, TimedOut, OutOfResources)
"""After these an attempt is made again, until :meth:`Search.is_over`."""


def ends_search(error: KraftfastError) -> bool:
    """Return whether it does not help to look for a leader again after this error."""
    return isinstance(error, Full) or not isinstance(error, NoQuorum)


class Pause:
    """How long to leave a search alone that has failed: ``first_s``, and where it was refused
    twice as long each time, up to ``most_s``.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self.first_s = self._next_s = first_s
        self.most_s = most_s

    def after(self, error: KraftfastError) -> float:
        """Return the seconds to pause after a search that ended with ``error``."""
        pause_s = self._next_s if ends_search(error) else self.first_s
        self._next_s = min(2 * pause_s, self.most_s)
        return pause_s
