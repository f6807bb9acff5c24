"""A producer that is told what to append: for ``kraftfast.testing.simulated``."""

from __future__ import annotations

from kraftfast.record import pure
from kraftfast.sim.clients.idempotent import PRODUCER_ID, Batch, IdempotentProducer


class UsersProducer(IdempotentProducer):
    """Appends what it is told to, and nothing of its own account."""

    def start(self) -> None:
        """Wait to be told."""

    def place_of(self, logical: Batch) -> int:
        """Return the offset of a batch that is committed, -1 of another."""
        oracle = self.world.oracle
        for batch in pure.batches(oracle.content(0, oracle.committed_end)):
            if batch.producer_id == PRODUCER_ID + self.id:
                if batch.base_sequence == logical.sequence:
                    return batch.base_offset
        return -1
