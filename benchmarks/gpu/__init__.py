"""Measurements on an accelerator; each prints one JSON document, kept beside it as a table."""
