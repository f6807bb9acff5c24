"""The directories of a replica and of a quorum on one host: made, opened, replaced, recovered."""
