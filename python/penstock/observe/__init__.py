"""Observe: what the machine and the run are doing, computed from facts."""
