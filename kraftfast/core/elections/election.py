"""Counting votes: what prospective replicas and candidates have in common."""

from __future__ import annotations

from kraftfast.types import ReplicaKey, VoterSet


class Election:
    """The votes of one election (Kafka's ``EpochElection``).

    Invariants: the own vote, if this replica is a voter, is granted from the start and stays; only
    voters of the set vote; ``without_log`` is a part of ``rejected``.
    """

    def __init__(
        self, voters: VoterSet, local: ReplicaKey, unanimous: bool, may_flip: bool
    ) -> None:
        self.unanimous = unanimous  # an uncertain end is about (D10): every voter must grant
        self.may_flip = may_flip  # pre-votes may change, real votes never do
        self.granted: set[int] = set()
        self.rejected: set[int] = set()
        # of the rejected: for a doubt alone, by voters without a log (D23)
        self.without_log: set[int] = set()
        self._local_id = local.id
        self.adopt(voters, local)  # voter_ids; needed: how many votes win; _own: the own vote

    def record(self, voter_id: int, granted: bool, without_log: bool = False) -> bool:
        """Count a vote; False if it does not count: not of a voter, or a real vote that flips."""
        if voter_id not in self.voter_ids or voter_id == self._local_id:
            return False
        mine, other = (self.granted, self.rejected) if granted else (self.rejected, self.granted)
        if voter_id in other:
            if not self.may_flip:
                return False
            other.discard(voter_id)
        mine.add(voter_id)
        if without_log and not granted:
            self.without_log.add(voter_id)
        else:
            self.without_log.discard(voter_id)
        return True

    def adopt(self, voters: VoterSet, local: ReplicaKey) -> None:
        """Count by this voter set from now on: only its members vote, and its majority wins."""
        self.voter_ids = voters.ids
        self._own = {local.id} if voters.is_voter(local) else set()
        self.granted = (self.granted & set(voters.ids)) - {local.id} | self._own
        self.rejected &= set(voters.ids)
        self.without_log &= self.rejected
        self.needed = len(voters) if self.unanimous else voters.majority

    def ask_again(self) -> None:
        """Forget the answers of the others, so that they are asked again; for pre-votes only."""
        assert self.may_flip, "a real vote is given once"
        self.granted = set(self._own)
        self.rejected = set()
        self.without_log = set()

    def is_won(self) -> bool:
        """Return whether enough voters granted."""
        return len(self.granted) >= self.needed

    def is_lost(self, without: int = 0) -> bool:
        """Return whether the outstanding votes are too few to win.

        ``without``: how many of them are of voters known dead.
        """
        return len(self.voter_ids) - len(self.rejected) - without < self.needed

    def unrecorded(self) -> tuple[int, ...]:
        """Return the voters that have not answered."""
        return tuple(
            id
            for id in self.voter_ids
            if id not in self.granted and id not in self.rejected and id != self._local_id
        )
