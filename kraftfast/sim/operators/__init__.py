"""Programs that make, supervise and repair quorums, and operators who change the voters."""
