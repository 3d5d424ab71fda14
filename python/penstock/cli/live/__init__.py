"""Runs on a terminal while they train."""
