"""What becomes of a producer that is forgotten without a close."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast import forks
from kraftfast.client.client_host import HOST, ClientHost

if TYPE_CHECKING:
    from kraftfast.client.producer.news import News
    from kraftfast.client.producer.outcomes import Outcomes
    from kraftfast.client.producer.sender import Sender


def run_in_background(run: Callable[[], object], host: ClientHost = HOST) -> bool:
    """Run a function in a thread; return False, without it, where the interpreter ends.

    A thread that is started then never begins, and Python 3.11 waits for it for ever.
    """
    if sys.is_finalizing():
        return False
    try:
        host.thread(run, "kraftfast-close").start()
    except RuntimeError:
        return False
    return True


class Collected:
    """A part of :class:`~kraftfast.client.producer.producer.Producer`, whose fields these are."""

    host: ClientHost
    outcomes: Outcomes
    sender: Sender | None
    news: News
    _closed: bool
    _ended: bool
    _wanted: News
    close: Callable[..., None]

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or forks.pending():
            return
        warnings.warn("a producer was not closed", ResourceWarning, source=self)
        if self.outcomes.next_ticket > self.outcomes.resolved:
            if run_in_background(self.close, self.host):
                return
        self.let_go()

    def let_go(self) -> None:
        """Close at once, waiting for nothing: for a producer that no reference reaches."""
        self._closed = self._ended = True
        sender, self.sender = self.sender, None
        if sender is not None:
            sender.close()
        self.news.tell()
        self._wanted.tell()
