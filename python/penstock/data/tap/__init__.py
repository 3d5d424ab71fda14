"""Taps: what a training loop has in its hands, for whoever wants to look."""
