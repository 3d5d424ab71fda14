"""Profiles of faults that come with Penstock."""
