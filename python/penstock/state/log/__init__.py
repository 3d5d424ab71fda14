"""What stands in the log of a run and what follows from it: commits, fences, pins, retention, pruning, repair."""
