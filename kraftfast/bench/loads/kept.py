"""A state machine whose state, and so its snapshot, is as large as all values together."""

from __future__ import annotations

from kraftfast import BatchView, SnapshotReader, SnapshotWriter, StateMachine


class Kept(StateMachine):
    """Keeps every value."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, batch: BatchView) -> None:
        """Add the values of a batch."""
        self.values += [record.value or b"" for record in batch.records()]

    def snapshot(self, writer: SnapshotWriter) -> None:
        """Write every value."""
        for value in self.values:
            writer.append(value)

    def restore(self, reader: SnapshotReader) -> None:
        """Take every value of a snapshot."""
        self.values = [record.value or b"" for record in reader.records()]

    def query(self) -> int:
        """Return how many there are."""
        return len(self.values)
