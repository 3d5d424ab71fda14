"""A run watched while it goes on: one process reads its files, serves what they say to Prometheus, and raises alerts.

Nothing here talks to ranks. Files are followed: each look takes what was added since the one before, so a refresh costs what is new, not what
is there. The figures of a run are those of its report, by the same functions.
"""
