"""The voter set: who counts, who may vote, and where voters are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftfast import limits
from kraftfast.errors import InvalidOption
from kraftfast.types import ZERO_UUID, Endpoint, ReplicaKey, Voter


class VoterSet:
    """The voters in force (KIP-853; static voters of KIP-595 have no directory ids).

    Immutable. An empty set is that of an observer which does not know its voters yet.
    Raises ``InvalidOption`` for a negative or doubled id and above ``limits.VOTERS_MAX`` voters.
    """

    voters: tuple[Voter, ...]  # by ascending id
    ids: tuple[int, ...]  # the same order
    majority: int  # more than half; 1 for an empty set, which nobody can reach

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.id))
        self.ids = tuple(voter.id for voter in self.voters)
        self.majority = len(self.voters) // 2 + 1
        self._by_id = {voter.id: voter for voter in self.voters}
        if len(self.voters) > limits.VOTERS_MAX:
            raise InvalidOption(f"{len(self.voters)} voters: at most {limits.VOTERS_MAX}")
        if len(self._by_id) != len(self.voters):
            raise InvalidOption(f"a voter id is named twice: {self.ids}")
        if self.ids and self.ids[0] < 0:
            raise InvalidOption(f"a voter id is negative: {self.ids}")

    @classmethod
    def of(cls, *ids: int) -> VoterSet:
        """Static voters without directory ids and endpoints.

        >>> VoterSet.of(3, 1, 2).ids
        (1, 2, 3)
        """
        return cls(Voter(id) for id in ids)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica is one: by id, and by directory where the set names one (D19)."""
        voter = self._by_id.get(key.id)
        if voter is None:
            return False
        return voter.directory_id in (ZERO_UUID, key.directory_id)

    def get(self, voter_id: int) -> Voter | None:
        """The entry of this id, whatever its directory."""
        return self._by_id.get(voter_id)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """All voters as requests address them."""
        return tuple(voter.key for voter in self.voters)

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set and ``voter``, instead of an entry of the same id."""
        others = [each for each in self.voters if each.id != voter.id]
        return VoterSet([*others, voter])

    def without(self, voter_id: int) -> VoterSet:
        """This set but for one."""
        return VoterSet(each for each in self.voters if each.id != voter_id)

    def supports(self, kraft_version: int) -> bool:
        """Whether every voter takes this ``kraft.version``."""
        return all(
            each.kraft_version_min <= kraft_version <= each.kraft_version_max
            for each in self.voters
        )

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica is the whole set."""
        return len(self.voters) == 1 and self.is_voter(key)

    def key(self, voter_id: int) -> ReplicaKey:
        """The voter as requests address it; a zero directory id where the set has none."""
        return self._by_id[voter_id].key

    def endpoints(self, voter_id: int) -> tuple[Endpoint, ...]:
        """Where the voter listens; empty for one that is not in the set."""
        voter = self._by_id.get(voter_id)
        return () if voter is None else voter.endpoints

    def others(self, key: ReplicaKey) -> tuple[int, ...]:
        """The ids of all voters but this replica."""
        return tuple(id for id in self.ids if id != key.id)

    def rank(self, voter_id: int, without: int) -> int:
        """The voter's place by id, from 0, when the voter ``without`` does not count."""
        return sum(1 for id in self.ids if id < voter_id and id != without)

    def __contains__(self, voter_id: int) -> bool:
        return voter_id in self._by_id

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet{self.ids}"
