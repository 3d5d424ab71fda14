"""Checkpoints as something to look at: differences, figures, verification, one piece at a time."""
