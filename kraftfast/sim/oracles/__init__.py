"""What must hold after every event, at the end of a run, and of the clients' histories."""
