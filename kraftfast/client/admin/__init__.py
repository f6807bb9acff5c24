"""Change and describe a quorum: its voters, its leader, its kraft.version."""
