"""Folders of media: one row per file, with attributes from a table beside them."""
