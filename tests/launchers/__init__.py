"""Real launchers that start the same program twice: what the second start goes on from."""
