"""Who votes, and how that changes: one voter at a time, by the log (KIP-853, KIP-642).

``voter_history`` holds the voter sets that the log names; ``changes`` is what all changes have in
common; ``reassignment`` goes to a target set by single moves; ``joining`` is what a follower asks
about itself.
"""
