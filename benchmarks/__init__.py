"""Measured claims: each file measures one, as ratios taken in one run, and prints the table it claims."""
