"""A search through the orders in which a quorum's events can happen, over the real core.

``python -m tests.model --help``. A replica with its disk is an immutable numbered state; what an
event does to it is computed once, by the core itself (``turns``). A quorum is a tuple of such
numbers and of the messages between them (``quorum``); after each action the oracle judges it
(``oracle``). Time stands still: a timer that is over is an action (``timeless``).
"""
