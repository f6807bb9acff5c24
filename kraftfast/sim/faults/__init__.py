"""What goes wrong in a run, by chance, aimed at a moment, or by the plan of a seed."""
