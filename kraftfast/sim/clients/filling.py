"""A producer whose records look like what the log itself writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.limits import PAGE_BYTES
from kraftfast.record import pure
from kraftfast.sim.clients.clients import Append, SimProducer

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process

PAGE_MAGIC = (0x3147455354534146).to_bytes(8, "little")
"""What the last page of a prepared file begins with (``KF_PAGE_MAGIC``)."""


class FillingProducer(SimProducer):
    """Each batch ends with a page of its own; every other begins as the last of a prepared file."""

    def _next(self, target: Process) -> Append:
        active, least = target.log.active, PAGE_BYTES + 200
        wanted = least + -(active.position + least) % PAGE_BYTES
        self._number += 1
        name = b"p%d:%d:" % (self.id, self._number)
        value = name + b"f" * wanted
        for _ in range(3):  # how long its length is told depends on its length
            value = name + b"f" * (len(value) - len(name) - len(self._batch(value)) + wanted)
        at = wanted - PAGE_BYTES - self._batch(value).index(name)
        if len(self._batch(value)) == wanted and self.world.random.random() < 0.5:
            value = value[:at] + PAGE_MAGIC + value[at + len(PAGE_MAGIC) :]
        return Append(self, self._number, [value], self._batch(value), False)

    def _batch(self, value: bytes) -> bytes:
        return pure.encode_batch(pure.values_to_records([value], self.world.now_us // 1000))
