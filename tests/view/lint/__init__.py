"""Lint: what it finds, and what it leaves alone."""
